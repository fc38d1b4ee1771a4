"""Sink-based, source-based and top-c: what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from handmade import POINTS, RIGHT, SINK, problem
from nova import synthetic
from nova.baselines import BASELINES, charge, place
from nova.baselines.top_c import most_room_first
from nova.model.errors import Infeasible, InvalidInput
from nova.model.space import CostSpace
from nova.placement.check import check
from nova.placement.resolve import resolve

SPACE = CostSpace(POINTS, np.zeros(len(POINTS)))


def test_sink_based_runs_everything_at_the_sink_and_says_that_this_is_too_much() -> None:
    drawn = problem()
    placement = place("sink", drawn, resolve(drawn), SPACE)
    assert placement.plan.replicas.node.tolist() == [SINK, SINK]
    assert placement.plan.overloaded.tolist() == [SINK]  # 30 + 25 tuples/s on 20
    assert placement.plan.approach == "sink"
    assert charge.uniform(drawn, placement)[SINK] == 55.0


def test_source_based_hosts_at_the_higher_rate() -> None:
    drawn = problem()
    placement = place("source", drawn, resolve(drawn), SPACE)
    assert placement.plan.replicas.node.tolist() == [RIGHT, RIGHT]  # x brings 20, a 10, b 5
    assert charge.uniform(drawn, placement)[RIGHT] == 55.0
    assert charge.arrivals(drawn, placement)[RIGHT] == 15.0  # the published way: its own stream is free


def test_top_c_counts_what_it_gave_away() -> None:
    room = np.array([50.0, 100.0, 100.0, 0.0])
    hosts = most_room_first(room, room > 0, np.array([70.0, 40.0, 30.0, 10.0]))
    assert hosts.tolist() == [1, 2, 2, 0]


def test_top_c_deals_unlimited_nodes_out_in_turn() -> None:
    room = np.full(3, np.inf)
    hosts = most_room_first(room, np.array([False, True, True]), np.array([5.0, 5.0, 5.0]))
    assert hosts.tolist() == [1, 2, 1]


def test_largest_first_serves_the_same_rule_by_falling_demand() -> None:
    drawn = synthetic.draw(60, seed=3)
    placement = place("top-c-largest", drawn, resolve(drawn), CostSpace(np.zeros((60, 2)), np.zeros(60)))
    demand, hosts = placement.plan.joins.demand, placement.plan.replicas.node
    order = np.argsort(-demand, kind="stable")
    assert hosts[order[0]] == int(np.argmax(drawn.nodes.room))
    assert hosts[order].tolist() == most_room_first(drawn.nodes.room, drawn.nodes.hosts, demand[order]).tolist()


def test_top_c_needs_a_host() -> None:
    with pytest.raises(Infeasible, match="no node may host"):
        most_room_first(np.zeros(2), np.zeros(2, bool), np.array([1.0]))


def test_unknown_approach_is_named() -> None:
    drawn = problem()
    with pytest.raises(InvalidInput, match="no approach 'nearest'"):
        place("nearest", drawn, resolve(drawn), SPACE)


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "optimum"])
def test_every_baseline_gives_a_whole_plan_and_repeats_itself(name: str) -> None:
    drawn = synthetic.draw(200, seed=1)
    assert drawn.nodes.coordinates is not None
    space = CostSpace(drawn.nodes.coordinates, np.zeros(200))
    joins = resolve(drawn)
    placement = place(name, drawn, joins, space)
    again = place(name, drawn, joins, space)
    assert placement.plan.approach == name
    assert np.array_equal(placement.plan.replicas.node, again.plan.replicas.node)
    assert sorted(placement.plan.replicas.join.tolist()) == list(range(len(joins)))
    # what arrives anywhere is at least what the hosts take in from elsewhere
    assert charge.arrivals(drawn, placement).sum() > 0
    assert (placement.relay_load >= 0).all()
    # routes are never shorter than the straight way, and nobody is far from himself
    ends = (joins.left_node, placement.plan.replicas.node)
    assert (placement.distances.between(*ends) >= space.between(*ends) - 1e-9).all()
    assert not placement.distances.between(joins.sink, joins.sink).any()


def test_plans_of_baselines_pass_the_checker_because_they_name_what_they_overload() -> None:
    drawn = problem()
    for name in ("sink", "source", "top-c", "tree"):
        check(drawn, place(name, drawn, resolve(drawn), SPACE).plan)
