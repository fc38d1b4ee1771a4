"""Ranks of rows become queries around the groups of a window, or are refused in words."""

from __future__ import annotations

import re

import duckdb
import pytest
import sqlglot

from nova.query import Schema, SqlFault, analyse
from nova.query.layers import layers_sql

STREAMS = {
    "bids": Schema({"auction": None, "price": None}, {}, {"at": "time"}),
    "auctions": Schema({"id": None}, {}, {"at": "time"}),
    "clicks": Schema({}, known=False),
}
SIZE = "INTERVAL '10' SECOND"
FIRST = "row_number() OVER (PARTITION BY {} ORDER BY price DESC) AS place"


def test_rows_are_groups_of_all_their_columns() -> None:
    found = analyse(
        f"""SELECT auction, at, place FROM (SELECT *, {FIRST.format("window_start, auction")}
            FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE}))) WHERE place = 1""",
        STREAMS,
    )
    assert found.group is not None
    assert [key.sql() for key in found.group.keys] == [
        "bids.source",
        "bids.time",
        "bids.value",
        "bids.auction",
        "bids.price",
    ]
    text = layers_sql(found.layers)
    assert "EXPLODE(ARRAY_REPEAT(0, CAST(_n AS INT)))" in text
    assert "OVER (PARTITION BY window_start, _k3 ORDER BY _k4 DESC) AS `place`" in text


def test_joined_rows_by_the_window_that_the_text_names() -> None:
    found = analyse(
        f"""SELECT a.id, {FIRST.format(f"TUMBLE_START(a.at, {SIZE})")} FROM auctions a JOIN bids b ON a.id = b.auction
            AND b.at BETWEEN a.at AND a.at + {SIZE}""",
        STREAMS,
    )
    assert found.group is not None
    assert found.group.window.size_us == 10_000_000
    assert [key.sql() for key in found.group.keys] == ["a.id", "b.price"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"SELECT {FIRST.format('auction')} FROM bids", "OVER needs the window, as its rows never end"),
        (
            f"SELECT {FIRST.format('auction')} FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE}))",
            "PARTITION BY needs the window, as its groups never end: add window_end or window_start",
        ),
        (
            f"SELECT *, {FIRST.format('window_start')} FROM TUMBLE(clicks, time, {SIZE})",
            "name the columns whose rows are ranked",
        ),
        (
            f"SELECT {FIRST.format('window_start')}, count(*) AS n FROM bids GROUP BY TUMBLE(at, {SIZE}), price",
            "OVER stands in a query without GROUP BY, or around one",
        ),
    ],
)
def test_what_is_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlFault, match=re.escape(message)):
        analyse(sql, STREAMS)


def test_layers_give_each_row_its_rank_as_often_as_it_came() -> None:
    """Groups and layers as DuckDB works them out, beside the text over the rows themselves."""
    found = analyse(
        f"""SELECT auction, price, place FROM (SELECT auction, price, {FIRST.format("window_start, auction")}
            FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE}))) WHERE place <= 3""",
        STREAMS,
    )
    layers = sqlglot.transpile(layers_sql(found.layers), read="spark", write="duckdb")[0]
    layers = layers.replace("ARRAY_REPEAT(0, TRY_CAST(_n AS INT))", "range(_n)")
    rows = "(SELECT k % 3 AS auction, k * 7 % 5 AS price, k // 20 AS w FROM range(60) t(k))"
    groups = f"SELECT w AS window_start, auction AS _k0, price AS _k1, count(*) AS _n FROM {rows} GROUP BY ALL"
    plain = f"SELECT auction, price, {FIRST.format('w, auction')} FROM {rows} QUALIFY place <= 3"
    with duckdb.connect() as base:
        base.execute(f"CREATE VIEW _nova_groups AS {groups}")
        assert sorted(base.execute(layers).fetchall()) == sorted(base.execute(plain).fetchall())
