"""The workload in Spark's real-time mode: latency from event to sink at the sensors' rates, with the embedded source
and Kafka to Kafka; the highest rate that still keeps it low; throughput from a full log. The micro-batch job and the
plain Spark join run in the same session."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
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
from nova.scenario.model import StreamInput
from nova.spark.dead_letters import LetterBox
from nova.spark.job.meter import STAGES, Latencies
from nova.spark.realtime.feeds import Feed, Generated, Known, Paced, Tap, document_reader
from nova.spark.realtime.job import SLOTS, RealtimeJob
from nova.spark.realtime.records import Records, ToKafka, record_reader
from nova.spark.realtime.results import Publisher, Results, Target, ToFiles
from nova.spark.realtime.run import EVERY_MS
from nova.spark.sources import generator
from nova.spark.sources.clock import Clock
from nova.spark.sources.kafka import Layout
from nova_lab.bench.kafka import Listener, broker, create_topics, lacking, sensors
from nova_lab.bench.live import live, resident_mb, take_away, trend
from nova_lab.bench.stream import KEYS, LATENESS_MS, Workload, prepare, throughput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFTEN_MS = 10_000
"""Time between checkpoints where it is measured how long one holds tuples up."""
LOW_MS = 250.0
"""What the 99th percentile must stay below for a rate to count as sustained."""
SESSION_SLOTS = SLOTS + 4
"""Tasks that run at once: the query's, and some for what runs beside it."""
TOPICS = ("pressure", "humidity")
CARRIED = pa.schema([("value", pa.float64()), ("key", pa.int64())])


@dataclass(frozen=True)
class Span:
    """How long is measured."""

    warm_s: float
    """Time after the start whose results are not counted: the compiler is at work."""
    live_s: float
    """Seconds of each live run that are counted."""
    rates: Sequence[float]
    """Tuples/s of each sensor that are tried one after the other, until one is too much."""
    full_s: float
    """Seconds of the streams at 8 × 1000 tuples/s in a full log."""
    checkpoints: bool
    """Whether to measure how long one holds tuples up."""


WHOLE = Span(warm_s=15.0, live_s=20.0, rates=(2500.0, 5000.0, 7500.0, 10_000.0), full_s=120.0, checkpoints=True)
SHORT = Span(warm_s=10.0, live_s=10.0, rates=(5000.0, 7500.0), full_s=120.0, checkpoints=False)


@contextmanager
def started(
    spark: SparkSession,
    work: Workload,
    plan: Plan,
    scratch: Path,
    *,
    fill_s: float = 0.0,
    every_ms: int = EVERY_MS,
    target: Target | None = None,
) -> Iterator[tuple[RealtimeJob, Publisher, Path]]:
    """The query at work, results published as in `nova run` (to files, unless there is another target); with `fill_s`
    seconds of the streams in its logs."""
    out = Path(tempfile.mkdtemp(dir=scratch))
    problem = work.problem()
    flow = Flow("climate", max(1, round(work.window_ms * 1000)), ("key",), CARRIED, CARRIED)
    job = RealtimeJob(spark, problem, 0, flow, out / "job", LATENESS_MS, every_ms)
    job.begin("00000", plan)
    if fill_s:
        for side, log in enumerate((job.left, job.right)):
            tap = Tap(log, CARRIED, known_of(work, side))
            for second in range(round(fill_s)):
                tuples = work.tuples(side, second, second + 1).drop_columns(["region"])
                tuples = tuples.rename_columns(["source", "time", "value", "key"])
                tap.take(tuples, tap.known.of(tuples["source"]))
    names = Names(problem.sources.ids, problem.nodes.ids)
    target = target or ToFiles("parquet", "climate", out)
    publisher = Publisher(job.staged, job.committed, Results(flow, lambda: names), target, Clock())
    job.start()
    if target.at_once:
        job.published_elsewhere()
    publisher.start()
    try:
        yield job, publisher, out
    finally:
        job.close()
        publisher.stop()
        shutil.rmtree(out)


def known_of(work: Workload, side: int) -> Known:
    """Rows of one side's sensors."""
    ids = [f"{'ph'[side]}{i}" for i in range(work.regions)]
    return Known(pa.array(ids), np.arange(work.regions, dtype=np.int32) + side * work.regions)


def at_rate(
    spark: SparkSession, work: Workload, plan: Plan, span: Span, scratch: Path, every_ms: int = EVERY_MS
) -> dict[str, Any]:
    """Latency from event to sink of live streams, from the embedded source to files."""
    with embedded(spark, work, plan, scratch, every_ms) as (gauge, _):
        gauge.count(span.warm_s)
        return gauge.count(span.live_s)


@contextmanager
def embedded(
    spark: SparkSession, work: Workload, plan: Plan, scratch: Path, every_ms: int = EVERY_MS
) -> Iterator[tuple[Gauge, Path]]:
    """The query at work on live streams, from the embedded source to files in a folder."""
    with started(spark, work, plan, scratch, every_ms=every_ms) as (job, publisher, out):
        start_ms = int(time.time() * 1000)
        feeds = []
        for side, log in enumerate((job.left, job.right)):
            sources = [generator.Source(f"{'ph'[side]}{i}", work.rate) for i in range(work.regions)]
            blocks = Generated(sources, generator.Pattern(seed=side, keys=KEYS), out / f"feed-{side}", start_ms)
            feeds.append(Paced(blocks, [Tap(log, CARRIED, known_of(work, side))], Clock()))
        with fed(job, publisher, feeds, work) as gauge:
            yield gauge, out


def through_kafka(spark: SparkSession, work: Workload, plan: Plan, span: Span, scratch: Path) -> dict[str, Any]:
    """The same from Kafka to Kafka. Sensors and listener are processes of their own: latencies are stamped there."""
    with ExitStack() as stack:
        server = stack.enter_context(broker(Path(tempfile.mkdtemp(dir=scratch)) / "kafka", ["num.partitions=1"]))
        create_topics(server, [*TOPICS, "results"])
        listener = Listener(server, "results")
        stack.callback(listener.close)
        target = ToKafka(f"kafka://{server}/results", {})
        job, publisher, out = stack.enter_context(started(spark, work, plan, scratch, target=target))
        read = document_reader("source_id", "event_time", "value", CARRIED)
        feeds = []
        for side, (topic, log) in enumerate(zip(TOPICS, (job.left, job.right), strict=True)):
            layout = Layout.of(StreamInput(format="kafka", path=f"kafka://{server}/{topic}"), topic)
            letters = LetterBox(out / "dead-letters", topic)
            taps, note = [Tap(log, CARRIED, known_of(work, side))], out / f"{topic}.json"
            reader = record_reader(layout, read)
            feeds.append(Records(layout, topic, taps, reader, letters, topic, note))
            ids = [f"{'ph'[side]}{i}" for i in range(work.regions)]
            stack.enter_context(sensors(server, topic, ids, work.rate, KEYS, side))
        gauge = stack.enter_context(fed(job, publisher, feeds, work, listener))
        gauge.count(span.warm_s)
        return gauge.count(span.live_s)


@contextmanager
def fed(
    job: RealtimeJob,
    publisher: Publisher,
    feeds: Sequence[Feed],
    work: Workload,
    listener: Listener | None = None,
) -> Iterator[Gauge]:
    """Feeds at work, and what reads off how the query does."""
    job.clock(0.0, 0.0, 1.0)
    gauge = Gauge(job, publisher, feeds, work, listener)
    for feed in feeds:
        feed.start()
    try:
        yield gauge
    finally:
        for feed in feeds:
            feed.stop()


@dataclass
class Gauge:
    """Reads off how a query does, one span of time after the other."""

    job: RealtimeJob
    publisher: Publisher
    feeds: Sequence[Feed]
    work: Workload
    listener: Listener | None
    began: float = field(default_factory=time.time)

    def count(self, seconds: float) -> dict[str, Any]:
        """Tuples, results and latencies of the next so many seconds."""
        since = time.time()
        took: dict[str, Counter[float]] = {name: Counter() for name in ("total", *STAGES)}
        tuples = results = state = 0
        while time.time() < since + seconds:
            time.sleep(min(0.5, seconds / 4))
            query = self.job.started
            failures = [query and query.exception(), self.publisher.failure, *(feed.failure for feed in self.feeds)]
            if any(failures):
                raise NovaError(str(next(filter(None, failures))))
            reading = self.job.reading()
            for name, counts in (reading.took_us | self.publisher.took_us()).items():
                took[name].update({us / 1000: n for us, n in counts.items()})
            tuples += reading.tally.tuples.total()
            results += reading.tally.results.total()
            state = max(state, reading.state_tuples)
        if self.listener is not None:
            took["total"] = self.listener.taken().counts
        told = {name: Latencies(counts).percentiles() for name, counts in took.items()}
        lasted = time.time() - since
        return {
            "rate": self.work.per_second,
            "seconds": lasted,
            "warm_up_s": since - self.began,
            "tuples_per_s": tuples / lasted,
            "results_per_s": results / lasted,
            "latency_ms": told.pop("total"),
            "stages_ms": told,
            "state_tuples": state,
        }


BOUNDED = ("p50_ms", "p99_ms", "state_tuples", "memory_mb", "disk_mb")
"""What must not grow with the length of a soak."""


def soak(
    spark: SparkSession,
    work: Workload,
    plan: Plan,
    *,
    seconds: float,
    scratch: Path,
    points: int = 60,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """The query at full rate for a long time: latency, state, memory and disk at so many points in time."""
    course: list[dict[str, Any]] = []
    with embedded(spark, work, plan, scratch) as (gauge, out):
        for _ in range(points):
            one = gauge.count(seconds / points)
            take_away(out)
            latency = one["latency_ms"] or {}
            course.append(
                {
                    "seconds": one["warm_up_s"] + one["seconds"],
                    "tuples_per_s": one["tuples_per_s"],
                    "results_per_s": one["results_per_s"],
                    "p50_ms": latency.get("p50"),
                    "p99_ms": latency.get("p99"),
                    "state_tuples": one["state_tuples"],
                    "memory_mb": resident_mb(os.getpid()),
                    "disk_mb": disk_mb(out),
                }
            )
            tell(course[-1])
    lasted = course[-1]["seconds"]
    each = lasted / points
    return {
        "mode": "realtime",
        "minutes": lasted / 60,
        "tuples_per_s": float(np.mean([point["tuples_per_s"] for point in course])),
        "results": round(sum(point["results_per_s"] for point in course) * each),
        "course": course,
        "workload": work.told(),
        **{name: trend([point[name] for point in course]) for name in BOUNDED},
    }


def disk_mb(folder: Path) -> float:
    """What the files of a folder that is being written hold in MB."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # deleted since it was listed
    return total / 2**20


def saturated(spark: SparkSession, work: Workload, plan: Plan, full_s: float, scratch: Path) -> dict[str, float]:
    """Tuples/s from logs that are full: from the last look at which none was joined to that at which all are, while the
    compiler is still at work."""
    with started(spark, work, plan, scratch, fill_s=full_s) as (job, _, _):
        wanted = job.left.rows + job.right.rows
        tuples = copies = 0
        began = time.time()
        while True:
            time.sleep(0.05)
            if job.started is not None and not job.started.isActive:
                raise NovaError(f"the query ended: {job.started.exception()}")
            reading = job.reading()
            tuples += reading.tally.tuples.total()
            copies += reading.tally.copies.total()
            if tuples == wanted and reading.state_tuples >= copies:
                break
            if not reading.state_tuples:
                began = time.time()
        return {"tuples": wanted, "tuples_per_s": wanted / max(time.time() - began, 1e-3)}


def bench(
    spark: SparkSession,
    work: Workload,
    span: Span,
    *,
    rounds: int,
    batches: int,
    saturated_s: float,
    scratch: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """All figures of `nova bench stream --mode realtime`; `tell` is told each as soon as it is measured."""
    plan = optimize(work.problem(), Options(seed=1))
    usual = at_rate(spark, work, plan, span, scratch)
    tell(f"embedded source, {_said(usual)}")
    why = lacking()
    kafka = through_kafka(spark, work, plan, span, scratch) if why is None else None
    tell(f"Kafka to Kafka, {_said(kafka)}" if kafka else f"Kafka to Kafka: {why}")
    tried = [usual]
    for rate in span.rates:
        faster = replace(work, rate=rate)
        tried.append(at_rate(spark, faster, optimize(faster.problem(), Options(seed=1)), span, scratch))
        tell(f"embedded source, {_said(tried[-1])}")
        if not low(tried[-1]):
            break
    sustained = max((one["tuples_per_s"] for one in tried if low(one)), default=None)
    full = saturated(spark, work, plan, span.full_s, scratch)
    tell(f"full logs: {full['tuples_per_s']:,.0f} tuples/s")
    holds_up_ms = None
    if span.checkpoints:
        often = replace(span, live_s=2.5 * OFTEN_MS / 1000)
        holds_up_ms = (at_rate(spark, work, plan, often, scratch, OFTEN_MS)["latency_ms"] or {}).get("max")
        tell(f"a checkpoint holds tuples up for at most {holds_up_ms} ms")
    prepare(spark, work)
    micro = live(spark, work, plan, seconds=span.live_s, every_ms=0, scratch=scratch)
    tell(f"micro-batches, {_said({'rate': work.per_second, **micro})}")
    batch = throughput(
        spark, work, plan, seconds_per_batch=saturated_s, batches=batches, rounds=rounds, scratch=scratch
    )
    tell(f"micro-batches {batch['tuples_per_s']:,.0f} tuples/s, plain join {batch['plain_tuples_per_s']:,.0f} tuples/s")
    return {
        "mode": "realtime",
        "tuples_per_s": full["tuples_per_s"],
        "plain_tuples_per_s": batch["plain_tuples_per_s"],
        "ratio": full["tuples_per_s"] / batch["plain_tuples_per_s"],
        "latency_ms": usual["latency_ms"],
        "warm_up_s": usual["warm_up_s"],
        "stages_ms": usual["stages_ms"],
        "kafka": kafka,
        "sustained_tuples_per_s": sustained,
        "rates": tried,
        "checkpoint": {"every_ms": EVERY_MS, "holds_up_ms": holds_up_ms},
        "batch": {"tuples_per_s": batch["tuples_per_s"], "latency_ms": micro["latency_ms"]},
        "workload": work.told(),
    }


def _said(one: dict[str, Any]) -> str:
    told = one["latency_ms"]
    if told is None:
        return f"{one['rate']:,.0f} tuples/s: no result"
    at = ", ".join(f"{name} {told[name]:,.1f} ms" for name in ("p50", "p90", "p99"))
    return f"{one['rate']:,.0f} tuples/s ({one['tuples_per_s']:,.0f} kept up with): {at}"


def low(one: dict[str, Any]) -> bool:
    """Whether a rate was kept up, with latencies that stayed low."""
    told = one["latency_ms"]
    return told is not None and told["p99"] < LOW_MS and one["tuples_per_s"] > 0.95 * one["rate"]
