"""Site: a node that joins, as a process with a Spark of its own in real-time mode.

Tuples that reach it go into the logs of its query, as from any feed; results go to the sink as they come.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.routing.flow import Flow
from nova.routing.packets import Names
from nova.spark.realtime.frames import HEAD, encode, together
from nova.spark.realtime.job import SLOTS, RealtimeJob
from nova.spark.realtime.log import Log
from nova.spark.realtime.results import NUMBERS, Publisher, Results
from nova.spark.realtime.run import EVERY_MS
from nova_lab.cluster.relay import LOCAL
from nova_lab.cluster.sink import Inbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

HEAP_MB = 512
"""Of a site's JVM."""
LATENESS_MS = 60_000
"""Tuples of an overloaded node queue for long, and not all equally long."""
GATHER_S = 0.002
"""Tuples that come within this time go into the logs together."""
POLL_S = 0.005
"""Time between two looks for new results. `nova run` looks more often; five sites on two cores cannot."""


@dataclass(frozen=True)
class Task:
    """What a site does in one run."""

    folder: Path
    problem: Problem
    plan: Plan
    """With the replicas that it hosts only."""
    flow: Flow
    sink_port: int
    """Where results go."""
    gate: float | None
    """Tuples/s that it lets in at most; None: it takes what it can."""


@dataclass
class Arrivals(Inbox):
    """Tuples on their way into the logs. Behind a gate they are served one after the other first."""

    logs: tuple[Log, Log] = field(kw_only=True)
    gate: Gate | None = field(kw_only=True)

    def take(self, data: bytes) -> None:
        log = self.logs[HEAD.unpack_from(data)[2]]  # a connection brings tuples of one side
        columns, _ = together(data, log.kinds)
        if self.gate is None:
            log.append(columns)
        else:
            self.gate.enter(log, columns)

    def idle(self) -> None:
        if self.gate is not None:
            self.gate.let_in()


@dataclass
class Gate:
    """Serves tuples first come, first served, each for 1/`per_s` seconds: a node of that speed, where the machine
    cannot bound CPU time."""

    per_s: float
    lifted: bool = False
    """Whether nobody waits any more."""
    free_s: float = 0.0
    """When all that came so far is served."""
    waiting: deque[tuple[float, Log, Sequence[pa.Array]]] = field(default_factory=deque)
    """By when they are served."""

    def enter(self, log: Log, columns: Sequence[pa.Array]) -> None:
        """Get in line."""
        self.free_s = max(self.free_s, time.monotonic()) + len(columns[0]) / self.per_s
        self.waiting.append((self.free_s, log, columns))

    def let_in(self) -> None:
        """Append what is served by now."""
        now = time.monotonic()
        while self.waiting and (self.lifted or self.waiting[0][0] <= now):
            _, log, columns = self.waiting.popleft()
            log.append(columns)


class Told(Results):
    """Results as the numbers by which the sink knows them."""

    def table(self, columns: Sequence[pa.Array]) -> pa.Table:
        return pa.table(list(columns[: len(NUMBERS)]), names=NUMBERS)


class ToSink:
    """Sends results as frames."""

    at_once = True

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOCAL, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def take(self, name: str, results: pa.Table) -> None:  # noqa: ARG002
        self.socket.sendall(encode(results.columns, 0, 0))

    def settle(self) -> None:
        """The link has them."""

    def close(self) -> None:
        self.socket.close()


class Sender(Publisher):
    """Looks for results at the pace of a small node."""

    def work(self) -> None:
        while not self._stopped.wait(POLL_S):
            self.step()


class Site:
    """Lives as long as its process, through many runs: its JVM stays warm."""

    def __init__(self) -> None:
        from nova.spark.session import local_session

        self.spark: SparkSession = local_session(1, slots=SLOTS + 2, memory_mb=HEAP_MB)

    def pids(self) -> list[int]:
        """Its processes: Python's and Spark's."""
        assert self.spark.sparkContext._gateway is not None
        return [os.getpid(), self.spark.sparkContext._gateway.proc.pid]

    def start(self, task: Task) -> int:
        """Begin a run; returns the port for tuples."""
        self.task = task
        self.job = RealtimeJob(self.spark, task.problem, 0, task.flow, task.folder, LATENESS_MS, EVERY_MS)
        self.job.begin("00000", task.plan)
        self.job.start()
        self.job.published_elsewhere()
        names = Names(task.problem.sources.ids, task.problem.nodes.ids)
        results = Told(task.flow, lambda: names)
        self.sender = Sender(self.job.staged, self.job.committed, results, ToSink(task.sink_port))
        self.sender.start()
        self.gate = None if task.gate is None else Gate(task.gate)
        logs = self.job.left, self.job.right
        self.arrivals = Arrivals(socket.create_server((LOCAL, 0)), GATHER_S, logs=logs, gate=self.gate)
        port: int = self.arrivals.server.getsockname()[1]
        self.arrivals.start()
        return port

    def lift(self) -> None:
        """Let in all that waits."""
        if self.gate is not None:
            self.gate.lifted = True

    def check(self) -> None:
        """Raise what went wrong."""
        failures = [one.failure for one in (self.arrivals, self.sender)]
        if self.job.started is not None and not self.job.started.isActive:
            failures.append(self.job.started.exception())
        for failure in failures:
            if failure is not None:
                raise failure

    def stop(self) -> None:
        """End the run."""
        self.arrivals.stop()
        self.job.close()
        self.sender.stop()
        shutil.rmtree(self.task.folder)

    def close(self) -> None:
        """End Spark."""
        self.spark.stop()
