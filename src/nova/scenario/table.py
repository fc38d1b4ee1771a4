"""Table: the columns of one table of a scenario, and checks that name the row and field of what they find.

Nothing here loops over rows in Python while the table is in order: a million nodes load in a second or two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.ids import CONTROL, REFUSED
from nova.model.problem import Bools, Floats, Ints
from nova.model.units import Quantity
from nova.scenario.dialect import POINT_HINT, comma_hint, decimal_commas, unsure_points, without_thousands
from nova.scenario.faults import SHOWN, Faults, listed, suggestion

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True)
class Table:
    """Columns with a name for the place they come from. Cells are text or typed; an empty cell is null."""

    place: str
    """File, or `scenario.yaml: nodes` for inline rows: how faults name the table."""
    columns: dict[str, pa.Array]
    rows: int
    faults: Faults
    lines: Callable[[], Sequence[int]] | None = None
    """Finds the line on which each row of a CSV file starts; asked only when there is a fault to name. None for other
    tables, where faults count records."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Columns that hold neither text nor numbers, with their types: labels at best."""
    semicolons: bool = False
    """Whether the cells of a file are parted by semicolons: a point in them may be one of thousands."""

    def __len__(self) -> int:
        return self.rows

    @cached_property
    def _lines(self) -> Sequence[int]:
        return self.lines() if self.lines is not None else range(1, self.rows + 1)

    def row(self, i: int) -> int:
        """How a user counts row `i`: its line in a CSV file (header: 1), else its record (first: 1)."""
        return self._lines[i]

    def note(self, at: Bools, field: str, message: str | Callable[[int], str], values: pa.Array | None = None) -> None:
        """One fault for every row where `at` holds; of many only the first are listed."""
        where = np.flatnonzero(at)
        for i in where[:SHOWN].tolist():
            value = values[i].as_py() if values is not None else None
            self.faults.add(self.place, message if isinstance(message, str) else message(i), self.row(i), field, value)
        self.faults.count_more(max(0, len(where) - SHOWN))

    def require(self, *names: str) -> bool:
        """Whether all named columns exist; faults list the columns that do."""
        missing = [name for name in names if name not in self.columns]
        for name in missing:
            others = [one for one in self.columns if one not in names]
            there = listed(filter(None, self.columns))
            message = f"no such column{suggestion(name, others)}; the columns here are {there}"
            if name in self.unusable:
                message = f"text or numbers expected, not {self.unusable[name]}"
            self.faults.add(self.place, message, 1 if self.lines is not None else None, name)
        return not missing

    def text(self, name: str) -> pa.StringArray:
        """A column as text without spaces around it; nothing but spaces is null."""
        column = _as_text(self.columns[name])
        trimmed = pc.utf8_trim_whitespace(column)
        return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)

    def ids(self, name: str = "id") -> pa.StringArray:
        """A column of unique names."""
        ids = self.text(name)
        self.note(_nulls(ids), name, "an id is missing")
        self.note(_holds(ids, CONTROL), name, REFUSED, ids)
        codes = ids.dictionary_encode()
        if len(codes.dictionary) < len(ids) - ids.null_count:
            numbers = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
            again = (first[inverse] != np.arange(len(ids))) & (numbers >= 0)
            self.note(again, name, lambda i: f"duplicate: row {self.row(int(first[inverse[i]]))} has this id too", ids)
        return ids.fill_null("")

    def references(self, name: str, known: pa.StringArray | None, what: str) -> Ints:
        """Rows of `known` that a column names; -1 (and a fault) where there is none. Without `known`: all -1."""
        texts = self.text(name)
        self.note(_nulls(texts), name, f"the {what} is missing")
        if known is None:
            return np.full(len(texts), -1, np.int32)
        found = pc.index_in(texts, value_set=known)
        rows = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32)
        unknown = (rows < 0) & ~_nulls(texts)
        if unknown.any():
            names = known.to_pylist()
            self.note(unknown, name, lambda i: f"no such {what}{suggestion(texts[i].as_py(), names)}", texts)
        return rows

    def numbers(
        self,
        name: str,
        quantity: Quantity,
        *,
        empty: float | None = None,
        signed: bool = False,
        infinite: bool = False,
        most: float = math.inf,
        least: float = 0.0,
    ) -> Floats:
        """A column of numbers in the base unit of `quantity`; `empty` stands for empty cells (None: they are faults).

        Wrong cells become NaN, with a fault each.
        """
        column = self.columns[name]
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
            values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
            texts, blank = column, _nulls(column)
        else:
            texts = self.text(name)
            blank = _nulls(texts)
            grouped = without_thousands(texts)
            values = np.array(quantity.column(decimal_commas(grouped)))
            if self.semicolons and grouped is texts:
                self.note(np.asarray(unsure_points(texts)), name, POINT_HINT, texts)
        if empty is None:
            self.note(blank, name, "a number is missing")
        not_number = np.isnan(values) & ~blank
        if not_number.any():
            self.note(not_number, name, lambda i: _why(texts[i].as_py(), quantity), texts)
        if not signed:
            self.note(values < 0, name, "negative", texts)
        if not infinite:
            self.note(np.isposinf(values) | (signed & np.isneginf(values)), name, "infinite", texts)
        if most < math.inf:
            too_much = (np.abs(values) > most) & np.isfinite(values)
            self.note(too_much, name, f"absurd: more than {most:,.0f} {quantity.base}", texts)
        if least > 0:
            self.note((values < least) & (values > 0), name, f"absurd: less than {least:g} {quantity.base}", texts)
        values[blank] = math.nan if empty is None else empty
        return values

    def booleans(self, name: str, *, empty: bool) -> Bools:
        """A column of true/false, yes/no or 1/0."""
        texts = self.text(name)
        lower = pc.utf8_lower(texts)
        true, false = (pc.is_in(lower, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
        blank = _nulls(texts)
        flags = true.to_numpy(zero_copy_only=False)
        self.note(~(flags | false.to_numpy(zero_copy_only=False) | blank), name, "true or false expected", texts)
        return np.asarray(np.where(blank, empty, flags), dtype=np.bool_)


def _why(value: object, quantity: Quantity) -> str:
    """What is wrong with a cell that is not a number."""
    if isinstance(value, str):
        if hint := comma_hint(value):
            return hint
        try:
            quantity.parse(value)
        except ValueError as error:
            return str(error)
    return "NaN is not a number to plan with"


def _holds(texts: pa.StringArray, pattern: str) -> Bools:
    """Where a column has a match of a pattern."""
    found = pc.match_substring_regex(texts, pattern)
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _nulls(column: pa.Array) -> Bools:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _as_text(column: pa.Array) -> pa.StringArray:
    """Any column as text; whole numbers have no decimal point, whichever type holds them."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_floating(kind):
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**53))
        if column.null_count < len(column) and pc.all(whole).as_py():
            column = column.cast(pa.int64())
    return column.cast(pa.string())
