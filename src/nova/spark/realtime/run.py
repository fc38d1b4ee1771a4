"""RealtimeRun: a scenario's queries under a plan, in Spark's real-time mode."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from nova.model.errors import InvalidInput, NovaError
from nova.routing.flow import Flow
from nova.routing.packets import Names
from nova.routing.routes import SideName
from nova.spark.job.meter import Latencies, Meter
from nova.spark.job.run import Run, Running, Settings, reason
from nova.spark.realtime import records
from nova.spark.realtime.feeds import Feed, Known, Tap
from nova.spark.realtime.inputs import Stream, Unfit, open_streams, unfit
from nova.spark.realtime.job import SLOTS, RealtimeJob
from nova.spark.realtime.results import Publisher, Results, Target, ToConsole, ToFiles, ToMqtt
from nova.spark.realtime.sql import Around
from nova.spark.realtime.sql import around as around_join
from nova.spark.realtime.sql import why_not as why_not_sql
from nova.spark.replan.newcomers import NOBODY, Newcomers
from nova.spark.sources.inputs import agree, feeds_of, flow_of

if TYPE_CHECKING:
    from nova.scenario import Scenario

EVERY_MS = 120_000
"""Time between checkpoints where nobody asks for another. What a crash repeats is at most this much; each one holds
tuples up for some tenths of a second."""
SINKS = ("parquet", "json", "console", "mqtt", "kafka")
READING_S = 0.5
"""Time between two readings of the counts."""


def slots(scenario: Scenario) -> int:
    """Tasks that run at once: those of all queries, and some for what Spark does beside them."""
    return SLOTS * len(scenario.problem.queries) + 2


def why_not(scenario: Scenario, settings: Settings, master: str | None) -> str | None:
    """Why a run cannot be had in real time; None where it can."""
    if master is not None and not master.startswith("local"):
        return "real-time mode runs on this machine, not on a cluster (--master)"
    if settings.emulate:
        return "--emulate follows batches"
    if settings.format not in SINKS:
        return f"results go to {settings.format}, which takes whole batches"
    made = {query.makes for query in scenario.problem.queries} - {None}
    for query in scenario.problem.queries:
        several = query.makes is not None or not made.isdisjoint((query.left, query.right))
        why = why_not_sql(query.pipeline, several) if query.pipeline.sql else None
        if why is not None:
            return f"query {query.id} {why}, which real-time mode does not do"
    for name, feed in feeds_of(scenario).items():
        why = unfit(feed.input, settings.speed, feed.place)
        if why is not None:
            return f"stream {name}: {why}"
    return None


@dataclass
class RealtimeRunning(Running):
    """One query that runs in real time."""

    job: RealtimeJob = field(kw_only=True)
    publisher: Publisher = field(kw_only=True)
    feeds: Mapping[str, Feed] = field(kw_only=True)
    """Those of all streams of the run."""
    streams: set[str] = field(kw_only=True)
    """The streams that it joins."""
    buried: Counter[str] = field(kw_only=True)
    """Dead letters of recordings, from before they were played."""
    _read_s: float = 0.0
    _timed: bool = False

    def look_after(self) -> None:
        for failure in (self.publisher.failure, *(feed.failure for feed in self.feeds.values())):
            if isinstance(failure, NovaError):
                raise failure
            if failure is not None:
                said = reason(f"{type(failure).__name__}: {failure}")
                raise NovaError(f"query {self.meter.query!r} failed: {said}")
        self.job.take_up()
        self._tell_clock()
        if time.time() - self._read_s >= READING_S:
            self.read()

    def _tell_clock(self) -> None:
        """Once the clock of the inputs runs, the JVM part can tell latencies."""
        clock = self.meter.clock
        if not self._timed and clock is not None and clock.runs:
            self.job.clock(clock.event_us(0.0), 0.0, clock.speed)
            self._timed = True

    def read(self) -> None:
        """Take in what the JVM part has counted."""
        self._read_s = time.time()
        reading = self.job.reading()
        took = {
            name: Latencies(Counter({us / 1000: n for us, n in counts.items()}))
            for name, counts in (reading.took_us | self.publisher.took_us()).items()
        }
        self.meter.batch(max(reading.buckets, default=0), reading.tally, self._read_s, took)
        read = (feed.dead for name, feed in self.feeds.items() if name in self.streams)
        self.meter.dead = sum(read, self.buried)
        self.meter.set_open(reading.buckets)
        self.meter.state["tuples"] = reading.state_tuples

    def ended(self) -> bool:
        if not self.query.isActive:
            return self.query.exception() is None
        return all(feed.ended for feed in self.feeds.values()) and self.job.worked_off()

    def stop(self) -> None:
        for feed in self.feeds.values():
            feed.stop()
        self.job.close()
        self.publisher.stop()
        self.read()


class RealtimeRun(Run):
    """A scenario under a plan, one tuple at a time."""

    MODE: ClassVar[str] = "realtime"

    def _begin(self) -> None:
        given = feeds_of(self.scenario)
        streams = open_streams(self.spark, given, self.folder, self.settings.speed)
        travels = [self._travel(number, streams) for number in range(len(self.problem.queries))]
        taps: dict[str, list[Tap]] = {name: [] for name in streams}
        feeds: dict[str, Feed] = {}
        self.began = time.time()
        self.spark.streams.addListener(self._listener)
        for number, (flow, around) in enumerate(travels):
            self.running.append(self._start_realtime(number, flow, around, streams, taps, feeds))
        begin_ms = int(time.time() * 1000)
        for name, stream in streams.items():  # now that all readers are at work
            feeds[name] = stream.feed(taps[name], begin_ms)
            feeds[name].start()

    def _born(self, number: int) -> tuple[str, str]:
        """The streams that a query joins, as they enter the system."""
        query = self.problem.queries[number]
        left, right = (self.problem.streams[self.problem.born(row)] for row in (query.left, query.right))
        return left, right

    def _travel(self, number: int, streams: Mapping[str, Stream]) -> tuple[Flow, Around | None]:
        """How the tuples of a query travel, and what it does around the join, where it does."""
        query = self.problem.queries[number]
        left, right = (streams[name].frame for name in self._born(number))
        if query.pipeline.sql:
            return around_join(self.spark, self.problem, number, left, right, f"{self.scenario.path}: query {query.id}")
        return flow_of(self.problem, number, agree(left, right, query.pipeline.on), 1), None

    def _known(self, stream: int, newcomers: Newcomers) -> Known:
        """A stream's sources."""
        ids, places = newcomers.of(self.problem.streams[stream])
        rows = self.problem.sources_of(stream)
        old = self.problem.sources.ids.take(pa.array(rows))
        return Known(
            pa.concat_arrays([old, pa.array(ids, old.type)]),
            np.append(rows, np.array(places, np.int64) + len(self.problem.sources)).astype(np.int32),
        )

    def _start_realtime(
        self,
        number: int,
        flow: Flow,
        around: Around | None,
        streams: Mapping[str, Stream],
        taps: Mapping[str, list[Tap]],
        feeds: Mapping[str, Feed],
    ) -> RealtimeRunning:
        query = self.problem.queries[number]
        names = self._born(number)
        left, right = (streams[name] for name in names)
        s = self.settings
        clock = left.clock if left.clock == right.clock else None
        buried = self.folder.buried(*names)
        meter = Meter(query.id, clock, self.began, dead=buried.copy())

        known = [self._known(row, NOBODY) for row in (query.left, query.right)]

        def welcome(newcomers: Newcomers) -> None:
            for mine, row in zip(known, (query.left, query.right), strict=True):
                now = self._known(row, newcomers)
                mine.rows = now.rows  # first: a feed that looks in between must find a row for every id
                mine.ids = now.ids

        lateness_ms = s.lateness_ms + (0 if around is None else around.lateness_ms)
        self.folder.remember(query.id, flow, lateness_ms, self.MODE)
        job = RealtimeJob(
            self.spark,
            self.problem,
            number,
            flow,
            self.folder.job(query.id),
            lateness_ms,
            s.every_ms or EVERY_MS,
            lambda taken: self._new_plans(taken, number),
            welcome,
            around,
        )
        job.begin(self.folder.FIRST, self.plan)
        newcomers = job.schedule.newcomers()
        if newcomers:
            welcome(newcomers)
        sides: tuple[SideName, SideName] = ("left", "right")
        for side, name, mine, log in zip(sides, names, known, (job.left, job.right), strict=True):
            taps[name].append(Tap(log, job.logged(side), mine))
        ids = Names(self.problem.sources.ids, self.problem.nodes.ids)
        results = Results(
            flow,
            lambda: job.schedule.names(ids),
            None if around is None else around.selected,
            around is not None and bool(around.copied),
        )
        started = job.start()
        target = self._target(flow)
        if target.at_once:
            job.published_elsewhere()
        publisher = Publisher(job.staged, job.committed, results, target, meter.clock)
        publisher.start()
        return RealtimeRunning(
            meter,
            started,
            job.schedule,
            job=job,
            publisher=publisher,
            feeds=feeds,
            streams=set(names),
            buried=buried,
        )

    def _target(self, flow: Flow) -> Target:
        """Where the results of a query go."""
        s = self.settings
        match s.format:
            case "parquet" | "json":
                return ToFiles(s.format, flow.query, Path(s.target) if s.target else self.folder.results)
            case "console":
                return ToConsole(flow.query)
            case "mqtt":
                if s.target is None:
                    raise InvalidInput("results to MQTT need an address: --to mqtt://host:1883/topic")
                return ToMqtt(s.target, flow.query)
            case "kafka":
                if s.target is None:
                    raise InvalidInput("results to Kafka need an address: --to kafka://host:9092/topic")
                return records.ToKafka(s.target, s.options)
            case _:
                raise Unfit(f"results to {s.format} are for --mode batch")
