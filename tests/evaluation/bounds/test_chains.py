"""Joins of joins: the bound is one, near the integer optimum, and told for every objective and size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chained import TREES, drawn, integer_optimum
from nova.evaluation.bounds import bound, lower_bound
from nova.evaluation.bounds.chains import anywhere
from nova.evaluation.metrics import evaluate
from nova.model.metrics import Metric
from nova.model.operators import Tree
from nova.model.options import Options
from nova.model.ways import Chained
from nova.optimizer import optimize
from nova.synthetic import draw_chains

OBJECTIVES = ("latency", "paper", "network")


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_below_and_near_the_integer_optimum(tree: Tree, objective: Any) -> None:
    options = Options(objective=objective, waiting=0.0, max_replicas=1, partition="grid")
    close = []
    for seed in range(6):
        problem = drawn(seed, tree)
        plan = optimize(problem, options)
        best = integer_optimum(problem, plan.joins, plan.space, options)
        assert best is not None
        found = bound(problem, plan.joins, plan.space, options)
        assert found.kind == "chained"
        assert found.value <= best * (1 + 1e-6)
        assert anywhere(Chained.of(problem, plan.joins, options), plan.space) <= best * (1 + 1e-6)
        close.append(found.value / best)
    assert np.mean(close) > 0.85


@pytest.mark.parametrize("tree", TREES)
def test_exact_where_hosts_have_room_for_all(tree: Tree) -> None:
    """Without rivals for room, ways split way by way reach the optimum of a tree."""
    options = Options(waiting=0.0, max_replicas=1)
    for seed in range(4):
        problem = drawn(seed, tree, spare=100.0)
        plan = optimize(problem, options)
        best = integer_optimum(problem, plan.joins, plan.space, options)
        assert lower_bound(problem, plan).value == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("waiting", [0.0, 1.0])
@pytest.mark.parametrize("objective", ["latency", "paper"])
def test_no_plan_is_cheaper(objective: Any, waiting: float) -> None:
    for seed in range(4):
        problem = draw_chains(40, seed=seed)
        plan = optimize(problem, Options(objective=objective, waiting=waiting, max_replicas=1))
        figures = evaluate(problem, plan, bound=lower_bound)
        assert figures.gap is not None
        assert -1e-9 <= figures.gap < 0.6


def test_metrics_count() -> None:
    rng = np.random.default_rng(3)
    problem = drawn(3, TREES[0])
    n = len(problem.nodes)
    metric = Metric(
        "energy", 0.5, rng.uniform(0, 9, n), rng.integers(0, 2, n).astype(np.int32), rng.uniform(0, 9, (2, 2))
    )
    dear = replace(problem, metrics=(metric,))
    options = Options(objective="network", waiting=0.0, max_replicas=1, partition="grid")
    plan = optimize(dear, options)
    best = integer_optimum(dear, plan.joins, plan.space, options)
    assert best is not None
    found = bound(dear, plan.joins, plan.space, options).value
    assert 0.9 * best <= found <= best * (1 + 1e-6)
    assert found > bound(problem, plan.joins, plan.space, options).value


def test_large_problems_have_one_too() -> None:
    problem = draw_chains(3000, seed=1)
    plan = optimize(problem, Options(waiting=0.0))
    found = bound(problem, plan.joins, plan.space, plan.options)
    assert found.kind == "anywhere"
    assert 0.7 * evaluate(problem, plan).cost_ms < found.value < evaluate(problem, plan).cost_ms
