"""Ways: what sub-joins cost by themselves and the ways between them are the whole cost of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import market
from chained import TREES, drawn
from nova.evaluation.metrics import evaluate
from nova.model.metrics import Metric
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.ways import Chained
from nova.optimizer import optimize
from nova.scenario import load

SAME = "TUMBLE({0}.at, INTERVAL '2' SECOND) = TUMBLE({1}.at, INTERVAL '2' SECOND)"
DENSE = f"""SELECT b.value, p.city FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            JOIN people p ON a.seller = p.id AND {SAME.format("a", "p")}"""
"""Several sub-joins read what one makes."""


def added_up(problem: Problem, plan: Plan) -> float:
    chained = Chained.of(problem, plan.joins, plan.options)
    host = np.empty(len(plan.joins), int)
    host[plan.replicas.join] = plan.replicas.node
    nodes = np.arange(len(problem.nodes))
    total = chained.own_costs(plan.space.between, nodes)[np.arange(len(host)), host].sum()
    for number, (maker, reader) in enumerate(zip(chained.ways.maker, chained.ways.reader, strict=True)):
        ends = host[maker : maker + 1], host[reader : reader + 1]
        total += chained.ways.cost(number, *ends, plan.space.between(*ends))[0]
    return float(total)


@pytest.mark.parametrize("objective", ["latency", "paper", "network"])
@pytest.mark.parametrize("number", range(4))
def test_they_add_up_to_the_cost_of_a_plan(objective: Any, number: int) -> None:
    problem = load(market.document({"q": DENSE})).problem if number == 3 else drawn(7, TREES[number])
    rng = np.random.default_rng(1)
    n = len(problem.nodes)
    group = rng.integers(-1, 2, n).astype(np.int32)
    problem = replace(problem, metrics=(Metric("carbon", 0.3, rng.uniform(0, 5, n), group, rng.uniform(0, 5, (2, 2))),))
    plan = optimize(problem, Options(objective=objective, waiting=0.0, max_replicas=1, partition="grid"))
    assert len(plan.replicas) == len(plan.joins)
    assert added_up(problem, plan) == pytest.approx(evaluate(problem, plan).cost_ms)
