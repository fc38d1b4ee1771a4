"""Steps: events that are taken in together, as somebody submits them and as the journal keeps them.

A line of JSON is one step: an event, `[event, event, …]`, or `{"events": [event, …]}`. The first and the last form may
carry `client` and `number`. Each client numbers its steps upwards; one whose number is not above the client's last one
was applied before, and is acknowledged again without being applied again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nova.controller.events import Event, from_json, to_json
from nova.journal.errors import Damaged
from nova.journal.journal import Record
from nova.model.errors import Fault, InvalidInput

MOST = 2**63


@dataclass(frozen=True)
class Step:
    """A batch of events, and whose it is."""

    events: tuple[Event, ...]
    client: str | None = None
    number: int | None = None
    file: str = "event"
    """Where it was read, for errors."""
    line: int | None = None

    @cached_property
    def content(self) -> bytes:
        """The events as JSON."""
        return _compact([to_json(event) for event in self.events])

    @property
    def checksum(self) -> int:
        """CRC-32 of the events: tells a step that is sent again from another one under its number."""
        return zlib.crc32(self.content)


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def to_record(step: Step, at_ms: int) -> bytes:
    """A step as the journal keeps it; `at_ms` is when it was taken in."""
    document: dict[str, Any] = {"at": at_ms}
    if step.client is not None:
        document |= {"client": step.client, "number": step.number}
    return _compact(document)[:-1] + b',"events":' + step.content + b"}"


def document_of(record: Record) -> dict[str, Any]:
    """What a record of the journal says: at, client, number, events."""
    try:
        document = json.loads(record.content)
    except (ValueError, RecursionError) as error:
        raise Damaged(record.file, record.offset, f"record {record.sequence}", f"not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("events"), list):
        raise Damaged(record.file, record.offset, f"record {record.sequence}", "not a step of events")
    return document


def from_record(record: Record) -> Step:
    """The step that a record of the journal holds."""
    document = document_of(record)
    try:
        events = tuple(from_json(one, str(record.file), record.sequence) for one in document["events"])
    except InvalidInput as error:
        raise Damaged(record.file, record.offset, f"record {record.sequence}", str(error)) from None
    return Step(events, document.get("client"), document.get("number"), str(record.file), record.sequence)


def parse(lines: Iterable[str], name: str, client: str | None = None) -> Iterator[Step]:
    """The steps of JSON lines; empty lines are passed over. Lines that name no client get `client`, if given, and
    their line number. Raises `InvalidInput` with file, line, field and value at the first line that is wrong."""
    for line, text in enumerate(lines, 1):
        if text.strip():
            yield _step(text, name, line, client)


def _step(text: str, name: str, line: int, client: str | None) -> Step:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        short = text.strip()
        short = short if len(short) <= 80 else short[:79] + "…"
        told = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InvalidInput([Fault(name, f"not JSON: {told}", line, None, short)]) from None
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
                raise InvalidInput([Fault(name, "a list of events expected", line, "events", document)])
    batch = document if isinstance(document, list) else [document]
    if not batch:
        raise InvalidInput([Fault(name, "a batch has one event at least", line, "events", [])])
    step = Step(tuple(from_json(one, name, line) for one in batch), client, number, name, line)
    try:
        to_record(step, 0)  # the journal is UTF-8
    except UnicodeEncodeError as error:
        found = ascii(error.object[error.start : error.end])
        raise InvalidInput([Fault(name, "half a character (a lone surrogate)", line, None, found)]) from None
    return step


def _check_number(client: Any, number: Any, name: str, line: int) -> None:
    if not isinstance(client, str) or not client:
        raise InvalidInput([Fault(name, "a text expected: whose number this is", line, "client", client)])
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MOST:
        raise InvalidInput([Fault(name, "a whole number ≥ 0 expected", line, "number", number)])
