"""Codec: events and changes as JSON, the only reader and the only writer of either.

A line is one step, a batch of events that are taken in together: an event, `[event, event, …]`, or `{"events": [event,
…]}`. The first and the last form may carry `client` and `number`: each client numbers its steps upwards, so that a step
that is sent again can be known again. A change is one object; a change list is a file of such lines, of the lines that
`nova events apply --json` prints, or the document of `nova reoptimize --json`.

Whatever is wrong is answered with file, line, field and value. Nothing here loads numeric libraries.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from nova.controller import changes as c
from nova.controller import events as e
from nova.controller.events.event import LATENCIES, RATES
from nova.model.errors import Fault, InvalidInput
from nova.model.reading import each_once, ordinary

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST = 2**63
MOST_LINE = 2**28
"""Characters of one line, some million events; more is no file of events."""
AXES = ("left", "right", "slice", "key")
"""What a box has a share of, two numbers each; files from before the key axis have six numbers."""
_WRITTEN = {"from_node": "from", "to_node": "to"}
"""Fields of events that are words of Python, as JSON names them."""
_READ = {written: name for name, written in _WRITTEN.items()}


@dataclass(frozen=True)
class Step:
    """A batch of events, and whose it is."""

    events: tuple[e.Event, ...]
    client: str | None = None
    number: int | None = None
    file: str = "event"
    """Where it was read, for errors."""
    line: int | None = None

    @cached_property
    def content(self) -> bytes:
        """The events as JSON."""
        return compact([event_to_json(event) for event in self.events])

    @property
    def checksum(self) -> int:
        """CRC-32 of the events: tells a step that is sent again from another one under its number."""
        return zlib.crc32(self.content)

    @property
    def time(self) -> float | None:
        """When the last of the events happened, in ms since 1970; None: now."""
        return max((event.time for event in self.events if event.time is not None), default=None)


def compact(value: Any) -> bytes:
    """JSON without blanks, as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# steps


def parse_steps(lines: Iterable[str], name: str, client: str | None = None) -> Iterator[Step]:
    """The steps of JSON lines; empty lines are passed over. Lines that name no client get `client`, if given, and their
    line number. Raises `InvalidInput` at the first line that is wrong."""
    for line, text in enumerate(lines, 1):
        if text.strip():
            yield parse_step(text, name, line, client)


def parse_step(text: str | bytes, name: str, line: int, client: str | None = None) -> Step:
    """The step of one line."""
    document = _json(text, name, line)
    number: Any = line if client is not None else None
    if isinstance(document, dict):
        if "client" in document or "number" in document:
            client, number = document.pop("client", None), document.pop("number", None)
            _check_number(client, number, name, line)
        if "events" in document and "event" not in document:
            for extra in document.keys() - {"events"}:
                raise InvalidInput([Fault(name, "unknown field; a batch has client, number, events", line, extra)])
            document = document["events"]
            if not isinstance(document, list):
                raise InvalidInput([Fault(name, "a list of events expected", line, "events", _short(document))])
    batch = document if isinstance(document, list) else [document]
    if not batch:
        raise InvalidInput([Fault(name, "a batch has one event at least", line, "events", [])])
    step = Step(tuple(event_from_json(one, name, line) for one in batch), client, number, name, line)
    try:
        compact([client, step.content.decode()])  # the journal is UTF-8
    except UnicodeEncodeError as error:
        found = ascii(error.object[error.start : error.end])
        raise InvalidInput([Fault(name, "half a character (a lone surrogate)", line, None, found)]) from None
    return step


def _check_number(client: Any, number: Any, name: str, line: int) -> None:
    if not isinstance(client, str) or not client:
        raise InvalidInput([Fault(name, "a text expected: whose number this is", line, "client", _short(client))])
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MOST:
        raise InvalidInput([Fault(name, "a whole number ≥ 0 expected", line, "number", _short(number))])


# events


def event_to_json(event: e.Event) -> dict[str, Any]:
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


def event_from_json(document: Any, file: str = "event", line: int | None = None) -> e.Event:
    """The event that a JSON object says. Raises `InvalidInput` with every field that is wrong."""
    from pydantic import ValidationError

    if not isinstance(document, dict):
        raise InvalidInput([Fault(file, "an event is a JSON object", line, None, _short(document))])
    name = document.get("event")
    if not isinstance(name, str) or name not in e.KINDS:
        raise InvalidInput([Fault(file, f"no such event; there are {', '.join(e.KINDS)}", line, "event", _short(name))])
    kind = e.KINDS[name]
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
    event = kind(**{field.name: getattr(checked, field.name) for field in fields(kind)})
    faults = [Fault(file, message, line, field, _short(value)) for field, message, value in event.faults()]
    if faults:
        raise InvalidInput(faults)
    return event


@cache
def _model(name: str) -> type[BaseModel]:
    """A checker for one kind of event, made from its dataclass: units are understood, numbers may name nodes."""
    from pydantic import BeforeValidator, ConfigDict, create_model

    from nova.model.units import RATE, RTT

    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(RATES, RATE.parse),
        **dict.fromkeys((*LATENCIES, "window_ms"), RTT.parse),
        "time": _milliseconds,
        "on": lambda value: (value,) if isinstance(value, str) else value,
        "labels": lambda value: {k: _label(v) for k, v in value.items()} if isinstance(value, dict) else value,
    }
    hints = get_type_hints(e.KINDS[name])
    content: dict[str, Any] = {}
    for field in fields(e.KINDS[name]):
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


def _label(value: Any) -> Any:
    """Labels are texts; numbers are written as such."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


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
        known = [_WRITTEN.get(field.name, field.name) for field in fields(e.KINDS[name])]
        return f"unknown field; {name} has {', '.join(known)}"
    if kind == "missing":
        return "missing"
    return message.removeprefix("Value error, ").replace("Input should", "should")


# changes


def change_to_json(change: c.Change) -> dict[str, Any]:
    """A change as plain JSON values; `change` is its kind."""
    return {"change": change.kind, **asdict(change)}


def change_from_json(document: Any, file: str = "change", line: int | None = None) -> c.Change:
    """The change that a JSON object says. Raises `InvalidInput` with every field that is wrong."""
    if not isinstance(document, dict):
        raise InvalidInput([Fault(file, "a change is a JSON object", line, None, _short(document))])
    name = document.get("change")
    if not isinstance(name, str) or name not in c.KINDS:
        raise InvalidInput(
            [Fault(file, f"no such change; there are {', '.join(c.KINDS)}", line, "change", _short(name))]
        )
    kind, faults = c.KINDS[name], []
    content: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in document:
            if field.name not in _OPTIONAL:
                faults.append(Fault(file, "missing", line, field.name))
            content[field.name] = _OPTIONAL.get(field.name)
            continue
        try:
            content[field.name] = _CHANGE_FIELDS[field.name](document[field.name])
        except _Wrong as wrong:
            place = ".".join((field.name, *wrong.place))
            faults.append(Fault(file, wrong.message, line, place, _short(wrong.value)))
    if faults:
        raise InvalidInput(faults)
    return kind(**content)


def read_changes(path: Path) -> list[tuple[int, c.Change]]:
    """The change list in a file, each change with its line. Raises `InvalidInput` with all that is wrong."""
    from nova.model.reading import read_text

    name, text = str(path), read_text(path, "changes")
    found: list[tuple[int, c.Change]] = []
    faults: list[Fault] = []
    for line, document in _documents(text, name):
        for one in _flat(document):
            try:
                found.append((line, change_from_json(one, name, line)))
            except InvalidInput as error:
                faults += error.faults
    if faults:
        raise InvalidInput(faults)
    return found


def _documents(text: str, name: str) -> Iterator[tuple[int, Any]]:
    """JSON documents, one in all or one a line, with their lines."""
    lines = text.splitlines()
    if sum(1 for line in lines if line.strip()) > 1 and text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(lines[next(i for i, line in enumerate(lines) if line.strip())])
        except (ValueError, RecursionError):  # its first line is no document: all of it is one
            yield 1, _json(text, name, 1)
            return
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _json(line, name, number)


def _flat(document: Any) -> Iterator[Any]:
    """The changes in a document of changes, or of steps of changes."""
    if isinstance(document, list):
        for one in document:
            yield from _flat(one)
    elif isinstance(document, dict) and "change" not in document and ("steps" in document or "changes" in document):
        steps = document.get("steps", document.get("changes"))
        yield from _flat(steps) if isinstance(steps, list) else ()  # a last line says how many steps there were
    else:
        yield document


class _Wrong(Exception):
    """A value that is not what a field holds."""

    def __init__(self, message: str, value: Any, place: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.value, self.place = message, value, place


def _text(value: Any) -> str:
    value = _name(value)
    if not isinstance(value, str):
        raise _Wrong("a text expected", value)
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise _Wrong("a finite number expected", value)
    return float(value)


def _shares(value: Any) -> c.Shares:
    if not isinstance(value, list) or len(value) not in (2 * len(AXES) - 2, 2 * len(AXES)):
        raise _Wrong(f"{2 * len(AXES)} numbers expected: from, to of {', '.join(AXES)}", value)
    shares = tuple(_finite(one) for one in value)
    return shares if len(shares) == 2 * len(AXES) else (*shares, 0.0, 1.0)


def _parts(value: Any) -> tuple[c.Part, ...]:
    if not isinstance(value, list):
        raise _Wrong("a list of parts expected", value)
    parts = []
    for number, part in enumerate(value):
        if not isinstance(part, dict) or set(part) != {"node", "shares"}:
            raise _Wrong("a part has node and shares", part, (str(number),))
        try:
            parts.append(c.Part(_text(part["node"]), _shares(part["shares"])))
        except _Wrong as wrong:
            raise _Wrong(wrong.message, wrong.value, (str(number),)) from None
    return tuple(parts)


_CHANGE_FIELDS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("query", "left", "right", "reason", "node", "from_node"), _text),
    "from_window": lambda value: None if value is None else int(_finite(value)),
    "from_ms": lambda value: None if value is None else _finite(value),
    "shares": _shares,
    "before": _parts,
    "after": _parts,
}
_OPTIONAL: dict[str, Any] = {"from_window": None, "from_ms": None, "reason": ""}


# JSON


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file of UTF-8 text."""
    try:
        with ordinary(path).open(encoding="utf-8") as file:
            while line := file.readline(MOST_LINE):
                if len(line) == MOST_LINE:
                    message = f"a line has more than {MOST_LINE:,} characters: an event, or events in a list, expected"
                    raise InvalidInput([Fault(str(path), message, value=_short_text(line[:100]))])
                yield line
    except OSError as error:
        raise InvalidInput([Fault(str(path), f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise InvalidInput([Fault(str(path), "not UTF-8 text")]) from None


def _json(text: str | bytes, name: str, line: int) -> Any:
    try:
        return json.loads(text, object_pairs_hook=each_once)
    except json.JSONDecodeError as error:
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        raise InvalidInput([Fault(name, f"not JSON: {error.msg}", line, None, _short_text(shown))]) from None
    except (ValueError, RecursionError) as error:  # a name twice, digits or brackets without end, no text
        raise InvalidInput([Fault(name, f"not JSON that can be read: {error}", line)]) from None


def _short_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 80 else text[:79] + "…"


def _short(value: Any) -> Any:
    """The value as an error shows it; long ones only by their beginning."""
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "…"
