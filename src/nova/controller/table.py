"""Table: records that grow in number, and whose rows are used again once freed, so that a long run does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Table:
    """Rows of records, and arrays beside them that have one entry (of any shape) per row."""

    def __init__(self, kind: np.dtype[Any], blank: dict[str, Any], beside: dict[str, int] | None = None) -> None:
        """`blank` gives what a new row says where it is not zero; `beside` names arrays of floats and their width."""
        self.blank = np.zeros(1, kind)
        for name, value in blank.items():
            self.blank[name] = value
        self.rows: Array = np.empty(0, kind)
        self.beside = {name: np.empty((0, width)) for name, width in (beside or {}).items()}
        self.end = 0
        """Rows from here on were never used."""
        self.free: list[int] = []
        """Rows that were freed, the last freed last."""

    def __getitem__(self, name: str) -> Array:
        """One column."""
        return self.beside[name] if name in self.beside else self.rows[name]

    @property
    def capacity(self) -> int:
        """Rows there is place for."""
        return len(self.rows)

    def reserve(self, capacity: int) -> None:
        """Have place for so many rows at least."""
        before = self.capacity
        if capacity > before:
            rows = np.empty(capacity, self.blank.dtype)  # np.concatenate would drop the padding of records
            rows[:before], rows[before:] = self.rows, self.blank
            self.rows = rows
            for name, array in self.beside.items():
                self.beside[name] = np.concatenate([array, np.zeros((capacity - before, array.shape[1]))])

    def grow(self) -> None:
        """Half as many rows again."""
        self.reserve(self.capacity + max(16, self.capacity // 2))

    def fill(self, size: int, columns: dict[str, Array]) -> None:
        """Use the first `size` rows for the given columns, and have some more."""
        self.reserve(size + max(16, size // 8))
        for name, values in columns.items():
            self[name][:size] = values
        self.end = size

    def take(self) -> tuple[int, bool]:
        """A blank row for use, the last freed first, and whether the arrays had to be replaced for it."""
        if self.free:
            row = self.free.pop()
            self.rows[row] = self.blank[0]
            return row, False
        row, grown = self.end, self.end == self.capacity
        if grown:
            self.grow()
        self.end += 1
        return row, grown
