"""Bounds beyond which a number in the input is a mistake. Loads nothing, so that a journal is read without numpy."""

from __future__ import annotations

MOST_RATE = 1e15
"""Tuples/s beyond which a rate or a finite capacity is a mistake; sums of them stay exact enough to check."""
MOST_MS = 1e9
"""Coordinates beyond this many ms (eleven days) are a mistake."""
LEAST_MS = 1e-6
"""A round trip of less than a nanosecond is a mistake: light gets 30 cm far."""
