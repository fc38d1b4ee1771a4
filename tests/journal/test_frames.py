"""Frames: every truncation and every flipped bit is noticed, and told apart as end or middle."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.journal import frames

FOLDER = bytes(range(16))
records = st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), min_size=1, max_size=4)
groups = st.lists(records, min_size=1, max_size=5)


def segment(content: list[list[bytes]], first: int = 1) -> tuple[bytes, list[int]]:
    """A segment of these groups of records, and the offset where each frame begins, and the end."""
    data, offsets = frames.header(first, FOLDER), []
    for group in content:
        offsets.append(len(data))
        data += frames.frame(first, group)
        first += len(group)
    return data, [*offsets, len(data)]


@given(groups, st.integers(0, 2**63))
def test_what_was_framed_is_read_again(content: list[list[bytes]], first: int) -> None:
    data, offsets = segment(content, first)
    head = frames.read_header(data)
    assert head == frames.Header(frames.VERSION, first, FOLDER)
    found = frames.scan(data, first)
    assert found.damage is None
    assert found.end == len(data)
    assert [list(frame.records) for frame in found.frames] == content
    assert [frame.offset for frame in found.frames] == offsets[:-1]


@given(groups)
def test_cut_at_every_byte_only_whole_frames_are_left(content: list[list[bytes]]) -> None:
    data, offsets = segment(content)
    for end in range(frames.HEADER_BYTES, len(data)):
        found = frames.scan(data[:end], 1)
        whole = sum(1 for offset in offsets[1:] if offset <= end)
        assert [list(frame.records) for frame in found.frames] == content[:whole]
        if end in offsets:
            assert found.damage is None
        else:
            assert found.damage is not None
            assert found.damage.tail
            assert found.damage.offset == found.end == offsets[whole]
            assert found.damage.sequence == 1 + sum(map(len, content[:whole]))


@given(groups)
def test_every_flipped_bit_is_noticed_where_it_is(content: list[list[bytes]]) -> None:
    data, offsets = segment(content)
    for place in range(len(data)):
        for bit in (0, 3, 7):
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            if place < frames.HEADER_BYTES:
                assert frames.read_header(bytes(broken)) is None
                continue
            hit = sum(1 for offset in offsets[1:] if offset <= place)
            found = frames.scan(bytes(broken), 1)
            assert found.damage is not None
            assert found.damage.offset == offsets[hit]
            assert found.damage.sequence == 1 + sum(map(len, content[:hit]))
            assert found.damage.tail == (hit == len(content) - 1)
            assert [list(frame.records) for frame in found.frames] == content[:hit]


@given(groups, st.binary(min_size=1, max_size=200))
def test_rubbish_behind_the_end_is_a_tail(content: list[list[bytes]], rubbish: bytes) -> None:
    data, offsets = segment(content)
    found = frames.scan(data + rubbish, 1)
    assert len(found.frames) == len(content)
    assert found.damage is not None
    assert found.damage.tail
    assert found.damage.offset == offsets[-1]


def test_a_frame_twice_or_missing_is_damage_in_the_middle() -> None:
    data, offsets = segment([[b"a"], [b"b"], [b"c"]])
    first, second, third = (data[a:b] for a, b in pairwise(offsets))
    head = data[: offsets[0]]
    for content, wrong in (
        (head + first + first + second, "record 1 where 2 should be"),
        (head + first + third, "record 3 where 2"),
    ):
        damage = frames.scan(content, 1).damage
        assert damage is not None
        assert not damage.tail
        assert wrong in damage.what


def test_a_payload_is_not_taken_for_a_frame() -> None:
    inner = frames.frame(2, [b"x"])
    data, _ = segment([[inner]])
    assert frames.scan(data, 1).damage is None
    # text has no byte FF: the frame inside is not UTF-8
    with pytest.raises(UnicodeDecodeError):
        inner.decode()


def test_what_is_no_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_BYTES", 10)
    frames.frame(1, [b"x" * 10])
    for content in ([], [b"x" * 11]):
        with pytest.raises(ValueError, match="a frame holds"):
            frames.frame(1, content)
