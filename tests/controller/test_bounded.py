"""Bounds hold through any events: what queries require, what links carry; what cannot be held waits, and is told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import initialize, rule

from builders import SMALL, write_scenario
from controller.running import keeps_its_promises, with_measurements, with_rules
from controller.test_controller_machine import Running, amount, place
from nova.controller import CapacityChanged, Controller, NodeAdded, NodeRemoved, QueryAdded, RateChanged
from nova.journal import snapshot
from nova.model.errors import InvalidInput
from nova.model.links import Link
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.requires import parse
from nova.optimizer import optimize
from nova.placement.links import crossing, ends_of, made_by
from nova.scenario import load

ZONES = ("a", "b", "c")


@cache
def bound(seed: int) -> Problem:
    """A drawn problem with zones: one query may run in one of them, one in two, and links between two are narrow."""
    problem = with_rules(seed)
    zones = pa.array([ZONES[k] for k in np.random.default_rng(seed).integers(0, 3, len(problem.nodes))])
    needs = (parse("zone in [a, b]"), (), parse("zone != c"), ())
    free = replace(
        problem,
        nodes=replace(problem.nodes, labels={"zone": zones}),
        queries=tuple(replace(query, requires=need) for query, need in zip(problem.queries, needs, strict=True)),
        links=(Link("zone", "a", "b", np.inf), Link("zone", "c", "*", np.inf)),
    )
    plan = optimize(free, Options(waiting=0))
    sent = crossing(free, plan.joins, plan.replicas, ends_of(free), made_by(free, plan.joins)).totals(2)
    links = tuple(replace(link, budget=1.1 * most + 1) for link, most in zip(free.links, sent.tolist(), strict=True))
    return replace(free, links=links)


class Bound(Running):
    """The same as for any plan: after each event the checker agrees, bounds included, and what changed is told."""

    @initialize(
        seed=st.integers(0, 3),
        options=st.sampled_from([{}, {"partition": "grid"}, {"partition": "window"}, {"waiting": 0.0}]),
        measured=st.booleans(),
    )
    def start(self, seed: int, options: dict[str, Any], measured: bool) -> None:
        problem = with_measurements(bound(seed)) if measured else bound(seed)
        if measured:
            problem = replace(problem, links=())
        self.running = Controller.from_plan(problem, optimize(problem, Options(**options)))
        self.copy = keeps_its_promises(self.running)
        self.count = 0

    @rule(at=place, capacity=amount, zone=st.sampled_from([*ZONES, None]))
    def node_added(self, at: tuple[float, float], capacity: float, zone: str | None) -> None:
        labels = None if zone is None else {"zone": zone}
        self.happen(NodeAdded(node=self.fresh("n"), capacity=capacity, coordinates=at, labels=labels))


TestBound = Bound.TestCase
TestBound.settings = settings(
    max_examples=8, stateful_step_count=10, deadline=None, derandomize=True, phases=(Phase.generate,)
)


def small(folder: Path, **more: Any) -> Problem:
    zones = {"edge1": "eu", "edge2": "us", "fog": "us", "cloud": "eu", "hq": "eu"}
    nodes = [{**node, "region": zones[node["id"]]} for node in SMALL["nodes"]]
    query = {**SMALL["queries"][0], **more.pop("query", {})}
    return load(write_scenario(folder, {**SMALL, "nodes": nodes, "queries": [query], **more})).problem


def hosts(running: Controller) -> set[str]:
    problem, plan = running.problem(), running.plan()
    return {problem.nodes.ids[int(node)].as_py() for node in plan.replicas.node}


def test_a_query_that_must_stay_in_a_region_waits_rather_than_leave_it(tmp_path: Path) -> None:
    problem = small(tmp_path, query={"requires": "region in [eu]"})
    running = Controller.from_plan(problem, optimize(problem, Options(waiting=0)))
    running.handle(CapacityChanged(node="cloud", capacity=10.0))
    told = running.handle(CapacityChanged(node="edge1", capacity=10.0))
    assert told
    assert all(change.reason.startswith("does not fit") for change in told)
    assert {one.reason for one in running.waiting_list()} == {"no room where it may run"}
    running.handle(NodeAdded(node="us", capacity=1000.0, coordinates=(5.0, 5.0), labels={"region": "us"}))
    assert running.waiting_list()
    running.handle(NodeAdded(node="eu", capacity=1000.0, coordinates=(5.0, 5.0), labels={"region": "eu"}))
    assert not running.waiting_list()
    assert hosts(running) <= {"eu", "edge1", "cloud"}


def test_a_rate_that_fills_a_link_moves_the_join_off_it(tmp_path: Path) -> None:
    problem = small(tmp_path, links=[{"label": "region", "from": "eu", "to": "us", "budget": 60}])
    running = Controller.from_plan(problem, optimize(problem, Options(waiting=0)))
    for rate in (30.0, 40.0, 55.0):
        running.handle([RateChanged(stream="pressure", source="p1", rate=rate)])
        keeps_its_promises(running)
    now, plan = running.problem(), running.plan()
    sent = crossing(now, plan.joins, plan.replicas, ends_of(now), made_by(now, plan.joins))
    assert sent.totals(1)[0] <= 60.0


def test_queries_may_come_with_requirements(tmp_path: Path) -> None:
    problem = small(tmp_path)
    running = Controller.from_plan(problem, optimize(problem, Options(waiting=0)))
    with pytest.raises(InvalidInput, match="the nodes have no such label; did you mean 'region'"):
        running.handle(QueryAdded(query="q", left="pressure", right="humidity", sink="hq", requires="regoin = eu"))
    with pytest.raises(InvalidInput, match="is not understood"):
        running.handle(QueryAdded(query="q", left="pressure", right="humidity", sink="hq", requires="region eu"))
    running.handle(QueryAdded(query="q", left="pressure", right="humidity", sink="hq", requires="region = eu"))
    running.handle(NodeRemoved(node="fog"))
    keeps_its_promises(running)
    assert running.problem().queries[1].requires == parse("region = eu")


def test_bounds_survive_a_snapshot(tmp_path: Path) -> None:
    problem = small(
        tmp_path, query={"requires": "region = eu"}, links=[{"from": "edge1", "to": "cloud", "budget": 500}]
    )
    running = Controller.from_plan(problem, optimize(problem))
    snapshot.write(tmp_path, 1, bytes(16), {"controller": running})
    again = snapshot.read(snapshot.path_of(tmp_path, 1), bytes(16))["controller"]
    assert again.problem().links == problem.links
    assert again.problem().queries[0].requires == problem.queries[0].requires
    assert again.problem().digest == running.problem().digest
