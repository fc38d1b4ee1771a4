"""Emulation: the real tuples and results of a run, as they would fare on hosts and links of the scenario's size.

Spark runs all hosts of a plan on one machine, faster than most of them. So the time of the hosts is kept apart: every
tuple that the job routes is also sent through the plan's network in emulated time.

1. A tuple leaves its source when it is due (its event time). It goes to each host once per sub-join that has a replica
   there wanting it: what the plan charges hosts for. The way takes the distance between source and host.
2. A host serves what reaches it first come, first served, each for 1/capacity seconds; all queries share its queue.
3. A result is ready when both of its tuples are served, and takes the distance from host to sink to arrive.

Nothing is held up and nothing is lost: the results that the run writes are complete, and the emulation says when each
would have been at its sink, how much each host had left to do, and what was not done when the clock stopped at the last
event. The rules are those of `nova.evaluation.simulation`, so the two can be compared; but tuples, their times, shares,
windows and pairs are the run's own, which the simulation has to draw.

Batches bring tuples nearly in order. The queues wait `PATIENCE_S` of event time before they serve, so that tuples of
other batches and queries find their place; a tuple that comes even later queues behind those served before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from nova.evaluation.metrics import Distances, node_limit
from nova.evaluation.simulation import simulate
from nova.evaluation.simulation.model import Groups
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem
from nova.model.skew import KeyAxis
from nova.routing.position import Longs, slice_position, window_number
from nova.routing.routes import Rows, Side, SideName
from nova.routing.xxh64 import Hashes, hash_longs
from nova.spark.job.meter import Latencies
from nova.spark.job.schedule import Entry
from nova.spark.job.tally import Arrived, Sample

PATIENCE_S = 2.0
BEHIND_S = 60.0
"""A query whose input has ended or stalled does not keep the others waiting for longer than this."""
STEP_S = 0.5
"""Steps of the recorded backlog, in seconds of event time; wider in long runs."""
POINTS = 256
"""Most points in time of the backlog that are kept."""
MOST_SIMULATED = 3_000_000
"""Tuples that a prediction simulates at most: long runs are predicted from their beginning."""
SIDES: tuple[SideName, SideName] = ("left", "right")


class Watched(Protocol):
    """What tasks hand in for the emulation."""

    arrived: list[Arrived]
    sampled: list[Sample]


@dataclass(frozen=True)
class Network:
    """One query under one plan: who sends what to whom, and how long that takes. A *group* is a sub-join on a host."""

    first: int
    """Number of the first group, unique within the emulation."""
    left: Side
    right: Side
    node: Ints
    """Host of each group."""
    way_s: Floats
    """Seconds from the left and from the right source to the host, one row per group."""
    to_sink_s: Floats
    pair: dict[tuple[int, int, int], int]
    """Group by left source, right source and host."""

    @staticmethod
    def of(problem: Problem, plan: Plan, query: int, distances: Distances, first: int) -> Network:
        """The network of a plan's query; distances are charged once per leg, as in `nova evaluate`."""
        joins, axis = plan.joins, KeyAxis.of(problem.queries[query])
        mine = plan.replicas.take(joins.query[plan.replicas.join] == query)
        groups = Groups.of(mine)
        box_group = np.repeat(np.arange(len(groups.join)), np.diff(groups.first))
        sources = joins.left[groups.join], joins.right[groups.join]
        sides = [
            _side(groups.boxes, source[box_group], box_group, s, len(problem.sources)).hashed(axis)
            for s, source in enumerate(sources)
        ]
        ways = [distances.between(at[groups.join], groups.node) for at in (joins.left_node, joins.right_node)]
        return Network(
            first,
            sides[0],
            sides[1],
            groups.node,
            np.column_stack(ways) / 1000.0,
            distances.between(groups.node, joins.sink[groups.join]) / 1000.0,
            dict(
                zip(
                    zip(sources[0].tolist(), sources[1].tolist(), groups.node.tolist(), strict=True),
                    range(len(groups.join)),
                    strict=True,
                )
            ),
        )

    def side(self, name: SideName) -> Side:
        return self.left if name == "left" else self.right


def _side(boxes: Floats, source: Ints, group: Rows, side: int, sources: int) -> Side:
    order = np.argsort(source, kind="stable")
    box = boxes[order]
    return Side(
        start=np.searchsorted(source[order], np.arange(sources + 1)).astype(np.int64),
        meeting=group[order].astype(np.int32),
        share_from=box[:, 2 * side],
        share_to=box[:, 2 * side + 1],
        slice_from=box[:, 4],
        slice_to=box[:, 5],
        key_from=box[:, 6],
        key_to=box[:, 7],
        key_part=box[:, 7] - box[:, 6],
    )


@dataclass(frozen=True)
class Deliveries:
    """Tuples on their way to hosts, one row per tuple and group. Times are in seconds since 1970."""

    key: Hashes
    """Of group, side and event time: how a result finds its tuples again."""
    node: Ints
    born: Floats
    arrival: Floats
    to_sink: Floats

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: np.ndarray) -> Deliveries:
        """Some of them, by index or mask."""
        return Deliveries(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @staticmethod
    def merged(parts: Iterable[Deliveries]) -> Deliveries:
        """All of them."""
        listed = list(parts)
        none = [np.empty(0, kind) for kind in (np.uint64, np.int32, np.float64, np.float64, np.float64)]
        names = Deliveries.__dataclass_fields__
        return Deliveries(
            *(
                np.concatenate([empty, *(getattr(part, name) for part in listed)])
                for name, empty in zip(names, none, strict=True)
            )
        )


def keys(group: np.ndarray, side: int, time_us: Longs) -> Hashes:
    """One number for a tuple in a group."""
    return hash_longs(time_us, hash_longs(group.astype(np.int64) * 2 + side))


def serve(arrival: Floats, service_s: float, free_at: float) -> Floats:
    """When a host is done with each of the tuples that reach it at `arrival` (sorted), first come, first served.

    Lindley's recursion without a loop: tuple k is done k + 1 services after the last moment the host was idle.
    """
    if not np.isfinite(service_s):
        return np.full(len(arrival), np.inf)
    place = np.arange(len(arrival))
    ready = np.maximum(np.maximum.accumulate(arrival - service_s * place), free_at)
    finish: Floats = ready + service_s * (place + 1)
    return finish


@dataclass
class Queues:
    """All hosts of the scenario: what they have done and what they have left to do."""

    service_s: Floats
    """Seconds per tuple of each node."""
    free_at: Floats = field(init=False)
    committed: Longs = field(init=False)
    """Deliveries that each node was given so far."""
    longest: Longs = field(init=False)
    """Longest queue of each node, the arriving tuple included."""
    now: float = -np.inf
    """Moment that the figures hold for."""
    node: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    arrival: Floats = field(default_factory=lambda: np.empty(0))
    finish: Floats = field(default_factory=lambda: np.empty(0))
    """Deliveries that are not done at `now`."""

    def __post_init__(self) -> None:
        n = len(self.service_s)
        self.free_at = np.full(n, -np.inf)
        self.committed, self.longest = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def add(self, due: Deliveries, now: float) -> Floats:
        """Serve these deliveries, after all that were served before; returns when each is done."""
        finish = np.empty(len(due))
        order = np.lexsort((due.arrival, due.node))
        starts = np.flatnonzero(np.diff(due.node[order], prepend=-1))
        for rows in np.split(order, starts[1:]) if len(order) else []:
            node = int(due.node[rows[0]])
            done = serve(due.arrival[rows], float(self.service_s[node]), float(self.free_at[node]))
            finish[rows] = done
            self.free_at[node] = done[-1]
            self.committed[node] += len(rows)
            before = self.finish[self.node == node]
            ahead = len(before) + np.arange(1, len(rows) + 1)
            gone = np.searchsorted(np.concatenate([before, done]), due.arrival[rows], "left")
            self.longest[node] = max(self.longest[node], int((ahead - gone).max()))
        self.node = np.concatenate([self.node, due.node[order]])
        self.arrival = np.concatenate([self.arrival, due.arrival[order]])
        self.finish = np.concatenate([self.finish, finish[order]])
        self.settle(now)
        return finish

    def settle(self, now: float) -> None:
        """Let time pass: forget what is done by `now`."""
        self.now = now
        left = self.finish > now
        self.node, self.arrival, self.finish = self.node[left], self.arrival[left], self.finish[left]

    def in_flight(self) -> Longs:
        """Deliveries of each node that are still on their way."""
        return np.bincount(self.node[self.arrival > self.now], minlength=len(self.committed))

    def backlog(self) -> Longs:
        """Deliveries of each node that have arrived and are not done."""
        return np.bincount(self.node[self.arrival <= self.now], minlength=len(self.committed))

    def served(self) -> Longs:
        """Deliveries of each node that are done."""
        return self.committed - np.bincount(self.node, minlength=len(self.committed))


@dataclass
class _Pairs:
    """Sampled results whose tuples are not all served yet."""

    left: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    right: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    latest: Floats = field(default_factory=lambda: np.empty(0))
    to_sink: Floats = field(default_factory=lambda: np.empty(0))
    weight: Floats = field(default_factory=lambda: np.empty(0))

    def keep(self, rows: np.ndarray) -> _Pairs:
        return _Pairs(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def plus(self, other: _Pairs) -> _Pairs:
        return _Pairs(
            *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in self.__dataclass_fields__)
        )


@dataclass(frozen=True)
class Epochs:
    """The plans of a query: from which window on each holds. The first holds for all windows before the second."""

    first_windows: tuple[int, ...]
    plans: tuple[str, ...]

    @staticmethod
    def of(entries: Sequence[Entry]) -> Epochs:
        """As the job's schedule has them."""
        return Epochs(tuple(entry.first_window for entry in entries), tuple(entry.plan for entry in entries))


class Emulation:
    """The emulated hosts of a run; takes in batches of its queries in any order, from any thread."""

    def __init__(self, problem: Problem, plan: Callable[[str], Plan], retain_s: float) -> None:
        """`plan` reads a plan by its name in the run; results are followed for `retain_s` after their tuples."""
        self.problem, self.retain_s = problem, retain_s
        self._plan = plan
        with np.errstate(divide="ignore"):
            self.queues = Queues(1.0 / node_limit(problem))
        self.emitted = 0
        self.latest: dict[tuple[int, SideName], float] = {}
        """Latest event (s since 1970) of each side of each query that has had any."""
        self.first = np.inf
        self.tuples, self.results = Latencies(), Latencies()
        self.results_found = self.results_missed = 0.0
        self.course: list[tuple[float, int]] = []
        """(seconds since the first event, backlog of all hosts)"""
        self._pending: list[Deliveries] = []
        self._pairs = _Pairs()
        self._ledger = np.empty(0, np.uint64), np.empty(0), np.empty(0)
        """Keys of served deliveries in order, when they were done, and when they were born."""
        self._coming: tuple[Floats, Floats] = np.empty(0), np.empty(0)
        """Results that are not yet at their sink: when they will be, and their weights."""
        self.at_sink = 0.0
        self._networks: dict[tuple[int, str], Network] = {}
        self._ids = [
            {
                id_: int(row)
                for id_, row in zip(
                    problem.sources.ids.take(pa.array(problem.sources_of(stream))).to_pylist(),
                    problem.sources_of(stream),
                    strict=True,
                )
            }
            for stream in range(len(problem.streams))
        ]
        self._lock = threading.Lock()

    def batch(self, query: int, watched: Watched, epochs: Epochs) -> None:
        """Take in one batch of a query."""
        with self._lock:
            for part in watched.arrived:
                self._send(query, part, epochs)
            for sample in watched.sampled:
                self._follow(query, sample, epochs)
            if self.latest:
                newest, slowest = max(self.latest.values()), min(self.latest.values())
                self._serve(max(slowest, newest - BEHIND_S) - PATIENCE_S)

    def _network(self, query: int, name: str) -> Network:
        if (query, name) not in self._networks:
            plan = self._plan(name)
            first = sum(len(known.node) for known in self._networks.values())
            self._networks[query, name] = Network.of(self.problem, plan, query, plan.space, first)
        return self._networks[query, name]

    def _send(self, query: int, part: Arrived, epochs: Epochs) -> None:
        if not len(part.time):
            return
        born = part.time / 1e6
        self.emitted += len(born)
        self.first = min(self.first, float(born.min()))
        for name in SIDES:  # a side that comes a batch later than the other is not done with
            self.latest.setdefault((query, name), -np.inf)
        self.latest[query, part.side] = max(self.latest[query, part.side], float(born.max()))
        side = SIDES.index(part.side)
        for rows, window, network in self._by_epoch(query, part.time, epochs):
            at, group = network.side(part.side).reach(
                part.source[rows],
                part.share[rows],
                slice_position(window),
                None if part.key is None else part.key[rows],
            )
            # a tuple that several boxes of one sub-join on one host want goes there once
            once = np.unique(at.astype(np.int64) * len(network.node) + group, return_index=True)[1]
            row, group = rows[at[once]], group[once]
            self._pending.append(
                Deliveries(
                    keys(group + network.first, side, part.time[row]),
                    network.node[group],
                    born[row],
                    born[row] + network.way_s[group, side],
                    network.to_sink_s[group],
                )
            )

    def _by_epoch(self, query: int, time: Longs, epochs: Epochs) -> Iterable[tuple[Rows, Longs, Network]]:
        window = window_number(time, max(1, round(self.problem.queries[query].window_ms * 1000)))
        epoch = np.searchsorted(np.array(epochs.first_windows[1:], dtype=np.int64), window, "right")
        for e in np.unique(epoch):
            rows = np.flatnonzero(epoch == e)
            yield rows, window[rows], self._network(query, epochs.plans[int(e)])

    def _follow(self, query: int, sample: Sample, epochs: Epochs) -> None:
        left, right = (
            self._ids[stream] for stream in (self.problem.queries[query].left, self.problem.queries[query].right)
        )
        for rows, _, network in self._by_epoch(query, sample.left_time, epochs):
            group = np.array(
                [
                    network.pair.get(
                        (left[sample.left_source[i]], right[sample.right_source[i]], int(sample.node[i])), -1
                    )
                    for i in rows.tolist()
                ],
                dtype=np.int64,
            )
            known = group >= 0
            rows, group = rows[known], group[known]
            self._pairs = self._pairs.plus(
                _Pairs(
                    keys(group + network.first, 0, sample.left_time[rows]),
                    keys(group + network.first, 1, sample.right_time[rows]),
                    np.maximum(sample.left_time[rows], sample.right_time[rows]) / 1e6,
                    network.to_sink_s[group],
                    np.full(len(rows), sample.weight),
                )
            )

    def _serve(self, upto: float, now: float | None = None) -> None:
        """Serve what arrives up to a moment; the figures then hold for `now`."""
        pending = Deliveries.merged(self._pending)
        ripe = pending.arrival <= upto
        due, later = pending.take(ripe), pending.take(~ripe)
        self._pending = [later] if len(later) else []
        before, open_arrival, open_finish = self.queues.now, self.queues.arrival, self.queues.finish
        finish = self.queues.add(due, upto if now is None else now)
        self._record(before, np.concatenate([open_arrival, due.arrival]), np.concatenate([open_finish, finish]))
        _count(self.tuples, 1000.0 * (finish + due.to_sink - due.born), np.ones(len(due)))
        self._settle_results(due, finish)

    def _record(self, since: float, arrival: Floats, finish: Floats) -> None:
        """Note how many deliveries waited at some points in time since the last; of all that were not done by then."""
        since, now = max(since, self.first), self.queues.now
        steps = min(max(int((now - since) / STEP_S), 1), POINTS // 4) if now > since else 0
        times = np.linspace(since, now, steps + 1)[1:]
        waiting = np.searchsorted(np.sort(arrival), times, "right") - np.searchsorted(np.sort(finish), times, "right")
        self.course += zip((times - self.first).tolist(), waiting.tolist(), strict=True)
        if len(self.course) > POINTS:
            self.course = self.course[len(self.course) % 2 :: 2] + self.course[-1:]

    def _settle_results(self, due: Deliveries, finish: Floats) -> None:
        """Look up when the tuples of sampled results were served."""
        known, done, born = (
            np.concatenate(both) for both in zip(self._ledger, (due.key, finish, due.born), strict=True)
        )
        order = np.argsort(known, kind="stable")
        known, done, born = known[order], done[order], born[order]
        pairs = self._pairs
        found_left, left = _look_up(known, done, pairs.left)
        found_right, right = _look_up(known, done, pairs.right)
        both = found_left & found_right
        at_sink = np.maximum(left, right)[both] + pairs.to_sink[both]
        _count(self.results, 1000.0 * (at_sink - pairs.latest[both]), pairs.weight[both])
        self.results_found += float(pairs.weight[both].sum())
        past = self.queues.now - self.retain_s
        stale = ~both & (pairs.latest < past)
        self.results_missed += float(pairs.weight[stale].sum())
        self._pairs = pairs.keep(~both & ~stale)
        self._ledger = known[born >= past], done[born >= past], born[born >= past]
        when, weight = (np.concatenate(two) for two in zip(self._coming, (at_sink, pairs.weight[both]), strict=True))
        there = when <= self.queues.now
        self.at_sink += float(weight[there].sum())
        self._coming = when[~there], weight[~there]

    def finish(self) -> None:
        """The run is over: serve everything, and stop the clock at the last event."""
        with self._lock:
            if self.latest:
                self._serve(np.inf, max(self.latest.values()))

    def seconds(self) -> float:
        """Seconds of event time so far."""
        return max(max(self.latest.values(), default=0.0) - self.first, 1e-3) if self.latest else 0.0

    def backlog(self) -> dict[int, int]:
        """Deliveries that wait at each node (row) that has any."""
        with self._lock:
            waiting = self.queues.backlog()
            return {int(node): int(waiting[node]) for node in np.flatnonzero(waiting)}

    def compared(self, plan: Plan) -> dict[str, Any]:
        """The figures beside those that the simulation predicts for `plan`."""
        emulated = self.report()
        predicted = predict(self.problem, plan, self.seconds())
        return {**emulated, "predicted": predicted, "compared": compared(emulated, predicted)}

    def report(self) -> dict[str, Any]:
        """The figures as plain values, under the names of the simulation's summary."""
        with self._lock:
            seconds = max(self.seconds(), 1e-3)
            served, backlog, in_flight = self.queues.served(), self.queues.backlog(), self.queues.in_flight()
            arrived = self.queues.committed - in_flight
            with np.errstate(invalid="ignore"):
                busy = np.minimum(np.nan_to_num(served * self.queues.service_s, nan=0.0, posinf=0.0) / seconds, 1.0)
                offered = np.nan_to_num(arrived * self.queues.service_s / seconds, nan=0.0, posinf=np.inf)
            ids = self.problem.nodes.ids
            used = np.flatnonzero(self.queues.committed)
            return {
                "duration_s": seconds,
                "tuples": {
                    "emitted": self.emitted,
                    "delivered": int(self.queues.committed.sum()),
                    "served": int(served.sum()),
                    "backlog": int(backlog.sum()),
                    "in_flight": int(in_flight.sum()),
                },
                "throughput": {"tuples_per_s": float(served.sum()) / seconds, "results_per_s": self.at_sink / seconds},
                "latency_ms": {"tuple": self.tuples.percentiles(), "result": self.results.percentiles()},
                "results": {
                    "at_sink": self.at_sink,
                    "later": float(self._coming[1].sum()),
                    "not_followed": self.results_missed + float(self._pairs.weight.sum()),
                },
                "nodes": [
                    {
                        "node": ids[int(v)].as_py(),
                        "offered": float(offered[v]),
                        "utilisation": float(busy[v]),
                        "backlog": int(backlog[v]),
                        "peak_backlog": int(self.queues.longest[v]),
                    }
                    for v in used
                ],
                "course": [{"seconds": float(at), "backlog": waiting} for at, waiting in self.course],
            }


def _count(into: Latencies, ms: Floats, weight: Floats) -> None:
    """Add latencies to a histogram of whole milliseconds."""
    rounded = np.round(ms)
    distinct, inverse = np.unique(rounded, return_inverse=True)
    counts = np.bincount(inverse, weights=weight, minlength=len(distinct))
    for latency, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        into.counts[latency] += count


def _look_up(known: Hashes, done: Floats, wanted: Hashes) -> tuple[np.ndarray, Floats]:
    """Which keys are among those known (in order), and when those were done."""
    if not len(known):
        return np.zeros(len(wanted), bool), np.full(len(wanted), np.nan)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = known[at] == wanted
    return found, np.where(found, done[at], np.nan)


def predict(problem: Problem, plan: Plan, seconds: float) -> dict[str, Any]:
    """What the simulation says of as many seconds of the plan, with evenly spaced tuples. Long runs are cut short."""
    per_s = float(problem.sources.rate.sum())
    shortened = min(seconds, MOST_SIMULATED / per_s) if per_s > 0 else seconds
    told = simulate(problem, plan, max(shortened, 1e-3), arrivals="regular")
    ids = problem.nodes.ids
    used = np.flatnonzero(told.node_arrived)
    return told.summary() | {
        "nodes": [
            {
                "node": ids[int(v)].as_py(),
                "offered": float(told.offered[v]),
                "utilisation": float(told.utilisation[v]),
                "backlog": int(told.node_backlog[v]),
                "peak_backlog": int(told.node_peak_backlog[v]),
            }
            for v in used
        ]
    }


def compared(emulated: dict[str, Any], predicted: dict[str, Any]) -> list[dict[str, Any]]:
    """The main figures side by side."""

    def latency(of: dict[str, Any], kind: str, name: str) -> float | None:
        figures = of["latency_ms"][kind]
        return None if figures is None else figures[name]

    rows: Sequence[tuple[str, Callable[[dict[str, Any]], float | None]]] = [
        ("tuples served per second", lambda of: of["throughput"]["tuples_per_s"]),
        ("results at the sink per second", lambda of: of["throughput"]["results_per_s"]),
        ("backlog growth, tuples per second", lambda of: of["tuples"]["backlog"] / of["duration_s"]),
        ("longest queue of a host, tuples", lambda of: max((n["peak_backlog"] for n in of["nodes"]), default=0)),
        ("tuple to sink, median, ms", lambda of: latency(of, "tuple", "p50")),
        ("tuple to sink, 99th percentile, ms", lambda of: latency(of, "tuple", "p99")),
        ("result, median, ms", lambda of: latency(of, "result", "p50")),
        ("result, 99th percentile, ms", lambda of: latency(of, "result", "p99")),
    ]
    return [{"figure": name, "emulated": get(emulated), "predicted": get(predicted)} for name, get in rows]


__all__ = ["Emulation", "Epochs", "Network", "Queues", "compared", "predict", "serve"]
