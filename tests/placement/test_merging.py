"""Merge trees reach the sink within all rooms, cost less than none, and are made only where they pay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import write_scenario
from groups_at_sites import FIVE, planned, sites
from nova import optimizer
from nova.evaluation.metrics import evaluate
from nova.evaluation.results import traffic
from nova.model import plan as plans
from nova.model.errors import BrokenPlan, Infeasible, InvalidInput
from nova.model.load import node_loads
from nova.model.merges import NO_MERGES, Merges, merge_loads, partials
from nova.model.plan import Plan
from nova.model.policy import MERGE_LEVELS, usable
from nova.placement.check import check
from nova.placement.merging import merge_trees
from nova.placement.resolve import resolve
from nova.scenario import Scenario, load


def rows(loaded: Scenario, plan: Plan) -> set[tuple[str, str]]:
    ids = loaded.problem.nodes.ids.to_pylist()
    return {(ids[node], ids[to]) for node, to in zip(plan.merges.node, plan.merges.to, strict=True)}


def test_a_sink_that_cannot_take_all_partials(tmp_path: Path) -> None:
    """Five hosts send 20 groups/s each to a sink that takes 30: one of them, the one nearest to the sink, takes those
    of the other four, for which it has room (200 − 100 tuples/s), and the sink gets each group once."""
    loaded, plan = planned(tmp_path, sites(FIVE))
    assert rows(loaded, plan) == {(f"e{i}", "e4") for i in range(4)}
    told = traffic(loaded.problem, plan)
    assert told.sinks[0].results == pytest.approx(20.0)
    assert not told.sinks[0].overloaded
    (merged,) = told.merges
    assert (merged.hosts, merged.levels) == (("e4",), 1)
    assert (merged.straight, merged.merged) == (pytest.approx(100.0), pytest.approx(20.0))
    straight = traffic(loaded.problem, replace(plan, merges=NO_MERGES))
    assert straight.sinks[0].overloaded
    assert plan.summary["merging_hosts"] == 1
    assert plan.summary.max_utilisation == pytest.approx(180 / 200)


def test_latency_by_way_of_merges(tmp_path: Path) -> None:
    """On a line, the way by e4 is no longer; off it, it is, and a host's load has what it merges."""
    loaded, plan = planned(tmp_path / "line", sites(FIVE))
    straight = evaluate(loaded.problem, replace(plan, merges=NO_MERGES))
    assert evaluate(loaded.problem, plan).latency_mean_ms == pytest.approx(straight.latency_mean_ms)
    assert evaluate(loaded.problem, plan).utilisation_max == pytest.approx(180 / 200)
    around = replace(plan, merges=Merges.of([(0, 4, 0)]))  # e4 is 4 ms nearer, and goes back by e0
    assert evaluate(loaded.problem, around).latency_mean_ms == pytest.approx(straight.latency_mean_ms + 8 / 5)


def test_no_merges_where_they_only_add_a_hop(tmp_path: Path) -> None:
    """By latency, a sink with time for all is reached straight. By network, one flow of groups is less than five."""
    _, latency = planned(tmp_path / "latency", sites(FIVE, sink=1e6))
    assert not len(latency.merges)
    loaded, network = planned(tmp_path / "network", sites(FIVE, sink=1e6, options={"objective": "network"}))
    assert len(network.merges)
    (told,) = traffic(loaded.problem, network).merges
    assert told.merged_network < 0.3 * told.straight_network


def test_no_merges_where_nobody_knows_the_groups(tmp_path: Path) -> None:
    document = sites(FIVE)
    for stream in document["streams"].values():
        stream["columns"] = {"k": "bigint"}
    _, plan = planned(tmp_path, document)
    assert not len(plan.merges)


def test_requirements_hold_for_merges(tmp_path: Path) -> None:
    """Only hosts that the query may use merge, and a plan that merges elsewhere is refused."""
    document = sites(FIVE)
    for number, node in enumerate(document["nodes"]):
        node["region"] = "us" if number == 4 else "eu"
    document["nodes"].append({"id": "near", "capacity": 1000, "x": 50, "y": 0, "region": "us"})
    document["queries"][0]["requires"] = "region in [eu]"
    document["streams"]["l"]["sources"].pop()
    document["streams"]["r"]["sources"].pop()
    loaded, plan = planned(tmp_path, document)
    assert rows(loaded, plan) == {("e0", "e3"), ("e1", "e3"), ("e2", "e3")}
    with pytest.raises(BrokenPlan, match="node near merges partial aggregates of q although it must not"):
        check(loaded.problem, replace(plan, merges=Merges.of([(0, 0, 6)])))


def test_a_link_is_relieved_never_filled(tmp_path: Path) -> None:
    """e0 must not send more to e4 than 10 partials/s: it is merged elsewhere."""
    document = sites(FIVE, links=[{"from": "e0", "to": "e4", "budget": 10}])
    loaded, plan = planned(tmp_path, document)
    assert ("e0", "e4") not in rows(loaded, plan)
    assert not traffic(loaded.problem, plan).sinks[0].overloaded
    wrong = Merges.of([(0, i, 4) for i in range(4)])
    with pytest.raises(BrokenPlan, match="link e0 → e4 carries 20 tuples/s of at most 10"):
        check(loaded.problem, replace(plan, merges=wrong))


@pytest.mark.parametrize(
    ("merges", "said"),
    [
        ([(0, 0, 1), (0, 1, 0)], "round in a circle"),
        ([(0, 0, 1), (0, 0, 2)], "to two others"),
        ([(0, 0, 5)], "the sink of q stands among"),
        ([(0, i, 4) for i in range(4)], "node e4 takes 180 tuples/s of at most 150"),
    ],
)
def test_wrong_merges_are_refused(tmp_path: Path, merges: list[tuple[int, int, int]], said: str) -> None:
    loaded, plan = planned(tmp_path, sites(FIVE, capacity=150))
    with pytest.raises(BrokenPlan, match=said):
        check(loaded.problem, replace(plan, merges=Merges.of(merges)))


def test_plan_files(tmp_path: Path) -> None:
    """Merges come back as they were written, and stand in no plan that has none."""
    loaded, plan = planned(tmp_path / "s", sites(FIVE))
    problem = loaded.problem
    plan.write(tmp_path / "plan", problem)
    again = plans.read(tmp_path / "plan", problem, resolve(problem))
    assert all((getattr(again.merges, name) == getattr(plan.merges, name)).all() for name in ("query", "node", "to"))
    text = (tmp_path / "plan" / "plan.json").read_text()
    for old, new, said in (
        ('"to": "e4"', '"to": "e9"', "unknown to"),
        ('"node": "e1"', '"node": "e0"', "to one other only"),
        ('"node": "e1"', '"node": "e4"', "round in a circle"),
    ):
        (tmp_path / "plan" / "plan.json").write_text(text.replace(old, new, 1))
        with pytest.raises(InvalidInput, match=said):
            plans.read(tmp_path / "plan", problem, resolve(problem))
    replace(plan, merges=NO_MERGES).write(tmp_path / "plan", problem)
    assert '"merges"' not in (tmp_path / "plan" / "plan.json").read_text()
    assert not len(plans.read(tmp_path / "plan", problem, resolve(problem)).merges)


point = st.tuples(st.floats(0, 60), st.floats(-40, 40))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(point, min_size=2, max_size=12),
    st.floats(105, 400),
    st.floats(5, 300),
    st.integers(2, 40),
    st.sampled_from(["latency", "paper", "network"]),
)
def test_trees_hold_and_help(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[float, float]],
    capacity: float,
    sink: float,
    groups: int,
    objective: str,
) -> None:
    """Whatever the rooms: all partials come to the sink, hosts keep within theirs, ways stay short, and the sink gets
    no more than without merges; by network less is under way."""
    document = sites(places, capacity, sink, groups, options={"objective": objective})
    loaded = load(write_scenario(tmp_path_factory.mktemp("s"), document))
    problem = loaded.problem
    try:
        plan = optimizer.optimize(problem, loaded.options)
    except Infeasible:
        return
    check(problem, plan)
    merges, joins, replicas = plan.merges, plan.joins, plan.replicas
    assert ((merges.levels() >= 1) & (merges.levels() <= MERGE_LEVELS)).all()
    loads = node_loads(joins, replicas, len(problem.nodes)) + merge_loads(problem, joins, replicas, merges)
    assert (loads[np.unique(merges.to)] <= usable(problem.nodes, plan.options)[np.unique(merges.to)] * (1 + 1e-9)).all()
    sent, before = partials(problem, joins, replicas, merges), partials(problem, joins, replicas)
    at_sink, straight = (one.sent[one.to == problem.queries[0].sink].sum() for one in (sent, before))
    assert at_sink <= straight * (1 + 1e-9)
    assert at_sink >= min(straight, groups) * (1 - 1e-9)
    again = merge_trees(problem, joins, replicas, plan.space, plan.options)
    assert (again.to == merges.to).all()
    overfull = max(straight - sink, 0.0)
    for told in traffic(problem, plan).merges:
        if objective == "network" and not overfull:
            assert told.merged_network < told.straight_network
