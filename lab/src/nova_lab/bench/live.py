"""Live: the routed job on streams as they are born. Latency by the time between batches, and soaks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.model.errors import NovaError
from nova.model.plan import Plan
from nova.scenario.model import Columns
from nova.spark.job.job import Job
from nova.spark.job.listener import Listener
from nova.spark.job.meter import Latencies, Meter
from nova.spark.job.sinks import Files
from nova.spark.sources import generator
from nova.spark.sources.clock import Clock
from nova.spark.sources.tuples import normalised
from nova_lab.bench.stream import KEYS, LATENESS_MS, Workload, flow_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WARM_S = 3.0
"""Time after the first result whose latencies are not counted: the backlog of the start is worked off."""
PATIENCE_S = 120.0
"""Longest wait for the first result, and for the first that counts."""
ATTEMPTS = 3
KEPT_S = 30.0
"""Results of a soak are taken away after this long, as somebody who reads them would."""


BOUNDED = ("state_rows", "state_mb", "memory_mb", "batch_ms")
"""What must not grow with the length of a soak."""


@contextmanager
def started(
    spark: SparkSession,
    work: Workload,
    plan: Plan,
    every_ms: int,
    scratch: Path,
    meter: Meter,
    after: Callable[[int, Any, float], None],
) -> Iterator[tuple[StreamingQuery, Path]]:
    """The workload's streams live at their rates, joined under the plan; yields the query and its folder."""
    spark.dataSource.register(generator.Generator)
    sides = []
    for side in (0, 1):
        sources = [generator.Source(f"{'ph'[side]}{i}", work.rate) for i in range(work.regions)]
        text = generator.spec(sources, generator.Pattern(seed=side, keys=KEYS))
        frame = spark.readStream.format("nova_generator").option("spec", text).load()
        sides.append(normalised(frame, Columns(), "bench"))
    out = Path(tempfile.mkdtemp(dir=scratch))
    flow = flow_of(spark, work, sides[0], sides[1])
    listener = Listener(meter.progress)
    spark.streams.addListener(listener)
    job = Job(
        spark,
        work.problem(),
        0,
        flow,
        Files("parquet", "climate", out / "results"),
        out / "job",
        LATENESS_MS,
        after=after,
    )
    job.begin("00000", plan)
    query = job.start(sides[0], sides[1], every_ms=every_ms)
    try:
        yield query, out / "results"
    finally:
        job.gate.stop(query)
        for report in query.recentProgress:  # the listener may lag behind
            meter.progress(json.loads(report.json))
        spark.streams.removeListener(listener)
        shutil.rmtree(out)


def live(
    spark: SparkSession, work: Workload, plan: Plan, *, seconds: float, every_ms: int, scratch: Path
) -> dict[str, Any]:
    """Latency from event to sink for so many seconds after the first result, and the time from start to that, with
    batches every so often. Rare batches get more time: a handful of them is counted at least.

    Spark gives a Python process ten seconds to start, which are too few on a machine that is very busy: then it is
    tried again.
    """
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(SlowStart):
            return _live(spark, work, plan, seconds=seconds, every_ms=every_ms, scratch=scratch)
    return _live(spark, work, plan, seconds=seconds, every_ms=every_ms, scratch=scratch)


class SlowStart(NovaError):
    """Spark did not wait for a Python process to start."""


def _live(
    spark: SparkSession, work: Workload, plan: Plan, *, seconds: float, every_ms: int, scratch: Path
) -> dict[str, Any]:
    seconds = max(seconds, 6 * every_ms / 1000)
    began = time.time()
    meter, steady = Meter("climate", Clock(), began), Latencies()

    def after(batch: int, tally: Any, done_s: float) -> None:
        meter.batch(batch, tally, done_s)
        if done_s > began + (meter.first_result_s or PATIENCE_S) + max(WARM_S, 1.5 * every_ms / 1000):
            steady.add(tally.ages, done_s, Clock())

    with started(spark, work, plan, every_ms, scratch, meter, after) as (query, _):
        while (
            query.isActive
            and time.time() < began + 2 * PATIENCE_S + seconds
            and not (steady.counts and time.time() > began + (meter.first_result_s or 0) + seconds)
        ):
            time.sleep(0.1)
        failure = query.exception()
    if failure is not None:
        raise SlowStart(str(failure)) if "failed to connect back" in str(failure) else failure
    told = meter.report(time.time() - began)
    return {
        "every_ms": every_ms,
        "latency_ms": steady.percentiles(),
        "first_result_s": meter.first_result_s,
        "tuples_per_s": sum(meter.tuples.values()) / max(meter.event_s, 1e-3),
        "batches": told["batches"],
        "batch_ms": told["batch_ms"],
        "state": told["state"],
    }


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
    """The job at full rate for a long time: state, memory and batch times at so many points in time."""
    meter = Meter("climate", Clock())
    course: list[dict[str, Any]] = []
    with started(spark, work, plan, 0, scratch, meter, meter.batch) as (query, results):
        while not meter.batches and query.isActive and time.time() < meter.started_s + PATIENCE_S:
            time.sleep(0.1)
        began = before = time.time()
        first = tuples = sum(meter.tuples.values())
        for point in range(1, points + 1):
            while time.time() < began + seconds * point / points and query.isActive:
                time.sleep(min(1.0, seconds / points / 4))
                take_away(results)
            now, so_far = time.time(), sum(meter.tuples.values())
            recent, meter.batch_ms = meter.batch_ms, []
            behind = now - (meter.last_time or 0) / 1e6
            course.append(
                {
                    "seconds": now - began,
                    "tuples_per_s": (so_far - tuples) / (now - before),
                    "behind_s": behind,
                    "state_rows": meter.state.get("packets", 0),
                    "state_mb": meter.state.get("bytes", 0) / 2**20,
                    "memory_mb": resident_mb(os.getpid()),
                    "batch_ms": float(np.median(recent)) if recent else None,
                }
            )
            tell(course[-1])
            before, tuples = now, so_far
            if not query.isActive:
                break
        failure = query.exception()
    if failure is not None:
        raise failure
    told = meter.report(time.time() - began)
    return {
        "minutes": course[-1]["seconds"] / 60,
        "tuples": tuples,
        "results": told["results"],
        "tuples_per_s": (tuples - first) / course[-1]["seconds"],
        "latency_ms": told["latency_ms"],
        "late_tuples": told["late_tuples"],
        "course": course,
        "workload": work.told(),
        **{name: trend([point[name] for point in course]) for name in BOUNDED},
    }


def trend(values: list[float | None]) -> dict[str, float] | None:
    """How something that should stay bounded went: medians of the second and the last quarter, and the most."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    quarter = max(len(known) // 4, 1)
    early, late = known[quarter : 2 * quarter] or known, known[-quarter:]
    return {"early": float(np.median(early)), "late": float(np.median(late)), "most": float(max(known))}


def take_away(results: Path) -> None:
    """Delete results that somebody would have read by now."""
    for file in results.glob("*.parquet"):
        if file.stat().st_mtime < time.time() - KEPT_S:
            file.unlink()


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
