"""A lower bound where time at hosts counts: legs, service and waiting.

The cost of a plan is Σ shares · k_j · legs + w · Σ_h n_h · S_h(λ_h), where k_j says how much a sub-join counts
(`nova.model.rates.counts`), n_h is the sum of k_j · share on host h, λ_h its load and S the mean time there
(`nova.model.waiting`); w is the weight of time at hosts. Two facts about a plan are used: the shares of each sub-join
sum to 1, and a share x of it loads its host with l(x) at least. What divides by key or by windows has l(x) = x·D, D its
demand. Boxes of a grid with the volume x have shadows p and q on the two streams with p·q ≥ x, so they load their host
with at least

    l(x) = min over p, q ≤ 1 with p·q ≥ x of p·a + q·b  =  2·√(x·a·b) where x ≤ b/a, else b + x·a      (a ≥ b),

more than x·D unless x is 0 or 1. With a price u_j for each sub-join's first fact, hosts part from each other:

    L(u) = Σ_j u_j − Σ_h max over x in [0, 1]ⁿ, λ ≤ room of  Σ_j x_j (u_j − k_j c_jh) − w n S_h(λ)  ≤  cost of a plan.

A host's maximum is bounded interval by interval of λ: within [a, b] the wait is at least that of a and the load at most
b. That leaves a knapsack in which, as l is concave, whole sub-joins and a part of at most one gain most: a small
search tree finds them. The interval that promises most is searched, then halved, until its promise is kept. Poor prices
and short searches make the bound low, never wrong; ascent along 1 − Σ_h x_jh finds good prices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.problem import Bools, Floats
from nova.model.subjoins import SubJoins
from nova.model.waiting import waiting_ms, waiting_quantile

INTERVALS = 8
"""Intervals of a host's load to begin with."""
STEPS, MOST_STEPS = 12, 200
"""Intervals of a host that are searched or halved, during ascent and at its end."""
TRIES, MOST_TRIES = 100, 2000
"""Sets of whole sub-joins looked at per interval; beyond, the knapsack is relaxed."""
KEPT = 1e-4
"""Share by which a promise may exceed what is attained."""
ROUNDS = 250
"""Steps of ascent at most."""
CLOSE = 1e-4
"""Aim, as a share above the best bound, below which ascent ends."""
PATIENCE = 5
"""Steps without progress after which ascent aims half as high."""


@dataclass(frozen=True)
class Task:
    """Sub-joins, hosts, and what time at hosts weighs."""

    large: Floats
    """Tuples/s of each sub-join's larger stream, or all of them where it divides at no extra load."""
    small: Floats
    """The rest of its tuples/s."""
    counts: Floats
    """How much each sub-join counts."""
    room: Floats
    """Tuples/s that a host may take beside its other work `busy`, of `limit` in all."""
    limit: Floats
    busy: Floats
    weight: float
    scv: float
    quantile: float
    """Of the wait, or 0: its mean."""

    @staticmethod
    def of(
        joins: SubJoins,
        hosts: tuple[Floats, Floats, Floats],
        divisible: Bools,
        counts: Floats,
        weight: float,
        scv: float,
        quantile: float,
    ) -> Task:
        """`hosts`: room, limit and other work of each."""
        small = np.where(divisible, 0.0, np.minimum(joins.left_rate, joins.right_rate))
        return Task(joins.demand - small, small, counts, *hosts, weight, scv, quantile)

    @property
    def demand(self) -> Floats:
        """Tuples/s of each sub-join."""
        return self.large + self.small

    def ascend(self, cost: Floats, prices: Floats, rounds: int = ROUNDS) -> tuple[float, Floats]:
        """(the highest bound met, its prices per sub-join), from some prices on. `cost[j, h]` are the weighted legs of
        one that counts 1, in ms."""
        served = np.ascontiguousarray(((cost + self.weight * 1000.0 / self.limit) * self.counts[:, None]).T)
        best, best_prices, reach, stalled = -np.inf, prices, 0.03, 0
        for _ in range(rounds):
            value, taken = self.at(served, prices, STEPS, TRIES)
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
        value, _ = self.at(served, best_prices, MOST_STEPS, MOST_TRIES)
        return max(best, value), best_prices

    def at(self, served: Floats, prices: Floats, steps: int, tries: int) -> tuple[float, Floats]:
        """(L(prices), how much of each sub-join all hosts take at these prices); `served` as in `gains`."""
        gained, taken = gains(self, served, prices, steps, tries)
        rounding = 1e-12 * float(np.abs(prices).sum())  # sums of many numbers round
        return float(prices.sum()) - float(gained.sum()) - rounding, taken

    def take(self, rows: npt.NDArray[np.integer], hosts: npt.NDArray[np.integer]) -> Task:
        """Some of the sub-joins and some of the hosts."""
        joins = {name: getattr(self, name)[rows] for name in ("large", "small", "counts")}
        there = {name: getattr(self, name)[hosts] for name in ("room", "limit", "busy")}
        return replace(self, **joins, **there)


def gains(task: Task, served: Floats, prices: Floats, steps: int, tries: int) -> tuple[Floats, Floats]:
    """(the most that each host gains at these prices, how much of each sub-join all hosts take). `served`: what
    sub-joins cost, legs and service, times how much they count; a row per host."""
    rates = (task.large, task.small, task.counts, task.room, task.limit, task.busy)
    gained, taken = _gains(served, *rates, task.weight, task.scv, task.quantile, prices, steps, tries)
    return gained, taken


@kernel
def _wait(load, limit, scv, quantile):  # type: ignore[no-untyped-def]
    """Mean wait in ms, or a quantile of it."""
    if quantile > 0.0:
        return waiting_quantile(quantile, load, limit, scv)
    return waiting_ms(load, limit, scv, 0.0)


@kernel
def _gains(served, large, small, counts, room, limit, busy, weight, scv, quantile, prices, steps, tries):  # type: ignore[no-untyped-def]
    """(the most that each host gains at these prices, how much of each sub-join all hosts take)."""
    hosts, joins = served.shape
    gains, taken = np.zeros(hosts), np.zeros(joins)
    who, share, kept = np.empty(joins, np.int64), np.empty(joins), np.empty(joins)
    gain, count, big, rest = np.empty(joins), np.empty(joins), np.empty(joins), np.empty(joins)
    low, high, promise = np.empty(INTERVALS + steps), np.empty(INTERVALS + steps), np.empty(INTERVALS + steps)
    searched = np.empty(INTERVALS + steps, np.bool_)
    for h in range(hosts):
        n, most = 0, 0.0
        idle = weight * _wait(busy[h], limit[h], scv, quantile)
        for j in range(joins):
            if prices[j] > served[h, j] + counts[j] * idle:
                who[n], gain[n], count[n] = j, prices[j] - served[h, j], counts[j]
                big[n], rest[n] = large[j], small[j]
                most += big[n] + rest[n]
                n += 1
        most = min(most, room[h])
        if n == 0 or most <= 0.0:
            continue
        used = INTERVALS
        for i in range(INTERVALS):
            low[i], high[i], searched[i] = most * i / INTERVALS, most * (i + 1) / INTERVALS, False
            wait = weight * _wait(busy[h] + low[i], limit[h], scv, quantile)
            promise[i] = _pack(gain, count, big, rest, n, wait, high[i], 0, share)
        attained = 0.0
        kept[:n] = 0.0
        for _ in range(steps):
            top = np.argmax(promise[:used])
            if promise[top] <= attained * (1.0 + KEPT) or high[top] - low[top] < 1e-4 * most:
                break
            if searched[top]:
                middle, promised = (low[top] + high[top]) / 2.0, promise[top]
                low[used], high[used], high[top] = middle, high[top], middle
                for half in (top, used):
                    wait = weight * _wait(busy[h] + low[half], limit[h], scv, quantile)
                    relaxed = _pack(gain, count, big, rest, n, wait, high[half], 0, share)
                    promise[half], searched[half] = min(promised, relaxed), False
                used += 1
                continue
            wait = weight * _wait(busy[h] + low[top], limit[h], scv, quantile)
            promise[top] = min(promise[top], _pack(gain, count, big, rest, n, wait, high[top], tries, share))
            searched[top] = True
            value, there, load = 0.0, 0.0, 0.0
            for i in range(n):
                value += share[i] * gain[i]
                there += share[i] * count[i]
                load += _least_load(share[i], big[i], rest[i])
            value -= there * weight * _wait(busy[h] + load, limit[h], scv, quantile)
            if value > attained:
                attained = value
                kept[:n] = share[:n]
        gains[h] = max(promise[:used].max(), 0.0)
        for i in range(n):
            taken[who[i]] += kept[i]
    return gains, taken


@kernel
def _least_load(share, large, small):  # type: ignore[no-untyped-def]
    """Tuples/s that a share of a sub-join takes at least."""
    if share <= 0.0:
        return 0.0
    if share * large <= small:
        return 2.0 * np.sqrt(share * large * small)
    return small + share * large


@kernel
def _most_share(load, large, small):  # type: ignore[no-untyped-def]
    """The largest share of a sub-join that takes at most `load` tuples/s: the inverse of `_least_load`."""
    if load >= large + small:
        return 1.0
    if load <= 0.0:
        return 0.0
    if load <= 2.0 * small:
        return load * load / (4.0 * large * small)
    return (load - small) / large


@kernel
def _pack(gain, count, large, small, n, wait, room, tries, share):  # type: ignore[no-untyped-def]
    """The most that whole sub-joins and a part of one gain within `room`, where each pays `wait` as often as it counts;
    after `tries` sets, and with 0 at once, what it is at most. Fills `share` with the best that was found.

    Sub-joins are taken or passed over in order of gain per tuple/s; of what is passed over a part may still be taken.
    """
    value, slope = np.empty(n), np.empty(n)
    for i in range(n):
        share[i] = 0.0
        value[i] = max(gain[i] - count[i] * wait, 0.0)
        slope[i] = value[i] * _most_share(room, large[i], small[i]) / max(min(room, large[i] + small[i]), 1e-300)
    order = np.argsort(-slope)
    m = 0
    while m < n and slope[order[m]] > 0.0:
        m += 1
    whole, best_whole = np.zeros(m, np.bool_), np.zeros(m, np.bool_)
    best, part, part_share = 0.0, -1, 0.0
    got, left, at, relaxed = 0.0, room, 0, 0.0
    tried = 0
    while True:
        edge = 0.0  # gain per tuple/s of the best part of what was passed over
        for k in range(m):
            if k < at and whole[k]:
                continue
            i = order[k]
            fits = _most_share(left, large[i], small[i])
            if got + fits * value[i] > best:
                best, part, part_share = got + fits * value[i], i, fits
                best_whole[:at] = whole[:at]
                best_whole[at:] = False
            if k < at and left > 0.0:
                edge = max(edge, fits * value[i] / min(left, large[i] + small[i]))
        promise, rest = got, left
        for k in range(at, m):
            i = order[k]
            if slope[i] <= edge or rest <= 0.0:
                break
            taken = min(rest, large[i] + small[i])
            promise += slope[i] * taken
            rest -= taken
        promise += edge * rest
        if tried == 0:
            relaxed = promise
        if tried >= tries:
            break
        tried += 1
        if at < m and promise > best * (1.0 + 1e-9):
            i = order[at]
            whole[at] = large[i] + small[i] <= left
            if whole[at]:
                got += value[i]
                left -= large[i] + small[i]
            at += 1
            continue
        while at > 0 and not whole[at - 1]:
            at -= 1
        if at == 0:
            relaxed = best * (1.0 + 1e-9)  # all sets that could gain more were looked at
            break
        i = order[at - 1]
        whole[at - 1] = False
        got -= value[i]
        left += large[i] + small[i]
    for k in range(m):
        if best_whole[k]:
            share[order[k]] = 1.0
    if part >= 0:
        share[part] = part_share
    return relaxed
