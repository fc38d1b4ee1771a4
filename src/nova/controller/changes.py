"""Changes: what a runtime has to do so that the plan that runs becomes the plan that is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

Shares: TypeAlias = tuple[float, ...]
"""A box of a sub-join: left_from, left_to, right_from, right_to, slice_from, slice_to, key_from, key_to, as in a plan's
replica table."""


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
    from_window: int | None
    """Number of the first window (⌊event time / window length⌋) for which the change holds; None: the event had no
    time, so the runtime takes the next window that it has not begun."""
    from_ms: float | None
    """When that window begins, in ms since 1970."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy(_Change):
    """Start a replica; the sub-join's other replicas stay as they are."""

    kind: ClassVar[str] = "deploy"
    node: str
    shares: Shares

    @property
    def stops(self) -> tuple[Part, ...]:
        """Parts that no longer run."""
        return ()

    @property
    def starts(self) -> tuple[Part, ...]:
        """Parts that run from now on."""
        return (Part(self.node, self.shares),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeploy(_Change):
    """Stop a replica; the sub-join's other replicas stay as they are."""

    kind: ClassVar[str] = "undeploy"
    node: str
    shares: Shares

    @property
    def stops(self) -> tuple[Part, ...]:
        """Parts that no longer run."""
        return (Part(self.node, self.shares),)

    @property
    def starts(self) -> tuple[Part, ...]:
        """Parts that run from now on."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(_Change):
    """The same share runs on another node."""

    kind: ClassVar[str] = "move"
    node: str
    """Where it runs now."""
    from_node: str
    shares: Shares

    @property
    def stops(self) -> tuple[Part, ...]:
        """Parts that no longer run."""
        return (Part(self.from_node, self.shares),)

    @property
    def starts(self) -> tuple[Part, ...]:
        """Parts that run from now on."""
        return (Part(self.node, self.shares),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(_Change):
    """The sub-join is cut otherwise: the parts `before` stop, the parts `after` start. Parts that stay are in
    neither."""

    kind: ClassVar[str] = "repartition"
    before: tuple[Part, ...]
    after: tuple[Part, ...]

    @property
    def stops(self) -> tuple[Part, ...]:
        """Parts that no longer run."""
        return self.before

    @property
    def starts(self) -> tuple[Part, ...]:
        """Parts that run from now on."""
        return self.after


Change: TypeAlias = Deploy | Undeploy | Move | Repartition
KINDS: dict[str, type[Change]] = {kind.kind: kind for kind in (Deploy, Undeploy, Move, Repartition)}
