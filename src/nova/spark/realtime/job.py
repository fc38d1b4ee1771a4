"""RealtimeJob: one query of a plan in Spark's real-time mode, and the driver's hand on its JVM part."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova.files import name_of
from nova.model.errors import NovaError
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.routing.flow import Flow
from nova.routing.routes import SideName
from nova.routing.xxh64 import hash_strings
from nova.spark.job.gate import check
from nova.spark.job.job import ANCIENT, NewPlan, routes_of
from nova.spark.job.meter import STAGES
from nova.spark.job.schedule import Schedule
from nova.spark.job.tally import Tally
from nova.spark.job.tasks import ORIGINAL
from nova.spark.realtime.frames import encode, kinds_of
from nova.spark.realtime.log import Log
from nova.spark.realtime.plans import write_routes
from nova.spark.replan.newcomers import NOBODY, Newcomers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from nova.spark.realtime.sql import Around

TASKS = 2
"""Tasks that join, per query."""
SLOTS = 2 + TASKS
"""Tasks of a query that all run at once: a reader for each side, and those that join."""
PATIENCE_S = 120.0
"""Longest wait for the readers to begin, and for the last batch to be committed."""
CONFIG = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(TASKS),
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # Spark would read a group's whole list each time a packet is added to it, only to count its rows.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",  # a batch is over when it is
    "spark.sql.streaming.minBatchesToRetain": "20",
}
"""What real-time mode wants of a session. Queries keep what they were started with."""


@contextmanager
def configured(spark: SparkSession, config: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in config}
    for key, value in config.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


@dataclass(frozen=True)
class Reading:
    """What the JVM part has counted since the reading before."""

    tally: Tally
    took_us: dict[str, Counter[float]]
    """Results by how long they took (µs), in all (`total`) and by stage."""
    buckets: dict[int, Counter[int]]
    """Copies by batch and by the end of their bucket (µs), since the start of the batch."""
    state_tuples: int


@dataclass
class RealtimeJob:
    """A query of a plan, ready to start."""

    spark: SparkSession
    problem: Problem
    query: int
    flow: Flow
    folder: Path
    """The query's own folder in the run's: checkpoint, schedule, logs, results that are not published yet."""
    lateness_ms: int
    every_ms: int
    """Time between checkpoints."""
    new_plans: Callable[[list[str]], list[NewPlan]] = field(default=lambda known: [])  # noqa: ARG005
    welcome: Callable[[Newcomers], None] = field(default=lambda newcomers: None)  # noqa: ARG005
    """Called with all newcomers so far before a plan that knows them holds."""
    around: Around | None = None
    """What a query in SQL does before and after the join."""
    left: Log = field(init=False)
    right: Log = field(init=False)
    started: StreamingQuery | None = None
    switches_ms: list[float] = field(default_factory=list)
    """How long each switch of plans took."""
    _live: Any = None
    _before: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = f"{name_of(self.flow.query)}-{uuid.uuid4().hex[:8]}"
        self.left, self.right = (
            Log(self.folder / side, "ll" + kinds_of(self.logged(side))) for side in ("left", "right")
        )

    def logged(self, side: SideName) -> pa.Schema:
        """What tuples of a side carry in their log beside source and time."""
        return self.flow.carried(side) if self.around is None else self.around.logged[side]

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.folder / "schedule")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def staged(self) -> Path:
        """Results as the join writes them: a file per batch and task."""
        return self.folder / "staged"

    def begin(self, name: str, plan: Plan) -> None:
        """Write down the first plan, unless an earlier run has."""
        if not self.schedule.entries():
            self.schedule.append(name, routes_of(self.problem, plan, self.query), ANCIENT, 0)

    def start(self) -> StreamingQuery:
        """Start to read the logs, to join and to write; returns when all its tasks are at work."""
        from pyspark.sql.streaming.query import StreamingQuery

        check(self.checkpoint)
        jvm = self.spark._jvm
        assert jvm is not None
        part = jvm.nova.realtime
        self._live = part.Live.open(self.name)
        self._tell_names(self.schedule.newcomers())
        for entry, epoch in zip(self.schedule.entries(), self.schedule.timeline().epochs, strict=True):
            write_routes(self._routes(entry.plan), epoch.routes)
            self._live.add(entry.first_window, str(self._routes(entry.plan)))
        latest = max((log.latest_us for log in (self.left, self.right) if log.latest_us is not None), default=None)
        if latest is not None:  # whatever was routed before this start is not later
            copies_us = 0 if self.around is None else self.around.lateness_ms * 1000
            self._live.routedUpTo((latest + copies_us) // self.flow.window_us)
        for log in (self.left, self.right):
            log.forget_readers()
        self.staged.mkdir(parents=True, exist_ok=True)
        done = self.committed()
        if done < 0 and self.checkpoint.exists():  # pieces of a first one, which Spark refuses to begin with
            shutil.rmtree(self.checkpoint)
        for file in self.staged.glob("*.frames"):
            if int(file.name.split("-")[0]) > done:
                file.unlink()  # of a batch that will be repeated
        around = self.around
        shape = part.Shape(
            self.name,
            self.flow.window_us,
            self.flow.bucket_us,
            TASKS,
            self._side("left"),
            self._side("right"),
            None if around is None else kinds_of(around.selected),
            None if around is None else part.Sql(around.after._jdf),
        )
        pipeline, session = part.Pipeline, self.spark._jsparkSession
        with configured(self.spark, CONFIG):
            packets = [
                pipeline.packets(session, shape, side, str(log.folder))
                for side, log in enumerate((self.left, self.right))
            ]
            joined = pipeline.joined(shape, self.flow.query, *packets, self.lateness_ms)
            begun = pipeline.start(
                shape, joined, self.flow.query, str(self.staged), str(self.checkpoint), self.every_ms
            )
        self.started = StreamingQuery(begun)
        self._wait_for(lambda: self._live.begun() >= SLOTS, "begin")
        for side, log in enumerate((self.left, self.right)):
            log.read_to = partial(self._live.position, side)
        return self.started

    def _side(self, side: SideName) -> Any:
        """What the JVM part must know of a side."""
        jvm = self.spark._jvm
        assert jvm is not None
        part = jvm.nova.realtime
        carried, around = self.flow.carried(side), self.around
        copied = around is not None and side in around.copied
        return getattr(part, "Shape$Side")(
            kinds_of(self.logged(side)),
            kinds_of(carried),
            self._places(carried.names),
            carried.names.index(ORIGINAL) if copied else -1,
            None if around is None else part.Sql(around.before[side]._jdf),
        )

    def _places(self, names: list[str]) -> Any:
        """Places of the `on` columns, as a Java array."""
        context = self.spark.sparkContext
        assert context._gateway is not None
        array = context._gateway.new_array(context._gateway.jvm.int, len(self.flow.on))
        for i, name in enumerate(self.flow.on):
            array[i] = names.index(name)
        return array

    def _tell_names(self, newcomers: Newcomers) -> None:
        ids = [*self.problem.sources.ids.to_pylist(), *(source.id for source in newcomers.sources)]
        nodes = [*self.problem.nodes.ids.to_pylist(), *newcomers.nodes]
        hashes = pa.array(hash_strings(ids).view(np.int64))
        self._live.names(
            encode([hashes, pa.array(ids, pa.string())], 0, 0), encode([pa.array(nodes, pa.string())], 0, 0)
        )

    def _routes(self, plan: str) -> Path:
        return self.schedule.folder / f"routes-{plan}.bin"

    def _wait_for(self, happened: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened() and self.started is not None and self.started.isActive:
            if time.monotonic() > end:
                raise NovaError(
                    f"query {self.flow.query!r}: Spark's real-time mode did not {what} in {PATIENCE_S:.0f} s"
                )
            time.sleep(0.01)

    def clock(self, event_us: float, began_us: float, speed: float) -> None:
        """From when latencies are counted: events of `event_us` were due at `began_us`."""
        self._live.gauge().clock(event_us, began_us, speed)

    def published_elsewhere(self) -> None:
        """Results are out only when the driver has published them, and it says how long they took."""
        self._live.gauge().published()

    def take_up(self) -> None:
        """Switch to new plans from the first window that no tuple was routed for.

        Tuples of that window wait until the switch is written down; all others go on. Should the process die after
        that, tuples since the last checkpoint are routed again, by the schedule as written: windows never have tuples
        under two plans.
        """
        for new in self.new_plans([entry.plan for entry in self.schedule.entries()]):
            began = time.monotonic()
            write_routes(self._routes(new.name), new.routes)
            first = max(ANCIENT + 1, self.schedule.entries()[-1].first_window)
            if new.from_ms is not None:
                first = max(first, math.ceil(new.from_ms * 1000 / self.flow.window_us))
            if new.newcomers is not NOBODY:
                self._tell_names(new.newcomers)
                self.welcome(new.newcomers)
            first = self._live.reserve(first)
            self.schedule.append(new.name, new.routes, first, self.committed() + 1, new.newcomers)
            self._live.add(first, str(self._routes(new.name)))
            self.switches_ms.append((time.monotonic() - began) * 1000)

    def committed(self) -> int:
        """The last batch that Spark has committed; −1 before the first."""
        try:
            names = os.listdir(self.checkpoint / "commits")
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def worked_off(self) -> bool:
        """Whether all that the logs hold was read."""
        return bool(self._live.position(0) >= self.left.end and self._live.position(1) >= self.right.end)

    def close(self) -> None:
        """End the batch that runs now where its readers are, wait until it is committed, and stop the query."""
        if self.started is None:
            return
        self._live.close()
        if self.started.isActive:
            self._wait_for(lambda: self._live.parked(), "end")
        self.started.stop()
        self.left.close()
        self.right.close()
        jvm = self.spark._jvm
        assert jvm is not None
        jvm.nova.realtime.Live.forget(self.name)

    def reading(self) -> Reading:
        """What was counted since the reading before."""
        told = json.loads(self._live.gauge().told())
        told["state"] = self._live.stateTuples()
        before, self._before = self._before, told

        def more(name: str, kind: Callable[[str], Any] = int) -> Counter[Any]:
            earlier = before.get(name, {})
            return Counter(
                {kind(key): n - earlier.get(key, 0) for key, n in told[name].items() if n > earlier.get(key, 0)}
            )

        def by_side(name: str) -> Counter[str]:
            earlier = before.get(name, [0, 0])
            return Counter({side: told[name][i] - earlier[i] for i, side in enumerate(("left", "right"))})

        usable = by_side("tuples")
        usable.subtract(by_side("strangers"))
        tally = Tally(
            tuples=usable,
            copies=more("copies"),
            results=more("results"),
            first_time=told["first_time"],
            last_time=told["last_time"],
        )
        buckets = {
            int(batch): Counter({int(end): n for end, n in ends.items()}) for batch, ends in told["buckets"].items()
        }
        return Reading(tally, {name: more(name, float) for name in ("total", *STAGES)}, buckets, told["state"])
