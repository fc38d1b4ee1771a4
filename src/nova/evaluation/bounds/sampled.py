"""The bound with time at hosts, where sub-joins × hosts are too many to look at every pair: prices from a sample.

Any prices of sub-joins make a bound (`felt`), good ones a high one. They are found on a sample, so many of the hosts as
of the sub-joins:

1. **Rents.** Let loads divide freely. One more tuple/s on a host then costs what its own stay costs and what all others
   there wait longer, which rises with the load; hosts that many want ask for more. Ascent (`prices.ascend`) finds the
   rents at which every host gets as much as it takes in at its rent.
2. A sub-join's price is the least of legs, service, stay and rent over the sample's hosts.
3. **Sizes.** Loads do not divide freely: a large sub-join fits on few hosts, and is worth more. How much is a curve
   over demand and rent, of a few parameters, which a quasi-Newton method fits to the bound itself.

Then all sub-joins get their prices, and what hosts gain at them is summed. Over all hosts that makes a proven bound; of
more than `LOOKED_AT` so many are drawn, and the sum is estimated, plus two standard errors: a bound but for chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import ndtr

from nova.evaluation.bounds.costs import LegWeights, cost_blocks, cost_matrix
from nova.evaluation.bounds.felt import STEPS, TRIES, Task, gains
from nova.evaluation.bounds.prices import ascend
from nova.evaluation.metrics import Distances
from nova.model.problem import Floats
from nova.model.subjoins import SubJoins
from nova.model.waiting import waiting_ms, waiting_quantile

JOINS, PAIRS = 1_200, 5_000_000
"""Sub-joins of the sample, and pairs of one of them and a host, at most."""
LEVELS = 64
"""Loads of a host whose rents are told apart."""
ROUNDS = 250
"""Steps of the ascent to rents."""
KNOTS = 9
"""Demands between which the curve of sizes is straight."""
FITTED_TO = 1_000
"""Hosts of the sample whose gains the curve is fitted to, at most."""
FITS = 60
"""Times that these gains are worked out, at most."""
SEARCHED = 20
"""Sets of whole sub-joins looked at per interval of a host's load meanwhile."""
LOOKED_AT = 500
"""Hosts that stand for all in the end, at most."""
ERRORS = 2.0
"""Standard errors that the estimate of their gains is raised by."""
CERTAINTY = float(ndtr(ERRORS))
"""Probability that this is enough, as errors of means of so many are distributed normally."""
KINDS, WAYS = 10, 16
"""Classes of room, and sub-joins whose ways tell how far hosts are from all, by which hosts are put in order."""


def estimate(task: Task, joins: SubJoins, distances: Distances, legs: LegWeights, seed: int) -> tuple[float, float]:
    """(a bound for all sub-joins and all nodes of the `task`, the probability that it is one)."""
    rng = np.random.default_rng([seed, 31])
    task = replace(task, room=np.minimum(task.room, task.demand.sum()))  # more is as good, and may be without end
    hosts = np.flatnonzero(task.room > 0)
    some = _some(len(joins), JOINS, rng)
    part = len(some) / len(joins)
    near = hosts[_some(len(hosts), max(1, min(round(len(hosts) * part), PAIRS // len(some))), rng)]
    small = task.take(some, near)
    cost = small.counts[:, None] * cost_matrix(joins.take(some), distances, near, legs)
    each = part * len(hosts) / len(near)  # where hosts were left out that sub-joins were not
    stay, rent, chosen = _rents(small, cost, each)
    prices = _Prices(small, stay, rent, np.unique(chosen))
    prices.fit(cost, each)
    paid = np.empty(len(joins))
    for rows, block in cost_blocks(joins, distances, near[prices.kept], legs):
        paid[rows] = prices.of(task.counts[rows], task.demand[rows], block)

    def gain(host: int) -> float:
        here = np.array([host])
        way = cost_matrix(joins, distances, here, legs)[:, 0]
        served = task.counts * (way + task.weight * 1000.0 / task.limit[host])
        rows = np.flatnonzero(served < paid)
        return float(gains(task.take(rows, here), served[None, rows], paid[rows], STEPS, TRIES)[0][0])

    rounding = 1e-12 * float(np.abs(paid).sum())  # sums of many numbers round
    total = float(paid.sum()) - rounding
    if len(hosts) <= LOOKED_AT:
        return total - sum(gain(host) for host in hosts.tolist()), 1.0
    far = sum(
        block.sum(axis=0)
        for _, block in cost_blocks(joins.take(some[:: -(-len(some) // WAYS)]), distances, hosts, legs)
    )
    mean, error = estimated_total(task.room[hosts], np.asarray(far), lambda row: gain(int(hosts[row])), rng)
    return total - mean - ERRORS * error, CERTAINTY


def estimated_total(
    room: Floats, far: Floats, gain: Callable[[int], float], rng: np.random.Generator
) -> tuple[float, float]:
    """(estimate of the sum of what all hosts gain, its standard error). `LOOKED_AT` are drawn at even distances along
    an order in which neighbours are alike, in room and in how `far` they are, each as often as it has room."""
    by_room = np.argsort(room, kind="stable")
    kind = np.empty(len(room), np.int64)
    kind[by_room] = np.minimum(np.cumsum(room[by_room]) / room.sum() * KINDS, KINDS - 1).astype(np.int64)
    order = np.lexsort((np.where(kind % 2 == 0, far, -far), kind))  # to and fro, so that no step is a leap
    filled = np.cumsum(room[order])
    steps = (np.arange(LOOKED_AT) + rng.random()) / LOOKED_AT * filled[-1]
    drawn = order[np.minimum(np.searchsorted(filled, steps, side="right"), len(order) - 1)]
    each = np.array([gain(row) / room[row] for row in drawn.tolist()])
    # how far neighbours differ tells how far a host is from those it stands for
    error = np.sqrt(float((np.diff(each) ** 2).sum()) / (2.0 * (len(each) - 1)) / len(each))
    return float(filled[-1] * each.mean()), float(filled[-1] * error)


def _some(total: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return np.sort(rng.choice(total, min(most, total), replace=False))


def _rents(task: Task, cost: Floats, each: float) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """(wait in ms, rent in ms per tuple/s, both of each host; the host that each sub-join goes to), were loads to
    divide freely, and did all sub-joins count as much per tuple/s. `cost[j, h]`: legs, times how much j counts; a host
    stands for `each`."""
    alike = float(task.counts.sum() / task.demand.sum())
    load = np.linspace(0.0, 1.0, LEVELS + 1) * task.room[:, None]
    wait = np.asarray(
        waiting_quantile(task.quantile, load + task.busy[:, None], task.limit[:, None], task.scv)
        if task.quantile > 0
        else waiting_ms(load + task.busy[:, None], task.limit[:, None], task.scv, 0.0)
    )
    wait = np.where(np.isfinite(wait), wait, np.nanmax(wait[:, :-1], axis=1, keepdims=True))
    time = task.weight * alike * load * (1000.0 / task.limit[:, None] + wait)
    margin = np.maximum.accumulate(np.diff(time, axis=1) / np.diff(load, axis=1), axis=1)
    least, every = margin[:, 0], np.arange(len(task.room))
    where = np.zeros(len(cost), np.int64)

    def evaluate(price: Floats) -> tuple[float, Floats]:
        asked = least + price
        total = cost + task.demand[:, None] * asked
        where[:] = total.argmin(axis=1)
        taken = (margin < asked[:, None]).sum(axis=1)
        gain = asked * load[every, taken] - time[every, taken]
        value = float(total[np.arange(len(cost)), where].sum() - each * gain.sum())
        return value, np.bincount(where, task.demand, len(every)) - each * load[every, taken]

    _, price = ascend(evaluate, task.room, np.zeros(len(every)), ROUNDS, reach=0.1)
    evaluate(price)
    taken = (margin < (least + price)[:, None]).sum(axis=1)
    stay = task.weight * wait[every, taken]
    rent = np.maximum(least + price - alike * (task.weight * 1000.0 / task.limit + stay), 0.0)
    return stay, rent, where


class _Prices:
    """What sub-joins are worth: by the hosts `kept` of a sample, and by a curve over demand and rent."""

    def __init__(self, task: Task, stay: Floats, rent: Floats, kept: npt.NDArray[np.int64]) -> None:
        self.task, self.kept = task, kept
        self.served, self.stay, self.rent = task.weight * 1000.0 / task.limit[kept], stay[kept], rent[kept]
        self.knots = np.unique(np.quantile(task.demand, np.linspace(0.0, 1.0, KNOTS)))
        self.heights = np.zeros(2 * len(self.knots))
        self.usual = 1.0

    def of(self, counts: Floats, demand: Floats, legs: Floats) -> Floats:
        """Of sub-joins with such legs, in ms, to the hosts kept."""
        base, extra = self._parts(counts, demand, legs)
        return base + extra + self._curve(demand, extra) @ self.heights

    def _parts(self, counts: Floats, demand: Floats, legs: Floats) -> tuple[Floats, Floats]:
        """(legs and service, at least; what waiting and rents add to them)."""
        here = counts[:, None] * (legs + self.served)
        base = here.min(axis=1)
        here += counts[:, None] * self.stay + demand[:, None] * self.rent
        return base, here.min(axis=1) - base

    def _curve(self, demand: Floats, extra: Floats) -> Floats:
        """Hats over the knots of demand, alone and times what waiting and rents add."""
        hats = np.column_stack([np.interp(demand, self.knots, row) for row in np.eye(len(self.knots))])
        return np.hstack([hats, hats * (extra / self.usual - 1.0)[:, None]])

    def fit(self, cost: Floats, each: float) -> None:
        """Choose the curve by the bound of the sample; `cost` and `each` as in `_rents`."""
        task = self.task
        base, extra = self._parts(task.counts, task.demand, cost[:, self.kept] / task.counts[:, None])
        self.usual = max(float(extra.mean()), 1e-9)
        curve = self._curve(task.demand, extra)
        some = np.linspace(0, len(task.room) - 1, min(FITTED_TO, len(task.room))).astype(np.int64)
        few = task.take(np.arange(len(cost)), some)
        served = (cost[:, some] + task.counts[:, None] * task.weight * 1000.0 / few.limit).T.copy()
        each, unit = each * len(task.room) / len(some), float((base + extra).sum())

        def worse(heights: Floats) -> tuple[float, Floats]:
            prices = base + extra + curve @ heights
            gained, taken = gains(few, served, prices, STEPS, SEARCHED)
            value, slope = prices.sum() - each * gained.sum(), curve.T @ (1.0 - each * taken)
            return -float(value) / unit, -slope / unit

        found = minimize(worse, self.heights, jac=True, method="L-BFGS-B", options={"maxfun": FITS})
        self.heights = found.x
