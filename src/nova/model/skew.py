"""Skew: where keys lie on the key axis of boxes.

The key axis measures tuples, not hashes. A heavy key of share s takes a range of length s, the heaviest first; all
other keys follow in the order of their hashes. So the length of a range is the share of the tuples that it takes, and a
heavy key can have a range of its own. Where nobody names heavy keys, the axis is the hash space itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from nova.model.problem import Key, Query

OTHERS = 1e-3
"""Share of the tuples that keys besides the heavy ones have at least: what is stated need not be all there is."""


@dataclass(frozen=True)
class KeyAxis:
    """The key axis of a query's boxes."""

    values: tuple[str, ...] = ()
    """Heavy keys, the heaviest first, as texts."""
    edges: tuple[float, ...] = (0.0,)
    """Where their ranges begin, and where the last one ends and that of all other keys begins."""

    @staticmethod
    def of(query: Query) -> KeyAxis:
        """The axis of a query. Heavy keys have ranges where tuples join on one column alone: elsewhere nobody can tell
        by their values where they are."""
        key, columns = query.key, query.pipeline.left.keys or query.pipeline.on
        if key is None or not key.values or len(columns) != 1:
            return PLAIN
        return KeyAxis(key.values, _edges(key))

    def __bool__(self) -> bool:
        """Whether any key has a range of its own."""
        return bool(self.values)


PLAIN = KeyAxis()
"""The axis of a query without heavy keys."""


def _edges(key: Key) -> tuple[float, ...]:
    """Where the ranges of heavy keys begin, and where the last one ends."""
    all_of_them = sum(key.heavy)
    scale = (1.0 - OTHERS) / all_of_them if all_of_them > 1.0 - OTHERS else 1.0
    return tuple(accumulate((share * scale for share in key.heavy), initial=0.0))
