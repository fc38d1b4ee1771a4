"""Bench: the routed job against the plain Spark stream-stream join of the same streams, in the same session.

Both read the same files, a fixed number of tuples per batch, and write results to Parquet, each in its own way; runs
alternate, so that whatever else the machine does falls on both. The workload is the paper's end-to-end one: four
regions, two sensors each, 1 s windows; a key with a thousand values keeps the result of the size of the input.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nova.optimizer import optimize
from nova.options import Options
from nova.plan import Plan
from nova.problem import Equal, Nodes, Problem, Query, Sources
from nova.routing.flow import Flow, cells_for
from nova.scenario.model import Columns
from nova.spark import generator
from nova.spark.clock import Clock
from nova.spark.run.inputs import carried, normalised
from nova.spark.run.job import Job
from nova.spark.run.meter import Meter
from nova.spark.run.run import CONFIG
from nova.spark.run.sinks import Files

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
            nodes=Nodes(pa.array([f"node{i}" for i in range(count)]), capacity, np.full(count, np.inf), hosts,
                        np.random.default_rng(7).uniform(0, 100, (count, 2)), np.zeros(count)),
            streams=("pressure", "humidity"),
            sources=Sources(ids, np.repeat(np.array([0, 1], np.int32), self.regions),
                            np.arange(1, n + 1, dtype=np.int32), np.full(n, self.rate)),
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
        spark.readStream.schema(spark.read.parquet(str(folder / name)).schema).option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name)) for name in ("left", "right")
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
    joined = side(left, "left").join(side(right, "right"), sql.expr(
        "left_window = right_window AND left_region = right_region AND left_key = right_key"))
    result = joined.select(
        sql.lit("climate").alias("query"), sql.col("left_window.start").alias("window_start"),
        sql.col("left_window.end").alias("window_end"), "left_source_id", "right_source_id", "left_time", "right_time",
        "left_value", "right_value", "left_key", "right_key", "left_region", "right_region",
    )
    return (result.writeStream.format("parquet").option("path", str(out / "results"))
            .option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start())


def routed_job(spark: SparkSession, work: Workload, plan: Plan, folder: Path, out: Path) -> StreamingQuery:
    """The same under a plan."""
    problem = work.problem()
    left, right = (normalised(frame, Columns(), "bench") for frame in read_batches(spark, folder))
    flow = Flow("climate", round(work.window_ms * 1000), ("key",), carried(left), carried(right))
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    flow = replace(flow, cells=cells_for(work.per_second * flow.bucket_us / 1e6, partitions))
    job = Job(spark, problem, 0, flow, Files("parquet", "climate", out / "results"), out / "job", LATENESS_MS)
    job.begin("00000", plan)
    return job.start(left, right, once=True)


def batch_times(query: StreamingQuery) -> list[float]:
    """Seconds of each batch with data, after the first few."""
    query.awaitTermination()
    times = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows]
    return times[WARM:]


def throughput(spark: SparkSession, work: Workload, plan: Plan, *, seconds_per_batch: float, batches: int, rounds: int,
               scratch: Path) -> dict[str, float]:
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
    return {"tuples_per_batch": tuples, "tuples_per_s": tuples / routed, "plain_tuples_per_s": tuples / plain,
            "ratio": plain / routed, "batch_ms": routed * 1000, "plain_batch_ms": plain * 1000,
            "results": results["routed"]}


def live(spark: SparkSession, work: Workload, plan: Plan, *, seconds: float, every_ms: int,
         scratch: Path) -> dict[str, Any]:
    """The routed job on live streams at their rates: latency from event to sink, start to first result, backlog."""
    problem = work.problem()
    spark.dataSource.register(generator.Generator)
    sides = []
    for side in (0, 1):
        sources = [generator.Source(f"{'ph'[side]}{i}", work.rate) for i in range(work.regions)]
        text = generator.spec(sources, generator.Pattern(seed=side, keys=KEYS))
        frame = spark.readStream.format("nova_generator").option("spec", text).load()
        sides.append(normalised(frame, Columns(), "bench"))
    flow = Flow("climate", round(work.window_ms * 1000), ("key",), carried(sides[0]), carried(sides[1]))
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    flow = replace(flow, cells=cells_for(work.per_second * flow.bucket_us / 1e6, partitions))
    out = Path(tempfile.mkdtemp(dir=scratch))
    began = time.time()
    first, steady = Meter("climate", Clock(), began), Meter("climate", Clock(), began)

    def after(batch: int, tally: Any, done_s: float) -> None:
        first.batch(batch, tally, done_s)
        if first.first_result_s is not None and batch > WARM:
            steady.batch(batch, tally, done_s)

    job = Job(spark, problem, 0, flow, Files("parquet", "climate", out / "results"), out / "job", LATENESS_MS,
              after=after)
    job.begin("00000", plan)
    query = job.start(sides[0], sides[1], every_ms=every_ms)
    memory: list[float] = []
    while time.time() < began + seconds and query.isActive:
        time.sleep(min(1.0, seconds / 20))
        memory.append(resident_mb(os.getpid()))
    job.gate.stop(query)
    reports = [p for p in query.recentProgress if p.numInputRows][WARM:]
    state = [float(sum(o.memoryUsedBytes for o in p.stateOperators)) for p in reports]
    shutil.rmtree(out)
    return {
        "every_ms": every_ms,
        "latency_ms": steady.latencies.percentiles(),
        "first_result_s": first.first_result_s,
        "tuples_per_s": sum(first.tuples.values()) / max(first.event_s, 1e-3),
        "batch_ms": float(np.median([p.durationMs["triggerExecution"] for p in reports])) if reports else None,
        "state_bytes": _course(state),
        "memory_mb": _course(memory),
    }


def _course(values: list[float]) -> dict[str, float] | None:
    """How something that should stay bounded went: means of the second and the last quarter, and the largest."""
    if not values:
        return None
    quarter = max(len(values) // 4, 1)
    return {"early": float(np.mean(values[quarter : 2 * quarter] or values)), "late": float(np.mean(values[-quarter:])),
            "most": float(max(values))}


def resident_mb(root: int) -> float:
    """Memory of a process and all its children (JVM, Python workers) in MB; 0 where there is no /proc."""
    parent: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
            parent[int(entry.parent.name)] = int(fields[1])
            pages[int(entry.parent.name)] = int(fields[21])
        except (OSError, IndexError):
            continue  # the process has just ended
    mine, total = {root}, pages.get(root, 0)
    grown = True
    while grown:
        more = {p for p, above in parent.items() if above in mine and p not in mine}
        total += sum(pages[p] for p in more)
        mine |= more
        grown = bool(more)
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def bench(spark: SparkSession, work: Workload, *, rounds: int, batches: int, saturated_s: float,
          live_s: float, intervals_ms: list[int], soak_s: float, scratch: Path) -> dict[str, Any]:
    """All figures; see `nova bench stream`."""
    for key, value in CONFIG.items():
        spark.conf.set(key, value)
    problem = work.problem()
    plan = optimize(problem, Options(seed=1))
    usual = throughput(spark, work, plan, seconds_per_batch=1.0, batches=batches, rounds=rounds, scratch=scratch)
    full = throughput(spark, work, plan, seconds_per_batch=saturated_s, batches=batches, rounds=rounds,
                      scratch=scratch)
    lives = [live(spark, work, plan, seconds=live_s, every_ms=every, scratch=scratch) for every in intervals_ms]
    soak = live(spark, work, plan, seconds=soak_s, every_ms=0, scratch=scratch) if soak_s > 0 else None
    latency = (lives[0]["latency_ms"] or {}) if lives else {}
    return {
        "tuples_per_s": full["tuples_per_s"],
        "plain_tuples_per_s": full["plain_tuples_per_s"],
        "ratio": full["ratio"],
        "latency_ms": {"p50": latency.get("p50"), "p99": latency.get("p99")},
        "usual": usual,
        "saturated": full,
        "live": lives,
        "soak": soak,
        "replicas": len(plan.replicas),
        "workload": {"sources": 2 * work.regions, "rate": work.rate, "window_ms": work.window_ms, "keys": KEYS},
    }

