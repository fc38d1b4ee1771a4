"""Numbers with units: rates become tuples/s, durations milliseconds. What does not parse is said, never guessed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.problem import Floats

_NUMBER = r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[iI]nf(?:inity)?|NaN|nan)"
MOST = 10**300
"""Whole numbers beyond this count as infinite: no float holds them."""
_QUANTITY = rf"^\s*(?P<number>{_NUMBER})\s*(?P<unit>[^0-9.\s].*?)?\s*$"


@dataclass(frozen=True)
class Quantity:
    """A kind of number: the unit it is kept in and the units it may be written in."""

    base: str
    """The unit of the parsed number."""
    units: dict[str, float]
    """Unit as written → factor to the base unit. Case matters: mHz is not MHz."""
    bare: bool = True
    """Whether a number without a unit counts as the base unit."""

    @property
    def _hint(self) -> str:
        """The units as an error message lists them."""
        return f"; units here: {', '.join(self.units)}" if self.units else ""

    def parse(self, text: str | float) -> float:
        """One number in the base unit; ValueError says what is wrong with it."""
        if isinstance(text, bool) or not isinstance(text, int | float | str):
            raise ValueError(f"not a number{self._hint}")
        if isinstance(text, int | float):
            if not self.bare:
                raise ValueError(f"give a unit{self._hint}")
            return float(text) if isinstance(text, float) or abs(text) < MOST else (math.inf if text > 0 else -math.inf)
        match = re.match(_QUANTITY, text)
        if match is None:
            raise ValueError(f"not a number{self._hint}")
        unit = match["unit"]
        if unit is None and not self.bare:
            raise ValueError(f"give a unit{self._hint}")
        if unit is not None and unit not in self.units:
            raise ValueError(f"unknown unit {unit!r}{self._hint}")
        return float(match["number"]) * (1.0 if unit is None else self.units[unit])

    def column(self, texts: pa.StringArray) -> Floats:
        """All numbers of a column in the base unit; nulls and what does not parse become NaN.

        Columns without units take the fast path; with units, work in Python is per distinct unit, not per row.
        """
        if self.bare:
            try:
                return np.asarray(texts.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            except pa.ArrowInvalid:
                pass  # some cell has a unit, or is wrong: told apart below
        parts = pc.extract_regex(texts, _QUANTITY)
        number = pc.struct_field(parts, "number")
        unit = pc.struct_field(parts, "unit").dictionary_encode()
        written = unit.dictionary.to_pylist()
        factors = np.array(
            [(1.0 if self.bare else math.nan) if not name else self.units.get(name, math.nan) for name in written]
        )
        values = np.asarray(number.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        codes = unit.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return values * factors[codes] if len(factors) else values


NUMBER = Quantity("", {})
"""A plain number."""

RATE = Quantity(
    "tuples/s",
    {
        "/s": 1.0,
        "tuples/s": 1.0,
        "tuple/s": 1.0,
        "Hz": 1.0,
        "kHz": 1e3,
        "MHz": 1e6,
        "mHz": 1e-3,
        "/ms": 1e3,
        "/min": 1 / 60,
        "tuples/min": 1 / 60,
        "/h": 1 / 3600,
        "tuples/h": 1 / 3600,
        "/d": 1 / 86400,
    },
)
"""Rates and capacities; a bare number is tuples/s."""

RTT = Quantity("ms", {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3})
"""Latencies and coordinates; a bare number is milliseconds."""

RTT_UNITS = {"ms": 1.0, "s": 1e3, "us": 1e-3, "ns": 1e-6}
"""ms of one of the units that bare RTTs may be meant in: `latency_unit` of a scenario, `--unit` of commands."""

DURATION = Quantity("ms", {**RTT.units, "min": 6e4, "h": 3.6e6, "d": 8.64e7}, bare=False)
"""Lengths of time that nobody should have to guess the unit of, such as windows."""
