from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from builders import SMALL, write_scenario
from kafka_broker import consume, kafka, produce
from nova import optimizer
from nova.model.errors import InvalidInput
from nova.scenario import load
from nova.scenario.model import StreamInput
from nova.spark.job.run import Run, Settings
from nova.spark.sources.kafka import Address, KafkaReader, Layout, Span
from processes import Process, looked_after
from runs import plain, tables


def test_addresses() -> None:
    assert Address.parse("kafka://a,b:9094/t", "x") == Address("a:9092,b:9094", "t")
    for wrong in ("a:9092/t", "kafka://a", "kafka://user:secret@a/t"):
        with pytest.raises(InvalidInput, match="looks like"):
            Address.parse(wrong, "x")


@pytest.mark.parametrize(
    ("options", "field", "why"),
    [
        ({"maxOffsetsPerTrigger": "5", "kafka.security.protocol": "SSL", "startingOffsets": "latest"}, None, ""),
        ({"kafka.sasl.jaas.config": "…"}, None, "sasl.username"),
        ({"failOnDataLoss": "false"}, "options.failOnDataLoss", "no such option"),
        ({"startingOffsets": "yesterday"}, "options.startingOffsets", "earliest, latest"),
        ({"maxOffsetsPerTrigger": 0}, "options.maxOffsetsPerTrigger", "from 1"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, Any], field: str | None, why: str) -> None:
    pytest.importorskip("confluent_kafka")
    given = StreamInput(format="kafka", path="kafka://h/t", options=options)
    if not why:
        layout = Layout.of(given, "x")
        assert (layout.at, layout.start, layout.most) == (Address("h:9092", "t"), "latest", 5)
        return
    with pytest.raises(InvalidInput, match=why) as told:
        Layout.of(given, "x")
    assert field is None or told.value.faults[0].field == field


def test_a_batch_takes_its_part_of_every_partition() -> None:
    pytest.importorskip("confluent_kafka")
    options = {"servers": "127.0.0.1:9", "topic": "t", "start": "earliest", "most": "10", "place": "x", "client": "{}"}
    reader = KafkaReader(options)
    reader._till = {"0": 100, "1": 3, "2": 7}
    at = {"0": 0, "1": 0}
    seen: Counter[tuple[int, int]] = Counter()
    while (end := reader.latestOffset(at, ReadAllAvailable())) != at:
        spans = [span for span in reader.partitions(at, end) if isinstance(span, Span)]
        assert sum(span.end - span.start for span in spans) <= 10 + len(reader._till)
        seen.update((span.partition, offset) for span in spans for offset in range(span.start, span.end))
        at = end
    assert seen == Counter((int(p), offset) for p, end in reader._till.items() for offset in range(end))


def rows(table: Any) -> list[dict[str, Any]]:
    millis = table["event_time"].astype("datetime64[ms, UTC]").astype("int64")
    return table.assign(event_time=millis).to_dict("records")


def test_kafka_in_and_out(spark: Any, tmp_path: Path) -> None:
    """JSON records, the source in the value or in the key, join to records with ids; what does not parse is a dead
    letter with partition and offset; a run that is continued reads on."""
    left, right = tables()
    with kafka(tmp_path / "kafka") as server:
        inputs = {
            "pressure": {"format": "kafka", "path": f"kafka://{server}/pressure"},
            "humidity": {
                "format": "kafka",
                "path": f"kafka://{server}/humidity",
                "options": {"key": "source_id", "schema": "event_time LONG, value DOUBLE", "maxOffsetsPerTrigger": 25},
            },
        }
        document = {
            **SMALL,
            "streams": {name: {**stream, "input": inputs[name]} for name, stream in SMALL["streams"].items()},
        }
        loaded = load(write_scenario(tmp_path / "s", document))
        plan = optimizer.optimize(loaded.problem, loaded.options)

        def part(first: int, last: int) -> dict[str, Any]:
            lefts, rights = rows(left[first:last]), rows(right[first:last])
            produce(server, "pressure", [*lefts, "{half", {**lefts[0], "value": "much"}])
            values = [{name: row[name] for name in ("event_time", "value")} for row in rights]
            produce(server, "humidity", values, keys=[row["source_id"] for row in rights])
            target = f"kafka://{server}/out"
            run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, format="kafka", target=target))
            run.start()
            run.wait()
            return run.report()

        first, second = part(0, 40), part(40, 60)
        heard = consume(server, "out")
    assert first["dead_letters"] == second["dead_letters"] == {"not_parsed": 1, "bad_value": 1}
    wanted = Counter((pair[1], pair[2]) for pair in plain(left, right).elements())
    assert Counter((row["left_source"], row["right_source"]) for _, row in heard) == wanted
    assert len({key for key, _ in heard}) == len(heard) == first["results"] + second["results"]
    assert all(key == row["id"] for key, row in heard)
    letters = [r for f in (tmp_path / "run" / "dead-letters").glob("*.parquet") for r in pq.read_table(f).to_pylist()]
    assert {letter["file"].split("/")[0] for letter in letters} == {"pressure"}
    assert all(letter["line"] >= 0 for letter in letters)
    assert Counter(letter["record"] == "{half" for letter in letters) == {True: 2, False: 2}


@pytest.mark.slow
@pytest.mark.spark
def test_ids_make_results_exactly_once_through_kill_9(tmp_path: Path) -> None:
    left, right = (side.sort_values("event_time", ignore_index=True) for side in tables(600, 20_000))
    with kafka(tmp_path / "kafka") as server, looked_after() as started:
        for topic, side in (("pressure", left), ("humidity", right)):
            produce(server, topic, rows(side))
        inputs = {
            name: {
                "format": "kafka",
                "path": f"kafka://{server}/{name}",
                "options": {"maxOffsetsPerTrigger": 40},
            }
            for name in SMALL["streams"]
        }
        document = {
            **SMALL,
            "streams": {name: {**stream, "input": inputs[name]} for name, stream in SMALL["streams"].items()},
        }
        file = write_scenario(tmp_path / "s", document)
        nova = Path(sys.executable).parent / "nova"
        command = [nova, "run", file, "-o", tmp_path / "run", "--until-end", "--to", f"kafka://{server}/out"]
        command += ["--mode", "batch"]
        process = Process(*command, log=tmp_path / "run.log")
        started.append(process)
        commits = tmp_path / "run" / "jobs" / "climate" / "checkpoint" / "commits"
        for least in (2, 5, 8):
            process.until(lambda least=least: sum(f.name.isdigit() for f in commits.glob("*")) >= least)
            process.kill()
            process = process.again()
            started.append(process)
        process.wait()
        heard = consume(server, "out")
    once = dict(heard)
    wanted = Counter((pair[1], pair[2], pair[3] // 1000, pair[4] // 1000) for pair in plain(left, right).elements())

    def millis(text: str) -> int:
        return round(pd.Timestamp(text).timestamp() * 1000)

    found = Counter(
        (row["left_source"], row["right_source"], millis(row["left_time"]), millis(row["right_time"]))
        for row in once.values()
    )
    assert found == wanted
    assert len(heard) >= len(once)
