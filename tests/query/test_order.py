"""Which streams are joined first: the tree and hosts of least rate × distance, along windows that the text implies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from nova.query import Schema, analyse
from nova.query.order import HANDLING_MS, Ground, Tree, aliases_of, best_order, flows, link
from nova.query.stages import stages_of
from nova.query.statement import Statement
from nova.query.windows import Interval, Tumbling

STREAMS = {name: Schema({"k": 10, "x": 4, "at": None}, {"zone": 3}) for name in "abcdef"}
SAME = "TUMBLE({0}.time, INTERVAL '2' SECOND) = TUMBLE({1}.time, INTERVAL '2' SECOND)"


def chain(names: str, select: str = "a.x") -> Statement:
    """Streams joined one with the next."""
    joins = [f"JOIN {two} ON {one}.k = {two}.k AND {SAME.format(one, two)}" for one, two in pairwise(names)]
    return analyse(f"SELECT {select} FROM {names[0]} {' '.join(joins)}", STREAMS)


def every_tree(names: frozenset[str]) -> Iterator[Tree]:
    if len(names) == 1:
        yield next(iter(names))
        return
    first, *others = sorted(names)
    for size in range(len(others)):
        for some in combinations(others, size):
            left = frozenset([first, *some])
            yield from product(every_tree(left), every_tree(names - left))


def cost(tree: Tree, statement: Statement, rate: dict[frozenset[str], float], ground: Ground) -> float:
    """Σ rate × (ms + handling) with the best of all choices of hosts, by trying every one."""

    def at(part: Tree) -> np.ndarray:
        if isinstance(part, str):
            return rate[frozenset([part])] * (ground.reach[part] + HANDLING_MS)
        here = at(part[0]) + at(part[1])
        away = rate[aliases_of(part)] * (ground.between + HANDLING_MS)
        return np.array([min(here[host] + away[host, to] for host in range(len(here))) for to in range(len(here))])

    return float(at(tree)[0])


@pytest.mark.parametrize("seed", range(6))
def test_no_tree_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    statement = chain("abcde"[: 3 + seed % 3])
    places = rng.uniform(0, 50, (6, 2))
    homes = {alias: rng.uniform(0, 50, 2) for alias in statement.streams}
    ground = Ground(
        np.linalg.norm(places[:, None] - places[None], axis=2),
        {alias: np.linalg.norm(places - home, axis=1) for alias, home in homes.items()},
    )
    born = {alias: float(rng.uniform(0.2, 30)) for alias in statement.streams}
    rate = flows(statement, born, {})
    found = best_order(statement, born, {}, ground)
    least = min(cost(tree, statement, rate, ground) for tree in every_tree(frozenset(statement.streams)))
    assert cost(found, statement, rate, ground) == pytest.approx(least)


def test_bushy_where_both_halves_are_thin() -> None:
    """Two pairs that hardly match, far from each other: each is joined by itself first."""
    statement = analyse(
        f"""SELECT a.x FROM a JOIN b ON a.k = b.k AND {SAME.format("a", "b")}
            JOIN c ON b.x = c.x AND {SAME.format("b", "c")} JOIN d ON c.k = d.k AND {SAME.format("c", "d")}""",
        STREAMS,
    )
    born = dict.fromkeys("abcd", 5.0)
    assert {aliases_of(part) for part in best_order(statement, born, {})} == {frozenset("ab"), frozenset("cd")}


def test_equality_and_windows_hold_along() -> None:
    found = link(chain("abc"), frozenset("a"), frozenset("c"))
    assert found is not None
    assert [(key.left.sql(), key.right.sql()) for key in found.join.keys] == [("a.k", "c.k")]
    assert found.join.window == Tumbling(2_000_000, 2_000_000)
    apart = analyse(
        f"""SELECT a.x FROM a JOIN b ON a.k = b.k AND {SAME.format("a", "b")}
            JOIN c ON b.k = c.k AND c.time BETWEEN b.time AND b.time + INTERVAL '3' SECOND""",
        STREAMS,
    )
    assert link(apart, frozenset("a"), frozenset("c")) is None
    found = link(apart, frozenset("ab"), frozenset("c"))
    assert found is not None
    assert isinstance(found.join.window, Interval)
    assert found.ends == ("b", "c")


def test_every_condition_is_checked_once_all_its_streams_are_there() -> None:
    statement = analyse(
        f"""SELECT a.x, c.x AS cx FROM a JOIN b ON a.k = b.k AND {SAME.format("a", "b")}
            JOIN c ON b.k = c.k AND {SAME.format("b", "c")} WHERE a.x + c.x > b.x AND a.x < c.x AND b.x = 3""",
        STREAMS,
    )
    first, last = stages_of(statement, (("a", "c"), "b"))
    assert [part.sql() for part in first.statement.joins[0].residual] == ["a.x < c.x"]
    assert [part.sql() for part in last.statement.joins[0].residual] == ['"⋈1".a_x + "⋈1".c_x > b.x']
    assert [part.sql() for part in last.statement.filters["b"]] == ["b.x = 3"]
    assert [name for name, _ in first.statement.select] == ["a_k", "a_x", "c_k", "c_x"]
    assert [name for name, _ in last.statement.select] == ["x", "cx"]
    assert first.time == "left_time"
