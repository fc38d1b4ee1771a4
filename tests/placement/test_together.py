"""Joins of joins move two at a time: near the integer optimum, and within all bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chained import TREES, drawn, integer_optimum
from nova.evaluation.bounds import lower_bound
from nova.evaluation.metrics import evaluate
from nova.model.errors import Infeasible
from nova.model.links import Link
from nova.model.operators import Tree
from nova.model.options import Options
from nova.model.requires import parse
from nova.optimizer import optimize
from nova.placement.check import check
from nova.synthetic import draw_chains


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("objective", ["latency", "paper", "network"])
def test_near_the_integer_optimum(tree: Tree, objective: Any) -> None:
    options = Options(objective=objective, waiting=0.0, max_replicas=1, partition="grid")
    ratios = []
    for seed in range(8):
        problem = drawn(100 + seed, tree)
        plan = optimize(problem, options)
        check(problem, plan)
        best = integer_optimum(problem, plan.joins, plan.space, options)
        assert best is not None
        ratios.append(evaluate(problem, plan).cost_ms / best)
    assert min(ratios) > 1 - 1e-6
    assert np.mean(ratios) < 1.1


def test_a_join_and_its_reader_meet_where_both_cost_least() -> None:
    """Level by level, the first join goes where its results would go straight to the sink; both cost less together."""
    problem, options = draw_chains(200, seed=1), Options(waiting=0.0)
    plan = optimize(problem, options)
    check(problem, plan)
    assert evaluate(problem, plan).cost_ms < 1.08 * lower_bound(problem, plan).value


@pytest.mark.parametrize("seed", range(6))
def test_what_queries_require_and_links_hold(seed: int) -> None:
    """Hosts of one zone only, and a link that takes a part of what is sent: whatever moves stays within."""
    problem = drawn(seed, TREES[0], instances=3, workers=12)
    zone = pa.array(np.random.default_rng(seed).integers(0, 2, len(problem.nodes)))
    bound = replace(
        problem,
        nodes=replace(problem.nodes, labels={"zone": zone}),
        queries=(replace(problem.queries[0], requires=parse("zone >= 1")), problem.queries[1]),
        links=(Link("zone", "0", "1", 0.6 * float(problem.sources.rate.sum())),),
    )
    try:
        plan = optimize(bound, Options(waiting=0.0, max_replicas=1, partition="grid"))
    except Infeasible:
        pytest.skip("this draw has no plan at all")
    check(bound, plan)
    first = plan.joins.query[plan.replicas.join] == 0
    assert np.asarray(zone)[plan.replicas.node[first]].all()
