"""Frames: how records lie in a segment of the journal, and how damage is told from the end.

A segment begins with a header and goes on with frames. One frame holds what one fsync made durable: one or more
records, which therefore stand or fall together. All integers are little-endian.

    header   8 s "NOVAJRNL" · u16 version · u16 zero · u64 sequence number of the first record · 16 s id of the
             folder · u32 CRC-32 of the bytes before
    frame    4 s FF "NVF" · u32 bytes of the payload · u32 CRC-32 of the other header fields and the payload ·
             u64 sequence number of the first record · u32 records · payload: the records, UTF-8, a line feed between

FF never occurs in UTF-8, so a payload cannot be taken for a frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

VERSION = 1
_HEADER = struct.Struct("<8sHHQ16s")
_CRC = struct.Struct("<I")
_MAGIC = b"NOVAJRNL"
_FRAME = struct.Struct("<4sIIQI")
_MARK = b"\xffNVF"
HEADER_BYTES = _HEADER.size + _CRC.size
FRAME_BYTES = _FRAME.size
MOST_BYTES = 1 << 30
"""Payload of a frame at most: what claims to be longer is damage."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a segment says of itself."""

    version: int
    first: int
    """Sequence number of its first record."""
    folder: bytes
    """16 bytes that all files of one folder share."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Records that became durable together."""

    offset: int
    """Where in the segment it begins."""
    first: int
    """Sequence number of its first record."""
    records: tuple[bytes, ...]

    @property
    def last(self) -> int:
        """Sequence number of its last record."""
        return self.first + len(self.records) - 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment stops making sense."""

    offset: int
    sequence: int
    """Number of the record that should be there."""
    what: str
    tail: bool
    """Whether nothing that makes sense follows: a write that was cut short, or an end that was lost."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in a segment."""

    frames: list[Frame]
    end: int
    """Offset behind the last good frame."""
    damage: Damage | None


def header(first: int, folder: bytes) -> bytes:
    """The header of a segment whose first record has this number."""
    head = _HEADER.pack(_MAGIC, VERSION, 0, first, folder)
    return head + _CRC.pack(zlib.crc32(head))


def read_header(data: bytes) -> Header | None:
    """The header at the start of a segment; None where there is no whole one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, _, first, folder = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc != zlib.crc32(data[: _HEADER.size]):
        return None
    return Header(version, first, folder)


def frame(first: int, records: Sequence[bytes]) -> bytes:
    """Records, the first with this number, as one frame. A record holds no line feed."""
    payload = b"\n".join(records)
    if not records or len(payload) > MOST_BYTES:
        raise ValueError(f"a frame holds 1 record at least and {MOST_BYTES:,} bytes at most")
    return _head(len(payload), first, len(records), payload) + payload


def _head(length: int, first: int, count: int, payload: bytes) -> bytes:
    bare = _FRAME.pack(_MARK, length, 0, first, count)
    return _FRAME.pack(_MARK, length, zlib.crc32(payload, zlib.crc32(bare)), first, count)


def _frame_at(data: bytes, offset: int) -> Frame | str:
    """The frame at an offset, or what is wrong with it."""
    if len(data) - offset < FRAME_BYTES:
        return f"{len(data) - offset} bytes are too few for a record"
    mark, length, crc, first, count = _FRAME.unpack_from(data, offset)
    if mark != _MARK:
        return "no record begins here"
    if length > MOST_BYTES or offset + FRAME_BYTES + length > len(data):
        return f"the record should have {length:,} bytes, {len(data) - offset - FRAME_BYTES:,} are there"
    payload = data[offset + FRAME_BYTES : offset + FRAME_BYTES + length]
    if zlib.crc32(payload, zlib.crc32(_FRAME.pack(mark, length, 0, first, count))) != crc:
        return "the checksum does not match"
    records = tuple(payload.split(b"\n"))
    if len(records) != count:
        return f"{count} records announced, {len(records)} there"
    return Frame(offset, first, records)


def scan(data: bytes, expected: int, start: int = HEADER_BYTES) -> Scan:
    """The frames of a segment from `start` on, of which the first record should have the number `expected`."""
    found: list[Frame] = []
    at = start
    while at < len(data):
        this = _frame_at(data, at)
        if isinstance(this, str):
            return Scan(found, at, Damage(at, expected, this, tail=not follows(data, at + 1)))
        if this.first != expected:
            what = f"record {this.first} where {expected} should be"
            return Scan(found, at, Damage(at, expected, what, tail=False))
        found.append(this)
        expected = this.last + 1
        at += FRAME_BYTES + _length(data, at)
    return Scan(found, at, None)


def _length(data: bytes, offset: int) -> int:
    return int(_FRAME.unpack_from(data, offset)[1])


def follows(data: bytes, start: int) -> bool:
    """Whether a good frame lies anywhere from `start` on."""
    at = data.find(_MARK, start)
    while at >= 0:
        if isinstance(_frame_at(data, at), Frame):
            return True
        at = data.find(_MARK, at + 1)
    return False
