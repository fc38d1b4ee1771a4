"""Log: tuples of one side of a query on the local disk, appended by one process and tailed by Spark.

A folder of segments, named by the byte that they begin with; each is frames of tuples (`frames.py`), in which every
tuple has a number. A write is one frame, so a reader sees whole frames only, and what a killed writer left half written
is cut off when the log is opened again; damage anywhere else is told. Readers note in `readers/` how far they will
never go back; segments that all have passed are deleted, but for the last two.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from nova.files import write_safely
from nova.model.errors import Fault, InvalidInput
from nova.model.reading import read_text, recall, short, whole
from nova.spark.realtime.frames import Frame, Rows, decode, numbered

SEGMENT = 64 * 2**20
"""Bytes after which a new segment is begun."""
KEPT = 2
"""Segments that stay, whoever has read them."""
AHEAD = 4 * SEGMENT
"""Bytes that a log may be ahead of its reader: more waits where it comes from."""


class Log:
    """The writing end of a log. `kinds`: of its columns, source row and event time (µs) first."""

    def __init__(self, folder: Path, kinds: str, segment: int = SEGMENT) -> None:
        self.folder, self.kinds, self.segment = folder, kinds, segment
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self.rows = 0
        """Tuples so far."""
        self.latest_us: int | None = None
        """Latest event time so far."""
        self._base, self.end = 0, 0
        """Where the last segment begins, and bytes so far."""
        self.read_to: Callable[[], int] = lambda: self.end
        """How far the reader has come (bytes); whoever starts one tells."""
        self._recover()
        self._passed = self.end
        self._file = os.open(self._path(self._base), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _note(self, base: int) -> Path:
        """How many tuples, and how late ones, there were before a segment."""
        return self.folder / f"{base:020d}.json"

    def _recover(self) -> None:
        if not self.segments():
            return
        last = self.segments()[-1]
        data = whole(last)
        self._base = int(last.stem)
        if self._note(self._base).exists():
            self.rows, self.latest_us = recall(self._note(self._base), tuple[int, int | None])
        try:
            size = numbered(data, self.rows)
        except ValueError as error:
            raise InvalidInput([Fault(str(last), f"not what a run wrote: {error}")]) from None
        self.end = self._base + size
        for frame in self._frames(last, data[:size], self.kinds):
            self._count(len(frame.columns[0]), pc.max(frame.columns[1]).as_py())
        if size < len(data):
            os.truncate(last, size)

    def _count(self, rows: int, latest_us: int | None) -> None:
        self.rows += rows
        if latest_us is not None:
            self.latest_us = latest_us if self.latest_us is None else max(latest_us, self.latest_us)

    def frames(self, beside: str = "") -> Iterator[Frame]:
        """All frames that are still there; `beside`: kinds of columns that were appended behind the others."""
        for segment in self.segments():
            yield from self._frames(segment, whole(segment), self.kinds + beside)

    @staticmethod
    def _frames(file: Path, data: bytes, kinds: str) -> Iterator[Frame]:
        """The frames of a segment; bytes that nobody wrote so are told."""
        try:
            yield from decode(data, kinds)
        except (ValueError, IndexError, struct.error) as error:
            raise InvalidInput([Fault(str(file), f"not what a run wrote: {error}")]) from None

    def _path(self, base: int) -> Path:
        return self.folder / f"{base:020d}.log"

    def segments(self) -> list[Path]:
        """Files in order."""
        return sorted(self.folder.glob("*.log"))

    def append(self, columns: Sequence[pa.Array], *, sync: bool = False) -> None:
        """Add tuples, at least one. `sync`: return when they are on the disk itself."""
        rows = Rows(columns)
        self.put(rows, 0, len(rows), sync=sync)

    def put(self, rows: Rows, start: int, stop: int, *, sync: bool = False) -> None:
        """Add some of these tuples, at least one."""
        with self._lock:
            if self.end - self._base >= self.segment:
                self._roll()
            frame = rows.encode(start, stop, self.rows, time.time_ns() // 1000)
            if os.write(self._file, frame) != len(frame):
                raise OSError(f"the log {self.folder} could not be written to its end: is the disk full?")
            if sync:
                os.fsync(self._file)
            self._count(stop - start, rows.most(1, start, stop))
            self.end += len(frame)

    @property
    def full(self) -> bool:
        """Whether the reader is so far behind that more should wait."""
        if self.end - self._passed > AHEAD:
            self._passed = self.read_to()
        return self.end - self._passed > AHEAD

    def _roll(self) -> None:
        """Begin a new segment, and delete those that every reader has passed."""
        os.close(self._file)
        self._base = self.end
        write_safely(self._note(self._base), json.dumps([self.rows, self.latest_us]))
        self._file = os.open(self._path(self._base), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        passed = min((_passed(note) for note in (self.folder / "readers").glob("[!.]*")), default=0)
        segments = self.segments()[: -KEPT + 1]
        for file, after in pairwise(segments):
            if int(after.stem) <= passed:
                file.unlink()
                file.with_suffix(".json").unlink(missing_ok=True)

    def forget_readers(self) -> None:
        """Forget the notes of readers that are gone: new ones begin, and nothing is deleted before they say so."""
        for note in (self.folder / "readers").glob("*"):
            note.unlink()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            os.close(self._file)


def _passed(note: Path) -> int:
    """How far a reader will never go back (bytes)."""
    text = read_text(note, "a reader's note")
    if not text.isdecimal():
        raise InvalidInput([Fault(str(note), "not what a run wrote: a number of bytes expected", value=short(text))])
    return int(text)
