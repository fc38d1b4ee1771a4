"""What a plan will feel like: latency of results from event to sink, worked out instead of simulated.

The latency of a result counts from the later of its two events until it is at the sink. It has three parts:

- *network*: the tuples' ways to the host and the result's way to the sink. Events of a pair lie anywhere in their
  window, so the nearer source's tuple often waits for one that is still on its way: that counts here.
- *service*: 1/capacity of the host, for the tuple that arrives last.
- *waiting*: in line at the host. A host serves first come, first served, so both tuples are served when the one that
  arrived last is; what that one meets is the queue of `nova.model.queue`, and in it perhaps the other tuple of the
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
from nova.evaluation.metrics import Distances, Flows, flows, node_limit, plan_load
from nova.model.felt import batches, mean_way, quantiles, steady_waits
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem
from nova.model.queue import SETTLES, WEIGHTS
from nova.model.rates import result_rates
from nova.model.waiting import sojourn_ms
from nova.scenario.faults import listed


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
        p50, p90, p99 = quantiles(
            (0.5, 0.9, 0.99),
            weight,
            self.near[rows],
            self.far[rows],
            self.onward[rows] + self.service[rows],
            self.window[rows],
            self.waits[rows],
        )
        unsettled = float(weight[~settled].sum() / total)
        return Felt(network + service + waited, p50, p90, p99, network, service, waited, unsettled)


def predict(problem: Problem, plan: Plan, distances: Distances | None = None) -> Prediction:
    """Latency of the results of `plan`; ways from `distances` (default: the cost space the plan was made in)."""
    between = (plan.space if distances is None else distances).between
    flow, joins = flows(problem, plan), plan.joins
    join, node = flow.join, flow.node
    limit = node_limit(problem)
    load = plan_load(problem, plan, flow) + problem.nodes.other_load
    rho = np.divide(load, limit, out=np.where(load > 0, np.inf, 0.0), where=limit > 0)
    with np.errstate(divide="ignore"):
        service = 1000.0 / limit
    left, right = between(joins.left_node[join], node), between(joins.right_node[join], node)
    near, far = np.minimum(left, right), np.maximum(left, right)
    stay = None
    if len(plan.merges):  # their mean time there is part of the way
        at = np.unique(plan.merges.to)
        stay = np.zeros(len(limit))
        stay[at] = sojourn_ms(load[at], limit[at])
    onward = plan.merges.onward(between, joins.query[join], node, joins.sink[join], stay)
    window = _windows(problem)[joins.query[join]] if len(join) else np.empty(0)
    weight = result_rates(problem, joins)[join] * flow.share

    batch = batches(problem, joins, (join, node, flow.left, flow.right), load)
    waits = steady_waits(node, rho, service, batch, window, far - near)
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
