"""Replicas: which share of which sub-join runs on which node."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.model.problem import Floats, Ints
from nova.model.subjoins import SubJoins

SHARES = ("left_from", "left_to", "right_from", "right_to", "slice_from", "slice_to", "key_from", "key_to")


def with_keys(table: pa.Table) -> pa.Table:
    """A replica table with its key columns: tables written before there were keys have none, and every replica takes
    all keys there."""
    for name, value in (("key_from", 0.0), ("key_to", 1.0)):
        if name not in table.column_names:
            table = table.append_column(name, pa.array(np.full(len(table), value)))
    return table


def _absent() -> Floats:
    return np.empty(0)


@dataclass(frozen=True)
class Replicas:
    """One row per replica: which sub-join, on which node, on which part of the left stream, the right stream, the
    windows and the join key's hash space. Shares lie in [0, 1]; the boxes of a sub-join tile the unit cube."""

    join: Ints
    """Row of the sub-join."""
    node: Ints
    left_from: Floats
    left_to: Floats
    right_from: Floats
    right_to: Floats
    slice_from: Floats
    slice_to: Floats
    key_from: Floats = field(default_factory=_absent)
    """Range of the join key's hash space; where it is left out, all of it."""
    key_to: Floats = field(default_factory=_absent)

    def __post_init__(self) -> None:
        if not len(self.key_from) and len(self.join):
            object.__setattr__(self, "key_from", np.zeros(len(self.join)))
            object.__setattr__(self, "key_to", np.ones(len(self.join)))

    def __len__(self) -> int:
        return len(self.join)

    def rates(self, joins: SubJoins) -> tuple[Floats, Floats]:
        """Left and right tuples/s that reach each replica."""
        both = (self.slice_to - self.slice_from) * (self.key_to - self.key_from)
        left = joins.left_rate[self.join] * (self.left_to - self.left_from) * both
        right = joins.right_rate[self.join] * (self.right_to - self.right_from) * both
        return left, right

    @property
    def volume(self) -> Floats:
        """Part of its sub-join's results that each replica computes, in [0, 1]."""
        grid = (self.left_to - self.left_from) * (self.right_to - self.right_from)
        return grid * (self.slice_to - self.slice_from) * (self.key_to - self.key_from)

    @property
    def sliced(self) -> npt.NDArray[np.bool_]:
        """Which replicas take only some of the windows."""
        return np.asarray((self.slice_from > 0.0) | (self.slice_to < 1.0))

    @property
    def keyed(self) -> bool:
        """Whether any replica takes only some of the keys."""
        return bool(((self.key_from > 0.0) | (self.key_to < 1.0)).any())

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
