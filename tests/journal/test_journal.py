"""Journal: what was appended is there, damage at the end is cut and kept, damage in the middle refuses to load."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.journal import frames, journal
from nova.journal.errors import Damaged, Locked, NotDurable
from nova.journal.files import ASIDE
from nova.journal.journal import Journal, create_segment, segment_path
from nova.journal.lock import Lock

ME = bytes(16)
Groups = list[list[bytes]]
groups: st.SearchStrategy[Groups] = st.lists(
    st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), min_size=1, max_size=3), min_size=1, max_size=5
)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is such a thing: these tests ask about bytes, not about the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def written(folder: Path, content: Groups, rotate_after: int | None = None) -> list[int]:
    """Write groups of records. Returns where each frame begins in its file, and the end of the last one."""
    create_segment(folder, 1, ME)
    book = Journal(folder, ME, 0)
    offsets = []
    for i, group in enumerate(content):
        offsets.append(book._end)
        book.append(group)
        if i == rotate_after:
            book.rotate()
    offsets.append(book._end)
    book.close()
    return offsets


def contents(book: Journal) -> list[bytes]:
    return [record.content for record in book.records]


@given(groups, st.integers(0, 4))
@settings(max_examples=50)
def test_what_was_appended_is_read_again(content: Groups, rotate_after: int) -> None:
    with scratch() as folder:
        written(folder, content, rotate_after)
        flat = [record for group in content for record in group]
        book = Journal(folder, ME, 0)
        assert contents(book) == flat
        assert [record.sequence for record in book.records] == list(range(1, len(flat) + 1))
        assert book.cut is None
        assert book.append([b"more"]) == len(flat) + 1
        book.close()
        for after in range(len(flat) + 1):
            records, cut = journal.read(folder, ME, after)
            assert [record.content for record in records] == [*flat, b"more"][after:]
            assert cut is None


@given(groups, st.data())
@settings(max_examples=150)
def test_a_file_cut_at_any_byte_loses_its_tail_only(content: Groups, data: st.DataObject) -> None:
    with scratch() as folder:
        offsets = written(folder, content)
        path = segment_path(folder, 1)
        whole = path.read_bytes()
        end = data.draw(st.integers(0, len(whole)))
        os.truncate(path, end)
        kept = max((i for i, offset in enumerate(offsets) if offset <= end), default=0)
        expected = [record for group in content[:kept] for record in group]
        # reading changes nothing, and says the same
        records, seen = journal.read(folder, ME, 0)
        assert [record.content for record in records] == expected
        assert path.stat().st_size == end
        book = Journal(folder, ME, 0)
        assert contents(book) == expected
        if end in offsets:
            assert book.cut is None
            assert seen is None
        else:
            assert book.cut is not None
            assert seen is not None
            start = offsets[kept] if end >= frames.HEADER_BYTES else 0
            assert (book.cut.offset, book.cut.bytes_cut) == (start, end - start)
            assert book.cut.sequence == len(expected) + 1
            assert book.cut.kept is not None
            assert book.cut.kept.read_bytes() == whole[start:end]
            assert f"cut {end - start:,} bytes at byte {start:,}" in str(book.cut)
        # the journal goes on where it was cut
        assert book.append([b"again"]) == len(expected) + 1
        book.close()
        book = Journal(folder, ME, 0)
        assert contents(book) == [*expected, b"again"]
        assert book.cut is None
        book.close()


@given(groups, st.data())
@settings(max_examples=150)
def test_a_flipped_bit_is_cut_at_the_end_and_refused_before_it(content: Groups, data: st.DataObject) -> None:
    with scratch() as folder:
        offsets = written(folder, content)
        path = segment_path(folder, 1)
        broken = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(broken) - 1))
        broken[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(broken)
        hit = sum(1 for offset in offsets[1:] if offset <= place)
        before = [record for group in content[:hit] for record in group]
        if place >= frames.HEADER_BYTES and hit == len(content) - 1:
            book = Journal(folder, ME, 0)
            assert contents(book) == before
            assert book.cut is not None
            assert book.cut.offset == offsets[hit]
            book.close()
            return
        with pytest.raises(Damaged) as error:
            Journal(folder, ME, 0)
        assert error.value.file == path
        assert str(path) in str(error.value)
        if place < frames.HEADER_BYTES:
            assert error.value.record == "header"
        else:
            assert error.value.offset == offsets[hit]
            assert error.value.record == f"record {len(before) + 1}"
        assert path.read_bytes() == broken


def test_damage_at_the_end_of_a_segment_that_is_not_the_last_is_refused(tmp_path: Path) -> None:
    written(tmp_path, [[b"one"], [b"two"], [b"three"]], rotate_after=1)
    path = segment_path(tmp_path, 1)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(Damaged, match=r"journal-0+1\.log, byte \d+, record 2: .*good records follow"):
        Journal(tmp_path, ME, 0)
    # who needs only what comes later is not concerned
    book = Journal(tmp_path, ME, 2)
    assert contents(book) == [b"three"]
    book.close()


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    create_segment(tmp_path, 1, ME)
    book = Journal(tmp_path, ME, 0)
    for content in (b"a", b"b", b"c"):
        book.append([content])
        book.rotate()
    book.close()
    segment_path(tmp_path, 2).unlink()
    with pytest.raises(Damaged, match=r"record 2: missing: journal-0+3\.log goes on with record 3"):
        Journal(tmp_path, ME, 0)
    segment_path(tmp_path, 1).unlink()
    with pytest.raises(Damaged, match="record 1: missing: the journal begins with record 3"):
        Journal(tmp_path, ME, 0)
    for path in tmp_path.glob("journal-*"):
        path.unlink()
    with pytest.raises(Damaged, match="there is no journal file"):
        Journal(tmp_path, ME, 0)


def test_a_segment_of_another_folder_or_version_is_refused(tmp_path: Path) -> None:
    create_segment(tmp_path, 1, b"x" * 16)
    with pytest.raises(Damaged, match="belongs to another folder"):
        Journal(tmp_path, ME, 0)
    create_segment(tmp_path, 1, ME)
    os.rename(segment_path(tmp_path, 1), segment_path(tmp_path, 5))
    with pytest.raises(Damaged, match="begins with record 1, its name says 5"):
        Journal(tmp_path, ME, 4)


def test_a_snapshot_beyond_a_damaged_end_goes_on_behind_itself(tmp_path: Path) -> None:
    written(tmp_path, [[b"a"], [b"b"]])
    path = segment_path(tmp_path, 1)
    os.truncate(path, path.stat().st_size - 1)
    book = Journal(tmp_path, ME, 2)
    assert book.cut is not None
    assert book.append([b"c"]) == 3
    book.close()
    assert [record.content for record in Journal(tmp_path, ME, 2).records] == [b"c"]
    with pytest.raises(Damaged, match="record 2: missing"):
        Journal(tmp_path, ME, 0)


def test_old_segments_are_removed_only_where_all_their_records_are(tmp_path: Path) -> None:
    create_segment(tmp_path, 1, ME)
    book = Journal(tmp_path, ME, 0)
    for _ in range(3):
        book.append([b"x", b"y"])
        book.rotate()
    book.rotate()  # an empty segment is not followed by another
    assert len(list(tmp_path.glob("journal-*"))) == 4
    book.remove_until(1)
    assert journal.oldest(tmp_path) == 1
    book.remove_until(2)
    assert journal.oldest(tmp_path) == 3
    book.remove_until(100)
    assert journal.oldest(tmp_path) == 7
    book.append([b"z"])
    book.close()
    assert [record.sequence for record in journal.read(tmp_path, ME, 6)[0]] == [7]


def test_a_write_error_is_reported_and_not_acknowledged(tmp_path: Path) -> None:
    """Files of a child process may not grow beyond a limit, as on a full disk."""
    create_segment(tmp_path, 1, ME)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            book = Journal(tmp_path, ME, 0)
            book.append([b"fits"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
            try:
                book.append([b"x" * 1000])
            except NotDurable as error:
                told = "cannot write records 2 to 2" in str(error) and "not acknowledged" in str(error)
                try:
                    book.append([b"y"])
                except NotDurable:
                    code = 0 if told else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    book = Journal(tmp_path, ME, 0)
    assert contents(book) == [b"fits"]
    assert book.cut is None
    book.close()


def test_cut_tails_of_the_same_place_are_all_kept(tmp_path: Path) -> None:
    offsets = written(tmp_path, [[b"a"]])
    path = segment_path(tmp_path, 1)
    for rubbish in (b"one", b"two", b"two"):
        with path.open("ab") as file:
            file.write(rubbish)
        Journal(tmp_path, ME, 0).close()
        assert path.stat().st_size == offsets[-1]
    assert sorted(kept.read_bytes() for kept in (tmp_path / ASIDE).iterdir()) == [b"one", b"two"]


def test_only_one_process_writes(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Lock(tmp_path)
        except Locked as error:
            code = 0 if f"in use by process {os.getppid()}" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.release()
    Lock(tmp_path).release()
