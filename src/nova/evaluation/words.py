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
