"""Cluster: a plan on site processes, with links that take their time and nodes that have their speed.

    sensors ─ link ─> site (logs ─ Spark, real-time mode) ─ link ─> sink

Sensors and sink are light processes, each node that joins is a process with a Spark of its own; all nodes of a run work
at once. How slow a node is, a cgroup sees to where the machine allows it, else a gate in front of its logs. When the
last tuple is born, all limits are lifted: the rest is joined at full speed, so that the results of every run can be
compared with those of a plain join.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from nova.evaluation.metrics import Distances
from nova.model.errors import NovaError
from nova.model.plan import Plan
from nova.model.problem import Floats, Problem
from nova.model.replicas import Replicas
from nova.routing.flow import Flow
from nova_lab.cluster.relay import Link, relays
from nova_lab.cluster.remote import Remote
from nova_lab.cluster.sensors import BEGIN_MS, CARRIED, Leg, Sensors, Tuples, Way, legs
from nova_lab.cluster.shares import Cgroups, cgroups, cpu_seconds
from nova_lab.cluster.sink import KEPT, Columns, Sink
from nova_lab.cluster.site import Site, Task

LEAD_S = 1.0
"""Time between the start of all processes of a run and the first tuple."""
QUIET_S = 30.0
"""The rest is taken for lost when no result comes for so long."""

Means = Literal["cgroup", "gate"]
"""What keeps nodes to their speed."""


@dataclass(frozen=True)
class Workload:
    """A query and the tuples of its sides."""

    problem: Problem
    streams: tuple[Tuples, Tuples]
    seconds: float

    @property
    def flow(self) -> Flow:
        """How its tuples travel: they join on their key, within the windows of the query."""
        query = self.problem.queries[0]
        return Flow(query.id, max(1, round(query.window_ms * 1000)), ("key",), CARRIED, CARRIED)

    def joined(self, plan: Plan) -> Columns:
        """Its results by a plain join of all tuples: those whose sources may join, with equal windows and keys."""
        left, right = (self._frame(side, tuples) for side, tuples in zip(("left", "right"), self.streams, strict=True))
        may = pd.DataFrame({"left_source": plan.joins.left, "right_source": plan.joins.right}).drop_duplicates()
        pairs = left.merge(may, on="left_source").merge(right, on=["right_source", "window", "key"])
        return ordered(pairs[list(KEPT)].to_numpy(np.int64))

    def _frame(self, side: str, tuples: Tuples) -> pd.DataFrame:
        return pd.DataFrame(
            {
                f"{side}_source": tuples.source,
                f"{side}_time": tuples.time_us,
                "window": tuples.time_us // self.flow.window_us,
                "key": tuples.key,
            }
        )


def ordered(results: Columns) -> Columns:
    """Results in an order of their own."""
    return results[np.lexsort(results.T[::-1])]


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    latency_ms: Floats
    """Of each result, from the event of its later tuple to the sink."""
    age_s: Floats
    """When each result came, since the first event was due."""
    results: Columns
    cpu_cores: Mapping[int, float]
    """CPU time that each host (row of the node) used while tuples were born, per second."""
    delivered: int
    """Tuples that were sent to hosts, each copy counted."""
    sent_late_ms: float
    """By how much a tuple left its sensor too late, at most: the machine was busy."""


class Cluster:
    """Some site processes, a sensors' and a sink's, which stay for many runs."""

    def __init__(self, sites: int, folder: Path, stack: ExitStack, limits: Cgroups | str) -> None:
        self.folder, self.limits = folder, limits
        self.sensors, self.sink = self._remote("the sensors", Sensors, stack), self._remote("the sink", Sink, stack)
        self.sites = [self._remote(f"site {i}", Site, stack) for i in range(sites)]
        for site in self.sites:
            site.ask("pids")  # all start at once
        self.pids = [site.answer() for site in self.sites]
        self._runs = 0

    @staticmethod
    def _remote(name: str, made: type, stack: ExitStack) -> Remote:
        remote = Remote(name, made)
        stack.callback(remote.close)
        return remote

    @property
    def means(self) -> Means:
        """What keeps nodes to their speed."""
        return "cgroup" if isinstance(self.limits, Cgroups) else "gate"

    def run(
        self,
        work: Workload,
        plan: Plan,
        distances: Distances,
        expected: int,
        speed: Floats | None = None,
        core_s: float = 0.0,
    ) -> Outcome:
        """A plan's run to its last result, of which there should be `expected`. `speed`: tuples/s that each node can
        take in; None: as many as it can. `core_s`: seconds of a core that a tuple costs a site; by it cgroups turn
        speeds into shares."""
        hosts = np.unique(plan.replicas.node).tolist()
        if len(hosts) > len(self.sites):
            raise NovaError(f"the plan has {len(hosts)} hosts, and the cluster {len(self.sites)} sites")
        ways = legs(work.problem, plan, work.flow, work.streams)
        home = work.problem.sources.node
        self._runs += 1
        with ExitStack() as stack:
            port = self.sink.call("open")
            to_sink = self._links(distances, [(host, work.problem.queries[0].sink, port) for host in hosts])
            result_ports = stack.enter_context(relays(to_sink))
            at = dict(zip(hosts, self.sites, strict=False))
            for host, result_port in zip(hosts, result_ports, strict=True):
                gate = None if speed is None or self.means == "cgroup" else float(speed[host])
                at[host].ask("start", self._task(work, plan, host, result_port, gate))
            tuple_ports = {host: at[host].answer() for host in hosts}
            there = [(int(home[leg.source]), leg.host, tuple_ports[leg.host]) for leg in ways]
            near = stack.enter_context(relays(self._links(distances, there)))
            try:
                return self._play(work, ways, near, at, expected, speed, core_s)
            finally:
                for site in at.values():
                    site.ask("stop")
                for site in at.values():
                    site.answer()

    @staticmethod
    def _links(distances: Distances, ways: list[tuple[int, int, int]]) -> list[Link]:
        """From node to node, to a port: as long as the distance between them, as `nova evaluate` counts it."""
        near, far = (np.array([way[end] for way in ways]) for end in (0, 1))
        delays = np.where(near == far, 0.0, distances.between(near, far)) / 1000.0
        return [Link(port, delay) for (_, _, port), delay in zip(ways, delays.tolist(), strict=True)]

    def _task(self, work: Workload, plan: Plan, host: int, port: int, gate: float | None) -> Task:
        mine = replace(plan, replicas=plan.replicas.take(np.flatnonzero(plan.replicas.node == host)))
        return Task(self.folder / f"{self._runs}-{host}", work.problem, mine, work.flow, port, gate)

    def _play(
        self,
        work: Workload,
        ways: list[Leg],
        ports: list[int],
        at: Mapping[int, Remote],
        expected: int,
        speed: Floats | None,
        core_s: float,
    ) -> Outcome:
        pids = {host: self.pids[self.sites.index(site)] for host, site in at.items()}
        if speed is not None and isinstance(self.limits, Cgroups):
            for host in at:
                self.limits.limit(f"site{host}", pids[host], float(speed[host]) * core_s)
        began = time.time() + LEAD_S
        behind_s = began - BEGIN_MS / 1000
        self.sensors.call(
            "play", [Way(port, leg.side, leg.tuples) for port, leg in zip(ports, ways, strict=True)], behind_s
        )
        time.sleep(max(0.0, began - time.time()))
        before = {host: cpu_seconds(pids[host]) for host in at}
        time.sleep(max(0.0, began + work.seconds - time.time()))
        late_s = self.sensors.call("finish")
        lasted = max(time.time() - began, 1e-3)
        used = {host: (cpu_seconds(pids[host]) - before[host]) / lasted for host in at}
        if isinstance(self.limits, Cgroups):
            for host in at:
                self.limits.limit(f"site{host}", pids[host], None)
        for site in at.values():
            site.call("lift")
        self._drain(expected, at)
        when, results = self.sink.call("taken")
        event_s = np.maximum(results[:, KEPT.index("left_time")], results[:, KEPT.index("right_time")]) / 1e6
        return Outcome(
            1000.0 * (when - behind_s - event_s),
            when - began,
            results,
            used,
            sum(len(leg.tuples) for leg in ways),
            1000.0 * late_s,
        )

    def _drain(self, expected: int, at: Mapping[int, Remote]) -> None:
        """Wait for all results, or until no more come."""
        count, last = -1, time.monotonic()
        while count < expected and time.monotonic() < last + QUIET_S:
            for site in at.values():
                site.call("check")
            now = self.sink.call("count")
            if now > count:
                count, last = now, time.monotonic()
            time.sleep(0.2)

    def cost(self, work: Workload, plan: Plan, distances: Distances) -> float:
        """Seconds of a core that a tuple costs a site: every site joins all tuples of a workload, without a limit;
        twice, as the first time the compiler is at work."""
        times, hosts = len(self.sites), np.arange(len(self.sites), dtype=np.int32)
        columns = {name: np.tile(column, times) for name, column in vars(plan.replicas).items()}
        columns["node"] = np.repeat(hosts, len(plan.replicas))
        everywhere = replace(plan, replicas=Replicas(**columns))
        expected = times * len(work.joined(plan))
        for _ in range(2):
            outcome = self.run(work, everywhere, distances, expected)
        tuples_per_s = sum(len(side) for side in work.streams) / work.seconds
        return float(np.mean(list(outcome.cpu_cores.values()))) / tuples_per_s


@contextmanager
def cluster(sites: int, limits: Cgroups | str | None = None) -> Iterator[Cluster]:
    """A cluster of so many nodes that join. `limits`: cgroups for their speeds, or why there are none; without, what
    this machine has."""
    limits = cgroups() if limits is None else limits
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-cluster-")))
        if isinstance(limits, Cgroups):
            stack.callback(limits.close)
        yield Cluster(sites, folder, stack, limits)
