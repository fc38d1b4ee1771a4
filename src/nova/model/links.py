"""Links with budgets: how much may travel from some nodes to others, and how much a plan sends there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ANY = "*"
"""Stands for all nodes on the other side of a link."""


@dataclass(frozen=True)
class Link:
    """What leaves nodes with one value of a label (or one node, by its id) for nodes with another."""

    label: str
    """Label of the nodes table that `origin` and `target` are values of; `id` for single nodes."""
    origin: str
    target: str
    budget: float
    """Tuples/s."""

    def __str__(self) -> str:
        by = "" if self.label == "id" else f"{self.label} "
        return f"{by}{self.origin} → {self.target}"

    def ends(self, ids: pa.StringArray, labels: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
        """2 × nodes: those it leaves, and those it reaches. A node without the label is on neither end."""
        texts = pc.cast(ids if self.label == "id" else labels[self.label], pa.string())
        known = np.asarray(texts.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        sides = [_equal(texts, name) for name in (self.origin, self.target)]
        for mine, other, name in ((0, 1, self.origin), (1, 0, self.target)):
            if name == ANY:
                sides[mine] = known & ~sides[other]
        return np.array(sides)


def _equal(texts: pa.StringArray, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.equal(texts, name), False).to_numpy(zero_copy_only=False), dtype=np.bool_)
