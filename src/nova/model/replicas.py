"""Replicas: which share of which sub-join runs on which node."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from nova.model.problem import Floats, Ints
from nova.model.subjoins import SubJoins

SHARES = ("left_from", "left_to", "right_from", "right_to", "slice_from", "slice_to")


@dataclass(frozen=True)
class Replicas:
    """One row per replica: which sub-join, on which node, on which part of the left stream, the right stream and the
    windows. Shares lie in [0, 1]; the boxes of a sub-join tile the unit cube."""

    join: Ints
    """Row of the sub-join."""
    node: Ints
    left_from: Floats
    left_to: Floats
    right_from: Floats
    right_to: Floats
    slice_from: Floats
    slice_to: Floats

    def __len__(self) -> int:
        return len(self.join)

    def rates(self, joins: SubJoins) -> tuple[Floats, Floats]:
        """Left and right tuples/s that reach each replica."""
        slices = self.slice_to - self.slice_from
        left = joins.left_rate[self.join] * (self.left_to - self.left_from) * slices
        right = joins.right_rate[self.join] * (self.right_to - self.right_from) * slices
        return left, right

    def take(self, rows: npt.NDArray[Any]) -> Replicas:
        """The given rows (indices or mask) as a table of their own."""
        return Replicas(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def whole(join: npt.NDArray[np.integer], node: npt.NDArray[np.integer]) -> Replicas:
        """Unsplit sub-joins: one replica each."""
        zero, one = np.zeros(len(join)), np.ones(len(join))
        return Replicas(join.astype(np.int32), node.astype(np.int32), zero, one, zero, one, zero, one)

    @staticmethod
    def concat(parts: list[Replicas]) -> Replicas:
        """The rows of several tables, one after the other."""
        return Replicas(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Replicas)})
