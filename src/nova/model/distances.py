"""What a sub-join costs on a host: the weighted legs left→host, right→host, host→sink, measured where known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.model.policy import SQUARE
from nova.model.problem import Floats, Ints, Latency
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


class LegLengths:
    """Distances in ms between nodes: the cost space, overridden by measured RTTs where there is a measurement."""

    def __init__(self, space: CostSpace, latency: Latency | None = None) -> None:
        self.space = space
        self.estimate = space.between if latency is None else space.estimate
        self.matrix = None
        self.pairs, self.rtt_ms = np.empty(0, np.int64), np.empty(0)
        if latency is None:
            return
        if len(space) <= SQUARE:
            self.matrix = latency.matrix(len(space))
        else:  # sorted pairs instead: many nodes may have few measurements
            pairs = latency.first.astype(np.int64) * len(space) + latency.second
            order = np.argsort(pairs)
            self.pairs, self.rtt_ms = pairs[order], latency.rtt_ms[order]

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """Latency of each pair in ms."""
        estimated = self.estimate(a, b)
        if self.matrix is not None:
            known = self.matrix[a, b]
            return np.where(np.isnan(known), estimated, known)
        if not len(self.pairs):
            return estimated
        a, b = np.broadcast_arrays(a, b)
        wanted = np.minimum(a, b).astype(np.int64) * len(self.space) + np.maximum(a, b)
        at = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[at] == wanted, self.rtt_ms[at], estimated)

    def of(self, joins: SubJoins, rows: npt.NDArray[np.integer], nodes: Ints) -> Floats:
        """The three legs of sub-joins `rows` on every node of `nodes`: 3 × rows × nodes."""
        pinned = (joins.left_node, joins.right_node, joins.sink)
        return np.stack([self.between(end[rows][:, None], nodes[None, :]) for end in pinned])


def weighted(legs: Floats, weights: Floats) -> Floats:
    """Cost from legs: their weighted sum over the first axis."""
    total: Floats = np.tensordot(weights, legs, axes=1)
    return total
