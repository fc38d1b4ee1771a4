"""Figures of placements: those of the prediction, and a choice that no figure regrets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nova.evaluation.prediction import predict
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.optimizer import optimize
from nova.placement.tails import felt_figures, least_regret
from nova.synthetic import draw


def figures(problem: Problem, plan: Plan, scv: float = 1.0) -> list[float]:
    return felt_figures(problem, plan.joins, plan.replicas, plan.space.between, scv).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_the_prediction(seed: int) -> None:
    problem = draw(60, 5, seed, load=0.4)
    plan = optimize(problem)
    felt = predict(problem, plan).felt
    assert figures(problem, plan) == pytest.approx([felt.mean_ms, felt.p90_ms, felt.p99_ms], rel=1e-9)


def test_idle_hosts_take_ways_and_service() -> None:
    """With hosts that never fill, half of the results take the longer way, and nobody waits."""
    problem = draw(20, 0, 1)
    nodes = replace(problem.nodes, capacity=np.full(20, 1e12), bandwidth=np.full(20, np.inf))
    problem = replace(problem, nodes=nodes)
    plan = optimize(problem)
    felt = predict(problem, plan).felt
    assert figures(problem, plan)[0] == pytest.approx(felt.network_ms)


def test_bursts_are_felt_longer() -> None:
    problem = draw(60, 5, 3, load=0.4)
    plan = optimize(problem)
    assert all(
        bursty > steady for bursty, steady in zip(figures(problem, plan, 4.0), figures(problem, plan), strict=True)
    )


def test_no_results_have_no_figures() -> None:
    problem = draw(20, 0, 1)
    plan = optimize(problem)
    none = replace(plan, replicas=Replicas.whole(np.empty(0, np.int32), np.empty(0, np.int32)))
    assert figures(problem, none) == [0.0, 0.0, 0.0]


def test_least_regret_prefers_what_is_behind_nowhere_by_much() -> None:
    best_mean, even, best_p99 = np.array([10.0, 20.0, 60.0]), np.array([10.1, 20.0, 41.0]), np.array([12.0, 22.0, 40.0])
    assert least_regret([best_mean, even, best_p99]) == 1


def test_what_settles_is_preferred_and_where_nothing_does_the_rest_counts() -> None:
    full, fuller, settled = np.array([np.inf, 20.0, 50.0]), np.array([np.inf, 20.0, 60.0]), np.array([11.0, 21.0, 55.0])
    assert least_regret([full, fuller, settled]) == 2
    assert least_regret([fuller, full]) == 1


def test_the_first_of_equals_is_taken() -> None:
    same = np.array([1.0, 2.0, 3.0])
    assert least_regret([same, same.copy()]) == 0
