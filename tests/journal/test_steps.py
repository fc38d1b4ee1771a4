"""Steps as the journal keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.event_strategies import events, names
from nova.controller.codec import Step
from nova.journal.errors import Damaged
from nova.journal.journal import Record
from nova.journal.steps import document_of, from_record, to_record

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


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"events": 1}', b'{"events": [{"event": "from the future"}]}'])
def test_a_record_that_is_no_step_is_damage(content: bytes) -> None:
    with pytest.raises(Damaged, match=r"journal\.log, byte 40, record 3: "):
        from_record(Record(3, content, Path("journal.log"), 40))
