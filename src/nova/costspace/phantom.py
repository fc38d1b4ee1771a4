"""Layouts whose truth is known, and measurements of them: what embeddings are tested and timed against.

After serf's coordinate package: accuracy on a known layout is a unit test with a budget.
"""

from __future__ import annotations

import numpy as np

from nova.model.problem import Floats, Latency
from nova.model.space import CostSpace


def line(n: int, spacing: float = 10.0) -> CostSpace:
    """Nodes in a row, `spacing` ms apart."""
    return _flat(np.column_stack([np.arange(n) * spacing, np.zeros(n)]))


def grid(side: int, spacing: float = 10.0) -> CostSpace:
    """side × side nodes, `spacing` ms apart."""
    rows, columns = np.divmod(np.arange(side * side), side)
    return _flat(np.column_stack([rows, columns]) * spacing)


def clusters(n: int, count: int = 8, radius: float = 100.0, spread: float = 5.0, seed: int = 0) -> CostSpace:
    """Sites on a circle of `radius` ms, with the nodes of each site scattered by `spread` ms around it."""
    rng = np.random.default_rng([seed, 20])
    angle = 2 * np.pi * (np.arange(n) % count) / count
    return _flat(radius * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(scale=spread, size=(n, 2)))


def scattered(n: int, dimensions: int = 3, width: float = 100.0, height: float = 10.0, seed: int = 0) -> CostSpace:
    """Nodes anywhere in a cube of `width` ms, behind access links of `height` ms on average (exponential)."""
    rng = np.random.default_rng([seed, 21])
    return CostSpace(rng.uniform(0, width, size=(n, dimensions)), rng.exponential(height, size=n))


def measured(truth: CostSpace, m: int | None = None, noise: float = 0.0, seed: int = 0) -> Latency:
    """RTTs in the layout: of all pairs, or of m drawn neighbours per node. `noise`: standard deviation of the RTT's
    logarithm, so that it stays positive and errors are relative."""
    rng = np.random.default_rng([seed, 22])
    n = len(truth)
    if m is None:
        first, second = np.triu_indices(n, 1)
    else:
        a = np.repeat(np.arange(n), m)
        b = (a + rng.integers(1, n, size=len(a))) % n
        key = np.unique(np.minimum(a, b) * np.int64(n) + np.maximum(a, b))
        first, second = key // n, key % n
    rtt = truth.between(first, second) * np.exp(rng.normal(scale=noise, size=len(first)))
    real = rtt > 0  # nodes on one spot: nothing to measure
    return Latency(first[real].astype(np.int32), second[real].astype(np.int32), rtt[real])


def _flat(coordinates: Floats) -> CostSpace:
    return CostSpace(coordinates, np.zeros(len(coordinates)))
