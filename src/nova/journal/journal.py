"""Journal: records in the order in which they happened, appended to segment files and never changed.

`append` returns when the records are on the disk. Damage at the very end (a write that was cut short) is cut off and
kept aside; damage anywhere else is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nova.journal import frames
from nova.journal.errors import Damaged, NotDurable
from nova.journal.files import ASIDE, sync_folder, write_all, write_whole
from nova.model.errors import NovaError
from nova.model.reading import whole

PATTERN = "journal-*.log"


@dataclass(frozen=True, slots=True)
class Record:
    """One record, and where it lies."""

    sequence: int
    content: bytes
    file: Path
    offset: int
    """Where the frame that holds it begins."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An end of the journal that made no sense."""

    file: Path
    offset: int
    bytes_cut: int
    sequence: int
    """Number of the first record that is not there."""
    what: str
    kept: Path | None
    """Where the bytes are now; None while only reading."""

    def __str__(self) -> str:
        if self.kept is None:
            return (
                f"{self.file}: the last {self.bytes_cut:,} bytes, from byte {self.offset:,} on, are not a whole record "
                f"{self.sequence:,} ({self.what}): passed over"
            )
        return (
            f"{self.file}: cut {self.bytes_cut:,} bytes at byte {self.offset:,}, which were not a whole record "
            f"{self.sequence:,} ({self.what}); kept as {self.kept}"
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class _Segment:
    path: Path
    first: int
    scan: frames.Scan

    @property
    def last(self) -> int:
        """Number of its last record; the one before its first where it has none."""
        return self.scan.frames[-1].last if self.scan.frames else self.first - 1

    def records(self) -> Iterator[Record]:
        for one in self.scan.frames:
            for number, content in enumerate(one.records, one.first):
                yield Record(number, content, self.path, one.offset)


def oldest(folder: Path) -> int:
    """Number of the first record that is kept."""
    return min((_number(path) for path in folder.glob(PATTERN)), default=1)


def segment_path(folder: Path, first: int) -> Path:
    """The file of the segment whose first record has this number."""
    return folder / f"journal-{first:020d}.log"


def create_segment(folder: Path, first: int, identity: bytes) -> Path:
    """A durable segment without records."""
    path = segment_path(folder, first)
    write_whole(path, [frames.header(first, identity)])
    return path


def read(folder: Path, identity: bytes, after: int) -> tuple[list[Record], Cut | None]:
    """All records with a number above `after`, in order, without changing anything; and the damaged tail, if any.

    Segments that end before `after` are not looked at. Raises `Damaged` where records are missing or changed anywhere
    but at the end.
    """
    while True:
        try:
            segments, cut = _segments(folder, identity, after)
        except FileNotFoundError:
            continue  # the writer removed a segment that was listed: what is wanted lies in others, or is missing
        except OSError as error:
            raise NovaError(f"cannot read {error.filename}: {error.strerror}") from error
        return [record for one in segments for record in one.records() if record.sequence > after], cut


def _segments(folder: Path, identity: bytes, after: int) -> tuple[list[_Segment], Cut | None]:
    paths = sorted(folder.glob(PATTERN))
    # a segment is of use if the next one does not begin at or before the first record wanted
    starts = [_number(path) for path in paths]
    wanted = [i for i in range(len(paths)) if i + 1 == len(paths) or starts[i + 1] > after + 1]
    segments: list[_Segment] = []
    cut = None
    for i in wanted:
        path, last = paths[i], i + 1 == len(paths)
        data = whole(path)
        segment, cut = _segment(path, data, identity, starts[i], last=last)
        if segments and segment.first != segments[-1].last + 1:
            before = segments[-1]
            raise Damaged(
                before.path,
                before.scan.end,
                f"record {before.last + 1}",
                f"missing: {path.name} goes on with record {segment.first}",
            )
        segments.append(segment)
    if not segments:
        raise Damaged(segment_path(folder, after + 1), 0, f"record {after + 1}", "there is no journal file")
    first = segments[0]
    if first.first > after + 1:
        raise Damaged(first.path, 0, f"record {after + 1}", f"missing: the journal begins with record {first.first}")
    return segments, cut


def _number(path: Path) -> int:
    """The number of a segment's first record, as its name says."""
    digits = path.stem.removeprefix("journal-")
    if not digits.isdigit():
        raise Damaged(path, 0, "header", "not the name of a journal file")
    return int(digits)


def _segment(path: Path, data: bytes, identity: bytes, first: int, *, last: bool) -> tuple[_Segment, Cut | None]:
    head = frames.read_header(data)
    if head is None:
        what = "the header is damaged"
        if not last or frames.follows(data, 0):
            raise Damaged(path, 0, "header", what)
        scanned = frames.Scan([], 0, frames.Damage(0, first, what, tail=True))
    elif head.version != frames.VERSION:
        raise Damaged(path, 8, "header", f"journal format {head.version}, this version reads {frames.VERSION}")
    elif head.folder != identity:
        raise Damaged(path, 20, "header", "the file belongs to another folder of events")
    elif head.first != first:
        raise Damaged(path, 12, "header", f"begins with record {head.first}, its name says {first}")
    else:
        scanned = frames.scan(data, first)
    damage = scanned.damage
    if damage is None:
        return _Segment(path, first, scanned), None
    if not (damage.tail and last):
        raise Damaged(path, damage.offset, f"record {damage.sequence}", f"{damage.what}; good records follow")
    cut = Cut(path, damage.offset, len(data) - damage.offset, damage.sequence, damage.what, None)
    return _Segment(path, first, scanned), cut


class Journal:
    """The end of the journal, open for appending. Whoever opens it holds the folder's lock."""

    def __init__(self, folder: Path, identity: bytes, after: int) -> None:
        """Open and, where a write was cut short, cut. `records` are those with a number above `after`."""
        self.folder, self.identity = folder, identity
        segments, cut = _segments(folder, identity, after)
        self.records = [record for one in segments for record in one.records() if record.sequence > after]
        self.cut = None if cut is None else self._keep_aside(cut)
        self._path, self._end, self.next = segments[-1].path, segments[-1].scan.end, segments[-1].last + 1
        if self.cut is not None:
            self._end = max(self._end, frames.HEADER_BYTES)  # a damaged header was written anew
        if self.next <= after:  # the end is damaged, but a snapshot holds what was there: go on behind it
            self._path, self._end = create_segment(folder, after + 1, identity), frames.HEADER_BYTES
            self.next = after + 1
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        self.failed: str | None = None

    def _keep_aside(self, cut: Cut) -> Cut:
        """Save the bytes of a damaged tail, then cut them off."""
        aside = self.folder / ASIDE
        aside.mkdir(exist_ok=True)
        tail = cut.file.read_bytes()[cut.offset :]
        number, kept = 0, aside / f"{cut.file.stem}-at-{cut.offset}"
        while kept.exists() and kept.read_bytes() != tail:
            number += 1
            kept = aside / f"{cut.file.stem}-at-{cut.offset}-{number}"
        write_whole(kept, [tail])
        sync_folder(self.folder)
        if cut.offset < frames.HEADER_BYTES:
            create_segment(self.folder, cut.sequence, self.identity)
        else:
            descriptor = os.open(cut.file, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, cut.offset)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return Cut(cut.file, cut.offset, cut.bytes_cut, cut.sequence, cut.what, kept)

    def append(self, records: Sequence[bytes]) -> int:
        """Make records durable, with one fsync for all. Returns the number of the first.

        Raises `NotDurable` where that fails; nothing may be acknowledged then, and the journal takes nothing more,
        since after a failed fsync nobody knows what is on the disk. Opening it again finds out.
        """
        if self.failed is not None:
            raise NotDurable(self.failed)
        first = self.next
        content = frames.frame(first, records)
        try:
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            write_all(self._descriptor, content)
            os.fsync(self._descriptor)
        except OSError as error:
            self.failed = (
                f"{self._path}: cannot write records {first:,} to {first + len(records) - 1:,}: {error.strerror}; "
                "they are not acknowledged"
            )
            self._take_back()
            raise NotDurable(self.failed) from error
        except BaseException:
            self.failed = f"{self._path}: writing record {first:,} was interrupted: open the folder again"
            raise
        self._end += len(content)
        self.next += len(records)
        return first

    def _take_back(self) -> None:
        """Take half a frame off again. Where even that fails, opening the journal again does it."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            self.failed = f"{self.failed} (nor can the file be cut back: {error.strerror})"

    def rotate(self) -> None:
        """Begin a new segment, so that the ones before can be removed one day."""
        if self._end == frames.HEADER_BYTES:
            return  # the present one is empty
        path = segment_path(self.folder, self.next)
        try:
            create_segment(self.folder, self.next, self.identity)
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            if path.exists():  # then nothing may be added to the segment before it any more
                self.failed = f"{path}: cannot be opened: {error.strerror}"
            raise
        os.close(self._descriptor)
        self._path, self._end, self._descriptor = path, frames.HEADER_BYTES, descriptor

    def remove_until(self, sequence: int) -> None:
        """Remove the segments whose records all have numbers up to this one. The last segment always stays."""
        paths = sorted(self.folder.glob(PATTERN))
        for path, follower in pairwise(paths):
            if _number(follower) > sequence + 1:
                break
            path.unlink()

    def close(self) -> None:
        """Let go of the file. All that was appended is durable already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
