from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova.spark.dead_letters import LetterBox
from nova.spark.realtime.feeds import Generated, Known, Messages, Paced, Tap, json_reader
from nova.spark.realtime.log import Log
from nova.spark.sources.clock import Clock
from nova.spark.sources.generator import Pattern, Source, generate
from nova.spark.sources.mqtt import Broker
from nova.spark.sources.tuples import FILE, LINE, REASON, RECORD

SOURCES = [Source("a", 30.0), Source("b", 7.0)]
PATTERN = Pattern(seed=3, keys=9, disorder_ms=300, length_ms=4000)
CARRIED = pa.schema([("value", pa.float64()), ("key", pa.int64())])
KNOWN = Known(pa.array(["a", "b"]), np.array([4, 6], np.int32))


def logged(*logs: Log, beside: str = "") -> list[list[tuple[object, ...]]]:
    return [
        [row for frame in log.frames(beside) for row in zip(*(c.to_pylist() for c in frame.columns), strict=True)]
        for log in logs
    ]


def test_generated_tuples_are_the_same_whoever_goes_on_from_wherever(tmp_path: Path) -> None:
    fast = Clock(1e6, str(tmp_path / "clock"))
    whole = Log(tmp_path / "whole", "lldl")
    feed = Paced(Generated(SOURCES, PATTERN, tmp_path / "a.json", 10_000), [Tap(whole, CARRIED, KNOWN)], fast)
    feed._run()
    assert feed.ended
    assert feed.failure is None
    (all_rows,) = logged(whole)
    made = generate(SOURCES, PATTERN, -1, 1e9, 10_000)
    assert sorted(row[1:] for row in all_rows) == sorted(
        zip(
            made["event_time"].cast(pa.int64()).to_pylist(),
            made["value"].to_pylist(),
            made["key"].to_pylist(),
            strict=True,
        )
    )
    assert {row[0] for row in all_rows} == {4, 6}
    # two logs that were cut off at different places, and a note of an earlier block
    (tmp_path / "b.json").write_text(json.dumps([10_000, 1, 18]))
    blocks = Generated(SOURCES, PATTERN, tmp_path / "c.json", 10_000)
    before = sum(len(arrival) for _, arrival, _ in [next(blocks.after(0))])
    (tmp_path / "b.json").write_text(json.dumps([10_000, 1, before]))
    parts = [Log(tmp_path / name, "lldl") for name in ("one", "two")]
    for log, rows in zip(parts, (before + 3, before + 20), strict=True):
        columns = [pa.array(column) for column in zip(*all_rows[:rows], strict=True)]
        log.append(columns)
    again = Paced(
        Generated(SOURCES, PATTERN, tmp_path / "b.json", 99), [Tap(log, CARRIED, KNOWN) for log in parts], fast
    )
    again._run()
    assert logged(*parts) == [all_rows, all_rows]


def test_played_tuples_of_strangers_are_dead_letters(tmp_path: Path) -> None:
    log, letters = Log(tmp_path / "log", "lldl"), LetterBox(tmp_path / "dead-letters", "pressure (played)")
    only_a = Known(pa.array(["a"]), np.array([4], np.int32))
    blocks = Generated(SOURCES, PATTERN, tmp_path / "note.json", 10_000)
    feed = Paced(blocks, [Tap(log, CARRIED, only_a)], Clock(1e6, str(tmp_path / "clock")), letters=letters, stream="p")
    feed._run()
    assert feed.failure is None
    strange = [row for row in logged(log)[0] if row[0] == -1]
    kept = [row for file in (tmp_path / "dead-letters").iterdir() for row in pq.read_table(file).to_pylist()]
    assert {(one["reason"], one["stream"]) for one in kept} == {("unknown_source", "p")}
    texts = [json.loads(one["record"]) for one in kept]
    assert {text["source"] for text in texts} == {"b"}
    assert sorted(text["value"] for text in texts) == sorted(row[2] for row in strange)
    assert 0 < len(strange) < log.rows
    assert feed.dead == {"unknown_source": len(strange)}


def test_played_tuples_keep_the_places_that_they_came_from(tmp_path: Path) -> None:
    class Two:
        begin_us = 0

        def after(self, rows: int) -> Any:
            hidden = {
                REASON: pa.nulls(2, pa.string()),
                FILE: [None, "file:/a.csv"],
                LINE: [None, 7],
                RECORD: [None, "z"],
            }
            times = pa.array([1, 2], pa.timestamp("us", "UTC"))
            yield pa.table({"source": ["a", "z"], "time": times, "value": [1.0, 2.0], **hidden}), np.array([1, 2]), 3

    log, letters = Log(tmp_path / "log", "lld"), LetterBox(tmp_path / "dead-letters", "p (played)")
    tap = Tap(log, pa.schema([("value", pa.float64())]), Known(pa.array(["a"]), np.array([4], np.int32)))
    feed = Paced(Two(), [tap], Clock(1e6, str(tmp_path / "clock")), letters=letters, stream="p")
    feed._run()
    assert feed.failure is None
    (kept,) = (row for file in (tmp_path / "dead-letters").iterdir() for row in pq.read_table(file).to_pylist())
    assert (kept["file"], kept["line"], kept["record"]) == ("file:/a.csv", 7, "z")


def test_messages_are_kept_once_and_strange_ones_are_nobodys(tmp_path: Path) -> None:
    schema = pa.schema([("value", pa.float64()), ("zone", pa.string()), ("n", pa.int64())])
    log = Log(tmp_path / "log", "lldsl")
    feed = Messages(
        Broker("nowhere", 1, "t"),
        "me",
        None,
        [Tap(log, schema, KNOWN)],
        json_reader("id", "at", "v", schema),
        LetterBox(tmp_path / "dead-letters", "live"),
        "pressure",
    )
    feed.recall()

    def say(name: str, certain: bool = True, **fields: object) -> tuple[str, bool, str, str]:
        return name, certain, "t", json.dumps(fields)

    sent = [
        say("1", id="a", at="1970-01-01T00:00:01.5Z", v=2, zone="z", n=3),
        say("2", id="b", at=1500, v=None, zone=5, n="many"),
        say("3", id="c", at="1500.0", v=1.0),
        say("4", id="a", at="never", v=1.0),
        ("5", True, "t", "not json"),
    ]
    assert feed.append(sent) == 5
    feed = replace(feed, _ids=[])  # another start
    feed.recall()
    assert feed.append([sent[0], say("6", id="a", at=2000, v=1.0)]) == 1
    assert feed.append([say("6", False, id="a", at=2000, v=1.0)]) == 1  # not told to be a repetition
    (rows,) = logged(log, beside="s")
    assert rows == [
        (4, 1_500_000, 2.0, b"z", 3, b"1"),
        (-1, 1_500_000, None, b"5", None, b"2"),
        (-1, 1_500_000, 1.0, None, None, b"3"),
        (-1, 0, 1.0, None, None, b"4"),
        (-1, 0, None, None, None, b"5"),
        (4, 2_000_000, 1.0, None, None, b"6"),
        (4, 2_000_000, 1.0, None, None, b"6"),
    ]
    letters = [row for file in (tmp_path / "dead-letters").iterdir() for row in pq.read_table(file).to_pylist()]
    assert [letter["reason"] for letter in letters] == ["bad_value", "unknown_source", "bad_time", "not_parsed"]
    assert {(letter["file"], letter["stream"]) for letter in letters} == {("t", "pressure")}
    assert letters[-1]["record"] == "not json"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1.5", 1500),
        (-1, -1000),
        ("2020-01-01", 1_577_836_800_000_000),
        ("x", None),
        (1e17, None),
        (-(2**63), None),
        (2**64 - 1, None),
        ("9" * 400, None),
        ("0001-01-01T00:00:00+23:00", -62_135_679_600_000_000),
    ],
)
def test_times_are_iso_or_milliseconds(given: object, wanted: int | None) -> None:
    read = json_reader("id", "at", "v", pa.schema([("value", pa.float64())]))
    assert read([json.dumps({"at": given})])["time"].cast(pa.int64()).to_pylist() == [wanted]


STRANGE = (
    "null", "true", "-1", "9223372036854775808", "18446744073709551616", "1" + "0" * 400, "1e308", "1e999", "-1e-320",
    "NaN", "[]", "[1]", "{}", '{"a": 1}', '"\\ud800"', '"\\u0000"', '""', '"2024-02-30"', '"1e5"', '"\u00b2"', '"."',
    "1e17", "-9e18", '"24:00"', "[" * 300 + "]" * 300,
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.int64(), pa.int32(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC")]
)
def test_no_message_stops_a_reader(kind: pa.DataType) -> None:
    """Whatever a field holds, the message is a tuple or has nulls that make it a dead letter."""
    read = json_reader("id", "at", "v", pa.schema([("value", pa.float64()), ("c", kind)]))
    good = {"id": '"a"', "at": "1", "v": "2.5", "c": "null"}
    for name in good:
        for text in STRANGE:
            made = read(["{" + ",".join(f'"{k}": {v}' for k, v in (good | {name: text}).items()) + "}"])
            made.validate(full=True)
            assert len(made) == 1
    assert len(read(["", "[]", "{", "\x00", "\ufeff{}"])) == 5
