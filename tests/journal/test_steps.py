"""Steps: what somebody submits, what the journal keeps, and who is told what is wrong with a line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.controller import events as e
from nova.journal.errors import Damaged
from nova.journal.journal import Record
from nova.journal.steps import Step, document_of, from_record, parse, to_record
from nova.model.errors import InvalidInput

names = st.text(min_size=1, max_size=6)
rates = st.floats(0, 1e12)
ms = st.floats(1e-3, 1e6)
maybe_time = st.none() | st.floats(-1e15, 1e15)
events: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(
        e.NodeAdded,
        node=names,
        capacity=rates | st.just(math.inf),
        bandwidth=rates | st.just(math.inf),
        hosts=st.booleans(),
        coordinates=st.tuples(ms, ms, ms),
        height=ms,
        time=maybe_time,
    ),
    st.builds(e.NodeMoved, node=names, rtts=st.dictionaries(names, ms, min_size=1, max_size=4), time=maybe_time),
    st.builds(e.CapacityChanged, node=names, capacity=st.none() | rates, hosts=st.none() | st.booleans()),
    st.builds(e.LatencyMeasured, from_node=names, to_node=names, rtt_ms=ms).filter(lambda m: m.from_node != m.to_node),
    st.builds(
        e.SourceAdded,
        stream=names,
        source=names,
        node=names,
        rate=rates,
        attributes=st.none() | st.dictionaries(names, names, max_size=2),
        partners=st.none() | st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=2),
    ),
    st.builds(e.RateChanged, stream=names, source=names, rate=rates),
    st.builds(e.PairAllowed, query=names, left=names, right=names, output_rate=st.none() | rates),
    st.builds(
        e.QueryAdded,
        query=names,
        left=st.just("a"),
        right=st.just("b"),
        sink=names,
        window_ms=ms,
        pairs=st.none() | st.lists(st.tuples(names, names), max_size=3).map(tuple),
    ),
    st.builds(e.SinkMoved, query=names, sink=names),
)
steps = st.builds(
    lambda batch, client: Step(tuple(batch), *(client or (None, None))),
    st.lists(events, min_size=1, max_size=3),
    st.none() | st.tuples(names, st.integers(0, 2**62)),
)


@given(steps)
def test_the_journal_gives_back_the_same_events_bit_by_bit(step: Step) -> None:
    content = to_record(step, 12)
    assert b"\n" not in content
    again = from_record(Record(3, content, Path("j"), 40))
    assert again.events == step.events
    assert (again.client, again.number) == (step.client, step.number)
    assert again.checksum == step.checksum
    assert document_of(Record(3, content, Path("j"), 40))["at"] == 12
    assert to_record(again, 12) == content


RATE = {"event": "rate_changed", "stream": "s", "source": "a", "rate": 3}


def read(*lines: Any, client: str | None = None) -> list[Step]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return list(parse(texts, "feed.jsonl", client))


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
        ({**RATE, "source": "\ud800"}, "row 2: half a character (a lone surrogate)"),
        ({**RATE, "client": "\udfff", "number": 1}, "row 2: half a character (a lone surrogate)"),
        ({"event": "rate_change"}, "row 2, field event: no such event; there are node_added"),
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


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"events": 1}', b'{"events": [{"event": "from the future"}]}'])
def test_a_record_that_is_no_step_is_damage(content: bytes) -> None:
    with pytest.raises(Damaged, match=r"journal\.log, byte 40, record 3: "):
        from_record(Record(3, content, Path("journal.log"), 40))
