"""What a plan will feel like: latency of results from event to sink, worked out instead of simulated.

The latency of a result counts from the later of its two events until it is at the sink. It has three parts:

- *network*: the tuples' ways to the host and the result's way to the sink. Events of a pair lie anywhere in their
  window, so the nearer source's tuple often waits for one that is still on its way: that counts here.
- *service*: 1/capacity of the host, for the tuple that arrives last.
- *waiting*: in line at the host. A host serves first come, first served, so both tuples are served when the one that
  arrived last is; what that one meets is the queue of `nova.evaluation.queue`, and in it perhaps the other tuple of the
  pair: results are born where tuples are many, so their queues are longer than the average tuple's.

Window slices come in bursts: a host gets a whole window at its full rate, then none. Their waiting follows the backlog
from window to window (`nova.evaluation.bursts`).

Every result counts once, whatever its sub-join. A host that is busy 99 % of the time or more never settles: its results
have no predicted latency (infinite). Same model as `nova simulate`, which it is tested against. All latencies in ms.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nova.evaluation import bursts
from nova.evaluation.metrics import Distances, Flows, flows, node_limit, node_load
from nova.evaluation.queue import SETTLES, WEIGHTS, md1_waits
from nova.jit import kernel
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem
from nova.model.rates import result_rates
from nova.routing.position import GOLDEN
from nova.scenario.faults import listed

GAPS = 6
"""Points that stand for the time between the two events of a pair, where it matters."""
SHIFT = 42
"""Bits of a float's mantissa that the histogram of all results leaves out: 1024 bins per doubling of the latency."""
FIRST, LAST = (int(np.array([ms]).view(np.int64)[0]) >> SHIFT for ms in (1e-3, 1e10))
"""Bins of a microsecond and of months: what lies outside counts there."""
BINS = LAST - FIRST


@dataclass(frozen=True)
class Felt:
    """Predicted latency of results in ms, event to sink. Infinite where queues never settle; NaN without results."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    network_ms: float
    """The mean's three parts; they sum to it."""
    service_ms: float
    waiting_ms: float
    unsettled: float
    """Share of the results that come from hosts whose queues never settle."""

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


NOTHING = Felt(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, 0.0)
"""The latency of no results."""


@dataclass(frozen=True)
class Sliced:
    """What window slices will do to their results."""

    replicas: int
    share: float
    """Share of all results that slices compute."""
    waiting_ms: float
    """Mean wait of these results, and what 99 of 100 do not exceed."""
    waiting_p99_ms: float

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Prediction:
    """Predicted latency of a plan; one row per sub-join and host, in the order of `flows`."""

    flow: Flows
    weight: Floats
    """Results/s of each row."""
    network: Floats
    """Means of each row, in ms."""
    service: Floats
    waits: Floats
    """Waiting of each row in ms, one column per stratum of `WEIGHTS`."""
    near: Floats
    """Way in of the nearer source and of the farther one, and on to the sink, in ms."""
    far: Floats
    onward: Floats
    window: Floats
    """Window of the row's query in ms."""
    busy: Floats
    """Share of the time that each node is busy, in tuples/s in over tuples/s at most."""
    sliced: Sliced | None
    """None for a plan without window slices."""

    @property
    def felt(self) -> Felt:
        """All results together."""
        return self.over(np.arange(len(self.weight)))

    @property
    def waiting(self) -> Floats:
        """Mean wait of each row in ms."""
        return np.asarray(self.waits @ WEIGHTS)

    @property
    def unsettled_nodes(self) -> Ints:
        """Hosts whose queues never settle."""
        nodes = np.unique(self.flow.node)
        return nodes[self.busy[nodes] >= SETTLES].astype(np.int32)

    def notes(self, problem: Problem) -> list[str]:
        """What a reader must know beside the figures: queues that never settle, slices and what they cost."""
        said, felt, full = [], self.felt, self.unsettled_nodes
        if len(full):
            names = listed(problem.nodes.ids[int(v)].as_py() for v in full)
            said.append(
                f"{felt.unsettled:.1%} of the results come from hosts that are busy {SETTLES:.0%} of the time or more: "
                f"their queues never settle ({len(full):,}: {names})"
            )
        if self.sliced is not None:
            said.append(
                f"{self.sliced.replicas:,} replicas take whole windows in turn, and their results come in bursts: "
                f"{self.sliced.waiting_ms:,.0f} ms of waiting on average, {self.sliced.waiting_p99_ms:,.0f} ms at p99"
            )
        return said

    def of_join(self, join: int) -> Felt:
        """The results of one sub-join."""
        return self.over(np.flatnonzero(self.flow.join == join))

    def over(self, rows: npt.NDArray[np.integer]) -> Felt:
        """The results of some rows together."""
        weight = self.weight[rows]
        total = float(weight.sum())
        if total <= 0:
            return NOTHING
        waiting = self.waiting[rows]
        network, service = (float(weight @ part / total) for part in (self.network[rows], self.service[rows]))
        settled = np.isfinite(waiting)
        waited = float(weight @ waiting / total) if settled.all() else float("inf")
        bins, beyond = histogram(
            weight,
            self.near[rows],
            self.far[rows],
            self.onward[rows] + self.service[rows],
            self.window[rows],
            self.waits[rows],
            WEIGHTS,
        )
        p50, p90, p99 = (_quantile(bins, beyond, q) for q in (0.5, 0.9, 0.99))
        unsettled = float(weight[~settled].sum() / total)
        return Felt(network + service + waited, p50, p90, p99, network, service, waited, unsettled)


def predict(problem: Problem, plan: Plan, distances: Distances | None = None) -> Prediction:
    """Latency of the results of `plan`; ways from `distances` (default: the cost space the plan was made in)."""
    between = (plan.space if distances is None else distances).between
    flow, joins = flows(plan), plan.joins
    join, node = flow.join, flow.node
    limit = node_limit(problem)
    load = node_load(flow, len(limit)) + problem.nodes.other_load
    rho = np.divide(load, limit, out=np.where(load > 0, np.inf, 0.0), where=limit > 0)
    with np.errstate(divide="ignore"):
        service = 1000.0 / limit
    left, right = between(joins.left_node[join], node), between(joins.right_node[join], node)
    near, far = np.minimum(left, right), np.maximum(left, right)
    onward = between(node, joins.sink[join])
    window = _windows(problem)[joins.query[join]] if len(join) else np.empty(0)
    weight = result_rates(problem, joins)[join] * flow.share

    batch = batches(problem, plan, flow, load)
    hosts, row = np.unique(node, return_inverse=True)
    waits = row_waits(md1_waits(rho[hosts]), row, rho[node], service[node], batch[node], window, far - near)
    sliced = None
    narrow = plan.replicas.slice_to - plan.replicas.slice_from < 1.0
    if narrow.any():
        some, levels = bursts.waits(plan, flow, load, limit, window)
        waits[some] = levels
        waits[rho[node] >= SETTLES] = np.inf
        pairs = join.astype(np.int64) * (len(limit) + 1) + node
        boxes = plan.replicas.join[narrow].astype(np.int64) * (len(limit) + 1) + plan.replicas.node[narrow]
        sliced = _sliced(int(narrow.sum()), weight, waits, np.isin(pairs, boxes))
    waits[np.isnan(waits)] = np.inf
    return Prediction(
        flow=flow,
        weight=weight,
        network=onward + mean_way(near, far, window),
        service=service[node],
        waits=waits,
        near=near,
        far=far,
        onward=onward,
        window=window,
        busy=rho,
        sliced=sliced,
    )


def batches(problem: Problem, plan: Plan, flow: Flows, load: Floats) -> Floats:
    """E[X²]/E[X] of the tuples that reach each node at once: a tuple that several sub-joins want there comes as often.

    Sub-joins that want only part of a stream want a tuple with that probability, each on its own.
    """
    joins, sources, n = plan.joins, problem.sources, len(problem.nodes)
    source = np.concatenate([joins.left[flow.join], joins.right[flow.join]])
    rate = sources.rate[source]
    share = np.divide(np.concatenate([flow.left, flow.right]), rate, out=np.zeros(len(rate)), where=rate > 0)
    key = np.concatenate([flow.node, flow.node]).astype(np.int64) * max(1, len(sources)) + source
    pair, group = np.unique(key, return_inverse=True)
    copies = np.bincount(group, share, len(pair))
    squares = np.bincount(group, share * (1.0 - share), len(pair)) + copies**2
    node, source = np.divmod(pair, max(1, len(sources)))
    second = np.bincount(node, sources.rate[source] * squares, n) + problem.nodes.other_load
    return np.maximum(1.0, np.divide(second, load, out=np.ones(n), where=load > 0))


def mean_way(near: Floats, far: Floats, window: Floats) -> Floats:
    """Mean, over pairs of a window, of how long after the later event the last of both tuples is at the host, in ms.

    If the farther source's event is the later one, that is its way. Else the nearer one's, or what is left of the
    other's way if that is longer.
    """
    apart = far - near
    reach = np.minimum(apart / window, 1.0)
    # ∫ (apart − Δ) over Δ < apart, with density 2 (1 − Δ/window) / window
    still = apart * (1.0 - (1.0 - reach) ** 2) - window * (reach**2 - 2.0 * reach**3 / 3.0)
    return np.asarray(0.5 * far + 0.5 * (near + still))


@kernel
def row_waits(
    at_host: Floats,
    host: Ints,
    rho: Floats,
    service: Floats,
    batch: Floats,
    window: Floats,
    apart: Floats,
) -> Floats:
    """Waits of each row in ms at the levels of `at_host` (in services): the host's queue, those before the tuple in its
    batch, and the pair's other tuple where it is still there."""
    n, points = len(host), at_host.shape[1]
    found = np.empty((n, points))
    for i in range(n):
        one = service[i] * batch[i]
        for k in range(points):
            wait = at_host[host[i], k] * one
            if wait == np.inf or service[i] == np.inf:
                found[i, k] = np.inf
                continue
            together = _within((wait + one / 2.0) / (1.0 - rho[i]), apart[i], window[i])
            inside = ((k + 1) * GOLDEN) % 1.0  # the place in the batch, spread evenly over the levels
            found[i, k] = wait + one * together + inside * (batch[i] - 1.0) * service[i]
        if batch[i] > 1.0:
            found[i].sort()
    return found


@kernel
def _within(reach: float, apart: float, window: float) -> float:
    """Probability that the tuples of a pair reach the host within `reach` of each other, when their ways differ by
    `apart` and their events lie anywhere in one window."""
    return float(_earlier((reach - apart) / window) - _earlier((-reach - apart) / window))


@kernel
def _earlier(x: float) -> float:
    """Distribution of the difference of two times in one window of length 1."""
    x = min(max(x, -1.0), 1.0)
    return (1.0 + x) ** 2 / 2.0 if x < 0.0 else 1.0 - (1.0 - x) ** 2 / 2.0


@kernel
def histogram(
    weight: Floats, near: Floats, far: Floats, fixed: Floats, window: Floats, waits: Floats, weights: Floats
) -> tuple[Floats, float]:
    """Results/s per bin of latency, and those without a finite one."""
    bins, beyond = np.zeros(BINS), 0.0
    ways, chances = np.empty(GAPS + 2), np.empty(GAPS + 2)
    latency = np.empty(len(weights) * len(ways))
    places = latency.view(np.int64)
    for i in range(len(weight)):
        ways[0], chances[0] = far[i], 0.5
        reach = min((far[i] - near[i]) / window[i], 1.0)
        travels = 0.5 * (1.0 - (1.0 - reach) ** 2)  # the nearer event is the later one, and the other is on its way
        ways[1], chances[1] = near[i], 0.5 - travels
        used = 2
        if travels > 0.0:
            for g in range(GAPS):
                gap = 1.0 - np.sqrt(1.0 - (g + 0.5) / GAPS * 2.0 * travels)
                ways[used], chances[used] = far[i] - gap * window[i], travels / GAPS
                used += 1
        for k in range(len(weights)):
            for g in range(used):
                latency[k * used + g] = ways[g] + fixed[i] + waits[i, k]
        for k in range(len(weights)):
            mass = weight[i] * weights[k]
            if waits[i, k] == np.inf:
                beyond += mass
                continue
            for g in range(used):
                at = (places[k * used + g] >> SHIFT) - FIRST  # the bits of a float grow with its logarithm
                bins[min(max(at, 0), BINS - 1)] += mass * chances[g]
    return bins, beyond


def _quantile(bins: Floats, beyond: float, q: float) -> float:
    """Latency in ms that the share q does not exceed."""
    reached = np.cumsum(bins)
    wanted = q * (float(reached[-1]) + beyond)
    if wanted > reached[-1]:
        return float("inf")
    at = int(np.searchsorted(reached, wanted))
    edges = np.array([at + FIRST, at + FIRST + 1], np.int64) << SHIFT
    return float(edges.view(np.float64).mean())


def _windows(problem: Problem) -> Floats:
    """Window of each query in ms."""
    return np.array([query.window_ms for query in problem.queries], dtype=np.float64)


def _sliced(replicas: int, weight: Floats, waits: Floats, rows: npt.NDArray[np.bool_]) -> Sliced:
    part = weight[rows]
    total = float(part.sum())
    share = total / float(weight.sum()) if total > 0 else 0.0
    values = waits[rows].ravel()
    mass = (part[:, None] * WEIGHTS).ravel()
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(mass[order])
    p99 = float(values[order][np.searchsorted(reached, 0.99 * reached[-1])]) if total > 0 else float("nan")
    mean = float(mass @ values / total) if total > 0 else float("nan")
    return Sliced(replicas, share, mean, p99)
