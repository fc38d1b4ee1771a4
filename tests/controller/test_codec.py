"""Codec: events and changes survive their JSON form, and a wrong line is named with file, line, field and value."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.event_strategies import events, names
from nova.controller import changes as c
from nova.controller import events as e
from nova.controller.codec import (
    Step,
    change_from_json,
    change_to_json,
    event_from_json,
    event_to_json,
    lines_of,
    parse_steps,
    read_changes,
)
from nova.model.errors import Fault, InvalidInput

shares = st.tuples(*[st.floats(0, 1)] * 8)
parts = st.builds(c.Part, node=names, shares=shares)
common: dict[str, Any] = {
    "query": names,
    "left": names,
    "right": names,
    "reason": names,
    "from_window": st.none() | st.integers(0, 2**50),
    "from_ms": st.none() | st.floats(0, 1e15),
}
changes: st.SearchStrategy[c.Change] = st.one_of(
    st.builds(c.Deploy, node=names, shares=shares, **common),
    st.builds(c.Undeploy, node=names, shares=shares, **common),
    st.builds(c.Move, node=names, from_node=names, shares=shares, **common),
    st.builds(
        c.Repartition,
        before=st.lists(parts, max_size=3).map(tuple),
        after=st.lists(parts, max_size=3).map(tuple),
        **common,
    ),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(events)
def test_an_event_survives_its_json_form(event: e.Event) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


@given(changes)
def test_a_change_survives_its_json_form(change: c.Change) -> None:
    assert change_from_json(json.loads(json.dumps(change_to_json(change)))) == change


def faults_of(read: Callable[[], object]) -> Sequence[Fault]:
    """What reading refuses; nothing where it reads."""
    try:
        read()
    except InvalidInput as error:
        return error.faults
    return ()


@given(event=events, data=st.data())
def test_whatever_stands_in_a_field_is_read_or_refused_with_its_place(event: e.Event, data: st.DataObject) -> None:
    document = event_to_json(event)
    field = data.draw(st.sampled_from(sorted(document)))
    document[field] = data.draw(anything)
    faults = faults_of(lambda: list(parse_steps([json.dumps(document)], "feed.jsonl")))
    assert all(fault.file == "feed.jsonl" and fault.row == 1 for fault in faults)


@given(change=changes, data=st.data())
def test_whatever_stands_in_a_change_is_read_or_refused_with_its_place(change: c.Change, data: st.DataObject) -> None:
    document = change_to_json(change)
    field = data.draw(st.sampled_from(sorted(document)))
    document[field] = data.draw(anything)
    faults = faults_of(lambda: change_from_json(json.loads(json.dumps(document)), "list.jsonl", 3))
    assert all(fault.file == "list.jsonl" and fault.row == 3 for fault in faults)


def test_a_change_list_from_before_the_key_axis_is_read(tmp_path: Path) -> None:
    old = {"change": "deploy", "query": "q", "left": "a", "right": "b", "node": "n", "shares": [0, 1, 0, 1, 0, 0.5]}
    (tmp_path / "c.jsonl").write_text(json.dumps(old))
    ((line, change),) = read_changes(tmp_path / "c.jsonl")
    assert (line, change.starts) == (1, (c.Part("n", (0, 1, 0, 1, 0, 0.5, 0, 1)),))


RATE = {"event": "rate_changed", "stream": "s", "source": "a", "rate": 3}


def read(*lines: Any, client: str | None = None) -> list[Step]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return list(parse_steps(texts, "feed.jsonl", client))


def test_a_line_is_a_step() -> None:
    found = read(RATE, "", [RATE, RATE], {"events": [RATE]}, "  \n")
    assert [(step.line, len(step.events)) for step in found] == [(1, 1), (3, 2), (4, 1)]
    assert all(step.client is None and step.number is None for step in found)


def test_lines_may_be_numbered_by_their_client_or_by_their_place() -> None:
    found = read(RATE, {"client": "hub", "number": 9, **RATE}, {"client": "hub", "number": 10, "events": [RATE]})
    assert [(step.client, step.number) for step in found] == [(None, None), ("hub", 9), ("hub", 10)]
    found = read(RATE, "", {"client": "hub", "number": 9, **RATE}, [RATE], client="ops")
    assert [(step.client, step.number) for step in found] == [("ops", 1), ("hub", 9), ("ops", 4)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "row 2: not JSON"),
        ("17", "an event is a JSON object (found 17)"),
        ("[]", "row 2, field events: a batch has one event at least"),
        ({"events": 3}, "row 2, field events: a list of events expected (found 3)"),
        ({"events": [RATE], "extra": 1}, "row 2, field extra: unknown field; a batch has client, number, events"),
        ({"client": "", "number": 1, **RATE}, "row 2, field client: a text expected"),
        ({"number": 1, **RATE}, "row 2, field client: a text expected"),
        ({"client": "x", **RATE}, "row 2, field number: a whole number ≥ 0 expected"),
        ({"client": "x", "number": True, **RATE}, "row 2, field number: a whole number ≥ 0 expected (found True)"),
        ({"client": "x", "number": -1, **RATE}, "row 2, field number: a whole number ≥ 0 expected (found -1)"),
        ({**RATE, "rate": -2}, "row 2, field rate: a rate is a number ≥ 0 (found -2.0)"),
        ({**RATE, "rate": "fast"}, "row 2, field rate: not a number"),
        ({**RATE, "rate": [3]}, "row 2, field rate: not a number"),
        ({**RATE, "rate": {"hz": 3}}, "row 2, field rate: not a number"),
        ({**RATE, "rate": True}, "row 2, field rate: not a number"),
        ({**RATE, "rate": 10**400}, "row 2, field rate: a rate is finite"),
        ("[" * 100_000, "row 2: not JSON that can be read"),
        ("1" * 10_000, "row 2: not JSON that can be read"),
        ({**RATE, "source": "\ud800"}, "row 2: half a character (a lone surrogate)"),
        ({**RATE, "client": "\udfff", "number": 1}, "row 2: half a character (a lone surrogate)"),
        ({"event": "rate_change"}, "row 2, field event: no such event; there are budget_changed"),
        (
            [RATE, {**RATE, "speed": 1}],
            "row 2, field speed: unknown field; rate_changed has time, stream, source, rate",
        ),
    ],
)
def test_a_wrong_line_is_named(line: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read(RATE, line)
    assert "feed.jsonl, " in str(error.value)
    assert words in str(error.value)


def test_a_line_without_an_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova.controller.codec.MOST_LINE", 1000)
    (tmp_path / "events.jsonl").write_text("{}\n" + " " * 5000)
    lines = lines_of(tmp_path / "events.jsonl")
    assert next(lines) == "{}\n"
    with pytest.raises(InvalidInput, match=r"events\.jsonl: a line has more than 1,000 characters"):
        next(lines)
