"""Sensors: tuples of all sources, made beforehand, that leave for their hosts when they are due by the clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nova.model.plan import Plan
from nova.model.problem import Floats, Problem
from nova.routing import Routes
from nova.routing.flow import Flow
from nova.routing.position import Longs, key_position, slice_position, tuple_share, window_number
from nova.routing.routes import SideName
from nova.routing.xxh64 import hash_strings
from nova.scenario import Scenario
from nova.spark.job.job import routes_of
from nova.spark.realtime.background import Background
from nova.spark.realtime.frames import Rows
from nova.spark.sources import generator
from nova_lab.cluster.relay import LOCAL

TICK_S = 0.005
"""Tuples that fall due within this time leave together."""
BEGIN_MS = 1_700_000_000_000
"""Event time (epoch) at which all streams begin. When that is by the clock is said when they are played."""
CARRIED = pa.schema([("value", pa.float64()), ("key", pa.int64())])
SIDES: tuple[SideName, SideName] = ("left", "right")


@dataclass(frozen=True)
class Tuples:
    """Tuples of one side of a query in the order of their event times."""

    source: Longs
    """Rows of their sources."""
    time_us: Longs
    value: Floats
    key: Longs

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: np.ndarray) -> Tuples:
        return Tuples(self.source[rows], self.time_us[rows], self.value[rows], self.key[rows])


def drawn(scenario: Scenario, seconds: float, rate: float | None = None) -> tuple[Tuples, Tuples]:
    """What the generators of the first query's streams make in so many seconds; `rate`: of every source, instead of
    its own."""
    query = scenario.problem.queries[0]
    left, right = (_drawn(scenario, stream, seconds, rate) for stream in (query.left, query.right))
    return left, right


def _drawn(scenario: Scenario, stream: int, seconds: float, rate: float | None) -> Tuples:
    problem, name = scenario.problem, scenario.problem.streams[stream]
    given = scenario.streams[name].input
    assert given is not None, "the streams of a cluster are generated"
    pattern = generator.Pattern.of(given.options, f"{scenario.path}: streams.{name}")
    parts = []
    for row in problem.sources_of(stream).tolist():
        source = generator.Source(problem.sources.ids[row].as_py(), rate or float(problem.sources.rate[row]))
        made = generator.tuples_between(source, pattern, 0.0, 1000.0 * seconds, BEGIN_MS)
        columns = [made["event_time"].cast(pa.int64()), made["value"], made["key"]]
        parts.append(Tuples(np.full(len(made), row), *(column.to_numpy() for column in columns)))
    whole = Tuples(*(np.concatenate([getattr(part, name) for part in parts]) for name in Tuples.__dataclass_fields__))
    return whole.take(np.argsort(whole.time_us, kind="stable"))


@dataclass(frozen=True)
class Leg:
    """Tuples that one source sends to one host."""

    source: int
    """Row of the source."""
    host: int
    """Row of the node."""
    side: SideName
    tuples: Tuples


def legs(problem: Problem, plan: Plan, flow: Flow, streams: tuple[Tuples, Tuples]) -> list[Leg]:
    """Who sends what to whom: a tuple goes once to each host that has a replica for it."""
    routes = routes_of(problem, plan, 0)
    found = []
    for side, tuples in zip(SIDES, streams, strict=True):
        row, node = _reached(problem, routes, flow, side, tuples)
        way = np.column_stack([tuples.source[row], node])
        for source, host in np.unique(way, axis=0).tolist():
            mine = row[(way[:, 0] == source) & (way[:, 1] == host)]
            found.append(Leg(source, host, side, tuples.take(mine)))
    return found


def _reached(problem: Problem, routes: Routes, flow: Flow, side: SideName, tuples: Tuples) -> tuple[Longs, Longs]:
    """Tuples (rows) and the nodes that each goes to, in order."""
    hashes = hash_strings(problem.sources.ids.to_pylist())
    row, meeting = routes.side(side).reach(
        tuples.source,
        tuple_share(hashes[tuples.source], tuples.time_us, pa.array(tuples.value)),
        slice_position(window_number(tuples.time_us, flow.window_us)),
        key_position([pa.array(tuples.key)]),
    )
    once = np.unique(np.column_stack([row, routes.node[meeting]]), axis=0)
    return once[:, 0], once[:, 1]


@dataclass(frozen=True)
class Way:
    """What goes to one port: a frame of tuples at a time, with the side (0 or 1) as its `first`."""

    port: int
    side: SideName
    tuples: Tuples


@dataclass
class Player(Background):
    """Sends tuples when they are due."""

    ways: Sequence[Way]
    behind_s: float
    """How much later than its event time a tuple is due by the clock."""
    latest_s: float = 0.0
    """How much later than due a tuple left, at most."""

    def work(self) -> None:
        sockets = [socket.create_connection((LOCAL, way.port)) for way in self.ways]
        for one in sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rows = [Rows([pa.array(column) for column in vars(way.tuples).values()]) for way in self.ways]
        sent = [0] * len(self.ways)
        while any(done < len(way.tuples) for done, way in zip(sent, self.ways, strict=True)):
            for i, way in enumerate(self.ways):
                now_us = (time.time() - self.behind_s) * 1e6
                due = int(np.searchsorted(way.tuples.time_us, now_us, "right"))
                if due > sent[i]:
                    sockets[i].sendall(rows[i].encode(sent[i], due, SIDES.index(way.side), 0))
                    self.latest_s = max(self.latest_s, (now_us - int(way.tuples.time_us[sent[i]])) / 1e6)
                    sent[i] = due
            if self._stopped.wait(TICK_S):
                break
        for one in sockets:
            one.close()


class Sensors:
    """All sources of a run, in one process."""

    player: Player | None = None

    def play(self, ways: Sequence[Way], behind_s: float) -> None:
        """Begin to send."""
        self.player = Player(ways, behind_s)
        self.player.start()

    def finish(self) -> float:
        """Wait until all has left; returns by how much (s) a tuple left too late, at most."""
        assert self.player is not None
        assert self.player._thread is not None
        self.player._thread.join()
        if self.player.failure is not None:
            raise self.player.failure
        return self.player.latest_s
