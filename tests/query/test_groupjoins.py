"""Joins of groups become one query that groups by a window and a layer over its groups, or are refused in words."""

from __future__ import annotations

import re

import pytest

from nova.query import Schema, SqlFault, Statement, analyse
from nova.query.layers import layers_sql

STREAMS = {
    "bids": Schema({"auction": None, "price": None, "bidder": 3}, {}, {"at": "time"}),
    "auctions": Schema({"id": None, "category": 4}, {}, {"at": "time"}),
}
SIZE = "INTERVAL '10' SECOND"


def groups(stream: str, columns: str, keys: str = "", where: str = "") -> str:
    """A query in brackets that groups a stream by windows of ten seconds."""
    return (
        f"(SELECT window_start AS w, window_end AS e{columns and f', {columns}'} FROM {stream} {where} "
        f"GROUP BY TUMBLE(at, {SIZE}){keys and f', {keys}'})"
    )


def of(sql: str) -> Statement:
    return analyse(sql, STREAMS)


def test_groups_of_one_stream_are_made_once_and_joined_in_a_layer() -> None:
    found = of(
        f"""SELECT l.auction, l.n FROM {groups("bids", "auction, count(*) AS n", "auction")} l
            JOIN {groups("bids b", "max(b.price) AS top, count(*) AS n")} r ON l.w = r.w AND l.n > r.top"""
    )
    assert [part.sql() for _, part in found.select[2:]] == ["bids.auction", "COUNT(*)", "MAX(bids.price)"]
    assert found.joins == ()
    text = layers_sql(found.layers)
    assert text.count("`_nova_groups`") == 2
    assert "SELECT _w0 AS `w`, _w1 AS `e`, MAX(_a1) AS `top`, SUM(_a0) AS `n`" in text


def test_a_stream_meets_the_groups_of_its_window_with_both_ends() -> None:
    found = of(
        f"""SELECT b.price FROM bids b JOIN {groups("bids", "max(price) AS top")} m ON b.price = m.top
            AND b.at >= m.w AND b.at <= m.w + {SIZE}"""
    )
    assert found.group is not None
    assert found.group.closed
    assert [key.sql() for key in found.group.keys] == ["bids.price", "bids.time"]


def test_groups_of_different_streams_are_grouped_after_their_join() -> None:
    found = of(
        f"""SELECT b.auction, b.top FROM {groups("bids", "auction, max(price) AS top", "auction", "WHERE price > 1")} b
            JOIN {groups("auctions", "id", "id")} a ON a.id = b.auction AND a.w = b.w WHERE b.top > a.id"""
    )
    assert [(key.left.sql(), key.right.sql()) for key in found.joins[0].keys] == [("b.auction", "a.id")]
    assert [part.sql() for part in found.filters["b"]] == ["b.price > 1"]
    assert [part.sql() for _, part in found.select[2:]] == ["b.auction", "a.id", "MAX(b.price)"]
    assert "_a0 > _k1" in layers_sql(found.layers)


FINE, COARSE = groups("bids", "auction, count(*) AS n", "auction"), groups("bids", "count(*) AS n")
OTHER = groups("auctions", "id", "id")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"SELECT l.n FROM {FINE} l JOIN {COARSE} r ON l.n = r.n", "groups are joined within one window: add ON r."),
        (f"SELECT l.n FROM {FINE} l JOIN {COARSE} r ON l.w = r.e", "groups are joined within one window"),
        (f"SELECT l.n FROM {FINE} l FULL JOIN {COARSE} r ON l.w = r.w", "groups are joined by INNER or LEFT JOIN"),
        (f"SELECT l.y FROM {FINE} l JOIN {COARSE} r ON l.w = r.w", "at 'l': no such column; l has w, e, auction, n"),
        (f"SELECT n FROM {FINE} l JOIN {COARSE} r ON l.w = r.w", "at 'n': say whose column it is, as in l.n"),
        (f"SELECT max(l.n) AS m FROM {FINE} l JOIN {COARSE} r ON l.w = r.w", "at 'max': GROUP BY needs the window"),
        (
            f"SELECT l.n FROM {FINE} l JOIN {groups('bids', 'stddev(price) AS m')} r ON l.w = r.w",
            "at 'stddev': where groups of different keys are joined, those with fewer keys have count, sum, avg, min",
        ),
        (
            f"SELECT l.n FROM {FINE} l JOIN {OTHER} r ON l.w = r.w AND l.auction = r.id",
            "at 'count': where groups of different streams are joined, they have min, max and DISTINCT",
        ),
        (f"SELECT r.id FROM bids l JOIN {OTHER} r ON l.auction = r.id", "at 'bids': a stream is joined with groups of"),
        (
            f"SELECT l.price FROM bids l JOIN {COARSE} r ON l.price = r.n",
            "at 'bids': a stream is joined with groups of",
        ),
        (
            f"""SELECT l.price FROM bids l JOIN {COARSE} r ON l.price = r.n AND l.at BETWEEN r.w - {SIZE} AND r.e""",
            "a stream is joined with groups of its own windows",
        ),
    ],
)
def test_what_would_not_give_the_same_rows_is_refused(text: str, told: str) -> None:
    with pytest.raises(SqlFault, match=re.escape(told)):
        of(text)
