"""`simulate`: from a problem and a plan to what happens in so many seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.evaluation.metrics import Distances, node_limit
from nova.evaluation.simulation import kernels
from nova.evaluation.simulation.result import Arrivals, Longs, SimulationResult, Timeline
from nova.model.errors import InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem
from nova.model.rates import known_rates, result_parts, result_shares
from nova.model.replicas import SHARES, Replicas
from nova.model.skew import KeyAxis

BURST = 4.0
"""Tuples of a burst on average. Their number is geometric, and all of a burst are born at once."""
MAX_RESULTS = 4_000_000
"""Results drawn at most; where more are expected, each one drawn stands for several."""


@dataclass(frozen=True)
class Groups:
    """The replicas of a plan, those of one sub-join on one host together: they share the tuples sent there."""

    join: Ints
    node: Ints
    first: Longs
    """First row of `boxes` of each group, and the number of rows at the end."""
    boxes: Floats
    """Shares of each replica, in the order of `SHARES`."""

    @staticmethod
    def of(replicas: Replicas) -> Groups:
        order = np.lexsort((replicas.node, replicas.join))
        join, node = replicas.join[order], replicas.node[order]
        new = np.ones(len(order), bool)
        new[1:] = (join[1:] != join[:-1]) | (node[1:] != node[:-1])
        boxes = np.column_stack([getattr(replicas, name)[order] for name in SHARES]).astype(np.float64)
        starts = np.flatnonzero(new)
        return Groups(join[starts], node[starts], np.append(starts, len(order)).astype(np.int64), boxes)


def emit(rate: Floats, duration_s: float, arrivals: Arrivals, rng: np.random.Generator) -> tuple[Longs, Floats]:
    """(first tuple of each source, event time of each tuple): sources one after the other, each in order of time."""
    expected = rate * duration_s
    if arrivals == "poisson":
        counts = rng.poisson(expected)
        source = np.repeat(np.arange(len(rate)), counts)
        born = rng.random(len(source)) * duration_s
        born = born[np.lexsort((born, source))]
    elif arrivals == "bursty":
        bursts = rng.poisson(expected / BURST)
        size = rng.geometric(1.0 / BURST, size=int(bursts.sum()))
        of = np.repeat(np.arange(len(rate)), bursts)
        counts = np.bincount(of, size, len(rate)).astype(np.int64)
        at = rng.random(len(size)) * duration_s
        order = np.lexsort((at, of))
        born = np.repeat(at[order], size[order])
    else:
        phase = rng.random(len(rate))
        counts = np.ceil(expected - phase).clip(min=0).astype(np.int64)
        source = np.repeat(np.arange(len(rate)), counts)
        within = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
        born = (within + phase[source]) / rate[source]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), born


def simulate(
    problem: Problem,
    plan: Plan,
    duration_s: float = 20.0,
    *,
    seed: int = 0,
    arrivals: Arrivals = "poisson",
    distances: Distances | None = None,
) -> SimulationResult:
    """Run `plan` for `duration_s` simulated seconds. `distances` replace the plan's cost space, say by measurements."""
    if not (0 < duration_s < np.inf):
        raise InvalidInput(f"the duration must be a number of seconds above 0 (found {duration_s})")
    between = (plan.space if distances is None else distances).between
    rng = np.random.default_rng(seed)
    joins = plan.joins
    start, born = emit(problem.sources.rate, duration_s, arrivals, rng)
    position = rng.random(len(born))
    key = np.random.default_rng([seed, 1]).random(len(born))  # where a tuple's join key lies in its hash space

    groups = Groups.of(plan.replicas)
    windows = np.array([query.window_ms / 1000.0 for query in problem.queries])
    window_s = windows[joins.query[groups.join]] if len(groups.join) else np.empty(0)
    axes = _axes(problem, joins.query[groups.join])
    inputs = np.column_stack([joins.left[groups.join], joins.right[groups.join]]).astype(np.int32)
    tuple_of, group_of, split = kernels.deliver(
        groups.first, inputs, window_s, groups.boxes, start, born, position, key, *axes[:2]
    )

    from_left = between(joins.left_node[groups.join], groups.node) / 1000.0
    from_right = between(joins.right_node[groups.join], groups.node) / 1000.0
    to_sink = between(groups.node, joins.sink[groups.join]) / 1000.0
    is_left = np.arange(len(tuple_of)) < split[group_of, 1]
    arrival = born[tuple_of] + np.where(is_left, from_left[group_of], from_right[group_of])
    host = groups.node[group_of]
    speed = node_limit(problem)
    with np.errstate(divide="ignore"):
        service = 1.0 / speed
    other_host, other_arrival = _other_work(problem, duration_s, seed)
    at_host, comes = np.concatenate([host, other_host]), np.concatenate([arrival, other_arrival])
    finish, offered, _, busy, longest = kernels.serve(
        np.argsort(comes, kind="stable"), at_host, comes, service, duration_s
    )
    finish = finish[: len(host)]
    arrived, served = (
        np.bincount(host[at <= duration_s], minlength=len(speed)).astype(np.int64) for at in (arrival, finish)
    )
    tuple_ms = 1000.0 * (finish + to_sink[group_of] - born[tuple_of])
    source = np.where(is_left, inputs[group_of, 0], inputs[group_of, 1]).astype(np.int32)

    streams = (tuple_of, born, position, key, arrival, finish)
    ready, there, latest, of_group, kept = _results(problem, plan, groups, split, streams, window_s, axes, rng)
    at_sink = ready + to_sink[of_group]
    return SimulationResult(
        approach=plan.approach,
        duration_s=duration_s,
        seed=seed,
        arrivals=arrivals,
        emitted=len(born),
        delivered=len(tuple_of),
        served=int(served.sum()),
        backlog=int((arrived - served).sum()),
        in_flight=int(len(tuple_of) - arrived.sum()),
        results=float((at_sink <= duration_s).sum() / kept),
        tuple_ms=tuple_ms,
        result_ms=1000.0 * (at_sink - latest),
        result_network_ms=1000.0 * (there - latest + to_sink[of_group]),
        result_service_ms=1000.0 * service[groups.node[of_group]],
        window_ms=_window_latencies(
            groups,
            windows[joins.query],
            duration_s,
            split,
            tuple_of,
            born,
            finish,
            window_s,
            np.maximum(from_left, from_right),
            to_sink,
        ),
        source=source,
        node=host,
        node_arrived=arrived,
        node_served=served,
        node_peak_backlog=longest,
        utilisation=busy / duration_s,
        offered=np.divide(offered, speed * duration_s, out=np.where(offered > 0, np.inf, 0.0), where=speed > 0),
        timeline=Timeline.of(born[tuple_of], arrival, finish, tuple_ms, duration_s),
    )


def _axes(problem: Problem, query: Ints) -> tuple[Longs, Floats, Floats]:
    """The key axes of groups of these queries, one after the other: where each begins, the edges of ranges of keys, and
    how many times likelier than any two tuples those of a range match."""
    each, more = [], []
    for one in problem.queries:
        axis = KeyAxis.of(one)
        each.append(np.array(axis.edges))
        more.append(result_parts(one, axis) / np.diff([*axis.edges, 1.0]) ** 2 if axis else np.ones(1))
    at = np.concatenate([[0], np.cumsum([len(each[q]) for q in query])]).astype(np.int64)
    edges, times = (np.concatenate([np.empty(0), *(columns[q] for q in query)]) for columns in (each, more))
    return at, edges, times


def _results(
    problem: Problem,
    plan: Plan,
    groups: Groups,
    split: Longs,
    streams: tuple[Longs, Floats, Floats, Floats, Floats, Floats],
    window_s: Floats,
    axes: tuple[Longs, Floats, Floats],
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats, Ints, float]:
    """The results: when both tuples are served, when both had arrived, when the later one was born, the group; and the
    share drawn."""
    joins, born = plan.joins, streams[1]
    candidates = (joins.left_rate * joins.right_rate)[groups.join] * window_s
    heavy = np.array([bool(KeyAxis.of(query)) for query in problem.queries])[joins.query]
    stated = np.nan_to_num(np.where(heavy, known_rates(problem, joins), joins.output_rate)[groups.join], nan=np.inf)
    chance = np.minimum(1.0, np.divide(stated, candidates, out=np.ones(len(stated)), where=candidates > 0))
    lefts, rights = split[:, 1] - split[:, 0], split[:, 2] - split[:, 1]
    spread = np.divide(window_s, born.max(initial=0.0), out=np.ones(len(window_s)), where=born.size > 0)
    pairs = chance * lefts * rights * np.minimum(1.0, spread)
    if heavy.any():  # those of a heavy key match far more often
        share = result_shares(problem, joins, plan.replicas)[np.lexsort((plan.replicas.node, plan.replicas.join))]
        of_group = np.add.reduceat(share, groups.first[:-1])
        pairs = np.where(heavy[groups.join], chance * candidates * of_group * born.max(initial=0.0), pairs)
    expected = float(pairs.sum())
    kept = min(1.0, MAX_RESULTS / expected) if expected > 0 else 1.0
    at, edges, more = axes
    likely = np.minimum(1.0, np.repeat(chance, np.diff(at)) * more) * kept
    ready, there, latest, of_group = kernels.match(
        groups.first, groups.boxes, split, *streams, window_s, at, edges, likely, int(rng.integers(2**31))
    )
    return ready, there, latest, of_group, kept


def _other_work(problem: Problem, duration_s: float, seed: int) -> tuple[Ints, Floats]:
    """(node, time) of the nodes' other work: at random, at the rate of `busy`. It waits in the same line as tuples."""
    rng = np.random.default_rng([seed, 2])
    counts = rng.poisson(problem.nodes.other_load * duration_s)
    host = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    return host, rng.random(len(host)) * duration_s


def _window_latencies(
    groups: Groups,
    window_of_join: Floats,
    duration_s: float,
    split: Longs,
    tuple_of: Longs,
    born: Floats,
    finish: Floats,
    window_s: Floats,
    passed_s: Floats,
    to_sink: Floats,
) -> Floats:
    """Latency of each window of each sub-join that ends within the run, in ms."""
    counts = np.floor(duration_s / window_of_join + 1e-9).astype(np.int64)
    base = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    complete = np.full(base[-1], -np.inf)
    kernels.close_windows(
        groups.first,
        groups.join,
        groups.boxes,
        split,
        tuple_of,
        born,
        finish,
        window_s,
        passed_s,
        to_sink,
        base,
        complete,
    )
    number = np.arange(len(complete)) - np.repeat(base[:-1], counts)
    latency = 1000.0 * (complete - (number + 1) * np.repeat(window_of_join, counts))
    return np.asarray(latency[complete > -np.inf], dtype=np.float64)
