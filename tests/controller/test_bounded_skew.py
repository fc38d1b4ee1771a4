"""Heavy keys on hosts of their own, through events: no box is lost, no host overloaded, and the rest stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import Phase, settings
from hypothesis.stateful import initialize

import skewed
from controller.running import keeps_its_promises, with_measurements
from controller.test_controller_machine import Running
from nova.controller import Controller, NodeRemoved, RateChanged
from nova.evaluation.prediction import predict
from nova.journal import snapshot
from nova.optimizer import optimize
from nova.routing import compile_routes

HEAVY = {"a": 0.5, "b": 0.1}


def running(hosts: int = 40) -> Controller:
    problem = skewed.problem(HEAVY, hosts=hosts)
    return Controller.from_plan(problem, optimize(problem))


class Skewed(Running):
    """The same as for any plan, with heavy keys: after each event the checker agrees, and what changed is told."""

    @initialize(heavy=st.sampled_from([{"a": 0.6}, HEAVY, {"a": 0.2, "b": 0.2, "c": 0.2}]), measured=st.booleans())
    def start(self, heavy: dict[str, float], measured: bool) -> None:
        problem = skewed.problem(heavy)
        if measured:
            problem = with_measurements(problem)
        self.running = Controller.from_plan(problem, optimize(problem))
        self.copy = keeps_its_promises(self.running)
        self.count = 0


TestSkewed = Skewed.TestCase
TestSkewed.settings = settings(
    max_examples=6, stateful_step_count=8, deadline=None, derandomize=True, phases=(Phase.generate,)
)


def test_the_host_of_a_heavy_box_dies() -> None:
    """All boxes of the grid are there again, on hosts that have room."""
    now = running()
    plan = now.plan()
    heavy = np.flatnonzero(plan.replicas.key_to <= 0.5)
    assert len(heavy) > 1
    gone = now.problem().nodes.ids[int(plan.replicas.node[heavy[0]])].as_py()
    assert now.handle(NodeRemoved(node=gone))
    keeps_its_promises(now)
    problem, plan = now.problem(), now.plan()
    assert gone not in problem.nodes.ids.to_pylist()
    felt = predict(problem, plan).felt
    assert felt.p99_ms < 300
    assert problem.queries[0].key == skewed.problem(HEAVY).queries[0].key  # routes need the values
    assert compile_routes(plan.joins, plan.replicas, 0, 2, 2).node.size == len(plan.replicas)


def test_a_plan_of_an_older_scenario_that_named_the_key() -> None:
    """One box does not tell what the others are: a grid beside ranges of keys is placed again as a whole."""
    problem = skewed.problem(HEAVY, hosts=40)
    plan = optimize(problem)
    plan = replace(plan, replicas=plan.replicas.take(np.argsort(-plan.replicas.key_from, kind="stable")))
    (query,) = problem.queries
    assert query.key is not None
    now = Controller.from_plan(replace(problem, queries=(replace(query, key=replace(query.key, values=())),)), plan)
    for row in (np.argmin(plan.replicas.key_to), np.argmax(plan.replicas.key_from)):
        now.handle(NodeRemoved(node=problem.nodes.ids[int(plan.replicas.node[row])].as_py()))
        keeps_its_promises(now)


def test_the_rates_double_and_halve() -> None:
    now = running(hosts=120)
    before = len(now.plan().replicas)
    for rate in (200.0, 100.0):
        now.handle(
            [RateChanged(stream=stream, source=source, rate=rate) for stream, source in (("l", "s0"), ("r", "s1"))]
        )
        keeps_its_promises(now)
        assert not now.waiting_list()
        if rate == 200.0:
            assert len(now.plan().replicas) > before
        assert predict(now.problem(), now.plan()).felt.unsettled == 0


def test_heavy_keys_survive_a_snapshot(tmp_path: Path) -> None:
    now = running()
    snapshot.write(tmp_path, 1, bytes(16), {"controller": now})
    again = snapshot.read(snapshot.path_of(tmp_path, 1), bytes(16))["controller"]
    again.handle(NodeRemoved(node="n7"))
    keeps_its_promises(again)
    assert again.problem().queries[0].key == now.problem().queries[0].key
