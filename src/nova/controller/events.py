"""Events: what happens to a running plan. Small frozen values with a JSON form of one line each.

Rates and capacities are tuples/s, coordinates and latencies ms. `time` (ms since 1970, or ISO 8601) says when it
happened; the changes that follow hold from the first window that begins then or later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias, get_type_hints

from nova.model.errors import Fault, InvalidInput
from nova.model.ids import REFUSED, has_control
from nova.model.units import LEAST_MS, MOST_MS, MOST_RATE

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class OneEvent:
    """What all events share."""

    kind: ClassVar[str]
    time: float | None = None
    """ms since 1970; None: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAdded(OneEvent):
    """A machine appears. It needs coordinates, or measured RTTs to nodes that are known (ms by node id)."""

    kind: ClassVar[str] = "node_added"
    node: str
    capacity: float
    bandwidth: float = math.inf
    hosts: bool = True
    coordinates: tuple[float, ...] | None = None
    height: float = 0.0
    rtts: Mapping[str, float] | None = None


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
_WRITTEN = {"from_node": "from", "to_node": "to"}
"""Fields that are words of Python, as JSON names them."""
_READ = {written: name for name, written in _WRITTEN.items()}
_RATES = ("capacity", "bandwidth", "rate", "output_rate")
_LATENCIES = ("height", "rtt_ms")
_NEW_IDS = {"node_added": ("node",), "source_added": ("stream", "source"), "query_added": ("query",)}
"""Fields that bring an id into the plan; the others must name one that is there."""


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values; what has its default is left out, infinity is written as text."""
    document: dict[str, Any] = {"event": event.kind}
    for field in fields(event):
        value = getattr(event, field.name)
        if value != field.default:
            if isinstance(value, float) and math.isinf(value):
                value = "inf"
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = {k: list(v) if isinstance(v, tuple) else v for k, v in value.items()}
            document[_WRITTEN.get(field.name, field.name)] = value
    return document


def to_line(event: Event | tuple[Event, ...]) -> str:
    """An event, or a batch that is one step, as one line."""
    if isinstance(event, tuple):
        return json.dumps([to_json(one) for one in event], ensure_ascii=False)
    return json.dumps(to_json(event), ensure_ascii=False)


def from_json(document: Any, file: str = "event", line: int | None = None) -> Event:
    """The event that a JSON object says. Raises `InvalidInput` with every field that is wrong."""
    from pydantic import ValidationError

    if not isinstance(document, dict):
        raise InvalidInput([Fault(file, "an event is a JSON object", line, None, _short(document))])
    name = document.get("event")
    if not isinstance(name, str) or name not in KINDS:
        raise InvalidInput([Fault(file, f"no such event; there are {', '.join(KINDS)}", line, "event", _short(name))])
    content = {_READ.get(key, key): value for key, value in document.items() if key != "event"}
    try:
        checked = _model(name).model_validate(content)
    except ValidationError as error:
        raise InvalidInput(
            [
                Fault(
                    file,
                    _words(detail["type"], detail["msg"], name),
                    line,
                    ".".join(_WRITTEN.get(str(part), str(part)) for part in detail["loc"]) or None,
                    None if detail["type"] in ("missing", "extra_forbidden") else _short(detail["input"]),
                )
                for detail in error.errors(include_url=False)
            ]
        ) from None
    event = KINDS[name](**{field.name: getattr(checked, field.name) for field in fields(KINDS[name])})
    faults = [Fault(file, message, line, field, _short(value)) for field, message, value in wrong(event)]
    if faults:
        raise InvalidInput(faults)
    return event


def wrong(event: Event) -> Iterator[tuple[str, str, Any]]:
    """What is wrong with an event whatever the plan: (field as JSON names it, message, value)."""
    for name in _NEW_IDS.get(event.kind, ()):
        if has_control(getattr(event, name)):
            yield name, REFUSED, getattr(event, name)
    for name in _RATES:
        value = getattr(event, name, None)
        if value is not None:
            if math.isnan(value) or value < 0:
                yield name, "a rate is a number ≥ 0", value
            elif math.isinf(value) and name in ("rate", "output_rate"):
                yield name, "a rate is finite", value
            elif MOST_RATE < value < math.inf:
                yield name, f"absurd: more than {MOST_RATE:,.0f} tuples/s", value
    for name in _LATENCIES:
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
        if event.left == event.right:
            yield "right", "a stream is not joined with itself", event.right
    if isinstance(event, NodeAdded | NodeMoved):
        if (event.coordinates is None) == (event.rtts is None):
            yield "coordinates", "either coordinates or rtts expected", None
        for value in event.coordinates or ():
            if not abs(value) <= MOST_MS:
                yield "coordinates", f"numbers of ms up to {MOST_MS:,.0f} expected", value
        for other, rtt in (event.rtts or {}).items():
            if not LEAST_MS <= rtt <= MOST_MS:
                yield f"rtts.{other}", "a positive, finite number of ms expected", rtt
        if event.rtts is not None and not event.rtts:
            yield "rtts", "one measurement at least expected", {}
    if event.time is not None and not math.isfinite(event.time):
        yield "time", "ms since 1970, or ISO 8601, expected", event.time


def read(path: str | Path) -> Iterator[tuple[int, tuple[Event, ...]]]:
    """The steps of a file of JSON lines: (line, events). A line with a JSON array is a batch, one step; empty lines
    are passed over. Raises `InvalidInput` with file, line, field and value at the first line that is wrong."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            yield from parse(file, str(path))
    except OSError as error:
        raise InvalidInput([Fault(str(path), f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise InvalidInput([Fault(str(path), "not UTF-8 text")]) from None


def parse(lines: Iterable[str], name: str) -> Iterator[tuple[int, tuple[Event, ...]]]:
    """The steps of JSON lines; see `read`."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            told = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise InvalidInput([Fault(name, f"not JSON: {told}", number, None, _short(text.strip()))]) from None
        batch = document if isinstance(document, list) else [document]
        yield number, tuple(from_json(one, name, number) for one in batch)


@cache
def _model(name: str) -> type[BaseModel]:
    """A checker for one kind of event, made from its dataclass: units are understood, numbers may name nodes."""
    from pydantic import BeforeValidator, ConfigDict, create_model

    from nova.model.units import RATE, RTT

    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(_RATES, RATE.parse),
        **dict.fromkeys((*_LATENCIES, "window_ms"), RTT.parse),
        "time": _milliseconds,
        "on": lambda value: (value,) if isinstance(value, str) else value,
    }
    hints = get_type_hints(KINDS[name])
    content: dict[str, Any] = {}
    for field in fields(KINDS[name]):
        hint = hints[field.name]
        read = readers.get(field.name, _name if hint is str else _as_it_is)
        content[field.name] = (
            Annotated[hint, BeforeValidator(read)],
            ... if field.default is MISSING else field.default,
        )
    return create_model(name, __config__=ConfigDict(extra="forbid"), **content)


def _as_it_is(value: Any) -> Any:
    return value


def _name(value: Any) -> Any:
    """Ids that JSON reads as whole numbers are names all the same."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _milliseconds(value: Any) -> Any:
    """ms since 1970 from a number or an ISO 8601 text; a text without a zone is UTC."""
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    except OverflowError:
        raise ValueError("a time that no clock shows") from None


def _words(kind: str, message: str, name: str) -> str:
    if kind == "extra_forbidden":
        known = [_WRITTEN.get(field.name, field.name) for field in fields(KINDS[name])]
        return f"unknown field; {name} has {', '.join(known)}"
    if kind == "missing":
        return "missing"
    return message.removeprefix("Value error, ").replace("Input should", "should")


def _short(value: Any) -> Any:
    """The value as an error shows it; long ones only by their beginning."""
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "…"
