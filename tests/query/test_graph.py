"""Rates along the graph: given, stated or estimated, and each says which."""

from __future__ import annotations

import pytest

from nova.query import Schema, analyse, build_graph
from nova.query.statement import short_sql

STREAMS = {"bids": Schema({"auction": 50, "price": None}), "auctions": Schema({"id": 20, "category": 4})}
SQL = """SELECT window_start, a.category, count(*) AS n FROM bids b JOIN auctions a ON b.auction = a.id
         AND TUMBLE(b.time, INTERVAL '2' SECOND) = TUMBLE(a.time, INTERVAL '2' SECOND)
         WHERE a.category = 1 AND b.price > 3 GROUP BY window_start, a.category"""


def rates(stated: dict[str, float]) -> dict[str, tuple[float, str]]:
    graph = build_graph("q", analyse(SQL, STREAMS), {"bids": 300.0, "auctions": 40.0}, stated)
    assert graph.operators[-1].kind == "sink"
    assert all(source < row for source, row in graph.edges)
    return {f"{one.kind} {row}": (one.rate.value, one.rate.origin) for row, one in enumerate(graph.operators)}


def test_estimates_come_from_keys_and_windows() -> None:
    found = rates({})
    assert found["source 0"] == (300.0, "given")
    assert found["filter 1"] == (pytest.approx(100), "estimated")
    assert found["filter 3"] == (pytest.approx(10), "estimated")
    assert found["join 4"] == (pytest.approx(100 * 10 * 2 / 50), "estimated")
    assert found["aggregate 5"] == (pytest.approx(4 / 2), "estimated")


def test_what_is_stated_wins() -> None:
    found = rates({"b": 0.5, "a": 1.0, "join": 0.1, "group": 3})
    assert found["filter 1"] == (150, "stated")
    assert found["join 4"] == (pytest.approx(150 * 40 * 2 * 0.1), "stated")
    assert found["aggregate 5"] == (pytest.approx(1.5), "stated")


def test_the_short_form_is_the_smallest_graph() -> None:
    schemas = {name: Schema({}, {"my region": 4}) for name in ("left one", "r")}
    statement = analyse(short_sql("left one", "r", ("my region",), 500), schemas)
    graph = build_graph("q", statement, {"left one": 10.0, "r": 20.0}, {})
    assert [one.kind for one in graph.operators] == ["source", "source", "join", "project", "sink"]
    assert graph.operators[2].rate.value == pytest.approx(10 * 20 * 0.5 / 4)
