"""Prices: what sub-joins cost where their legs do not weigh alike, or where more than latency is weighed.

The objectives `latency` and `paper` weigh the legs of all sub-joins alike (`LEG_WEIGHTS`); `network` weighs each leg by
the tuples/s that go along it. Metrics add what a sub-join costs in them on a host, times their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.metrics import Metric
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.problem import Floats, Problem
from nova.model.rates import result_rates
from nova.model.subjoins import SubJoins


@dataclass(frozen=True)
class Prices:
    """Weights of legs by sub-join, and metrics that count."""

    joins: SubJoins
    legs: Floats
    """3 × sub-joins: weights of left→host, right→host, host→sink."""
    made: Floats
    """Result tuples/s of each sub-join."""
    metrics: tuple[Metric, ...]

    @staticmethod
    def of(problem: Problem, joins: SubJoins, options: Options) -> Prices | None:
        """None where all legs weigh alike, and nothing else counts."""
        weighed = tuple(metric for metric in problem.metrics if metric.weight > 0)
        if options.objective != "network" and not weighed:
            return None
        made = result_rates(problem, joins)
        legs = np.repeat(np.array(LEG_WEIGHTS[options.objective])[:, None], len(joins), axis=1)
        if options.objective == "network":
            legs = np.stack([joins.left_rate, joins.right_rate, made])
        return Prices(joins, legs, made, weighed)

    def cost(self, rows: npt.NDArray[np.integer], nodes: npt.NDArray[np.integer], lengths: Floats) -> Floats:
        """Cost of sub-joins on nodes, which broadcast, given the lengths of their three legs in ms."""
        weights = self.legs[:, rows]
        total: Floats = weights[0] * lengths[0] + weights[1] * lengths[1] + weights[2] * lengths[2]
        return total + self.beside(rows, nodes)

    def beside(self, rows: npt.NDArray[np.integer], nodes: npt.NDArray[np.integer]) -> Floats:
        """What sub-joins cost on nodes beside their legs: their metrics, weighed."""
        total: Floats = np.zeros(np.broadcast_shapes(rows.shape, nodes.shape))
        for metric in self.metrics:
            total += metric.weight * units(metric, self.joins, self.made, rows, nodes)
        return total


def units(
    metric: Metric,
    joins: SubJoins,
    made: Floats,
    rows: npt.NDArray[np.integer],
    nodes: npt.NDArray[np.integer],
) -> Floats:
    """Units per second of a metric if sub-joins ran wholly on nodes, which broadcast."""
    left, right = joins.left_rate[rows], joins.right_rate[rows]
    total: Floats = (
        (left + right) * metric.at(nodes)
        + left * metric.way(joins.left_node[rows], nodes)
        + right * metric.way(joins.right_node[rows], nodes)
        + made[rows] * metric.way(nodes, joins.sink[rows])
    )
    return total
