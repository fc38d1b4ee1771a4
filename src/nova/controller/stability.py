"""Stability: what a change has to be worth. A plan that follows every breath of the network helps nobody."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stability:
    """When a replica that could stay is moved all the same. What must move (its host is gone or too full) moves."""

    jitter_ms: float = 5.0
    """A node that moved by less than this since its sub-joins were last considered makes nobody look again."""
    migration_ms: float = 1.0
    """What a move costs: it has to lower the mean latency of the sub-join's two sources by more than this."""
    hysteresis: float = 0.02
    """… and by more than this share of what the sub-join costs now."""
    effort: int = 6
    """How hard each event looks for replicas that could give way or fill new room; 0 moves only what must move."""

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
