"""Texts to statements: names resolved, conditions sorted; faults name line, column, token and what is allowed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.query import Schema, SqlFault, analyse
from nova.query.statement import Statement
from nova.query.windows import Interval, Tumbling

STREAMS = {
    "bids": Schema({"auction": None, "price": None, "bidder": 3}, {"region": 2}, {"at": "time"}),
    "auctions": Schema({"id": None, "category": 4}, {"region": 2}),
    "persons": Schema({"pid": None, "name": None}),
}
WINDOW = "TUMBLE(b.time, INTERVAL '10' SECOND) = TUMBLE(a.time, INTERVAL '10' SECOND)"


def of(sql: str) -> Statement:
    return analyse(sql, STREAMS)


def texts(parts: object) -> list[str]:
    return [part.sql() for part in parts]  # type: ignore[attr-defined]


def test_conditions_go_where_they_are_checked() -> None:
    found = of(
        f"""SELECT b.price FROM bids b JOIN auctions a ON b.auction = a.id AND {WINDOW} AND a.category > 1
            WHERE price > 10 AND b.price > a.id AND (bidder = 'ann' AND at IS NOT NULL)"""
    )
    assert texts(found.filters["b"]) == ["b.price > 10", "b.bidder = 'ann'", "NOT b.time IS NULL"]
    assert texts(found.filters["a"]) == ["a.category > 1"]
    (join,) = found.joins
    assert [(key.left.sql(), key.right.sql()) for key in join.keys] == [("b.auction", "a.id")]
    assert texts(join.residual) == ["b.price > a.id"]
    assert join.window == Tumbling(10_000_000, 10_000_000)


def test_what_an_outer_join_keeps_is_not_filtered_before_it() -> None:
    found = of(
        f"""SELECT b.price FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND {WINDOW} AND a.category = 2
            AND b.price > 1 WHERE b.price < 9 AND a.id > 3"""
    )
    assert texts(found.filters["a"]) == ["a.category = 2"]
    assert texts(found.filters["b"]) == ["b.price < 9"]
    assert texts(found.joins[0].residual) == ["b.price > 1"]
    assert texts(found.where) == ["a.id > 3"]


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("b.time BETWEEN a.time - INTERVAL '5' SECOND AND a.time + INTERVAL '1' MINUTE", -5, 60),
        ("b.time >= a.time AND b.time - INTERVAL '2' SECOND <= a.time", 0, 2),
        ("a.time < b.time AND a.time + INTERVAL '7' SECOND > b.time", 0, 7),
    ],
)
def test_intervals_in_every_way_they_are_written(condition: str, low: int, high: int) -> None:
    window = of(f"SELECT b.price FROM bids b JOIN auctions a ON b.auction = a.id AND {condition}").joins[0].window
    assert window == Interval("b", "a", low * 1_000_000, high * 1_000_000)


def test_windows_slide_and_have_two_names() -> None:
    hop = "HOP({0}.time, INTERVAL '1' SECOND, INTERVAL '4' SECOND)"
    spark = "window({0}.time, '4 seconds', '1 second')"
    for text in (hop, spark):
        on = f"{text.format('b')} = {text.format('a')}"
        found = of(f"SELECT window_end, b.price FROM bids b JOIN auctions a ON {on}")
        assert found.joins[0].window == Tumbling(4_000_000, 1_000_000)


def test_six_streams_of_any_kind_of_join_are_understood() -> None:
    found = of(
        f"""SELECT p.name, count(*) AS n FROM bids b JOIN auctions a ON b.auction = a.id AND {WINDOW}
            FULL JOIN persons p ON p.pid = b.bidder AND p.time BETWEEN b.time AND b.time + INTERVAL '1' HOUR
            GROUP BY TUMBLE(b.time, INTERVAL '1' MINUTE), p.name HAVING n > 2"""
    )
    assert [join.kind for join in found.joins] == ["inner", "full"]
    assert found.group is not None
    assert texts(found.group.keys) == ["p.name"]


def test_names_are_found_in_any_case_and_stars_are_told_apart() -> None:
    found = of(f"SELECT *, B.Price + 1, a.ID AS n FROM Bids b JOIN auctions a ON {WINDOW} WHERE PRICE > 1")
    names = [name for name, _ in found.select]
    assert names[:3] == ["b_source", "b_time", "b_value"]
    assert names[-2:] == ["B.Price + 1", "n"]
    assert {"auction", "price", "id", "a_time"} <= set(names)
    assert texts(found.filters["b"]) == ["b.price > 1"]


GROUPED = "SELECT window_start AS w, bidder, count(*) AS n FROM bids GROUP BY TUMBLE(time, INTERVAL '5' SECOND), bidder"
FAULTS = [
    ("SELECT price FORM bids", 1, 19, "bids", "not expected"),
    ("SELECT pryce FROM bids", 1, 8, "pryce", "no such column; there are source, time, value, auction, price"),
    ("SELECT price\nFROM bidz", 2, 6, "bidz", "the streams are bids, auctions, persons"),
    ("SELECT 'x FROM bids", 1, 8, "'x", "no end"),
    ("SELECT price FROM bids WHERE (price = 1", 1, 39, "1", ") expected"),
    ("SELECT price FROM bids ORDER BY price", 1, 33, "price", "ORDER BY is not part of the dialect"),
    ("SELECT price FROM bids WHERE price IN (SELECT 1)", 1, 47, "1", "stands in FROM or JOIN"),
    (f"SELECT region FROM bids b JOIN auctions a ON {WINDOW}", 1, 8, "region", "say which, as b.region"),
    ("SELECT b.price FROM bids b JOIN auctions a ON b.auction = a.id", 1, 33, "auctions", "needs a window"),
    (f"SELECT sum(price) AS s FROM bids b JOIN auctions a ON {WINDOW}", 1, 8, "sum", "need GROUP BY with a window"),
    (
        f"SELECT count(*) AS n FROM bids b JOIN auctions a ON {WINDOW} GROUP BY b.bidder",
        1,
        None,
        None,
        "needs a window",
    ),
    (
        f"SELECT b.price, count(*) AS n FROM bids b JOIN auctions a ON {WINDOW} GROUP BY window_start",
        1,
        8,
        "b",
        "neither grouped by nor inside an aggregate",
    ),
    ("SELECT b.price FROM bids b JOIN bids c ON true", 1, 33, "bids", "needs a window"),
    ("SELECT y FROM (SELECT price FROM bids) x", 1, 8, "y", "no such column; the query inside has price"),
    (
        f"SELECT b.y FROM (SELECT price, time FROM bids) b JOIN auctions a ON {WINDOW}",
        1,
        8,
        "b",
        "there are price, time",
    ),
    (f"SELECT b.n FROM ({GROUPED}) b JOIN auctions a ON {WINDOW}", 1, None, None, "no such column; b has w, bidder, n"),
    ("SELECT DISTINCT price FROM bids", 1, 8, "DISTINCT", "needs window_start or window_end"),
    ("SELECT price FROM bids TABLESAMPLE (10 PERCENT)", 1, 19, "bids", "TABLESAMPLE is not part"),
    ("SELECT * EXCEPT (pryce) FROM bids", 1, 18, "pryce", "a column of one of bids expected"),
    ("SELECT x FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(time), 1, 2))", 1, 15, "TABLE", "TUMBLE"),
    (
        "SELECT TUMBLE_START(time, INTERVAL '3' SECOND) AS w FROM bids GROUP BY TUMBLE(time, INTERVAL '5' SECOND)",
        1,
        8,
        "TUMBLE_START",
        "another window than this",
    ),
    (f"SELECT y FROM ({GROUPED}) x", 1, 8, "y", "no such column; the query inside has w, bidder, n"),
    (f"SELECT z.w FROM ({GROUPED}) x", 1, 8, "z", "nothing is called z"),
    (f"SELECT bidder, max(n) AS m FROM ({GROUPED}) x GROUP BY bidder", 1, None, None, "GROUP BY needs the window"),
    (f"SELECT max(n) AS m FROM ({GROUPED}) x", 1, 8, "max", "GROUP BY needs the window"),
    (f"SELECT n, rank() OVER (ORDER BY n) AS r FROM ({GROUPED}) x", 1, 11, "rank", "add w"),
    ("SELECT price FROM bids; SELECT 1", 1, 32, "1", "one query expected"),
    ("DELETE FROM bids", 1, 13, "bids", "begins with SELECT"),
    ("", 1, 1, "", "empty"),
]


@pytest.mark.parametrize(("sql", "line", "column", "token", "told"), FAULTS)
def test_faults_name_line_column_token_and_what_is_allowed(
    sql: str, line: int, column: int | None, token: str | None, told: str
) -> None:
    with pytest.raises(SqlFault, match=re.escape(told)) as caught:
        of(sql)
    assert caught.value.line == line
    if column is not None:
        assert (caught.value.column, caught.value.token) == (column, token)


@given(st.text(alphabet="SELECTFROMbids aprice,*()='1.<>\n`\"", max_size=60))
def test_any_text_is_understood_or_refused_in_words(text: str) -> None:
    try:
        of(text)
    except SqlFault as fault:
        told = fault
    else:
        return
    assert told.message
    assert told.line >= 1
