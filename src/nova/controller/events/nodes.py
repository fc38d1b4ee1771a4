"""Events of nodes: machines that come, go, move or change, and what is measured between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from nova.controller.events.event import Event, Finding, event_kind
from nova.model.plausible import LEAST_MS, MOST_MS

if TYPE_CHECKING:
    from nova.controller.impact import Impact
    from nova.controller.names import NamesAhead
    from nova.controller.state import State
    from nova.model.problem import Floats

__all__ = ["NodeAdded", "NodeRemoved", "NodeMoved", "CapacityChanged", "LatencyMeasured"]


@event_kind
class NodeAdded(Event):
    """A machine appears. It needs coordinates, or measured RTTs to nodes that are known (ms by node id). Queries with
    `requires` run on it where its `labels` allow."""

    kind: ClassVar[str] = "node_added"
    new_ids: ClassVar[tuple[str, ...]] = ("node",)
    node: str
    capacity: float
    bandwidth: float = math.inf
    hosts: bool = True
    coordinates: tuple[float, ...] | None = None
    height: float = 0.0
    rtts: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None

    def own_faults(self) -> Iterator[Finding]:
        yield from _faults_of_place(self)

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        if ahead.has_node(self.node):
            yield "node", "there is a node of this id already", self.node
        yield from _check_place(self, ahead)

    def note(self, ahead: NamesAhead) -> None:
        ahead.nodes[self.node] = True

    def apply(self, state: State, impact: Impact) -> None:
        at, height = state.locate(self.coordinates, self.height, self.rtts)
        row = state.add_node(at, height, self.capacity, self.bandwidth, self.hosts)
        state.names.name_node(row, self.node, self.labels or {})
        _note_rtts(state, row, self.rtts)
        impact.opened[row] = f"{self.node} added"


@event_kind
class NodeRemoved(Event):
    """A machine fails or is taken away, and with it the sources born on it. Queries whose sink it was wait for a new
    sink."""

    kind: ClassVar[str] = "node_removed"
    node: str

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from ahead.missing_node("node", self.node)

    def note(self, ahead: NamesAhead) -> None:
        ahead.nodes[self.node] = False
        ahead.gone.add(self.node)
        for key, node in ahead.sources.items():
            if node == self.node:
                ahead.sources[key] = None

    def apply(self, state: State, impact: Impact) -> None:
        row, reason = state.names.node(self.node), f"{self.node} removed"
        makers = state.names.makers()
        for source in state.sources_on(row):
            if state.names.born(int(state.sources["stream"][source])) not in makers:  # else its join runs elsewhere now
                impact.end_source(state, source, reason)
        for query in state.queries_to(row):
            state.queries["sink"][query] = -1
            for join in state.joins_in(query).tolist():
                impact.await_sink(state, join, f"sink {self.node} removed")
        state.close_node(row)
        state.nodes["room"][row] = 0.0
        impact.lose(state.shed(row), reason)
        state.measurements.forget(state, row)
        state.nodes["alive"][row] = False
        impact.opened.pop(row, None)
        del state.names.node_rows[self.node]
        impact.ended_nodes.append(row)


@event_kind
class NodeMoved(Event):
    """A machine is somewhere else in the cost space: new coordinates, or new RTTs to known nodes. Measured RTTs of the
    old place are forgotten."""

    kind: ClassVar[str] = "node_moved"
    node: str
    coordinates: tuple[float, ...] | None = None
    height: float | None = None
    rtts: Mapping[str, float] | None = None

    def own_faults(self) -> Iterator[Finding]:
        yield from _faults_of_place(self)

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from ahead.missing_node("node", self.node)
        yield from _check_place(self, ahead)

    def apply(self, state: State, impact: Impact) -> None:
        row = state.names.node(self.node)
        height = float(state.nodes["height"][row]) if self.height is None else self.height
        at, height = state.locate(self.coordinates, height, self.rtts)
        state.measurements.forget(state, row)
        _note_rtts(state, row, self.rtts)
        _move(state, row, at, height, f"{self.node} moved", impact)


@event_kind
class CapacityChanged(Event):
    """A machine can take more or less; what is not named stays."""

    kind: ClassVar[str] = "capacity_changed"
    node: str
    capacity: float | None = None
    bandwidth: float | None = None
    hosts: bool | None = None

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from ahead.missing_node("node", self.node)

    def apply(self, state: State, impact: Impact) -> None:
        nodes, row = state.nodes, state.names.node(self.node)
        for name in ("capacity", "bandwidth", "hosts"):
            value = getattr(self, name)
            if value is not None:
                nodes[name][row] = value
        before = float(nodes["room"][row])
        state.open_node(row)
        room = float(nodes["room"][row])
        reason = f"{self.node} can take {room:g} tuples/s"
        if room > before:
            impact.opened.setdefault(row, reason)
        elif room < before:
            impact.crowded.setdefault(row, reason)
        impact.lose(state.shed(row), reason)


@event_kind
class LatencyMeasured(Event):
    """A round trip was measured by node `from_node`. Small problems: it counts from now on, between these two. Large
    ones: the node that measured takes a Vivaldi step towards the place that explains it."""

    kind: ClassVar[str] = "latency_measured"
    from_node: str
    to_node: str
    rtt_ms: float

    def own_faults(self) -> Iterator[Finding]:
        if self.rtt_ms < LEAST_MS:
            yield "rtt_ms", "two machines are never 0 ms apart", self.rtt_ms
        if self.from_node == self.to_node:
            yield "to", "a node is not measured against itself", self.to_node

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from ahead.missing_node("from", self.from_node)
        yield from ahead.missing_node("to", self.to_node)

    def apply(self, state: State, impact: Impact) -> None:
        here, there = state.names.node(self.from_node), state.names.node(self.to_node)
        reason = f"{self.from_node} – {self.to_node}: {self.rtt_ms:g} ms"
        before = state.latency(here, there)
        state.measurements.note(state, here, there, self.rtt_ms)
        if not len(state.rtts):
            at, height = state.vivaldi_step(here, there, self.rtt_ms)
            _move(state, here, at, height, reason, impact)
            return
        if abs(before - self.rtt_ms) < state.stability.jitter_ms:
            return
        for host, pin in ((here, there), (there, here)):
            pinned = state.joins_pinned_at(pin).tolist()
            if self.rtt_ms >= before:  # only who uses this leg has lost
                pinned = sorted({*state.joins_on(host)} & {*pinned})
            for join in pinned:
                impact.repriced.setdefault(join, reason)


def _faults_of_place(event: NodeAdded | NodeMoved) -> Iterator[Finding]:
    if (event.coordinates is None) == (event.rtts is None):
        yield "coordinates", "either coordinates or rtts expected", None
    for value in event.coordinates or ():
        if not abs(value) <= MOST_MS:
            yield "coordinates", f"finite numbers of ms up to {MOST_MS:,.0f} expected", value
    for other, rtt in (event.rtts or {}).items():
        if not LEAST_MS <= rtt <= MOST_MS:
            yield f"rtts.{other}", "a positive, finite number of ms expected", rtt
    if event.rtts is not None and not event.rtts:
        yield "rtts", "one measurement at least expected", {}


def _check_place(event: NodeAdded | NodeMoved, ahead: NamesAhead) -> Iterator[Finding]:
    if event.coordinates is not None and len(event.coordinates) != ahead.dimensions:
        yield "coordinates", f"{ahead.dimensions} numbers expected", list(event.coordinates)
    for other in event.rtts or {}:
        if other == event.node:
            yield f"rtts.{other}", "a node is not measured against itself", other
        else:
            yield from ahead.missing_node(f"rtts.{other}", other)


def _note_rtts(state: State, row: int, rtts: Mapping[str, float] | None) -> None:
    for other, rtt in (rtts or {}).items():
        state.measurements.note(state, row, state.names.node(other), rtt)


def _move(state: State, row: int, at: Floats, height: float, reason: str, impact: Impact) -> None:
    """A node has other coordinates. Whoever depends on it looks again, if it moved far enough since last time."""
    pinned = state.move_node(row, at, height)
    if state.drifted(row) < state.stability.jitter_ms:
        return
    state.anchor(row)
    for join in (*state.joins_on(row), *pinned):
        impact.repriced.setdefault(join, reason)
    impact.opened.setdefault(row, reason)
