"""Impact: what a batch of events affects, and the edits of sub-joins and sources that kinds of events share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova.controller.state import State


@dataclass
class Impact:
    """What the rest of a step has to look at. Reasons are words for people; they stand in the change list."""

    unplaced: dict[int, str] = field(default_factory=dict)
    """Sub-joins of which some share has no host, and why."""
    opened: dict[int, str] = field(default_factory=dict)
    """Nodes with more room than before, and why."""
    repriced: dict[int, str] = field(default_factory=dict)
    """Sub-joins whose costs changed, and why."""
    crowded: dict[int, str] = field(default_factory=dict)
    """Nodes on which everything waits longer than before, and why."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why each sub-join was touched."""
    placed: list[int] = field(default_factory=list)
    """Sub-joins that got a host in this step because they had to."""
    ended_nodes: list[int] = field(default_factory=list)
    ended_sources: list[int] = field(default_factory=list)
    ended_joins: list[int] = field(default_factory=list)
    ended_queries: list[int] = field(default_factory=list)
    retry: bool = False
    """Whether waiting sub-joins may fit now although no node has more room."""
    events: int = 0
    """How many events the batch has."""

    @property
    def cause(self) -> str:
        """What to name where a sub-join moves that no event touched."""
        return next(iter((*self.reasons.values(), *self.opened.values(), *self.crowded.values())), "a measurement")

    def lose(self, joins: Iterable[int], reason: str) -> None:
        """Sub-joins lost replicas, and need hosts."""
        for join in joins:
            self.unplaced.setdefault(join, reason)

    def add_join(self, state: State, query: int, left: int, right: int, output: float, reason: str) -> None:
        """A pair of sources is joined from now on."""
        row = state.add_join(query, left, right, output)
        if state.queries["sink"][query] < 0:
            self.await_sink(state, row, reason)
        else:
            state.refresh_ideals([row])
            self.unplaced[row] = reason

    def end_join(self, state: State, join: int, reason: str) -> None:
        """A pair of sources is no longer joined."""
        for node in state.hosts_of(join):
            self.opened.setdefault(node, reason)
        state.end_join(join)
        self.unplaced.pop(join, None)
        self.repriced.pop(join, None)
        self.reasons[join] = reason
        self.ended_joins.append(join)

    def await_sink(self, state: State, join: int, reason: str) -> None:
        """A sub-join whose results nobody can get waits for a sink."""
        state.stop_join(join)
        state.backlog.add(join, math.inf)
        self.unplaced.pop(join, None)
        self.repriced.pop(join, None)
        self.reasons[join] = reason

    def end_source(self, state: State, source: int, reason: str) -> None:
        """A source is gone, and with it all sub-joins that read it."""
        names, stream = state.names, int(state.sources["stream"][source])
        for join in state.joins_of(source).tolist():
            self.end_join(state, join, reason)
        state.unlink_source(source)
        for rule in names.queries:
            if rule is not None and rule.side_of(stream) >= 0:
                rule.leave(source, rule.side_of(stream))
        state.sources["alive"][source] = False
        del names.source_rows[stream][names.sources[source]]
        self.ended_sources.append(source)
