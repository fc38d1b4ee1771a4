"""Ways to write the routed join in Spark, measured against each other and the plain join: why Nova's job is as it is.

    python benchmarks/stream.py [--rate 1000] [--seconds 1] [--batches 10] [--rounds 2]

All read the same files, a fixed number of seconds of eight sensors per batch, route by the same plan and write Parquet;
runs take turns in one session. Figures are milliseconds per batch, the median and the best (which other work on the
machine disturbs least), and how many times faster that is than the plain stream-stream join without routing. The ways
are those that give every result of the query:

- packets, stream-stream join: Nova's. Tuples of a batch that share cell and bucket travel as one row.
- packets, the same with RocksDB as state store.
- rows, stream-stream join: routed tuples one by one, joined by Spark on meeting, window and key.
- packets, applyInPandasWithState: one stateful operator over the union of both sides.
- packets, aggregation: both sides collected per cell and bucket; results only when the watermark has passed.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from nova.cli.output import table
from nova.model.plan import Plan
from nova.routing.packets import MOMENT, Names, route
from nova.routing.routes import SideName
from nova.routing.xxh64 import hash_strings
from nova.scenario.model import Columns
from nova.spark.job.job import Job, join_packets, with_watermark
from nova.spark.job.schedule import Schedule
from nova.spark.job.sinks import Files
from nova.spark.job.tasks import Matcher
from nova.spark.session import session
from nova.spark.sources.tuples import normalised
from nova_lab.bench import stream as bench
from nova_lab.bench.stream import WARM, Workload, batch_times, flow_of, plain_job, prepare, read_batches, write_batches

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LATE_MS = 1000
"""Short, so that also the way that waits for the watermark has results in the batches that are counted."""
STORE = "spark.sql.streaming.stateStore.providerClass"


def opened(spark: SparkSession, work: Workload, plan: Plan, data: Path, out: Path) -> tuple[Job, DataFrame, DataFrame]:
    """A job under the plan, and its inputs."""
    left, right = (normalised(frame, Columns(), "bench") for frame in read_batches(spark, data))
    sink = Files("parquet", "climate", out / "results")
    job = Job(spark, work.problem(), 0, flow_of(spark, work, left, right), sink, out / "job", LATE_MS)
    job.begin("00000", plan)
    return job, left, right


def packets(join: Callable[[DataFrame, DataFrame], DataFrame]) -> Callable[..., StreamingQuery]:
    """A job whose packets meet by `join`."""

    def start(spark: SparkSession, work: Workload, plan: Plan, data: Path, out: Path) -> StreamingQuery:
        job, left, right = opened(spark, work, plan, data, out)
        sides = [
            with_watermark(packed, LATE_MS, job.flow) for packed in (job.route(left, "left"), job.route(right, "right"))
        ]
        names = Names(job.problem.sources.ids, job.problem.nodes.ids)
        found = job.sink.attach(join(*sides), Matcher(job.flow, str(job.schedule.folder), names, job.till))
        return (
            found.writeStream.option("checkpointLocation", str(out / "checkpoint"))
            .foreachBatch(job.step)
            .trigger(availableNow=True)
            .start()
        )

    return start


def both(left: DataFrame, right: DataFrame) -> DataFrame:
    """Packets of both sides as one stream."""
    return (
        left.withColumn("is_left", sql.lit(True))
        .unionByName(right.withColumn("is_left", sql.lit(False)))
        .select("cell", "bucket_end", "is_left", "packet")
    )


def with_state(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs by one operator that keeps the packets of open buckets itself."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def meet(_key: Any, parts: Iterable[Any], state: Any) -> Iterator[Any]:
        if state.hasTimedOut:
            state.remove()
            return
        old: list[list[bytes]] = pickle.loads(state.get[0]) if state.exists else [[], []]
        new: list[list[bytes]] = [[], []]
        for part in parts:
            for is_left, packet in zip(part["is_left"], part["packet"], strict=True):
                new[0 if is_left else 1].append(packet)
        pairs = [(a, b) for a in new[0] for b in old[1] + new[1]] + [(a, b) for a in old[0] for b in new[1]]
        state.update((pickle.dumps([old[0] + new[0], old[1] + new[1]]),))
        end_ms = int(_key[1].timestamp() * 1000)
        state.setTimeoutTimestamp(max(end_ms, state.getCurrentWatermarkMs() + 1))
        yield pd.DataFrame(pairs, columns=["left_packet", "right_packet"])

    return (
        both(left, right)
        .groupBy("cell", "bucket_end")
        .applyInPandasWithState(
            meet,
            "left_packet binary, right_packet binary",
            "packets binary",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def collected(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs by an aggregation, once a bucket has ended for good."""
    lists = (
        both(left, right)
        .groupBy("cell", "bucket_end")
        .agg(
            sql.expr("collect_list(IF(is_left, packet, NULL))").alias("lefts"),
            sql.expr("collect_list(IF(is_left, NULL, packet))").alias("rights"),
        )
    )
    return lists.select(sql.explode("lefts").alias("left_packet"), "rights").select(
        "left_packet", sql.explode("rights").alias("right_packet")
    )


@dataclass
class RouteRows:
    """Tuples in, one row per tuple and meeting out."""

    job_schedule: str
    flow: Any
    side: SideName
    ids: pa.StringArray
    rows: np.ndarray

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        timeline = Schedule(self.job_schedule).timeline()
        hashes = np.zeros(int(self.rows.max()) + 1, np.uint64)
        hashes[self.rows] = hash_strings(self.ids.to_pylist())
        for batch in batches:
            source = self.rows[pc.index_in(batch.column("source"), value_set=self.ids).to_numpy(zero_copy_only=False)]
            routed = route(timeline, self.flow, self.side, source, hashes, batch)
            taken = batch.take(pa.array(routed.row))
            yield pa.record_batch(
                {
                    "meeting": pa.array(routed.meeting),
                    "window_end": pa.array((routed.window + 1) * self.flow.window_us, MOMENT),
                    "source": taken.column("source"),
                    "time": taken.column("time"),
                    "value": taken.column("value"),
                    "key": taken.column("key"),
                    "region": taken.column("region"),
                }
            )


def rows(spark: SparkSession, work: Workload, plan: Plan, data: Path, out: Path) -> StreamingQuery:
    """Routed tuples as rows, joined by Spark."""
    job, left, right = opened(spark, work, plan, data, out)
    columns = (
        "meeting int, window_end timestamp, source string, time timestamp, value double, key bigint, region string"
    )
    sides = []
    for number, (frame, name) in enumerate(((left, "left"), (right, "right"))):
        at = job.problem.sources_of(number)
        ids = job.problem.sources.ids.take(pa.array(at))
        routed = frame.mapInArrow(RouteRows(str(job.schedule.folder), job.flow, name, ids, at), columns)  # type: ignore[arg-type]
        watched = routed.withWatermark("window_end", f"{LATE_MS + 1000} milliseconds")
        sides.append(watched.select(*(sql.col(c).alias(f"{name}_{c}") for c in watched.columns)))
    joined = sides[0].join(
        sides[1],
        sql.expr("left_meeting = right_meeting AND left_window_end = right_window_end AND left_key = right_key"),
    )
    return (
        joined.drop("right_meeting", "right_window_end")
        .writeStream.format("parquet")
        .option("path", str(out / "results"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def rocks(spark: SparkSession, work: Workload, plan: Plan, data: Path, out: Path) -> StreamingQuery:
    """Nova's job with the other state store."""
    spark.conf.set(STORE, ROCKSDB)
    try:
        return packets(join_packets)(spark, work, plan, data, out)
    finally:
        spark.conf.unset(STORE)


def plain(spark: SparkSession, work: Workload, _plan: Plan, data: Path, out: Path) -> StreamingQuery:
    """No routing at all."""
    return plain_job(spark, work, data, out)


WAYS: dict[str, Callable[..., StreamingQuery]] = {
    "plain join, no routing": plain,
    "packets, stream-stream join (Nova)": packets(join_packets),
    "packets, stream-stream join, RocksDB": rocks,
    "rows, stream-stream join": rows,
    "packets, applyInPandasWithState": packets(with_state),
    "packets, aggregation": packets(collected),
}


def main() -> None:
    """Measure all ways."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rate", type=float, default=1000.0, help="tuples/s of each of the eight sensors")
    ask.add_argument("--seconds", type=float, default=1.0, help="seconds of the streams in a batch")
    ask.add_argument("--batches", type=int, default=10)
    ask.add_argument("--rounds", type=int, default=2)
    given = ask.parse_args()
    work = Workload(rate=given.rate)
    bench.LATENESS_MS = LATE_MS  # of the plain join, too
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="nova-ways-") as folder:
        scratch = Path(folder)
        with session(cores=2, name="ways", config={"spark.local.dir": folder}) as spark:
            plan = prepare(spark, work)
            write_batches(work, scratch / "data", given.batches + WARM, given.seconds)
            times: dict[str, list[float]] = {name: [] for name in WAYS}
            found: dict[str, int] = {}
            for turn in range(given.rounds):
                for name, start in WAYS.items():
                    out = scratch / f"out-{turn}"
                    times[name] += batch_times(start(spark, work, plan, scratch / "data", out))
                    found[name] = sum(
                        pq.ParquetFile(file).metadata.num_rows for file in (out / "results").rglob("*.parquet")
                    )
                    shutil.rmtree(out)
                tell(f"{work.per_second * given.seconds:,.0f} tuples a batch, {turn + 1} rounds", times, found)


def tell(title: str, times: dict[str, list[float]], found: dict[str, int]) -> None:
    """Print what is known so far."""
    base = times["plain join, no routing"]
    table(
        title,
        ["way", "ms a batch, median", "plain / this", "ms, best", "plain / this", "results"],
        [
            (
                name,
                1000 * float(np.median(took)),
                float(np.median(base) / np.median(took)),
                1000 * min(took),
                min(base) / min(took),
                found[name],
            )
            for name, took in times.items()
        ],
    )


if __name__ == "__main__":
    main()
