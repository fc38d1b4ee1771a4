"""Rates of joins in windows are those that one counts."""

from __future__ import annotations

import numpy as np
import pytest

import market
from nova.model.rates import result_rates
from nova.optimizer import optimize
from nova.query import Schema, Tree, analyse, build_graph
from nova.scenario import load

STREAMS = {name: Schema({"k": None}) for name in "abcd"}
BORN = {"a": 6.0, "b": 3.0, "c": 2.0, "d": 4.0}
SLIDE, SIZE = 2, 6
HOP = f"HOP({{0}}.time, INTERVAL '{SLIDE}' SECOND, INTERVAL '{SIZE}' SECOND)"


def sliding(names: str, select: str = "a.k", rest: str = "") -> str:
    joins = [f"JOIN {name} ON {HOP.format('a')} = {HOP.format(name)}" for name in names[1:]]
    return f"SELECT {select} FROM {names[0]} {' '.join(joins)} {rest}"


def counted(names: str) -> tuple[float, float]:
    """Joined rows per second, and per window, where every tuple of a window joins: counted over an hour."""
    starts = np.arange(0, 3600, SLIDE)
    rows = np.ones(len(starts))
    for name in names:
        times = np.arange(0, 3600 + SIZE, 1 / BORN[name]) + 1e-6
        rows *= np.searchsorted(times, starts + SIZE) - np.searchsorted(times, starts)
    return rows.sum() / 3600, rows.mean()


@pytest.mark.parametrize(
    ("names", "tree"),
    [
        ("ab", None),
        ("abc", (("a", "b"), "c")),
        ("abc", ("b", ("a", "c"))),
        ("abcd", ((("a", "b"), "c"), "d")),
        ("abcd", (("a", "b"), ("c", "d"))),
    ],
)
def test_sliding_windows_in_any_order(names: str, tree: Tree | None) -> None:
    graph = build_graph("q", analyse(sliding(names), STREAMS), BORN, {}, tree)
    last = [one for one in graph.operators if one.kind == "join"][-1]
    assert last.rate.value == pytest.approx(counted(names)[0], rel=1e-3)


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_groups_of_a_sliding_window_are_a_part_of_its_rows(names: str) -> None:
    """A row of a sliding join lies in one window: a tenth of a window's rows, where nobody knows the keys."""
    text = sliding(names, "window_start, a.k, count(*) AS n", "GROUP BY window_start, a.k")
    graph = build_graph("q", analyse(text, STREAMS), BORN, {})
    rate = next(one.rate.value for one in graph.operators if one.kind == "aggregate")
    assert rate * SLIDE == pytest.approx(counted(names)[1] / 10, rel=1e-3)
    stated = build_graph("q", analyse(text, STREAMS), BORN, {"group": 1e9})
    most = next(one.rate.value for one in stated.operators if one.kind == "aggregate")
    assert most * SLIDE == pytest.approx(counted(names)[1], rel=1e-3)


def test_groups_of_one_stream_in_sliding_windows() -> None:
    """A tuple lies in every window around its time."""
    text = f"SELECT window_start, a.k, count(*) AS n FROM a GROUP BY {HOP.format('a')}, a.k"
    graph = build_graph("q", analyse(text, STREAMS), BORN, {})
    rate = next(one.rate.value for one in graph.operators if one.kind == "aggregate")
    assert rate * SLIDE == pytest.approx(counted("a")[1] / 10, rel=1e-3)


@pytest.mark.parametrize("tree", [(("a", "b"), "c"), ("a", ("b", "c")), ("b", ("a", "c"))])
def test_an_equality_that_follows_from_others_counts_once(tree: Tree) -> None:
    """a.k = b.k and b.k = c.k: whichever two meet first, the third has one key in common with them."""
    streams = {name: Schema({"k": 10, "m": 5}) for name in "abc"}
    same = "TUMBLE({0}.time, INTERVAL '2' SECOND) = TUMBLE({1}.time, INTERVAL '2' SECOND)"
    text = f"""SELECT a.k FROM a JOIN b ON a.k = b.k AND {same.format("a", "b")}
               JOIN c ON b.k = c.k AND {same.format("b", "c")}"""
    graph = build_graph("q", analyse(text, streams), BORN, {}, tree)
    expected = 6 * 3 * 2 * 2 * 2 / 10 / 10
    assert graph.operators[-1].rate.value == pytest.approx(expected)


def test_two_columns_that_equal_one_are_two_conditions() -> None:
    streams = {name: Schema({"k": 10, "m": 10}) for name in "ab"}
    window = "TUMBLE({0}.time, INTERVAL '2' SECOND)"
    text = f"SELECT a.k FROM a JOIN b ON a.k = b.k AND a.m = b.k AND {window.format('a')} = {window.format('b')}"
    graph = build_graph("q", analyse(text, streams), BORN, {})
    assert graph.operators[-1].rate.value == pytest.approx(6 * 3 * 2 / 10 / 10)


def test_what_is_planned_is_what_the_graph_says() -> None:
    window = "INTERVAL '1' SECOND, INTERVAL '4' SECOND"
    same = f"HOP({{0}}.at, {window}) = HOP({{1}}.at, {window})"
    text = f"""SELECT b.value FROM bids b JOIN auctions a ON b.auction = a.id AND {same.format("b", "a")}
               JOIN people p ON a.seller = p.id AND {same.format("a", "p")}"""
    loaded = load(market.document({"q": text}))
    plan = optimize(loaded.problem, loaded.options)
    results = result_rates(loaded.problem, plan.joins)[plan.joins.makes < 0].sum()
    assert results > 0
    assert results == pytest.approx(loaded.graphs[0].operators[-1].rate.value)
