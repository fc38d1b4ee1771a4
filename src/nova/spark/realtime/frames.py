"""Frames: some rows as columns in one run of bytes, the same for Python and the JVM part (`Frame.java`).

A frame is: i32 length of what follows, i32 rows, i64 `first`, i64 `stamp`, then each column: a byte that says whether
there are nulls, if so a byte per row (1: there is a value), then 8 bytes per row, or for bytes i32 offsets and the
bytes. All little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HEAD = struct.Struct("<iiqq")


def kind_of(column: pa.DataType) -> str | None:
    """How a column travels: `l` as 64-bit integers, `d` as doubles, `s` as bytes; None where it cannot."""
    if pa.types.is_integer(column) or pa.types.is_boolean(column):
        return "l"
    if pa.types.is_timestamp(column) or pa.types.is_date32(column):
        return "l"
    if pa.types.is_floating(column):
        return "d"
    if pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_binary(column):
        return "s"
    return None


def kinds_of(schema: pa.Schema) -> str:
    """The kinds of all columns, which must be of types that can travel."""
    return "".join(kind_of(column.type) or "?" for column in schema)


class Rows:
    """Columns of equal length, ready to be cut into frames: cutting costs little more than copying the bytes."""

    def __init__(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        self._columns = [
            _Column(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column) for column in columns
        ]
        self._length = len(columns[0])

    def __len__(self) -> int:
        return self._length

    def encode(self, start: int, stop: int, first: int, stamp_us: int) -> bytes:
        """The rows from `start` to before `stop` as one frame."""
        parts = [b""]
        for column in self._columns:
            column.encode(start, stop, parts)
        size = HEAD.size + sum(map(len, parts))
        parts[0] = HEAD.pack(size - 4, stop - start, first, stamp_us)
        return b"".join(parts)

    def most(self, column: int, start: int, stop: int) -> int | None:
        """The largest of the integers of some rows; None where there is none."""
        return self._columns[column].most(start, stop)


class _Column:
    """Bytes of one column."""

    def __init__(self, column: pa.Array) -> None:
        self.valid: npt.NDArray[np.uint8] | None = None
        if column.null_count:
            self.valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        self.text: memoryview | None = None
        self.values: npt.NDArray[np.generic]
        kind = kind_of(column.type)
        if kind == "s":
            column = column.cast(pa.binary())
            self.values = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
            self.text = memoryview(column.buffers()[2] or b"")
            return
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        wanted = pa.float64() if kind == "d" else pa.int64()
        if column.type != wanted:
            column = column.cast(wanted)
        if self.valid is not None:
            column = column.fill_null(0)
        self.values = column.to_numpy()

    def encode(self, start: int, stop: int, parts: list[bytes]) -> None:
        valid = None if self.valid is None else self.valid[start:stop]
        holes = valid is not None and not valid.all()
        parts.append(b"\1" if holes else b"\0")
        if valid is not None and holes:
            parts.append(valid.tobytes())
        if self.text is None:
            parts.append(self.values[start:stop].tobytes())
            return
        offsets = self.values[start : stop + 1]
        parts.append((offsets - offsets[0]).tobytes())
        parts.append(bytes(self.text[int(offsets[0]) : int(offsets[-1])]))

    def most(self, start: int, stop: int) -> int | None:
        values = self.values[start:stop]
        if self.valid is not None:
            values = values[self.valid[start:stop] == 1]
        return int(values.max()) if len(values) else None


def encode(columns: Sequence[pa.Array | pa.ChunkedArray], first: int, stamp_us: int) -> bytes:
    """Columns of equal length as one frame."""
    rows = Rows(columns)
    return rows.encode(0, len(rows), first, stamp_us)


@dataclass(frozen=True)
class Frame:
    """A frame as it was read."""

    first: int
    stamp_us: int
    columns: list[pa.Array]
    """Of type int64, float64 or binary."""


def decode(data: bytes, kinds: str) -> Iterator[Frame]:
    """All whole frames."""
    for at, rows, first, stamp in _heads(data):
        place, columns = at, []
        for kind in kinds:
            piece, place = _piece(data, place, rows, kind)
            columns.append(_column([piece], kind))
        yield Frame(first, stamp, columns)


def together(data: bytes, kinds: str) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """The columns of all whole frames, and the stamp of each row's frame (µs). Small frames cost little this way."""
    pieces: list[list[_Piece]] = [[] for _ in kinds]
    counts, stamps = [], []
    for at, rows, _, stamp in _heads(data):
        place = at
        for kind, column in zip(kinds, pieces, strict=True):
            piece, place = _piece(data, place, rows, kind)
            column.append(piece)
        counts.append(rows)
        stamps.append(stamp)
    columns = [_column(column, kind) for kind, column in zip(kinds, pieces, strict=True)]
    return columns, np.repeat(np.array(stamps, np.int64), counts)


def _heads(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Of each whole frame: where its columns begin, its rows, `first` and `stamp`."""
    at = 0
    while at + 4 <= len(data):
        size = 4 + int.from_bytes(data[at : at + 4], "little")
        if at + size > len(data):
            return
        _, rows, first, stamp = HEAD.unpack_from(data, at)
        yield at + HEAD.size, rows, first, stamp
        at += size


class _Piece(NamedTuple):
    """One column of one frame, as it lies in the bytes."""

    valid: npt.NDArray[np.uint8] | None
    values: npt.NDArray[np.generic]
    """Of bytes: where each row's begin in the text, and where the last ends."""
    text: bytes


def _piece(data: bytes, at: int, rows: int, kind: str) -> tuple[_Piece, int]:
    """The piece at a place, and the place behind it."""
    valid: npt.NDArray[np.uint8] | None = None
    holes, at = data[at], at + 1
    if holes:
        valid, at = np.frombuffer(data, np.uint8, rows, at), at + rows
    if kind != "s":
        return _Piece(valid, np.frombuffer(data, "<i8" if kind == "l" else "<f8", rows, at), b""), at + 8 * rows
    offsets = np.frombuffer(data, "<i4", rows + 1, at)
    at += 4 * (rows + 1)
    if offsets[0] != 0 or (np.diff(offsets) < 0).any() or at + int(offsets[-1]) > len(data):
        raise ValueError("a text lies outside of its frame")
    text = data[at : at + int(offsets[-1])]
    return _Piece(valid, offsets, text), at + len(text)


def _column(pieces: Sequence[_Piece], kind: str) -> pa.Array:
    """The pieces of one column, one after the other."""
    rows = [len(piece.values) - (kind == "s") for piece in pieces]
    mask: npt.NDArray[np.bool_] | None = None
    if any(piece.valid is not None for piece in pieces):
        valid = [
            np.ones(n, np.uint8) if piece.valid is None else piece.valid for piece, n in zip(pieces, rows, strict=True)
        ]
        mask = np.concatenate(valid) == 0
    if kind != "s":
        if not pieces:
            return pa.array([], pa.int64() if kind == "l" else pa.float64())
        return pa.array(np.concatenate([piece.values for piece in pieces]), mask=mask)
    lengths = [np.diff(piece.values) for piece in pieces]
    offsets = np.concatenate([np.zeros(1, np.int32), *lengths]).cumsum(dtype=np.int32)
    body = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    text = b"".join([piece.text for piece in pieces])
    return pa.Array.from_buffers(pa.binary(), sum(rows), [body, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)])


def whole(data: bytes) -> int:
    """Bytes of the whole frames at the beginning of some bytes."""
    at = 0
    while at + HEAD.size <= len(data):
        size = 4 + int.from_bytes(data[at : at + 4], "little")
        if size < HEAD.size or at + size > len(data):
            break
        at += size
    return at


def numbered(data: bytes, first: int) -> int:
    """Bytes of the whole frames at the beginning of some bytes, whose rows are numbered from `first` on. Half a frame
    may follow them; a frame with another number, or good frames behind what is none, are damage: a ValueError."""
    at, wanted = 0, first
    end = whole(data)
    while at < end:
        length, rows, found, _ = HEAD.unpack_from(data, at)
        if found != wanted or rows <= 0:
            raise ValueError(f"damaged at byte {at}: tuple {wanted} expected, not {found}")
        at, wanted = at + 4 + length, wanted + rows
    behind = _frame_in(memoryview(data)[end:], wanted)
    if behind is not None:
        raise ValueError(f"damaged at byte {end}: tuple {wanted} expected, and good ones follow at byte {end + behind}")
    return end


def _frame_in(data: memoryview, wanted: int) -> int | None:
    """Where a whole frame of row `wanted` or later ones lies that ends with the data, or with another frame's head."""
    places = len(data) - HEAD.size
    if places <= 0:
        return None
    # each field of a head as it would be at every single byte
    lengths, rows, firsts = (
        np.ndarray((places,), kind, data, offset, (1,)).astype(np.int64)
        for kind, offset in (("<i4", 0), ("<i4", 4), ("<i8", 8))
    )
    ends = np.arange(places) + 4 + lengths
    fits = (lengths >= HEAD.size - 4) & (ends <= len(data)) & (rows > 0) & (firsts >= wanted)
    for at in np.flatnonzero(fits & (firsts - wanted <= len(data))).tolist():
        end = int(ends[at])
        if end == len(data) or (end < places and firsts[end] == firsts[at] + rows[at]):
            return int(at)
    return None


def restored(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column that travelled, in its own type again."""
    if pa.types.is_date32(wanted):
        return column.cast(pa.int32()).cast(wanted)
    if pa.types.is_boolean(wanted):
        return column.cast(pa.bool_())
    return column.cast(wanted)
