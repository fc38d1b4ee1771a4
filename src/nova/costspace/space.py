"""CostSpace: where every node sits, so that distance says latency."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nova.problem import Floats


@dataclass(frozen=True)
class Accuracy:
    """How well a cost space tells latencies that it was not fitted to. Errors are relative to the measured RTT."""

    heldout_pairs: int
    median_relative_error: float
    p90_relative_error: float
    mae_ms: float
    tiv_share: float
    """Share of node triples whose measured RTTs break the triangle inequality: no metric space can fit those."""


@dataclass(frozen=True)
class CostSpace:
    """n nodes in d dimensions; the distance of two different nodes is Euclidean plus both heights, in ms."""

    coordinates: Floats
    heights: Floats
    accuracy: Accuracy | None = field(default=None, compare=False)
    """None where coordinates were given and nothing was measured against them."""

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
