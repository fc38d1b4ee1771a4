"""Events: what happens to a running plan. Small frozen values; `nova.controller.codec` has their JSON form.

Rates and capacities are tuples/s, coordinates and latencies ms. `time` (ms since 1970, or ISO 8601) says when it
happened; the changes that follow hold from the first window that begins then or later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from nova.model.ids import REFUSED, has_control
from nova.model.plausible import LEAST_MS, MOST_MS, MOST_RATE
from nova.model.requires import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class OneEvent:
    """What all events share."""

    kind: ClassVar[str]
    time: float | None = None
    """ms since 1970; None: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAdded(OneEvent):
    """A machine appears. It needs coordinates, or measured RTTs to nodes that are known (ms by node id). Queries with
    `requires` run on it where its `labels` allow."""

    kind: ClassVar[str] = "node_added"
    node: str
    capacity: float
    bandwidth: float = math.inf
    hosts: bool = True
    coordinates: tuple[float, ...] | None = None
    height: float = 0.0
    rtts: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRemoved(OneEvent):
    """A machine fails or is taken away, and with it the sources born on it. Queries whose sink it was wait for a new
    sink."""

    kind: ClassVar[str] = "node_removed"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMoved(OneEvent):
    """A machine is somewhere else in the cost space: new coordinates, or new RTTs to known nodes. Measured RTTs of the
    old place are forgotten."""

    kind: ClassVar[str] = "node_moved"
    node: str
    coordinates: tuple[float, ...] | None = None
    height: float | None = None
    rtts: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged(OneEvent):
    """A machine can take more or less; what is not named stays."""

    kind: ClassVar[str] = "capacity_changed"
    node: str
    capacity: float | None = None
    bandwidth: float | None = None
    hosts: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMeasured(OneEvent):
    """A round trip was measured by node `from_node`."""

    kind: ClassVar[str] = "latency_measured"
    from_node: str
    to_node: str
    rtt_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAdded(OneEvent):
    """A physical stream appears. It joins the sources that the queries' rules say (equal `attributes`, or all of a
    dense query), and the `partners` listed by query, which also serve queries that list their pairs one by one."""

    kind: ClassVar[str] = "source_added"
    stream: str
    source: str
    node: str
    rate: float
    attributes: Mapping[str, str] | None = None
    partners: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRemoved(OneEvent):
    """A physical stream ends."""

    kind: ClassVar[str] = "source_removed"
    stream: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChanged(OneEvent):
    """A source sends more or less."""

    kind: ClassVar[str] = "rate_changed"
    stream: str
    source: str
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAllowed(OneEvent):
    """The join matrix now allows a pair of sources. Nothing happens where it did already."""

    kind: ClassVar[str] = "pair_allowed"
    query: str
    left: str
    right: str
    output_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWithdrawn(OneEvent):
    """The join matrix no longer allows a pair of sources. Nothing happens where it did not."""

    kind: ClassVar[str] = "pair_withdrawn"
    query: str
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAdded(OneEvent):
    """A query over streams: joined on an attribute that another running query joins these streams on, by a list of
    pairs, or (with neither) every left source with every right one."""

    kind: ClassVar[str] = "query_added"
    query: str
    left: str
    right: str
    sink: str
    window_ms: float = 1000.0
    on: tuple[str, ...] | None = None
    pairs: tuple[tuple[str, str], ...] | None = None
    requires: str | None = None
    """Conditions on the labels of its hosts, as in a scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRemoved(OneEvent):
    """Nobody wants a query's results any more."""

    kind: ClassVar[str] = "query_removed"
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMoved(OneEvent):
    """A query's results go to another node."""

    kind: ClassVar[str] = "sink_moved"
    query: str
    sink: str


Event: TypeAlias = (
    NodeAdded
    | NodeRemoved
    | NodeMoved
    | CapacityChanged
    | LatencyMeasured
    | SourceAdded
    | SourceRemoved
    | RateChanged
    | PairAllowed
    | PairWithdrawn
    | QueryAdded
    | QueryRemoved
    | SinkMoved
)
KINDS: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (
        NodeAdded,
        NodeRemoved,
        NodeMoved,
        CapacityChanged,
        LatencyMeasured,
        SourceAdded,
        SourceRemoved,
        RateChanged,
        PairAllowed,
        PairWithdrawn,
        QueryAdded,
        QueryRemoved,
        SinkMoved,
    )
}
RATES = ("capacity", "bandwidth", "rate", "output_rate")
"""Fields in tuples/s."""
LATENCIES = ("height", "rtt_ms")
"""Fields in ms."""
_NEW_IDS = {"node_added": ("node",), "source_added": ("stream", "source"), "query_added": ("query",)}
"""Fields that bring an id into the plan; the others must name one that is there."""


def faults_in(event: Event) -> Iterator[tuple[str, str, Any]]:
    """What is wrong with an event whatever the plan: (field as JSON names it, message, value)."""
    for name in _NEW_IDS.get(event.kind, ()):
        if has_control(getattr(event, name)):
            yield name, REFUSED, getattr(event, name)
    for name in RATES:
        value = getattr(event, name, None)
        if value is not None:
            if math.isnan(value) or value < 0:
                yield name, "a rate is a number ≥ 0", value
            elif math.isinf(value) and name in ("rate", "output_rate"):
                yield name, "a rate is finite", value
            elif MOST_RATE < value < math.inf:
                yield name, f"absurd: more than {MOST_RATE:,.0f} tuples/s", value
    for name in LATENCIES:
        value = getattr(event, name, None)
        if value is not None and not 0 <= value <= MOST_MS:
            yield name, f"a number of ms in 0…{MOST_MS:,.0f} expected", value
    if isinstance(event, LatencyMeasured):
        if event.rtt_ms < LEAST_MS:
            yield "rtt_ms", "two machines are never 0 ms apart", event.rtt_ms
        if event.from_node == event.to_node:
            yield "to", "a node is not measured against itself", event.to_node
    if isinstance(event, QueryAdded):
        if not (0 < event.window_ms < math.inf):
            yield "window_ms", "a positive, finite number of ms expected", event.window_ms
        if event.on is not None and event.pairs is not None:
            yield "pairs", "a query joins `on` an attribute or by `pairs`, not both", None
        if event.requires is not None:
            try:
                parse(event.requires)
            except ValueError as error:
                yield "requires", str(error), event.requires
        if event.left == event.right:
            yield "right", "a stream is not joined with itself", event.right
    if isinstance(event, NodeAdded | NodeMoved):
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
    if event.time is not None and not math.isfinite(event.time):
        yield "time", "ms since 1970, or ISO 8601, expected", event.time
