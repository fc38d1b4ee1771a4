"""What measured round-trip times are worth: true cost of plans made with and without them, beside the true optimum."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nova.costspace import embed_latency
from nova.evaluation.bounds import bound
from nova.evaluation.metrics import Measured, evaluate
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Latency, Problem
from nova.optimizer import optimize
from nova.synthetic import draw


@dataclass(frozen=True)
class Truth:
    """Costs are those of the objective `latency` under the measured times, over the optimum under the same."""

    partition: str
    limited: bool
    """Whether nodes have capacities; without them every join stands alone, and the optimum is each one's best host."""
    estimated: float
    """Chosen by the cost space alone."""
    measured: float
    """Chosen by the measured times, where known."""
    overloaded: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(nodes: int, latency: Latency, level: int, seed: int, neighbours: int) -> list[Truth]:
    """Draw sources, pairs and capacities over measured nodes, and plan with and without limits on capacity."""
    space = embed_latency(nodes, latency, Options(neighbours=neighbours, seed=seed))
    truth = Measured(latency, nodes, space)
    rows = []
    for limit, partition in ((None, "window"), (level, "window"), (level, "grid")):
        options = Options(seed=seed, partition=partition, waiting=0.0)  # type: ignore[arg-type]
        problem = draw(level=limit, seed=seed, coordinates=space.coordinates)
        problem = replace(problem, nodes=replace(problem.nodes, heights=space.heights))
        blind, seeing = optimize(problem, options), optimize(replace(problem, latency=latency), options)
        least = bound(problem, blind.joins, space, options, truth).value
        costs = [_true_cost(problem, plan, truth) / least for plan in (blind, seeing)]
        over = evaluate(problem, seeing).overloaded
        rows.append(Truth(partition, limit is not None, costs[0], costs[1], over))
    return rows


def _true_cost(problem: Problem, plan: Plan, truth: Measured) -> float:
    return evaluate(problem, plan, truth).cost_latency_ms


def means(drawn: list[list[Truth]]) -> list[Truth]:
    """Rows averaged over draws; the worst count of overloaded nodes."""
    return [
        replace(
            rows[0],
            estimated=float(np.mean([r.estimated for r in rows])),
            measured=float(np.mean([r.measured for r in rows])),
            overloaded=max(r.overloaded for r in rows),
        )
        for rows in zip(*drawn, strict=True)
    ]
