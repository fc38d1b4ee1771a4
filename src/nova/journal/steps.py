"""Steps as the journal keeps them: one record of JSON each, with the time at which they were taken in."""

from __future__ import annotations

import json
from typing import Any

from nova.controller.codec import Step, compact, event_from_json
from nova.journal.errors import Damaged
from nova.journal.journal import Record
from nova.model.errors import InvalidInput


def to_record(step: Step, at_ms: int) -> bytes:
    """A step as the journal keeps it; `at_ms` is when it was taken in."""
    document: dict[str, Any] = {"at": at_ms}
    if step.client is not None:
        document |= {"client": step.client, "number": step.number}
    return compact(document)[:-1] + b',"events":' + step.content + b"}"


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
        events = tuple(event_from_json(one, str(record.file), record.sequence) for one in document["events"])
    except InvalidInput as error:
        raise Damaged(record.file, record.offset, f"record {record.sequence}", str(error)) from None
    return Step(events, document.get("client"), document.get("number"), str(record.file), record.sequence)
