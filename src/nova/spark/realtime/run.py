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
from nova.spark.job.meter import Latencies, Meter
from nova.spark.job.run import Run, Running, Settings
from nova.spark.realtime import records
from nova.spark.realtime.feeds import Feed, Known, Tap
from nova.spark.realtime.inputs import Stream, Unfit, open_streams, unfit
from nova.spark.realtime.job import SLOTS, RealtimeJob
from nova.spark.realtime.results import Publisher, Results, Target, ToConsole, ToFiles, ToMqtt
from nova.spark.replan.newcomers import Newcomers
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
    around = [query.id for query in scenario.problem.queries if query.pipeline.sql]
    if around:
        return f"query {around[0]} filters or aggregates in SQL, which real-time mode does not do yet"
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
    _read_s: float = 0.0
    _timed: bool = False

    def look_after(self) -> None:
        for failure in (self.publisher.failure, *(feed.failure for feed in self.feeds.values())):
            if failure is not None:
                raise failure if isinstance(failure, NovaError) else NovaError(f"{type(failure).__name__}: {failure}")
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
        taps: dict[str, list[Tap]] = {name: [] for name in streams}
        known = {name: self._known(name) for name in streams}
        feeds: dict[str, Feed] = {}
        self.began = time.time()
        self.spark.streams.addListener(self._listener)
        for number in range(len(self.problem.queries)):
            self.running.append(self._start_realtime(number, streams, taps, known, feeds))
        for name, stream in streams.items():  # now that all readers are at work
            feeds[name] = stream.feed(taps[name], known[name])
            feeds[name].start()

    def _known(self, stream: str) -> Known:
        """Rows of a stream's sources."""
        rows = self.problem.sources_of(self.problem.streams.index(stream))
        return Known(self.problem.sources.ids.take(pa.array(rows)), rows.astype(np.int32))

    def _start_realtime(
        self,
        number: int,
        streams: Mapping[str, Stream],
        taps: Mapping[str, list[Tap]],
        known: Mapping[str, Known],
        feeds: Mapping[str, Feed],
    ) -> RealtimeRunning:
        query = self.problem.queries[number]
        names = [self.problem.streams[row] for row in (query.left, query.right)]
        left, right = (streams[name] for name in names)
        sides = agree(left.frame, right.frame, query.pipeline.on)
        flow = flow_of(self.problem, number, sides, 1)
        s = self.settings
        meter = Meter(query.id, left.clock if left.clock == right.clock else None, self.began)

        def welcome(newcomers: Newcomers) -> None:
            for name, mine in known.items():
                ids, places = newcomers.of(name)
                rows = self.problem.sources_of(self.problem.streams.index(name))
                old = self.problem.sources.ids.take(pa.array(rows))
                # rows first: a feed that looks in between must find a row for every id
                mine.rows = np.append(rows, np.array(places, np.int64) + len(self.problem.sources)).astype(np.int32)
                mine.ids = pa.concat_arrays([old, pa.array(ids, old.type)])

        self.folder.remember(query.id, flow, s.lateness_ms, self.MODE)
        job = RealtimeJob(
            self.spark,
            self.problem,
            number,
            flow,
            self.folder.job(query.id),
            s.lateness_ms,
            s.every_ms or EVERY_MS,
            lambda taken: self._new_plans(taken, number),
            welcome,
        )
        job.begin(self.folder.FIRST, self.plan)
        newcomers = job.schedule.newcomers()
        if newcomers:
            welcome(newcomers)
        taps[names[0]].append(Tap(job.left, flow.left))
        taps[names[1]].append(Tap(job.right, flow.right))
        ids = Names(self.problem.sources.ids, self.problem.nodes.ids)
        results = Results(flow, lambda: job.schedule.names(ids))
        started = job.start()
        target = self._target(flow)
        if target.at_once:
            job.published_elsewhere()
        publisher = Publisher(job.staged, job.committed, results, target, meter.clock)
        publisher.start()
        return RealtimeRunning(meter, started, job.schedule, job=job, publisher=publisher, feeds=feeds)

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
