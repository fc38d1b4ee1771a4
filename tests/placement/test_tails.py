"""Rough figures of placements: right where they can be worked out by hand, and a choice that no figure regrets."""

from __future__ import annotations

import numpy as np
import pytest

from nova.evaluation.prediction import predict
from nova.model.load import node_loads, shared_inputs
from nova.model.rates import result_rates
from nova.optimizer import optimize
from nova.placement.tails import felt_figures, least_regret
from nova.synthetic import draw


def test_idle_hosts_take_ways_and_service() -> None:
    """95 of 100 results come over 10 ms to a host of 100 tuples/s, the others over 40 ms to one of 50."""
    ways, limit, results = np.array([[10.0, 40.0]] * 2), np.array([100.0, 50.0]), np.array([95.0, 5.0])
    mean, p90, p99 = felt_figures(ways, np.zeros(2), limit, results, 1.0)
    assert (p90, p99) == (20.0, 60.0)
    assert mean == pytest.approx(0.95 * 20 + 0.05 * 60)


def test_no_results_have_no_figures() -> None:
    nothing = np.zeros(0)
    assert felt_figures(np.zeros((2, 0)), nothing, nothing, nothing, 1.0).tolist() == [0.0, 0.0, 0.0]


def test_figures_are_near_the_prediction() -> None:
    problem = draw(60, 5, 3, load=0.4)
    plan = optimize(problem)
    join, node, _, _, share = shared_inputs(plan.joins, plan.replicas)
    ends = (plan.joins.left_node, plan.joins.right_node, plan.joins.sink)
    left, right, onward = (plan.space.between(end[join], node) for end in ends)
    load = node_loads(plan.joins, plan.replicas, len(problem.nodes))[node]
    results = result_rates(problem, plan.joins)[join] * share
    rough = felt_figures(np.stack([left, right]) + onward, load, problem.nodes.limit[node], results, 1.0)
    felt = predict(problem, plan).felt
    assert rough == pytest.approx([felt.mean_ms, felt.p90_ms, felt.p99_ms], rel=0.1)


def test_half_of_the_results_come_by_the_longer_way() -> None:
    one, ways = np.array([1.0]), np.array([[10.0], [50.0]])
    mean, p90, _ = felt_figures(ways, np.zeros(1), np.array([1000.0]), one, 1.0)
    assert (mean, p90) == (31.0, 51.0)


def test_least_regret_prefers_what_is_behind_nowhere_by_much() -> None:
    best_mean, even, best_p99 = np.array([10.0, 20.0, 60.0]), np.array([10.1, 20.0, 41.0]), np.array([12.0, 22.0, 40.0])
    assert least_regret([best_mean, even, best_p99]) == 1


def test_the_first_of_equals_is_taken() -> None:
    same = np.array([1.0, 2.0, 3.0])
    assert least_regret([same, same.copy()]) == 0
