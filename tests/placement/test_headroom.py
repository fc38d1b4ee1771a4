"""Large problems by felt latency: all placed once, within capacity, and nearly as good as a search over every pair."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

from nova.evaluation.metrics import evaluate
from nova.evaluation.prediction import predict
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.policy import ROOMS, TIE
from nova.model.problem import Problem
from nova.optimizer import optimize
from nova.placement import assign as assigning
from nova.synthetic import draw


def large(monkeypatch: pytest.MonkeyPatch, problem: Problem, options: Options = Options()) -> Plan:
    """A plan made the way of large problems."""
    monkeypatch.setattr(assigning, "DENSE", 0)
    plan = optimize(problem, options)
    monkeypatch.undo()
    return plan


@pytest.mark.parametrize("level", [0, 3, 5])
def test_all_are_placed_whole_and_no_host_is_overloaded(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    problem = draw(1500, level, seed=2)
    plan = large(monkeypatch, problem)
    assert np.bincount(plan.replicas.join, minlength=len(plan.joins)).min() >= 1
    assert evaluate(problem, plan).overloaded == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_costs_little_more_than_looking_at_every_pair(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    problem = draw(1500, seed=seed)
    every_pair = evaluate(problem, optimize(problem)).cost_ms
    assert evaluate(problem, large(monkeypatch, problem)).cost_ms <= 1.08 * every_pair


def test_hosts_near_the_sink_get_fuller_than_far_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever moves away from the sink pays for the way: waiting near it is worth that much."""
    problem = draw(4000, 0, seed=1)
    plan = large(monkeypatch, problem)
    at = plan.space.coordinates
    away = np.linalg.norm(at - at[problem.queries[0].sink], axis=1)
    load = np.bincount(plan.replicas.node, plan.joins.demand[plan.replicas.join], len(problem.nodes))
    hosts = np.flatnonzero(problem.nodes.room > 0)
    hosts = hosts[np.argsort(away[hosts])]
    busy = [float(load[part].sum() / problem.nodes.limit[part].sum()) for part in np.array_split(hosts, 4)]
    assert busy == sorted(busy, reverse=True)
    assert busy[0] > busy[-1] + 0.1


def test_the_plan_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(3000, seed=4)
    many = large(monkeypatch, problem)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = large(monkeypatch, problem)
    finally:
        numba.set_num_threads(threads)
    assert np.array_equal(many.replicas.node, one.replicas.node)


def test_what_the_node_does_besides_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(1500, 0, seed=1)
    plan = large(monkeypatch, problem)
    favourite = int(np.bincount(plan.replicas.node).argmax())
    busy = np.zeros(len(problem.nodes))
    busy[favourite] = 0.9 * problem.nodes.capacity[favourite]
    again = large(monkeypatch, replace(problem, nodes=replace(problem.nodes, busy=busy)))
    assert (again.replicas.node == favourite).sum() < (plan.replicas.node == favourite).sum()


@pytest.mark.parametrize(("load", "seed"), [(0.3, 1), (0.6, 2)])
def test_utilisation_is_a_wish_in_large_problems_too(monkeypatch: pytest.MonkeyPatch, load: float, seed: int) -> None:
    """As it falls, predicted p99 does not rise, ties aside; nothing is refused or sliced that fits on whole hosts."""
    problem, soonest = draw(300, 5, seed, load=load), np.inf
    for share in (*ROOMS, 0.5, 0.2):
        plan = large(monkeypatch, problem, Options(utilisation=share))
        late = predict(problem, plan).felt.p99_ms
        assert late <= (1 + TIE) * soonest * (1 + 1e-9)
        assert plan.summary.sliced_sub_joins == 0
        soonest = min(soonest, late)


def test_utilisation_is_kept_in_large_problems_where_p99_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(300, 0, 1, load=0.05)
    assert large(monkeypatch, problem).summary.max_utilisation > 0.6
    assert large(monkeypatch, problem, Options(utilisation=0.5)).summary.max_utilisation <= 0.5 * (1 + 1e-9)
