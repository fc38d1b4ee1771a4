from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import SMALL
from kafka_broker import consume, kafka, produce
from nova.model.errors import NovaError
from nova.scenario.model import Columns, StreamInput
from nova.spark.dead_letters import LetterBox
from nova.spark.realtime.feeds import Known, Tap, document_reader
from nova.spark.realtime.log import Log
from nova.spark.realtime.records import BESIDE, Record, Records, ToKafka, record_reader
from nova.spark.sources import kafka as kafka_source
from nova.spark.sources.kafka import Address, Layout
from processes import Process, looked_after
from runs import plain, scenario, tables

CARRIED = pa.schema([("value", pa.float64())])


def topic(**options: str) -> StreamInput:
    return StreamInput(format="kafka", path="kafka://nowhere/t", options=options, columns=Columns())


def test_every_record_is_in_each_log_once_whoever_goes_on(tmp_path: Path) -> None:
    layout = Layout.of(topic(key="source_id", timestamp="event_time"), "x")
    read = record_reader(layout, document_reader("source_id", "event_time", "value", CARRIED))
    known = Known(pa.array(["a"]), np.array([4], np.int32))
    given = [Record(i % 2, i // 2, b"a", json.dumps({"value": i}).encode(), 1000 + i) for i in range(8)]
    given[3] = given[3]._replace(value=b"{half")
    given[5] = given[5]._replace(key=b"stranger")

    def opened() -> Records:
        taps = [Tap(Log(tmp_path / name, "lld"), CARRIED, known) for name in ("one", "two")]
        letters = LetterBox(tmp_path / "dead-letters", "live")
        feed = Records(layout, "x", taps, read, letters, "pressure", tmp_path / "note.json")
        feed.recall()
        return feed

    feed = opened()
    feed.append(given[:4])
    replace(feed, taps=feed.taps[:1], next=feed.next[:1], _noted_s=time.monotonic()).append(given[4:6])  # then killed
    again = opened()
    assert again.next == [{0: 3, 1: 3}, {0: 2, 1: 2}]
    again.append(given[2:])  # from the place of the log that has least, or before
    for tap in again.taps:
        rows = [row for f in tap.log.frames(BESIDE) for row in zip(*(c.to_pylist() for c in f.columns), strict=True)]
        wanted = [(4, (1000 + i) * 1000, float(i), i % 2, i // 2) for i in range(8)]
        wanted[3] = (-1, 1_003_000, None, 1, 1)
        wanted[5] = (-1, *wanted[5][1:])
        assert rows == wanted
    letters = [row for file in (tmp_path / "dead-letters").iterdir() for row in pq.read_table(file).to_pylist()]
    found = sorted((one["reason"], one["file"], one["line"], one["record"]) for one in letters)
    assert found == [("bad_value", "t/1", 1, "{half"), ("unknown_source", "t/1", 2, '{"value": 5}')]


def test_a_topic_is_followed_and_results_go_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real broker, without Spark: two partitions, a stop in between, and records that come meanwhile."""
    layout = Layout.of(topic(), "x")
    read = record_reader(layout, document_reader("source_id", "event_time", "value", CARRIED))
    known = Known(pa.array(["a"]), np.array([4], np.int32))

    def write(first: int, last: int) -> None:
        sent = [{"source_id": "a", "event_time": i, "value": float(i)} for i in range(first, last)]
        produce(server, "t", sent, keys=[str(i) for i in range(first, last)])

    with kafka(tmp_path / "kafka") as server:
        here = replace(layout, at=Address(server, "t"))
        log, letters = Log(tmp_path / "log", "lld"), LetterBox(tmp_path, "q")
        for first, last in ((0, 250), (400, 450)):
            feed = Records(here, "x", [Tap(log, CARRIED, known)], read, letters, "s", tmp_path / "note.json")
            feed.start()
            write(first, last)
            end = time.monotonic() + 60
            while not (feed.ended and log.rows >= last) and time.monotonic() < end:
                assert feed.failure is None
                time.sleep(0.05)
            feed.stop()
            assert log.rows == last
            if last == 250:
                write(250, 400)
        seen = [value for frame in log.frames(BESIDE) for value in frame.columns[1].to_pylist()]
        assert sorted(seen) == [i * 1000 for i in range(450)]
        sink = ToKafka(f"kafka://{server}/out", {})
        sink.take("1", pa.table({"value": [1.0, 2.0], "id": ["q-1-2", "q-1-3"]}))
        sink.settle()
        sink.close()
        assert consume(server, "out") == [
            ("q-1-2", {"id": "q-1-2", "value": 1.0}),
            ("q-1-3", {"id": "q-1-3", "value": 2.0}),
        ]
        monkeypatch.setattr(kafka_source, "ANSWER_S", 1.0)
        gone = ToKafka("kafka://127.0.0.1:9/out", {})
        gone.take("1", pa.table({"id": ["q"]}))
        with pytest.raises(NovaError, match="Kafka at 127"):
            gone.settle()


@pytest.mark.slow
@pytest.mark.spark
def test_kafka_to_kafka_through_kill_9(tmp_path: Path) -> None:
    """Records keep coming while the run is killed and started again: by their ids, results are the plain join's."""
    left, right = (side.sort_values("event_time", ignore_index=True) for side in tables(900, 9_000))
    draw = random.Random(3)
    with kafka(tmp_path / "kafka") as server, looked_after() as started:
        inputs = {name: {"format": "kafka", "path": f"kafka://{server}/{name}"} for name in SMALL["streams"]}
        scenario(tmp_path / "s", inputs)
        folder = tmp_path / "run"
        command = [Path(sys.executable).parent / "nova", "run", tmp_path / "s" / "scenario.yaml", "-o", folder]
        command += ["--mode", "realtime", "--every", "2s", "--to", f"kafka://{server}/out"]

        def logged() -> int:
            return sum(file.stat().st_size for file in folder.glob("jobs/climate/*/*.log"))

        parts = np.array_split(np.arange(len(left)), 4)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            process = Process(*command, *(["--until-end"] if last else []), log=tmp_path / "run.log")
            started.append(process)
            before = logged()
            for few in np.array_split(part, 10):
                for name, side in (("pressure", left), ("humidity", right)):
                    millis = side["event_time"].astype("datetime64[ms, UTC]").astype("int64")
                    produce(server, name, side.assign(event_time=millis).iloc[few].to_dict("records"))
            if last:
                process.wait()
            else:
                process.until(lambda before=before: logged() > before)
                time.sleep(draw.uniform(0, 3))
                process.kill()
        heard = consume(server, "out")
    once = dict(heard)
    wanted = Counter((pair[1], pair[2], pair[3] // 1000, pair[4] // 1000) for pair in plain(left, right).elements())

    def millis_of(text: str) -> int:
        return round(pd.Timestamp(text).timestamp() * 1000)

    found = Counter(
        (row["left_source"], row["right_source"], millis_of(row["left_time"]), millis_of(row["right_time"]))
        for row in once.values()
    )
    assert found == wanted
    assert all(key == row["id"] for key, row in heard)
