"""Bench: the routed job against the plain Spark stream-stream join of the same streams, in the same session.

Both read the same files, a fixed number of tuples per batch, and write results to Parquet, each in its own way; runs
alternate, so that whatever else the machine does falls on both. The workload is the paper's end-to-end one: four
regions, two sensors each, 1 s windows; a key with a thousand values keeps the result of the size of the input.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Equal, Nodes, Problem, Query, Sources
from nova.optimizer import optimize
from nova.routing.flow import Flow
from nova.scenario.model import Columns
from nova.spark.job.job import Job
from nova.spark.job.run import CONFIG
from nova.spark.job.sinks import Files
from nova.spark.sources import generator, inputs
from nova.spark.sources.inputs import Sides
from nova.spark.sources.tuples import normalised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEYS = 1000
WARM = 3
"""First batches of a run that are not counted: compilers and caches."""
LATENESS_MS = 5000


@dataclass(frozen=True)
class Workload:
    """Pressure and humidity in four regions."""

    regions: int = 4
    rate: float = 1000.0
    """Tuples/s of each of the 2 × regions sensors."""
    window_ms: float = 1000.0

    @property
    def per_second(self) -> float:
        """Tuples/s of all sensors."""
        return 2 * self.regions * self.rate

    def told(self) -> dict[str, float]:
        """As plain values."""
        return {"sources": 2 * self.regions, "rate": self.rate, "window_ms": self.window_ms, "keys": KEYS}

    def problem(self) -> Problem:
        """The paper's cluster: a sink, a node per sensor, and workers that can take three quarters of a join each."""
        n, workers = 2 * self.regions, 2 * self.regions
        count = 1 + n + workers
        capacity = np.concatenate([[self.rate / 10], np.full(n, self.rate / 10), np.full(workers, 1.5 * self.rate)])
        hosts = np.ones(count, dtype=bool)
        hosts[0] = False
        region = np.arange(self.regions, dtype=np.int32)
        ids = pa.array([f"p{i}" for i in range(self.regions)] + [f"h{i}" for i in range(self.regions)])
        return Problem(
            nodes=Nodes(
                pa.array([f"node{i}" for i in range(count)]),
                capacity,
                np.full(count, np.inf),
                hosts,
                np.random.default_rng(7).uniform(0, 100, (count, 2)),
                np.zeros(count),
            ),
            streams=("pressure", "humidity"),
            sources=Sources(
                ids,
                np.repeat(np.array([0, 1], np.int32), self.regions),
                np.arange(1, n + 1, dtype=np.int32),
                np.full(n, self.rate),
            ),
            queries=(Query("climate", 0, 1, 0, Equal("region", region, region), self.window_ms),),
        )

    def tuples(self, side: int, after_s: float, until_s: float) -> pa.Table:
        """The tuples of one side in a stretch of time, in order of their event times."""
        prefix = "ph"[side]
        sources = [generator.Source(f"{prefix}{i}", self.rate) for i in range(self.regions)]
        pattern = generator.Pattern(seed=side, keys=KEYS, noise=5.0)
        made = generator.generate(sources, pattern, after_s * 1000, until_s * 1000, 1_700_000_000_000)
        region = pa.array([f"region {name[1:]}" for name in made["source_id"].to_pylist()])
        return made.append_column("region", region).sort_by("event_time")


def write_batches(work: Workload, folder: Path, batches: int, seconds: float) -> None:
    """One file per side and batch, each with `seconds` of the streams."""
    for side, name in enumerate(("left", "right")):
        (folder / name).mkdir(parents=True)
        for i in range(batches):
            file = folder / name / f"{i:05d}.parquet"
            pq.write_table(work.tuples(side, i * seconds, (i + 1) * seconds), file)
            os.utime(file, (1e9 + i, 1e9 + i))


def read_batches(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Both sides as streams of one file per batch."""
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(folder / name)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in ("left", "right")
    )
    return left, right


def plain_job(spark: SparkSession, work: Workload, folder: Path, out: Path) -> StreamingQuery:
    """The join as one writes it in Spark without Nova: one input per side, window, region and key equal."""
    from pyspark.sql import functions as sql

    def side(frame: DataFrame, name: str) -> DataFrame:
        window = sql.window("event_time", f"{work.window_ms / 1000} seconds").alias(f"{name}_window")
        others = [sql.col(c).alias(f"{name}_{c}") for c in ("source_id", "value", "region", "key")]
        time_of = sql.expr("timestamp_micros(unix_micros(event_time))").alias(f"{name}_time")  # one event time column
        return frame.withWatermark("event_time", f"{LATENESS_MS} milliseconds").select(window, time_of, *others)

    left, right = read_batches(spark, folder)
    joined = side(left, "left").join(
        side(right, "right"),
        sql.expr("left_window = right_window AND left_region = right_region AND left_key = right_key"),
    )
    result = joined.select(
        sql.lit("climate").alias("query"),
        sql.col("left_window.start").alias("window_start"),
        sql.col("left_window.end").alias("window_end"),
        "left_source_id",
        "right_source_id",
        "left_time",
        "right_time",
        "left_value",
        "right_value",
        "left_key",
        "right_key",
        "left_region",
        "right_region",
    )
    return (
        result.writeStream.format("parquet")
        .option("path", str(out / "results"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def flow_of(spark: SparkSession, work: Workload, left: DataFrame, right: DataFrame) -> Flow:
    """How the workload's tuples travel, as in `nova run`."""
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    return inputs.flow_of(work.problem(), 0, Sides(left, right, ("key",)), partitions)


def routed_job(spark: SparkSession, work: Workload, plan: Plan, folder: Path, out: Path) -> StreamingQuery:
    """The same under a plan."""
    problem = work.problem()
    left, right = (normalised(frame, Columns(), "bench") for frame in read_batches(spark, folder))
    flow = flow_of(spark, work, left, right)
    job = Job(spark, problem, 0, flow, Files("parquet", "climate", out / "results"), out / "job", LATENESS_MS)
    job.begin("00000", plan)
    return job.start(left, right, once=True)


def batch_times(query: StreamingQuery) -> list[float]:
    """Seconds of each batch with data, after the first few."""
    query.awaitTermination()
    times = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows]
    return times[WARM:]


def throughput(
    spark: SparkSession,
    work: Workload,
    plan: Plan,
    *,
    seconds_per_batch: float,
    batches: int,
    rounds: int,
    scratch: Path,
) -> dict[str, float]:
    """Tuples/s of both jobs with this much data per batch: tuples of a batch over the median time of one."""
    data = scratch / f"data-{seconds_per_batch}"
    write_batches(work, data, batches + WARM, seconds_per_batch)
    times: dict[str, list[float]] = {"plain": [], "routed": []}
    jobs: dict[str, Callable[[Path], StreamingQuery]] = {
        "plain": lambda out: plain_job(spark, work, data, out),
        "routed": lambda out: routed_job(spark, work, plan, data, out),
    }
    results: dict[str, int] = {}
    for number in range(rounds):
        for name, start in jobs.items():
            out = scratch / f"out-{name}-{number}"
            times[name] += batch_times(start(out))
            results[name] = spark.read.parquet(str(out / "results")).count()
            shutil.rmtree(out)
    shutil.rmtree(data)
    if results["plain"] != results["routed"]:
        raise AssertionError(f"the jobs disagree: {results}")
    tuples = work.per_second * seconds_per_batch
    plain, routed = (float(np.median(times[name])) for name in ("plain", "routed"))
    return {
        "tuples_per_batch": tuples,
        "tuples_per_s": tuples / routed,
        "plain_tuples_per_s": tuples / plain,
        "ratio": plain / routed,
        "batch_ms": routed * 1000,
        "plain_batch_ms": plain * 1000,
        "results": results["routed"],
    }


def prepare(spark: SparkSession, work: Workload) -> Plan:
    """Set the session up as `nova run` does, and plan the workload."""
    for key, value in CONFIG.items():
        spark.conf.set(key, value)
    return optimize(work.problem(), Options(seed=1))


def bench(
    spark: SparkSession,
    work: Workload,
    *,
    rounds: int,
    batches: int,
    saturated_s: float,
    live_s: float,
    intervals_ms: list[int],
    scratch: Path,
) -> dict[str, Any]:
    """All figures but the soak's; see `nova bench stream`."""
    plan = prepare(spark, work)
    usual = throughput(spark, work, plan, seconds_per_batch=1.0, batches=batches, rounds=rounds, scratch=scratch)
    full = throughput(spark, work, plan, seconds_per_batch=saturated_s, batches=batches, rounds=rounds, scratch=scratch)
    from nova_lab.bench.live import live

    lives = [live(spark, work, plan, seconds=live_s, every_ms=every, scratch=scratch) for every in intervals_ms]
    latency = (lives[0]["latency_ms"] or {}) if lives else {}
    return {
        "tuples_per_s": full["tuples_per_s"],
        "plain_tuples_per_s": full["plain_tuples_per_s"],
        "ratio": full["ratio"],
        "latency_ms": {"p50": latency.get("p50"), "p99": latency.get("p99")},
        "usual": usual,
        "saturated": full,
        "live": lives,
        "replicas": len(plan.replicas),
        "workload": work.told(),
    }
