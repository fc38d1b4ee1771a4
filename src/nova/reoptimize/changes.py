"""Changes: what a runtime has to do so that the plan that runs becomes the plan that is wanted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

Shares: TypeAlias = tuple[float, float, float, float, float, float]
"""left_from, left_to, right_from, right_to, slice_from, slice_to: as in a plan's replica table."""
WHOLE: Shares = (0.0, 1.0, 0.0, 1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a sub-join on a node."""

    node: str
    shares: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    kind: ClassVar[str]
    query: str
    left: str
    """Id of the left source."""
    right: str
    window: int | None
    """Number of the first window (⌊event time / window length⌋) for which the change holds; None: the next one."""
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The change as plain JSON values."""
        return {"change": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy(_Change):
    """Start a replica; the sub-join's other replicas stay as they are."""

    kind: ClassVar[str] = "deploy"
    node: str
    shares: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeploy(_Change):
    """Stop a replica; the sub-join's other replicas stay as they are."""

    kind: ClassVar[str] = "undeploy"
    node: str
    shares: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(_Change):
    """The same share runs on another node."""

    kind: ClassVar[str] = "move"
    node: str
    """Where it runs now."""
    from_node: str
    shares: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(_Change):
    """The sub-join is cut otherwise: the parts `before` stop, the parts `after` start. Parts that stay are in
    neither."""

    kind: ClassVar[str] = "repartition"
    before: tuple[Part, ...]
    after: tuple[Part, ...]


Change: TypeAlias = Deploy | Undeploy | Move | Repartition


def to_line(change: Change) -> str:
    """A change as one line of JSON."""
    return json.dumps(change.as_dict(), ensure_ascii=False)
