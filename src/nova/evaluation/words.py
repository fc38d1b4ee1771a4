"""Numbers as people read them."""

from __future__ import annotations

import math


def rate(tuples: float) -> str:
    """Tuples/s in four digits or whole: 2.5, 37.5, 12,345; `no limit` for infinity; 0 for what rounding left."""
    if math.isinf(tuples):
        return "no limit"
    if abs(tuples) < 1e-6:
        return "0"
    return f"{tuples:,.4g}" if abs(tuples) < 10_000 else f"{tuples:,.0f}"


def latency(ms: float) -> int | str | None:
    """A latency in whole ms for a cell; in seconds where it is long, `never` for a queue that never settles, nothing
    for NaN."""
    if math.isnan(ms):
        return None
    if math.isinf(ms):
        return "never"
    return round(ms) if ms < 10_000 else f"{ms / 1000:,.0f} s"
