"""The workload in Spark's real-time mode: latency from event to sink at the sensors' rates, the highest rate that still
keeps it low, and throughput from a full log. The micro-batch job and the plain Spark join run in the same session."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova.model.errors import NovaError
from nova.model.options import Options
from nova.model.plan import Plan
from nova.optimizer import optimize
from nova.routing.flow import Flow
from nova.routing.packets import Names
from nova.spark.job.meter import STAGES, Latencies
from nova.spark.realtime.feeds import Generated, Known, Paced, Tap
from nova.spark.realtime.job import SLOTS, RealtimeJob
from nova.spark.realtime.results import Publisher, Results, ToFiles
from nova.spark.realtime.run import EVERY_MS
from nova.spark.sources import generator
from nova.spark.sources.clock import Clock
from nova_lab.bench.live import live
from nova_lab.bench.stream import KEYS, LATENESS_MS, Workload, prepare, throughput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_S = 15.0
"""Time after the start whose results are not counted: the compiler is at work."""
OFTEN_MS = 10_000
"""Time between checkpoints where it is measured how long one holds tuples up."""
LOW_MS = 250.0
"""What the 99th percentile must stay below for a rate to count as sustained."""
RATES = (1000.0, 2500.0, 5000.0, 7500.0, 10_000.0)
"""Tuples/s of each sensor that are tried."""
SESSION_SLOTS = SLOTS + 4
"""Tasks that run at once: the query's, and some for what runs beside it."""
FULL_S = 40.0
"""Seconds of the streams at 8 × 1000 tuples/s in a full log."""
CARRIED = pa.schema([("value", pa.float64()), ("key", pa.int64())])


@contextmanager
def started(
    spark: SparkSession, work: Workload, plan: Plan, scratch: Path, fill_s: float = 0.0, every_ms: int = EVERY_MS
) -> Iterator[tuple[RealtimeJob, Path]]:
    """The query at work, results published as in `nova run`; with `fill_s` seconds of the streams in its logs."""
    out = Path(tempfile.mkdtemp(dir=scratch))
    problem = work.problem()
    flow = Flow("climate", max(1, round(work.window_ms * 1000)), ("key",), CARRIED, CARRIED)
    job = RealtimeJob(spark, problem, 0, flow, out / "job", LATENESS_MS, every_ms)
    job.begin("00000", plan)
    if fill_s:
        for side, log in enumerate((job.left, job.right)):
            tap, known = Tap(log, CARRIED), known_of(work, side)
            for second in range(round(fill_s)):
                tuples = work.tuples(side, second, second + 1).drop_columns(["region"])
                tuples = tuples.rename_columns(["source", "time", "value", "key"])
                tap.take(tuples, known.of(tuples["source"]))
    names = Names(problem.sources.ids, problem.nodes.ids)
    publisher = Publisher(job.staged, job.committed, Results(flow, lambda: names), ToFiles("parquet", "climate", out))
    job.start()
    publisher.start()
    try:
        yield job, out
    finally:
        job.close()
        publisher.stop()
        shutil.rmtree(out)


def known_of(work: Workload, side: int) -> Known:
    """Rows of one side's sensors."""
    ids = [f"{'ph'[side]}{i}" for i in range(work.regions)]
    return Known(pa.array(ids), np.arange(work.regions, dtype=np.int32) + side * work.regions)


def at_rate(
    spark: SparkSession, work: Workload, plan: Plan, *, seconds: float, scratch: Path, every_ms: int = EVERY_MS
) -> dict[str, Any]:
    """Latency from event to sink for so many seconds of live streams, after the warm-up."""
    with started(spark, work, plan, scratch, every_ms=every_ms) as (job, out):
        start_ms = int(time.time() * 1000)
        feeds = []
        for side, log in enumerate((job.left, job.right)):
            sources = [generator.Source(f"{'ph'[side]}{i}", work.rate) for i in range(work.regions)]
            blocks = Generated(sources, generator.Pattern(seed=side, keys=KEYS), out / f"feed-{side}", start_ms)
            feeds.append(Paced(blocks, [Tap(log, CARRIED)], known_of(work, side), Clock()))
        job.clock(0.0, 0.0, 1.0)
        began = time.time()
        for feed in feeds:
            feed.start()
        time.sleep(WARM_S)
        job.reading()
        since = time.time()
        took: dict[str, Counter[float]] = {name: Counter() for name in ("total", *STAGES)}
        tuples = results = state = 0
        try:
            while time.time() < since + seconds:
                time.sleep(0.5)
                if job.started is not None and job.started.exception() is not None:
                    raise NovaError(str(job.started.exception()))
                reading = job.reading()
                for name, counts in reading.took_us.items():
                    took[name].update(counts)
                tuples += reading.tally.tuples.total()
                results += reading.tally.results.total()
                state = max(state, reading.state_tuples)
        finally:
            for feed in feeds:
                feed.stop()
        lasted = time.time() - since
    told = {name: Latencies(Counter({us / 1000: n for us, n in counts.items()})) for name, counts in took.items()}
    return {
        "rate": work.per_second,
        "seconds": lasted,
        "warm_up_s": since - began,
        "tuples_per_s": tuples / lasted,
        "results_per_s": results / lasted,
        "latency_ms": told["total"].percentiles(),
        "stages_ms": {stage: told[stage].percentiles() for stage in STAGES},
        "state_tuples": state,
    }


def saturated(spark: SparkSession, work: Workload, plan: Plan, scratch: Path) -> dict[str, float]:
    """Tuples/s from logs that are full: the second half of them, as the first warms up."""
    with started(spark, work, plan, scratch, FULL_S) as (job, _):
        half = time.time(), 0
        """The last look at which no more than half was read."""
        tuples, wanted = 0, job.left.rows + job.right.rows
        while tuples < wanted:
            time.sleep(0.05)
            if job.started is not None and not job.started.isActive:
                raise NovaError(f"the query ended: {job.started.exception()}")
            tuples += job.reading().tally.tuples.total()
            if tuples <= wanted / 2:
                half = time.time(), tuples
        return {"tuples": wanted, "tuples_per_s": (wanted - half[1]) / max(time.time() - half[0], 1e-3)}


def bench(
    spark: SparkSession,
    work: Workload,
    *,
    rounds: int,
    batches: int,
    saturated_s: float,
    live_s: float,
    rates: Sequence[float] = RATES,
    scratch: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """All figures of `nova bench stream --mode realtime`; `tell` is told what is measured next."""
    plan = optimize(work.problem(), Options(seed=1))
    tell(f"latency at {work.per_second:,.0f} tuples/s")
    usual = at_rate(spark, work, plan, seconds=live_s, scratch=scratch)
    tried = []
    for rate in rates:
        faster = replace(work, rate=rate)
        tell(f"latency at {faster.per_second:,.0f} tuples/s")
        one = usual if rate == work.rate else at_rate(spark, faster, _plan(faster), seconds=live_s, scratch=scratch)
        tried.append(one)
        if not low(one):
            break
    tell("full logs")
    full = saturated(spark, work, plan, scratch)
    tell("checkpoints")
    often = at_rate(spark, work, plan, seconds=2.5 * OFTEN_MS / 1000, scratch=scratch, every_ms=OFTEN_MS)
    tell("micro-batches and the plain join")
    prepare(spark, work)
    batch = throughput(
        spark, work, plan, seconds_per_batch=saturated_s, batches=batches, rounds=rounds, scratch=scratch
    )
    micro = live(spark, work, plan, seconds=live_s, every_ms=0, scratch=scratch)
    sustained = [one["tuples_per_s"] for one in tried if low(one)]
    return {
        "mode": "realtime",
        "tuples_per_s": full["tuples_per_s"],
        "plain_tuples_per_s": batch["plain_tuples_per_s"],
        "ratio": full["tuples_per_s"] / batch["plain_tuples_per_s"],
        "latency_ms": usual["latency_ms"],
        "warm_up_s": usual["warm_up_s"],
        "stages_ms": usual["stages_ms"],
        "sustained_tuples_per_s": max(sustained, default=None),
        "rates": tried,
        "checkpoint": {"every_ms": EVERY_MS, "holds_up_ms": (often["latency_ms"] or {}).get("max")},
        "batch": {"tuples_per_s": batch["tuples_per_s"], "latency_ms": micro["latency_ms"]},
        "workload": work.told(),
    }


def low(one: dict[str, Any]) -> bool:
    """Whether a rate was kept up, with latencies that stayed low."""
    told = one["latency_ms"]
    return told is not None and told["p99"] < LOW_MS and one["tuples_per_s"] > 0.95 * one["rate"]


def _plan(work: Workload) -> Plan:
    return optimize(work.problem(), Options(seed=1))
