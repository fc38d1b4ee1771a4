"""A lower bound where time at hosts counts: legs, service and waiting.

The cost of a plan is Σ shares · legs + w · Σ_h n_h · S_h(λ_h), where n_h is the sum of the shares on host h, λ_h its
load and S the mean time there (`nova.model.waiting`); w is the weight of waiting. Only two facts about a plan are used,
whatever its cuts: the shares of each sub-join sum to 1, and a share x of a sub-join of demand D loads its host with
x·D at least. With a price u_j for each sub-join's first fact, hosts part from each other:

    L(u) = Σ_j u_j + Σ_h min over x in [0, 1]ⁿ, λ ≤ room of  Σ_j x_j (c_jh − u_j) + w n S_h(λ)   ≤   cost of any plan.

A host's minimum is bounded interval by interval of λ: within [a, b] the wait is at least that of a and the load at most
b, which leaves a fractional knapsack. The interval that promises most is halved until its promise is kept. Poor prices
make the bound low, never wrong; ascent along 1 − Σ_h x_jh finds good ones.
"""

from __future__ import annotations

import numpy as np

from nova.evaluation.bounds.costs import LegWeights
from nova.evaluation.metrics import Distances, flows, node_load
from nova.jit import kernel
from nova.model.plan import Plan
from nova.model.problem import Floats, Problem
from nova.model.subjoins import SubJoins
from nova.model.waiting import sojourn_slope, waiting_ms, waiting_quantile

INTERVALS = 8
"""Intervals of a host's load to begin with."""
HALVINGS, FINE = 6, 40
"""Times that the most promising interval of a host is halved, during ascent and at its end."""
ROUNDS = 250
"""Steps of ascent at most."""
CLOSE = 1e-4
"""Aim, as a share above the best bound, below which ascent ends."""
SAMPLE = 200
"""Hosts that stand for all where there are too many."""
SHARES_OF_MARGIN = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far prices go from a sub-join's own cost to its marginal one."""
PATIENCE = 5
"""Steps without progress after which ascent aims half as high."""


def ascend(
    cost: Floats,
    demand: Floats,
    room: Floats,
    limit: Floats,
    busy: Floats,
    weight: float,
    scv: float,
    quantile: float,
    prices: Floats,
    rounds: int = ROUNDS,
) -> tuple[float, Floats]:
    """(the highest bound met, its prices per sub-join). `cost[j, h]` are the weighted legs in ms, `room` the tuples/s
    that a host may take beside its other work `busy`, of `limit` in all. `quantile` of the wait, or 0: its mean."""
    served = np.ascontiguousarray((cost + weight * 1000.0 / limit).T)
    best, best_prices, reach, stalled = -np.inf, prices, 0.03, 0
    for _ in range(rounds):
        value, taken = bound_at(served, demand, room, limit, busy, weight, scv, quantile, prices, HALVINGS)
        value -= 1e-12 * float(np.abs(prices).sum())  # sums of many numbers round
        stalled = 0 if value > best + 1e-5 * abs(best) or not np.isfinite(best) else stalled + 1
        if value > best:
            best, best_prices = value, prices
        if stalled >= PATIENCE:
            reach, stalled, prices = reach / 2, 0, best_prices
            if reach < CLOSE:
                break
            continue
        slope = 1.0 - taken
        size = float(slope @ slope)
        if size < 1e-18:
            break  # every sub-join is taken exactly once: the optimum
        prices = prices + (best + reach * abs(best) - value) / size * slope
    value, _ = bound_at(served, demand, room, limit, busy, weight, scv, quantile, best_prices, FINE)
    return max(best, float(value) - 1e-12 * float(np.abs(best_prices).sum())), best_prices


def sampled(
    problem: Problem, plan: Plan, distances: Distances, legs: LegWeights, weight: float, scv: float, quantile: float
) -> float:
    """The bound where sub-joins × hosts are too many: prices from the plan's own marginal costs, some hosts for all.

    The sum over hosts is estimated from every so-many-th one, less two standard errors: a bound but for chance. Prices
    between the least that a sub-join can cost and what it costs at the margin are tried.
    """
    joins, flow, nodes = plan.joins, flows(plan), problem.nodes
    hosts = np.flatnonzero(nodes.room > 0)
    load = node_load(flow, len(nodes)) + nodes.other_load
    present = np.bincount(flow.node, flow.share, len(nodes))
    with np.errstate(divide="ignore", invalid="ignore"):
        stay = np.where(nodes.limit > 0, 1000.0 / nodes.limit + _waits(load, nodes.limit, scv, quantile), 0.0)
        slope = np.where(nodes.limit > 0, sojourn_slope(load, nodes.limit, scv, 0.0), 0.0)
    ends = (joins.left_node, joins.right_node, joins.sink)
    left, right, sink = (distances.between(end[flow.join], flow.node) for end in ends)
    way = legs[0] * left + legs[1] * right + legs[2] * sink
    grown = stay[flow.node] + present[flow.node] * slope[flow.node] * joins.demand[flow.join]
    margin = np.bincount(flow.join, flow.share * (way + weight * grown), len(joins))
    least = np.bincount(flow.join, flow.share * (way + weight * 1000.0 / nodes.limit[flow.node]), len(joins))
    some = hosts[np.linspace(0, len(hosts) - 1, min(SAMPLE, len(hosts))).astype(np.int64)]
    near, ways = [], []
    for h in some:
        way_in = _way_to(joins, distances, legs, int(h))
        near.append(np.flatnonzero(way_in < margin))
        ways.append(way_in[near[-1]])
    best = -np.inf
    for share in SHARES_OF_MARGIN:
        prices = least + share * (margin - least)
        gains = np.empty(len(some))
        for i, (h, rows, way_in) in enumerate(zip(some, near, ways, strict=True)):
            served = (way_in + weight * 1000.0 / nodes.limit[h])[None, :]
            one = slice(int(h), int(h) + 1)
            value, _ = bound_at(
                served,
                joins.demand[rows],
                nodes.room[one],
                nodes.limit[one],
                nodes.other_load[one],
                weight,
                scv,
                quantile,
                prices[rows],
                FINE,
            )
            gains[i] = prices[rows].sum() - value
        error = float(gains.std(ddof=1)) / np.sqrt(len(some)) if len(some) > 1 else 0.0
        best = max(best, float(prices.sum()) - len(hosts) * (float(gains.mean()) + 2.0 * error))
    return best


def _way_to(joins: SubJoins, distances: Distances, legs: LegWeights, host: int) -> Floats:
    """Weighted legs of every sub-join on one host."""
    at = np.full(len(joins), host, np.int32)
    left, right, sink = (distances.between(end, at) for end in (joins.left_node, joins.right_node, joins.sink))
    return legs[0] * left + legs[1] * right + legs[2] * sink


def _waits(load: Floats, limit: Floats, scv: float, quantile: float) -> Floats:
    """Mean wait in ms of each node, or a quantile of it."""
    return np.asarray(
        waiting_quantile(quantile, load, limit, scv) if quantile > 0 else waiting_ms(load, limit, scv, 0.0)
    )


@kernel
def _wait(load, limit, scv, quantile):  # type: ignore[no-untyped-def]
    """Mean wait in ms, or a quantile of it."""
    if quantile > 0.0:
        return waiting_quantile(quantile, load, limit, scv)
    return waiting_ms(load, limit, scv, 0.0)


@kernel
def bound_at(cost, demand, room, limit, busy, weight, scv, quantile, prices, halvings):  # type: ignore[no-untyped-def]
    """(L(prices), how much of each sub-join all hosts take at these prices). `cost` has a row per host."""
    hosts, joins = cost.shape
    total, taken = prices.sum(), np.zeros(joins)
    who, gain, density, share = np.empty(joins, np.int64), np.empty(joins), np.empty(joins), np.empty(joins)
    low, high, promise = np.empty(INTERVALS + halvings), np.empty(INTERVALS + halvings), np.empty(INTERVALS + halvings)
    for h in range(hosts):
        count, most = 0, 0.0
        for j in range(joins):
            if prices[j] > cost[h, j]:
                who[count], gain[count] = j, prices[j] - cost[h, j]
                most += demand[j]
                count += 1
        most = min(most, room[h])
        if count == 0 or most <= 0.0:
            continue
        used = INTERVALS
        for i in range(INTERVALS):
            low[i], high[i] = most * i / INTERVALS, most * (i + 1) / INTERVALS
            wait = weight * _wait(busy[h] + low[i], limit[h], scv, quantile)
            promise[i] = _fill(who, gain, count, demand, wait, high[i], density, share)
        for _ in range(halvings):
            top = np.argmax(promise[:used])
            if promise[top] <= 0.0 or high[top] - low[top] < 1e-3 * most:
                break
            middle = (low[top] + high[top]) / 2.0
            low[used], high[used], high[top] = middle, high[top], middle
            for half in (top, used):
                wait = weight * _wait(busy[h] + low[half], limit[h], scv, quantile)
                promise[half] = _fill(who, gain, count, demand, wait, high[half], density, share)
            used += 1
        top = np.argmax(promise[:used])
        if promise[top] <= 0.0:
            continue
        total -= promise[top]
        wait = weight * _wait(busy[h] + low[top], limit[h], scv, quantile)
        _fill(who, gain, count, demand, wait, high[top], density, share)
        for i in range(count):
            taken[who[i]] += share[i]
    return total, taken


@kernel
def _fill(who, gain, count, demand, wait, load, density, share):  # type: ignore[no-untyped-def]
    """The most that a host gains with at most `load` tuples/s when every whole sub-join pays `wait`: best gain per
    tuple/s first, the last one in part. Fills `share`."""
    for i in range(count):
        share[i] = 0.0
        density[i] = (gain[i] - wait) / max(demand[who[i]], 1e-300)
    total = 0.0
    while load > 0.0:
        best = 0
        for i in range(1, count):
            if density[i] > density[best]:
                best = i
        if density[best] <= 0.0:
            break
        need = demand[who[best]]
        share[best] = 1.0 if need <= load else load / need
        total += share[best] * (gain[best] - wait)
        load -= share[best] * need
        density[best] = 0.0
    return total
