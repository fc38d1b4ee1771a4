"""What each sub-join costs on each host, as a matrix or in blocks of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nova.evaluation.metrics import Distances
from nova.model.prices import Prices
from nova.model.problem import Floats
from nova.model.subjoins import SubJoins

LegWeights = tuple[float, float, float]
"""Weights of the ways left → host, right → host, host → sink."""

BLOCK = 4_000_000
"""Entries held at a time."""


def cost_matrix(
    joins: SubJoins,
    distances: Distances,
    hosts: npt.NDArray[np.integer],
    legs: LegWeights,
    prices: Prices | None = None,
) -> Floats:
    """Cost in ms of every sub-join (row) on every host (column); by `prices`, where legs do not weigh alike."""
    cost = np.empty((len(joins), len(hosts)))
    for rows, block in cost_blocks(joins, distances, hosts, legs, prices):
        cost[rows] = block
    return cost


def cost_blocks(
    joins: SubJoins,
    distances: Distances,
    hosts: npt.NDArray[np.integer],
    legs: LegWeights,
    prices: Prices | None = None,
) -> Iterator[tuple[slice, Floats]]:
    """The same matrix, some rows at a time."""
    step = max(1, BLOCK // max(1, len(hosts)))
    for start in range(0, len(joins), step):
        rows = slice(start, start + step)
        ends = (joins.left_node[rows], joins.right_node[rows], joins.sink[rows])
        if prices is not None:
            lengths = np.stack([distances.between(end[:, None], hosts[None, :]) for end in ends])
            yield rows, prices.cost(np.arange(len(joins))[rows, None], hosts[None, :], lengths)
            continue
        block = np.zeros((len(ends[0]), len(hosts)))
        for weight, end in zip(legs, ends, strict=True):
            block += weight * distances.between(end[:, None], hosts[None, :])
        yield rows, block
