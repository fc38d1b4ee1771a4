"""How a placement will be felt: mean, p90 and p99 of its results, to choose among placements of like cost.

The same prediction as `nova.evaluation.prediction`, but that slices count as if they were steady streams: the
placements that are chosen among have the same number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nova.model.felt import batches, mean_way, quantiles, steady_waits
from nova.model.load import shared_inputs
from nova.model.problem import Floats, Ints, Problem
from nova.model.queue import WEIGHTS
from nova.model.rates import result_rates, result_shares
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins

QUANTILES = (0.9, 0.99)


def felt_figures(
    problem: Problem, joins: SubJoins, replicas: Replicas, between: Callable[[Ints, Ints], Floats], scv: float
) -> Floats:
    """Mean, p90 and p99 in ms; zeros where there are no results to feel, infinite where queues never settle. `between`
    tells ways in ms, `scv` the variability of arrivals, which waits grow with."""
    join, node, left, right, share = shared_inputs(joins, replicas, result_shares(problem, joins, replicas))
    results = result_rates(problem, joins)[join] * share
    if not results.sum() > 0:
        return np.zeros(1 + len(QUANTILES))
    nodes = problem.nodes
    load = np.bincount(node, left + right, len(nodes)) + nodes.other_load
    with np.errstate(divide="ignore", invalid="ignore"):
        rho, service = np.where(load > 0, load / nodes.limit, 0.0), 1000.0 / nodes.limit
    ways = between(joins.left_node[join], node), between(joins.right_node[join], node)
    near, far = np.minimum(*ways), np.maximum(*ways)
    fixed = between(node, joins.sink[join]) + service[node]
    window = np.array([query.window_ms for query in problem.queries])[joins.query[join]]
    batch = batches(problem, joins, (join, node, left, right), load)
    waits = scv * steady_waits(node, rho, service, batch, window, far - near)
    mean = float(results @ (fixed + mean_way(near, far, window) + waits @ WEIGHTS) / results.sum())
    return np.array([mean, *quantiles(QUANTILES, results, near, far, fixed, window, waits)])


def under_way(problem: Problem, joins: SubJoins, replicas: Replicas, between: Callable[[Ints, Ints], Floats]) -> float:
    """Tuples and results under way, in tuples/s × ms."""
    join, node, left, right, share = shared_inputs(joins, replicas, result_shares(problem, joins, replicas))
    made = result_rates(problem, joins)[join] * share
    ways = (
        between(joins.left_node[join], node),
        between(joins.right_node[join], node),
        between(node, joins.sink[join]),
    )
    return float(left @ ways[0] + right @ ways[1] + made @ ways[2])


def least_regret(figures: Sequence[Floats]) -> int:
    """Which of several placements falls least behind the best of them in any one figure; the first of equals."""
    table = np.stack(figures)
    best = np.maximum(table.min(axis=0), 1e-300)
    behind = np.divide(table, best, out=np.ones(table.shape), where=np.isfinite(best)).max(axis=1)
    return int(np.argmin(np.round(behind, 6)))
