"""Job: one query of a plan as one Spark Structured Streaming query.

    input ─ route, pack ─┐
                         ├─ stream-stream join on (cell, bucket) ─ unpack, join ─ sink
    input ─ route, pack ─┘

Spark keeps packets of open windows as its state, drops them once the watermark has passed their bucket, and repeats
exactly the unfinished batch after a crash. Plans switch between batches: see `take_up`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nova.files import write_safely
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.reading import recall
from nova.model.skew import KeyAxis
from nova.routing import Routes, compile_routes
from nova.routing.flow import Flow
from nova.routing.packets import Names
from nova.routing.routes import SideName
from nova.spark.job.gate import Gate, check
from nova.spark.job.schedule import Schedule
from nova.spark.job.sinks import Sink
from nova.spark.job.tally import Tally, Till
from nova.spark.job.tasks import PACKET, Lone, Matcher, Router
from nova.spark.replan.newcomers import NOBODY, Newcomers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ANCIENT = -(2**62)
"""First window of the first epoch: before all others."""


@dataclass(frozen=True)
class NewPlan:
    """A plan to switch to."""

    name: str
    routes: Routes
    """For this query."""
    from_ms: float | None = None
    """From when on it is wanted (ms since 1970)."""
    newcomers: Newcomers = NOBODY
    """All so far."""


@dataclass
class Job:
    """A query of a plan, ready to start."""

    spark: SparkSession
    problem: Problem
    query: int
    flow: Flow
    sink: Sink
    folder: Path
    """The query's own folder in the run's: checkpoint, schedule, progress."""
    lateness_ms: int
    """Tuples up to this far behind the latest event time of their stream are never dropped."""
    new_plans: Callable[[list[str]], list[NewPlan]] = field(default=lambda known: [])  # noqa: ARG005
    """Plans to take up, given the names of those already taken up."""
    after: Callable[[int, Tally, float], None] = field(default=lambda batch, tally, seconds: None)  # noqa: ARG005
    """Called after each batch with its counts and the time its results were out (s since 1970)."""
    watched: bool = False
    """Whether tasks tell of every tuple and of some results, for the emulation."""
    lone: Callable[[SideName], Lone | None] = field(default=lambda side: None)  # noqa: ARG005
    """By side: what puts by tuples that may join nothing, for an outer join."""
    till: Till = field(init=False)
    gate: Gate = field(init=False)
    at_work_s: float | None = None
    """When the batch that is at work began (s since 1970); None where none is."""
    _repeated: int | None = None
    """The batch that an earlier run has begun but not finished."""

    def __post_init__(self) -> None:
        self.till = Till(self.spark.sparkContext)
        self.gate = Gate(self.folder / "checkpoint")

    @property
    def single(self) -> bool:
        """Whether the query reads one stream, and joins nothing."""
        return self.problem.queries[self.query].pipeline.single

    @property
    def _names(self) -> Names:
        return Names(self.problem.sources.ids, self.problem.nodes.ids)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.folder / "schedule")

    @property
    def _progress(self) -> Path:
        return self.folder / "progress.json"

    def begin(self, name: str, plan: Plan) -> None:
        """Write down the first plan, unless an earlier run has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.schedule.entries():
            self.schedule.append(name, routes_of(self.problem, plan, self.query), ANCIENT, 0)

    def start(self, left: DataFrame, right: DataFrame, *, once: bool = False, every_ms: int = 0) -> StreamingQuery:
        """Start to read, join and write. `once`: stop at the end of what is there now."""
        check(self.gate.checkpoint)
        self._repeated = self.gate.unfinished()
        matcher: Matcher | None = None
        if self.single:
            pairs = self.route(left, "left")
        else:
            pairs = join_packets(
                *(
                    with_watermark(packets, self.lateness_ms, self.flow)
                    for packets in (self.route(left, "left"), self.route(right, "right"))
                )
            )
            matcher = Matcher(self.flow, str(self.schedule.folder), self._names, self.till, self.watched)
        writer = (
            self.sink.attach(pairs, matcher)
            .writeStream.queryName(self.flow.query)
            .option("checkpointLocation", str(self.gate.checkpoint))
            .foreachBatch(self.step)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{every_ms} milliseconds").start()

    def route(self, frame: DataFrame, side: SideName) -> DataFrame:
        """Tuples to packets, or to results where the query joins nothing."""
        query = self.problem.queries[self.query]
        stream = query.left if side == "left" else query.right
        rows = self.problem.sources_of(stream)
        ids = self.problem.sources.ids.take(pa.array(rows))
        router = Router(
            self.flow,
            side,
            str(self.schedule.folder),
            ids,
            rows,
            self.till,
            self.problem.streams[stream],
            len(self.problem.sources),
            watched=self.watched,
            lone=self.lone(side),
            names=self._names if self.single else None,
        )
        if not self.single:
            return frame.mapInArrow(router, PACKET)
        from pyspark.sql.pandas.types import from_arrow_schema

        return frame.mapInArrow(router, from_arrow_schema(self.flow.result()))

    def step(self, frame: DataFrame, batch: int) -> None:
        """One batch: take up new plans, join, write, remember how far the windows have come."""
        with self.gate.batch(batch):
            self.at_work_s = began = time.time()
            self.take_up(batch)
            self.sink.write(frame, batch)
            done = time.time()
            tally = self.till.take()
            tally.began_s = began
            self.remember(tally)
            self.after(batch, tally, done)
            self.at_work_s = None

    def take_up(self, batch: int) -> None:
        """Switch to new plans from the first window that no earlier batch has routed a tuple for.

        This runs before any task of the batch reads the schedule, and all earlier batches are complete. Should the
        process die afterwards, the batch is repeated under the schedule as written here, and what it did before is
        discarded with its state: windows never have tuples under two plans.
        """
        if batch == self._repeated:  # its results may be out already, under the names of the old hosts
            return
        for new in self.new_plans([entry.plan for entry in self.schedule.entries()]):
            last = self.last_window()
            first = ANCIENT + 1 if last is None else last + 1
            if new.from_ms is not None:
                first = max(first, math.ceil(new.from_ms * 1000 / self.flow.window_us))
            first = max(first, self.schedule.entries()[-1].first_window)
            self.schedule.append(new.name, new.routes, first, batch, new.newcomers)

    def last_window(self) -> int | None:
        """Highest window that a finished batch (or one that was finished but for its commit) has routed."""
        return self._remembered().get("last_window")

    def watermark_us(self) -> int | None:
        """Event time up to which the ends of buckets are dropped from now on, as Spark works it out from all finished
        batches; None while a side has brought nothing."""
        known = self._remembered()
        sides = ("left_end",) if self.single else ("left_end", "right_end")
        if not known.keys() >= set(sides):
            return None
        return min(known[side] for side in sides) - watermark_delay_ms(self.lateness_ms, self.flow) * 1000

    def come_us(self) -> int | None:
        """How far the join has come: tuples of this event time would make the watermark what it is. None: not yet
        known."""
        watermark = self.watermark_us()
        return None if watermark is None else watermark + self.lateness_ms * 1000

    def remember(self, tally: Tally) -> None:
        """Write down the highest window and the last ends of buckets so far, before Spark commits the batch."""
        told = before = self._remembered()
        for name in ("last_window", "left_end", "right_end"):
            new, old = getattr(tally, name), before.get(name)
            if new is not None and (old is None or new > old):
                told = told | {name: new}
        if told != before:
            write_safely(self._progress, json.dumps(told))

    def _remembered(self) -> dict[str, int]:
        return recall(self._progress, dict[str, int]) if self._progress.exists() else {}


def routes_of(problem: Problem, plan: Plan, query: int) -> Routes:
    """The routes of one query of a plan. Where nothing is joined, of boxes that differ only in the share of the other
    side, the first one stands for all."""
    replicas = plan.replicas
    if problem.queries[query].pipeline.single:
        replicas = replicas.take(np.flatnonzero(replicas.right_from == 0.0))
    one = problem.queries[query]
    return compile_routes(plan.joins, replicas, query, len(problem.sources), one.sink, KeyAxis.of(one))


def with_watermark(packets: DataFrame, lateness_ms: int, flow: Flow) -> DataFrame:
    """Packets with a watermark.

    It runs on the ends of buckets, so one bucket is added to the lateness: no tuple that is at most `lateness_ms` late
    is dropped.
    """
    return packets.withWatermark("bucket_end", f"{watermark_delay_ms(lateness_ms, flow)} milliseconds")


def watermark_delay_ms(lateness_ms: int, flow: Flow) -> int:
    """How far the watermark stays behind the latest end of a bucket."""
    return lateness_ms + -(-flow.bucket_us // 1000)


def join_packets(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs of packets in the same cell and bucket, as columns left_packet and right_packet."""
    from pyspark.sql import functions as sql

    def side(frame: DataFrame, name: str) -> DataFrame:
        return frame.select(*(sql.col(c).alias(f"{name}_{c}") for c in ("cell", "bucket_end", "packet")))

    joined = side(left, "left").join(
        side(right, "right"), sql.expr("left_cell = right_cell AND left_bucket_end = right_bucket_end")
    )
    return joined.select("left_packet", "right_packet")
