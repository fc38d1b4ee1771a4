"""The figures of a plan: latency, load, traffic and cost.

Written on its own, without the optimizer's code for loads and costs, so that a mistake there cannot hide here. All
latencies are in ms, all rates in tuples/s. Every step works on whole columns: a million replicas take seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nova.model.merges import merge_loads
from nova.model.options import LEG_WEIGHTS, Objective, Options
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Latency, Problem
from nova.model.rates import counts, replica_counts, result_rates, result_shares
from nova.model.space import CostSpace
from nova.model.waiting import sojourn_ms, waiting_quantile

TOLERANCE = 1e-6
"""Relative slack in comparing load with capacity: shares are floats, and sums of shares round."""


class Floor(Protocol):
    """A lower bound of the share-weighted cost that the plan's objective asks for."""

    @property
    def value(self) -> float:
        """In ms."""
        ...

    @property
    def certainty(self) -> float:
        """Probability that it is one: 1 where it is proven, less where it is estimated."""
        ...


Bound = Callable[[Problem, Plan], Floor]


class Distances(Protocol):
    """Anything that says how far nodes are apart: the cost space, or measurements."""

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """Latency in ms between nodes `a` and `b`, element by element."""
        ...


class Measured:
    """Measured round-trip times; pairs that nobody measured are told by the cost space instead, and counted."""

    def __init__(self, latency: Latency, n: int, estimate: Distances) -> None:
        self._n = np.int64(n)
        self._estimate = estimate.estimate if isinstance(estimate, CostSpace) else estimate.between
        keys = latency.first * self._n + latency.second
        order = np.argsort(keys)
        self._keys, self._rtt = keys[order], latency.rtt_ms[order]

    def known(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which of the pairs were measured. A node reaches itself in no time, which needs no measurement."""
        return ~np.isnan(self._look_up(a, b))

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """Measured ms between nodes `a` and `b`, the estimate where there is none."""
        a, b = np.broadcast_arrays(a, b)
        found = self._look_up(a, b)
        gaps = np.isnan(found)
        if gaps.any():
            found[gaps] = self._estimate(a[gaps], b[gaps])
        return found

    def _look_up(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        a, b = np.broadcast_arrays(a, b)
        keys = np.minimum(a, b) * self._n + np.maximum(a, b)
        found: Floats = np.where(a == b, 0.0, np.nan)
        if len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            hit = (self._keys[at] == keys) & (a != b)
            found[hit] = self._rtt[at[hit]]
        return found


@dataclass(frozen=True)
class Flows:
    """What each sub-join sends to each of its hosts: one row per (sub-join, host), boxes on one host merged."""

    join: Ints
    node: Ints
    left: Floats
    """Distinct tuples/s of the left source that reach the host for this sub-join."""
    right: Floats
    share: Floats
    """Part of the sub-join's results that the host computes, in [0, 1]."""
    replicas: Ints
    """Rows of the replica table merged here."""

    def __len__(self) -> int:
        return len(self.join)

    @property
    def load(self) -> Floats:
        """Tuples/s the sub-join charges the host."""
        return self.left + self.right


def flows(problem: Problem, plan: Plan) -> Flows:
    """Merge the replicas of each sub-join that share a host: a tuple that several boxes need is sent once."""
    boxes, joins = plan.replicas, plan.joins
    if not len(boxes):
        none = np.empty(0)
        return Flows(np.empty(0, np.int32), np.empty(0, np.int32), none, none, none, np.empty(0, np.int32))
    key = boxes.join.astype(np.int64) * (np.int64(boxes.node.max()) + 1) + boxes.node
    _, first, group, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    join, node = boxes.join[first], boxes.node[first]
    slices, keys = (boxes.slice_from, boxes.slice_to), (boxes.key_from, boxes.key_to)
    left = union_volume(group, (boxes.left_from, boxes.left_to), slices, keys)
    right = union_volume(group, (boxes.right_from, boxes.right_to), slices, keys)
    return Flows(
        join=join,
        node=node,
        left=joins.left_rate[join] * left,
        right=joins.right_rate[join] * right,
        share=_sum_by(group, result_shares(problem, joins, boxes), len(first)),
        replicas=count.astype(np.int32),
    )


Span = tuple[Floats, Floats]
"""Where boxes begin and end along one axis."""


def union_volume(group: npt.NDArray[np.integer], x: Span, y: Span, z: Span) -> Floats:
    """Volume of the union of the boxes x × y × z of each group 0 … max(group).

    A tuple is a point of its stream (x) in a window (y) with a key (z); the union's volume is thus the distinct share
    of the stream.
    """
    if not ((z[0] > 0.0) | (z[1] < 1.0)).any():
        return union_area(group, *x, *y)
    # Cut each group at all its z-borders; within such a strip the union is one of rectangles.
    zs, rank = np.unique(np.concatenate(z), return_inverse=True)
    n = len(group)
    borders, at = np.unique(np.concatenate([group, group]).astype(np.int64) * len(zs) + rank, return_inverse=True)
    row, strip = _over_strips(at[:n], at[n:])
    used, of_strip = np.unique(strip, return_inverse=True)
    area = union_area(of_strip, *(edge[row] for edge in (*x, *y)))
    height = zs[borders[used + 1] % len(zs)] - zs[borders[used] % len(zs)]
    return _sum_by(borders[used] // len(zs), area * height, int(group.max(initial=-1)) + 1)


def _over_strips(first: npt.NDArray[np.integer], last: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], ...]:
    """Each row once for every strip from its first to the one before its last: (rows, strips)."""
    spans = last - first
    row = np.repeat(np.arange(len(first)), spans)
    return row, np.repeat(first, spans) + np.arange(len(row)) - np.repeat(np.cumsum(spans) - spans, spans)


def union_area(group: npt.NDArray[np.integer], x_from: Floats, x_to: Floats, y_from: Floats, y_to: Floats) -> Floats:
    """Area of the union of the rectangles [x_from, x_to] × [y_from, y_to] of each group 0 … max(group).

    A tuple is a point of its stream (x) in a window (y); the union's area is thus the distinct share of the stream.
    """
    groups = int(group.max()) + 1 if len(group) else 0
    size = np.bincount(group, minlength=groups)
    alone = size[group] == 1
    area = _sum_by(group[alone], ((x_to - x_from) * (y_to - y_from))[alone], groups)
    if alone.all():
        return area
    some = ~alone
    return area + _sweep(group[some], x_from[some], x_to[some], y_from[some], y_to[some], groups)


def _sweep(
    group: npt.NDArray[np.integer], x_from: Floats, x_to: Floats, y_from: Floats, y_to: Floats, groups: int
) -> Floats:
    """Cut each group at all its y-borders; within such a strip the union is one of intervals in x.

    Coordinates become ranks, so that groups and strips can be told apart exactly within one sorted integer column.
    """
    xs, x_rank = np.unique(np.concatenate([x_from, x_to]), return_inverse=True)
    ys, y_rank = np.unique(np.concatenate([y_from, y_to]), return_inverse=True)
    n = len(group)
    # borders of strips: every distinct (group, y); strip i runs from border i to the next one of the same group
    border = np.concatenate([group, group]).astype(np.int64) * len(ys) + y_rank
    borders, at = np.unique(border, return_inverse=True)
    row, strip = _over_strips(at[:n], at[n:])
    if not len(row):
        return np.zeros(groups)
    start = strip * len(xs) + x_rank[:n][row]
    order = np.argsort(start, kind="stable")
    row, strip, start = row[order], strip[order], start[order]
    end = strip * len(xs) + x_rank[n:][row]
    # what earlier intervals cover already: the furthest end so far; ends of earlier strips lie before this start
    covered = np.empty_like(end)
    covered[0] = -1
    np.maximum.accumulate(end[:-1], out=covered[1:])
    fresh = np.maximum(start, covered)
    new = np.maximum(end, fresh)
    width = xs[new - strip * len(xs)] - xs[fresh - strip * len(xs)]
    height = ys[borders[strip + 1] % len(ys)] - ys[borders[strip] % len(ys)]
    return _sum_by(group[row], width * height, groups)


def node_load(flow: Flows, n: int) -> Floats:
    """Tuples/s each of n nodes takes in: per sub-join it hosts, distinct left plus distinct right."""
    return _sum_by(flow.node, flow.load, n)


def plan_load(problem: Problem, plan: Plan, flow: Flows) -> Floats:
    """Tuples/s that each node takes in for joins, and of partial aggregates that it merges."""
    return node_load(flow, len(problem.nodes)) + merge_loads(problem, plan.joins, plan.replicas, plan.merges)


def node_limit(problem: Problem) -> Floats:
    """Tuples/s each node can take in, whether or not joins may run there."""
    return np.minimum(problem.nodes.capacity, problem.nodes.bandwidth)


def utilisation(load: Floats, limit: Floats) -> Floats:
    """Load as a share of what the node can take; infinite for load on a node that can take none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(load > 0, np.where(limit > 0, load / limit, np.inf), 0.0)


def overloaded(load: Floats, limit: Floats) -> npt.NDArray[np.bool_]:
    """Which nodes take in more than they can, rounding aside."""
    return load > limit * (1 + TOLERANCE)


@dataclass(frozen=True)
class SourceLatency:
    """Latency per source in ms, NaN for sources that no sub-join reads."""

    weighted: Floats
    """d(source, host) + d(host, sink), by way of merges, weighted by the tuples that go each way."""
    slowest: Floats
    """The same for the slowest of the source's replicas."""
    unweighted: Floats
    """Plain mean over the source's replicas, as the published scripts report it."""
    sink_based: Floats
    """d(source, sink): every source straight to its sinks."""


def source_latency(problem: Problem, plan: Plan, distances: Distances, flow: Flows | None = None) -> SourceLatency:
    """Latency of every source under a plan."""
    flow = flows(problem, plan) if flow is None else flow
    joins, n = plan.joins, len(problem.sources)
    source = np.concatenate([joins.left[flow.join], joins.right[flow.join]])
    tuples = np.concatenate([flow.left, flow.right])
    rows = np.concatenate([flow.replicas, flow.replicas]).astype(np.float64)
    host = np.concatenate([flow.node, flow.node])
    onward = plan.merges.onward(distances.between, joins.query[flow.join], flow.node, joins.sink[flow.join])
    born = np.concatenate([joins.left_node[flow.join], joins.right_node[flow.join]])
    way = distances.between(born, host) + np.concatenate([onward, onward])
    slowest = np.full(n, -np.inf)
    np.maximum.at(slowest, source, way)
    every = np.concatenate([joins.left, joins.right])
    sinks = np.concatenate([joins.sink, joins.sink])
    direct = distances.between(np.concatenate([joins.left_node, joins.right_node]), sinks)
    return SourceLatency(
        weighted=_mean_by(source, way, tuples, n),
        slowest=np.where(np.isinf(slowest), np.nan, slowest),
        unweighted=_mean_by(source, way, rows, n),
        sink_based=_mean_by(every, direct, np.ones(len(every)), n),
    )


def _mean_by(group: npt.NDArray[np.integer], values: Floats, weights: Floats, n: int) -> Floats:
    """Weighted mean of each group; NaN for groups without weight."""
    total = _sum_by(group, weights, n)
    return _sum_by(group, values * weights, n) / np.where(total > 0, total, np.nan)


def _sum_by(group: npt.NDArray[np.integer], values: Floats, n: int) -> Floats:
    """Sum of each group 0 … n − 1."""
    return np.asarray(np.bincount(group, weights=values, minlength=n), dtype=np.float64)


@dataclass(frozen=True)
class Metrics:
    """Figures of one plan. ms for latencies and costs, tuples/s for rates; NaN where there is nothing to measure.

    >>> figures = nova.evaluate(nova.optimize(scenario))
    >>> figures.latency_mean_ms <= figures.latency_p90_ms
    True
    """

    approach: str
    sub_joins: int
    replicas: int
    replicas_max: int
    """Most replicas of one sub-join."""
    hosts: int
    """Nodes that run at least one replica."""
    latency_mean_ms: float
    """Mean over sources of d(source, host) + d(host, sink), weighted by the tuples that go each way."""
    latency_p90_ms: float
    sink_based_mean_ms: float
    """Every source straight to its sink."""
    sink_based_p90_ms: float
    delta_mean_ms: float
    """`latency_mean_ms` less `sink_based_mean_ms`."""
    delta_p90_ms: float
    slowest_mean_ms: float
    """Mean over sources of their slowest replica."""
    slowest_p90_ms: float
    unweighted_mean_ms: float
    """Mean over sources of the plain mean over their replicas: the metric of the published scripts, not truncated."""
    unweighted_p90_ms: float
    unweighted_delta_mean_ms: float
    unweighted_delta_p90_ms: float
    cost_eq1_ms: float
    """Eq. 1: every link of every replica once."""
    cost_latency_ms: float
    """Sum over replicas of share · (left + right + 2 · to the sink): the objective `latency`."""
    cost_paper_ms: float
    """Sum over replicas of share · (left + right + to the sink): the objective `paper`."""
    cost_network_ms: float
    """Sum of tuples/s × ms over all ways, of results too: the objective `network`; a thousandth of it are the tuples
    under way."""
    metrics: dict[str, float]
    """Units per second of each metric beside latency."""
    cost_metrics_ms: float
    """The same, weighed and summed."""
    cost_at_hosts_ms: float
    """Sum over sub-joins of the time at their hosts, service and waiting, for the tuples of both sources; infinite
    where a host cannot serve at all."""
    cost_ms: float
    """What the plan was made by and is judged by: legs of its objective, metrics, and time at hosts (by
    `Options.at_host`) of each sub-join, as often as it counts (`nova.model.rates.counts`). Costs are those of joins
    that send straight to the sink; what merges on the way are good for, `nova.evaluation.results` tells."""
    overloaded: int
    """Nodes whose load exceeds what they can take."""
    overloaded_percent: float
    """Of the nodes with load."""
    utilisation_max: float
    utilisation_mean: float
    """Over the nodes with load; both as a share of min(capacity, bandwidth)."""
    tuples_in: float
    """Tuples/s that reach hosts."""
    tuples_network: float
    """Those of them that leave their source's node."""
    objective: Objective
    bound_ms: float | None = None
    """Lower bound of the cost under `objective`; None where no bound was asked for."""
    bound_certainty: float | None = None
    """Probability that it is one: 1 where it is proven, less where it is estimated from some of the hosts."""
    gap: float | None = None
    """Cost over the bound, less one."""
    measured_share: float | None = None
    """Share of the replicas' links whose latency was measured; None for estimated latencies."""

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


def evaluate(problem: Problem, plan: Plan, distances: Distances | None = None, bound: Bound | None = None) -> Metrics:
    """Figures of a plan, with latencies from `distances` (default: the cost space the plan was made in).

    `bound` is called at most once; see `nova.evaluation.bounds` for what it can be.
    """
    reach: Distances = plan.space if distances is None else distances
    flow = flows(problem, plan)
    latency = source_latency(problem, plan, reach, flow)
    mean, p90 = _spread(latency.weighted)
    sink_mean, sink_p90 = _spread(latency.sink_based)
    slowest_mean, slowest_p90 = _spread(latency.slowest)
    plain_mean, plain_p90 = _spread(latency.unweighted)

    boxes, joins = plan.replicas, plan.joins
    ends = (joins.left_node[boxes.join], joins.right_node[boxes.join], joins.sink[boxes.join])
    legs = [reach.between(boxes.node, end) for end in ends]
    share = result_shares(problem, joins, boxes)
    by_legs = {
        name: sum(w * leg for w, leg in zip(weights, legs, strict=True)) for name, weights in LEG_WEIGHTS.items()
    }
    costs: dict[Objective, float] = {name: float(share @ way) for name, way in by_legs.items()}
    made = result_rates(problem, joins)[flow.join] * flow.share
    ways = [
        (flow.left, joins.left_node[flow.join], flow.node),
        (flow.right, joins.right_node[flow.join], flow.node),
        (made, flow.node, joins.sink[flow.join]),
    ]
    costs["network"] = float(sum(tuples @ reach.between(a, b) for tuples, a, b in ways))
    units = {
        metric.name: flow.load * metric.at(flow.node) + sum(tuples * metric.way(a, b) for tuples, a, b in ways)
        for metric in problem.metrics
    }
    weighed: Floats = sum((metric.weight * units[metric.name] for metric in problem.metrics), np.zeros(len(flow)))

    load, limit = plan_load(problem, plan, flow) + problem.nodes.other_load, node_limit(problem)
    busy = np.union1d(flow.node, plan.merges.to)
    used = utilisation(load[busy], limit[busy])
    over = int(overloaded(load[busy], limit[busy]).sum())
    local = np.dot(flow.left, joins.left_node[flow.join] == flow.node) + np.dot(
        flow.right, joins.right_node[flow.join] == flow.node
    )
    floor = None if bound is None else bound(problem, plan)
    stay, counted = _time_at_hosts(plan.options, load, limit), counts(problem, joins, plan.options)
    weighs = replica_counts(problem, joins, boxes, plan.options)
    cost = costs["network"]
    if plan.options.objective != "network":
        cost = float(weighs @ by_legs[plan.options.objective])
    cost += float(counted[flow.join] @ weighed)
    if plan.options.waiting > 0:
        cost += plan.options.at_host * float(weighs @ stay[boxes.node])
    return Metrics(
        approach=plan.approach,
        sub_joins=len(joins),
        replicas=len(boxes),
        replicas_max=int(np.bincount(boxes.join).max(initial=0)),
        hosts=len(np.unique(flow.node)),
        latency_mean_ms=mean,
        latency_p90_ms=p90,
        sink_based_mean_ms=sink_mean,
        sink_based_p90_ms=sink_p90,
        delta_mean_ms=mean - sink_mean,
        delta_p90_ms=p90 - sink_p90,
        slowest_mean_ms=slowest_mean,
        slowest_p90_ms=slowest_p90,
        unweighted_mean_ms=plain_mean,
        unweighted_p90_ms=plain_p90,
        unweighted_delta_mean_ms=plain_mean - sink_mean,
        unweighted_delta_p90_ms=plain_p90 - sink_p90,
        cost_eq1_ms=float(sum(leg.sum() for leg in legs)),
        cost_latency_ms=costs["latency"],
        cost_paper_ms=costs["paper"],
        cost_network_ms=costs["network"],
        metrics={name: float(each.sum()) for name, each in units.items()},
        cost_metrics_ms=float(weighed.sum()),
        cost_at_hosts_ms=float(2.0 * flow.share @ stay[flow.node]),
        cost_ms=cost,
        overloaded=over,
        overloaded_percent=100.0 * over / len(busy) if len(busy) else 0.0,
        utilisation_max=float(used.max()) if len(busy) else 0.0,
        utilisation_mean=float(used.mean()) if len(busy) else 0.0,
        tuples_in=float(flow.load.sum()),
        tuples_network=float(flow.load.sum() - local),
        objective=plan.options.objective,
        bound_ms=None if floor is None else floor.value,
        bound_certainty=None if floor is None else floor.certainty,
        gap=None if floor is None else (cost / floor.value - 1.0 if floor.value > 0 else float("nan")),
        measured_share=(
            float(np.mean([reach.known(boxes.node, end) for end in ends]))
            if isinstance(reach, Measured) and len(boxes)
            else None
        ),
    )


def _time_at_hosts(options: Options, load: Floats, limit: Floats) -> Floats:
    """Time in ms that a tuple stays at each node under steady input, as plans are made by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if options.percentile is None:
            stay = sojourn_ms(load, limit, options.arrival_scv)
        else:
            wait = waiting_quantile(options.percentile / 100.0, load, limit, options.arrival_scv)
            stay = 1000.0 / limit + wait
    return np.where(limit > 0, stay, np.inf)


def _spread(values: Floats) -> tuple[float, float]:
    """Mean and 90th percentile over the sources that are read at all."""
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    return float(known.mean()), float(np.percentile(known, 90))
