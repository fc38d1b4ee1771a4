from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from nova.model.errors import InvalidInput
from nova.spark.realtime import log as log_module
from nova.spark.realtime.log import Log


def tuples(*times: int) -> list[pa.Array]:
    return [pa.array([1] * len(times)), pa.array(list(times)), pa.array([0.5] * len(times))]


def held(log: Log) -> list[int]:
    return [time for frame in log.frames() for time in frame.columns[1].to_pylist()]


def test_a_log_goes_on_where_a_killed_writer_stopped(tmp_path: Path) -> None:
    log = Log(tmp_path, "lld")
    log.append(tuples(5, 9))
    log.append(tuples(7))
    log.close()
    (segment,) = log.segments()
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[:30])  # a frame that was cut short
    again = Log(tmp_path, "lld")
    assert (again.rows, again.latest_us, again.end) == (3, 9, log.end)
    again.append(tuples(8))
    assert held(again) == [5, 9, 7, 8]
    assert [frame.first for frame in again.frames()] == [0, 2, 3]


def test_a_log_cut_at_any_byte_loses_its_tail_only(tmp_path: Path) -> None:
    log = Log(tmp_path / "whole", "lld")
    ends = [0]
    for number in range(4):
        log.append(tuples(*range(number + 1)))
        ends.append(log.end)
    log.close()
    data = log.segments()[0].read_bytes()
    for size in range(len(data) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / log.segments()[0].name).write_bytes(data[:size])
        cut = Log(folder, "lld")
        assert cut.end == max(end for end in ends if end <= size)
        cut.close()


@pytest.mark.parametrize("at", [0, 4, 8], ids=["length", "rows", "number"])
@pytest.mark.parametrize("value", [0, 1, 21, 40, 77, 1000, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_damaged_frame_in_the_middle_is_told_and_nothing_is_cut(tmp_path: Path, at: int, value: int) -> None:
    log = Log(tmp_path, "lld")
    ends = [0]
    for number in range(4):
        log.append(tuples(*range(10 * number, 10 * number + 5)))
        ends.append(log.end)
    log.close()
    (segment,) = log.segments()
    good = segment.read_bytes()
    for frame in range(3):  # the last one's damage may be what a killed writer left
        place = ends[frame] + at
        damaged = good[:place] + value.to_bytes(4, "little") + good[place + 4 :]
        if damaged == good:
            continue
        segment.write_bytes(damaged)
        with pytest.raises(InvalidInput, match=rf"{segment.name}: not what a run wrote: "):
            Log(tmp_path, "lld")
        assert segment.read_bytes() == damaged


def test_segments_that_all_readers_have_passed_are_deleted(tmp_path: Path) -> None:
    log = Log(tmp_path, "lld", segment=1)
    for time in range(4):
        log.append(tuples(time))
    assert held(log) == [0, 1, 2, 3]  # nobody has read them
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "a").write_text(str(log.end))
    (tmp_path / "readers" / "b").write_text(log.segments()[2].stem)
    log.append(tuples(4))
    assert held(log) == [2, 3, 4]
    log.close()
    again = Log(tmp_path, "lld", segment=1)
    assert (again.rows, again.latest_us) == (5, 4)
    again.append(tuples(2))
    assert again.rows == 6


def test_a_log_says_when_its_reader_is_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "AHEAD", 1000)
    log, read = Log(tmp_path, "ll"), 0
    log.read_to = lambda: read
    few = [pa.array([1, 2]), pa.array([10, 20])]
    while not log.full:
        assert log.end <= 1000
        log.append(few)
    assert log.end > 1000
    read = log.end
    assert not log.full
    log.append(few)
    assert not log.full
