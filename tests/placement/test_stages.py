"""Joins of joins: placed level by level, charged like all others, each from where the one before it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import market
from builders import write_scenario
from nova.model.load import node_loads
from nova.model.plan import Plan, read
from nova.model.problem import Problem
from nova.optimizer import optimize
from nova.placement.check import check
from nova.placement.resolve import resolve
from nova.scenario import load
from nova.scenario.writer import write

SAME = "TUMBLE({0}.at, INTERVAL '2' SECOND) = TUMBLE({1}.at, INTERVAL '2' SECOND)"
THREE = f"""SELECT b.value, p.city FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            JOIN people p ON a.seller = p.id AND {SAME.format("a", "p")}"""
ZONES = f"""SELECT b.value, p.city FROM bids b JOIN auctions a ON b.zone = a.zone AND {SAME.format("b", "a")}
            JOIN people p ON a.zone = p.zone AND {SAME.format("a", "p")}"""


def planned(sql: str, **nodes: float) -> tuple[Problem, Plan]:
    document = market.document({"q": sql})
    for node in document["nodes"]:
        node["capacity"] = nodes.get(node["id"], node["capacity"])
    loaded = load(document)
    return loaded.problem, optimize(loaded.problem, replace(loaded.options, waiting=0.0))


def test_what_a_join_makes_is_born_where_it_runs() -> None:
    problem, plan = planned(THREE)
    check(problem, plan)
    joins, host = plan.joins, np.empty(len(plan.joins), int)
    host[plan.replicas.join] = plan.replicas.node
    made = joins.makes >= 0
    assert [query.id for query in problem.queries] == ["q.1", "q"]
    assert problem.levels().tolist() == [0, 1]
    for row in np.flatnonzero(made):
        readers = np.flatnonzero(joins.left == joins.makes[row])
        assert len(readers) == 2
        assert (joins.left_node[readers] == host[row]).all()
        assert joins.sink[row] in host[readers]
    assert (joins.sink[~made] == problem.queries[1].sink).all()
    # a_rate × p_rate × 2 s, one of 8 keys, over the four pairs of sources
    np.testing.assert_allclose(joins.left_rate[~made], 9 * 6 * 2 / 8 / 4)


def test_levels_share_the_room_of_hosts() -> None:
    """The host nearest to the sink takes what it can of both levels, and nobody is overloaded."""
    problem, plan = planned(THREE, fog=60.0, edge3=200.0)
    check(problem, plan)
    loads = node_loads(plan.joins, plan.replicas, len(problem.nodes))
    assert (loads <= problem.nodes.capacity * (1 + 1e-9)).all()
    assert np.count_nonzero(loads) > 1


def test_attributes_of_the_sources_hold_along() -> None:
    problem, plan = planned(ZONES)
    ids = problem.sources.ids
    pairs = [(ids[int(a)].as_py(), ids[int(b)].as_py()) for a, b in zip(plan.joins.left, plan.joins.right, strict=True)]
    assert sorted(pairs) == [("a1", "p1"), ("a1 ⋈ p1", "b1"), ("a2", "p2"), ("a2 ⋈ p2", "b2")]


@pytest.mark.parametrize("sql", [THREE, ZONES])
def test_plan_and_scenario_come_back_as_they_were(tmp_path: Path, sql: str) -> None:
    loaded = load(write_scenario(tmp_path / "s", market.document({"q": sql})))
    plan = optimize(loaded.problem, loaded.options)
    again = read(plan.write(tmp_path / "plan", loaded.problem), loaded.problem, resolve(loaded.problem))
    for name in ("left_node", "right_node", "sink", "left_rate"):
        np.testing.assert_array_equal(getattr(again.joins, name), getattr(plan.joins, name))
    inputs = {
        name: stream.input.model_dump(exclude_unset=True) for name, stream in loaded.streams.items() if stream.input
    }
    written = write(tmp_path / "out", loaded.problem, loaded.options, inputs)
    assert written is not None
    assert load(written).digest == loaded.digest
