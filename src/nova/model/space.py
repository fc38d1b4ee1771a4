"""CostSpace: where every node sits, so that distance says latency."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from nova.model.problem import Floats

Rows: TypeAlias = npt.NDArray[np.int64]
"""Rows of a list of pairs, or offsets into it: there may be more than 2³¹."""

HeldOut = Literal["unused", "reserved", "refit", "given", "none"]
"""Where the pairs come from that accuracy is told on: `unused`: measured, but beyond the m neighbours per node;
`reserved`: a small share that was kept out of the fit; `refit`: a tenth that was kept out of a second fit, while the
space itself uses all; `given`: all measurements, as the coordinates came with the nodes; `none`: the fitted pairs
themselves, as too few were measured to keep any out (an error of the fit, not of prediction)."""


@dataclass(frozen=True)
class Accuracy:
    """How well a cost space tells latencies that it was not fitted to. Errors are relative to the measured RTT."""

    heldout_pairs: int
    median_relative_error: float
    p90_relative_error: float
    mae_ms: float
    tiv_share: float
    """Share of triples (i, j, k) where the way over k is shorter than the direct one, d(i,j) > d(i,k) + d(k,j): no
    metric space can fit those. NaN where no three pairs of a triple were measured."""
    heldout: HeldOut = "unused"
    """Which pairs the figures are told on."""
    coordinates_median: float | None = None
    """Median relative error of the coordinates alone, where a residual refines them."""


FLOOR = 0.1
"""A residual never takes an estimate below this share of what the coordinates say."""


@dataclass(frozen=True)
class Residual:
    """What coordinates cannot say about the latency of two nodes: a few products, Σ_k sign_k · f_ak · f_bk, in ms."""

    factors: Floats
    """n × rank."""
    signs: Floats
    """1 or −1 for each factor."""

    @property
    def rank(self) -> int:
        return len(self.signs)

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """ms to add for nodes `a` and `b`, element by element (broadcasting)."""
        added: Floats = (self.factors[a] * self.factors[b]) @ self.signs
        return added


@dataclass(frozen=True)
class CostSpace:
    """n nodes in d dimensions; the distance of two different nodes is Euclidean plus both heights, in ms."""

    coordinates: Floats
    heights: Floats
    accuracy: Accuracy | None = field(default=None, compare=False)
    """None where coordinates were given and nothing was measured against them."""
    residual: Residual | None = field(default=None, compare=False)
    """Refines `estimate` where cross-validation found that it helps; geometry (`between`) does without."""

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def dimensions(self) -> int:
        return int(self.coordinates.shape[1])

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """Latency in ms between nodes `a` and `b`, element by element (broadcasting)."""
        a, b = np.broadcast_arrays(a, b)
        straight = np.linalg.norm(self.coordinates[a] - self.coordinates[b], axis=-1)
        reach: Floats = np.where(a == b, 0.0, straight + self.heights[a] + self.heights[b])
        return reach

    def estimate(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """The best guess of an RTT that nobody measured, in ms: `between`, with the residual where there is one."""
        told = self.between(a, b)
        if self.residual is None:
            return told
        return np.where(told > 0, np.maximum(told + self.residual.between(a, b), FLOOR * told), told)
