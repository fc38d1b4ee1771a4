"""Other spellings of a query are the query that the dialect writes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nova.query import Schema, SqlFault, Statement, analyse

STREAMS = {
    "bids": Schema({"auction": None, "price": None, "bidder": 3}, {}, {"at": "time"}),
    "auctions": Schema({"id": None, "category": 4}, {}, {"at": "time"}),
}
SIZE = "INTERVAL '10' SECOND"
SAME = f"TUMBLE({{0}}.at, {SIZE}) = TUMBLE({{1}}.at, {SIZE})"
GROUPS = f"SELECT window_start, bidder, count(*) AS n FROM bids GROUP BY TUMBLE(at, {SIZE}), bidder"
JOINED = f"SELECT b.price, a.id FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format('b', 'a')}"


def of(sql: str) -> Statement:
    """A statement without its text."""
    return replace(analyse(sql, STREAMS), sql="")


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (
            f"""SELECT window_start, bidder, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE}))
                GROUP BY window_start, window_end, bidder""",
            GROUPS,
        ),
        (
            f"""SELECT bids.window_start AS window_start, bidder, count(*) AS n
                FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE})) GROUP BY bids.window_start, bidder""",
            GROUPS,
        ),
        (
            f"""SELECT b.price, a.id FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE})) b
                JOIN TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), {SIZE})) a
                ON b.auction = a.id AND b.window_start = a.window_start""",
            JOINED,
        ),
        (
            f"""SELECT TUMBLE_START(at, {SIZE}) AS window_start, bidder, count(*) AS n FROM bids
                GROUP BY TUMBLE(at, {SIZE}), bidder""",
            GROUPS,
        ),
        (
            f"""SELECT window_start, bidder, count(*) AS n FROM TUMBLE(bids, at, {SIZE})
                GROUP BY window_start, window_end, bidder""",
            GROUPS,
        ),
        (f"SELECT TUMBLE_START(at, {SIZE}) AS window_start, bidder, count(*) AS n FROM bids GROUP BY 1, 2", GROUPS),
        (
            f"SELECT TUMBLE_START(at, {SIZE}) AS window_start, bidder, count(*) AS n FROM bids GROUP BY 1, bidder",
            GROUPS,
        ),
        (
            """SELECT window(at, '10 seconds').start AS window_start, bidder, count(*) AS n FROM bids
               GROUP BY window_start, bidder""",
            GROUPS,
        ),
        (
            f"""SELECT window_start, bidder, count(*) AS n FROM (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at),
                {SIZE}))) GROUP BY window_start, window_end, bidder""",
            GROUPS,
        ),
        (
            f"""SELECT l.price, r.id FROM (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), {SIZE}))) l
                JOIN (SELECT id, window_start, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), {SIZE}))) r
                ON l.auction = r.id AND l.window_start = r.window_start AND l.window_end = r.window_end""",
            JOINED.replace("b.", "l.")
            .replace("a.", "r.")
            .replace("bids b", "bids l")
            .replace("auctions a", "auctions r"),
        ),
        (
            """SELECT window.start AS window_start, bidder, count(*) AS n FROM bids
               GROUP BY window(at, '10 seconds'), bidder""",
            GROUPS,
        ),
        (
            """SELECT window(at, '10 seconds').start AS window_start, bidder, count(*) AS n FROM bids
               GROUP BY window(at, '10 seconds'), bidder""",
            GROUPS,
        ),
        (
            f"""WITH mine AS (SELECT bidder AS who, at AS t FROM bids)
                SELECT window_start, who AS bidder, count(*) AS n FROM mine GROUP BY TUMBLE(t, {SIZE}), who""",
            GROUPS,
        ),
        (
            f"""SELECT x.p AS price, y.id FROM (SELECT price AS p, auction, at FROM bids) x
                JOIN (SELECT * FROM auctions) y ON x.auction = y.id AND {SAME.format("x", "y")}""",
            JOINED.replace("b.", "x.")
            .replace("a.", "y.")
            .replace("bids b", "bids x")
            .replace("auctions a", "auctions y"),
        ),
        (
            f"""SELECT x.price, a.id FROM (SELECT * FROM bids WHERE price > 3) x JOIN auctions a
                ON x.auction = a.id AND {SAME.format("x", "a")}""",
            JOINED.replace("b.", "x.").replace("bids b", "bids x") + " WHERE x.price > 3",
        ),
        (
            "SELECT v + 1 AS w FROM (SELECT price * 2 AS v FROM bids WHERE price > 3) WHERE v < 9",
            "SELECT (price * 2) + 1 AS w FROM bids WHERE price > 3 AND (price * 2) < 9",
        ),
        (
            f"SELECT DISTINCT window_start, b.bidder FROM bids b JOIN auctions a ON {SAME.format('b', 'a')}",
            f"""SELECT window_start, b.bidder FROM bids b JOIN auctions a ON {SAME.format("b", "a")}
                GROUP BY window_start, b.bidder""",
        ),
        (
            """SELECT b.price FROM bids b JOIN auctions a
               ON b.at - a.at BETWEEN INTERVAL '0' SECOND AND INTERVAL '1' MINUTE""",
            """SELECT b.price FROM bids b JOIN auctions a
               ON b.at >= a.at AND b.at <= a.at + INTERVAL '60' SECOND""",
        ),
    ],
)
def test_it_is_the_query_of_the_dialect(text: str, ours: str) -> None:
    found, expected = of(text), of(ours)
    if "BETWEEN" in text:  # the words of the condition stay
        assert found.joins[0].window == expected.joins[0].window
        return
    assert [name for name, _ in found.select] == [name for name, _ in expected.select]
    assert [part.sql() for _, part in found.select] == [part.sql() for _, part in expected.select]
    assert found.streams == expected.streams
    assert found.group == expected.group
    assert [(join.kind, join.keys, join.window) for join in found.joins] == [
        (join.kind, join.keys, join.window) for join in expected.joins
    ]
    assert {alias: [part.sql() for part in parts] for alias, parts in found.filters.items()} == {
        alias: [part.sql() for part in parts] for alias, parts in expected.filters.items()
    }


def test_a_computed_column_is_null_where_an_outer_join_has_no_row() -> None:
    found = of(
        f"""SELECT b.price, a.c FROM bids b LEFT JOIN (SELECT id, at, coalesce(category, 0) AS c FROM auctions
            WHERE category < 3) a ON b.auction = a.id AND {SAME.format("b", "a")}"""
    )
    assert dict(found.select)["c"].sql() == "(CASE WHEN NOT a.time IS NULL THEN COALESCE(a.category, 0) END)"
    assert [part.sql() for part in found.filters["a"]] == ["a.category < 3"]
    assert found.where == ()


def test_a_star_leaves_out_what_it_is_told_to() -> None:
    assert [name for name, _ in of("SELECT * EXCEPT (price, source) FROM bids").select] == [
        "time",
        "value",
        "auction",
        "bidder",
    ]


@pytest.mark.parametrize(
    ("clause", "told"),
    [
        (f"SESSION(at, {SIZE}), bidder", "at 'SESSION': SESSION is not part of the dialect: windows are TUMBLE, HOP"),
        ("session_window(at, '5 seconds'), bidder", "session_window is not part of the dialect"),
        (f"TUMBLE(at, {SIZE}), ROLLUP(bidder)", "ROLLUP is not part of the dialect: list a window and keys"),
        (f"TUMBLE(at, {SIZE}), GROUPING SETS ((bidder), ())", "GROUPING SETS is not part of the dialect"),
        (f"TUMBLE(at, {SIZE}), 7", "GROUP BY 7: the number of a column expected, 1 to 2"),
    ],
)
def test_other_groups_are_told_apart(clause: str, told: str) -> None:
    with pytest.raises(SqlFault, match=re.escape(told)):
        of(f"SELECT bidder, count(*) AS n FROM bids GROUP BY {clause}")


def test_units_of_time_are_no_columns() -> None:
    (_, part), *_ = of("SELECT timestampdiff(SECOND, at, at + INTERVAL '1' HOUR) AS s FROM bids").select
    assert part.sql(dialect="spark").startswith("TIMESTAMPDIFF(SECOND, ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"SELECT * FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), {SIZE}, {SIZE}))",
            "at 'at': the window of a table function",
        ),
        (
            f"SELECT bidder, count(*) AS n FROM TUMBLE(bids, at, {SIZE}) GROUP BY bidder",
            "without that, name the stream",
        ),
        (
            "SELECT price FROM bids b JOIN auctions FOR SYSTEM_TIME AS OF b.at AS a ON b.auction = a.id",
            "FOR SYSTEM_TIME is",
        ),
    ],
)
def test_a_clause_that_would_be_passed_over_is_refused(text: str, told: str) -> None:
    with pytest.raises(SqlFault, match=re.escape(told)):
        of(text)
