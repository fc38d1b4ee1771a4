"""Large problems by felt latency: how full hosts may get before waiting there costs more than going elsewhere.

At the optimum one more result costs the same time, a price in ms, at every host that is used, so one price tells every
host's load: large hosts get fuller than small ones. The price is searched by the optimum of a sample on cells of hosts:
lower, and ways get longer; higher, and queues do. Hosts then show only the room below their load, and their time counts
as a part of their height, the way to them that all share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova.jit import parallel, prange
from nova.model.problem import Floats, Ints
from nova.model.waiting import load_at_price, load_at_stay, sojourn_ms
from nova.placement.cells import Demand, sample_cost
from nova.placement.index import HostIndex, raise_bounds

PRICES_MS = (np.inf, 1280.0, 640.0, 320.0, 160.0, 80.0, 40.0, 20.0)
"""Prices that are tried, in this order."""
SAMPLE = 32
"""Sub-joins that a price is judged by, each standing for its like."""
STRIDE_FROM = 65_536
"""Hosts up to which all are looked at for the price; of more, as many in curve order."""


@dataclass(frozen=True)
class Headroom:
    """Per host: what it takes in at most, and what it takes in at most of one sub-join while it is empty."""

    room: Floats
    steady: Floats
    single: Floats

    @staticmethod
    def at(price_ms: float, room: Floats, limit: Floats, busy: Floats, scv: float) -> Headroom:
        steady = np.maximum(load_at_price(price_ms, limit, scv) - busy, 0.0)
        single = np.maximum(load_at_stay(price_ms, limit, scv) - busy, 0.0)
        return Headroom(room, np.minimum(steady, room), np.minimum(single, room))

    def shown(self, grain: float) -> Floats:
        """Tuples/s that empty hosts show to sub-joins of about `grain` tuples/s."""
        return np.maximum(self.steady, np.minimum(self.single, grain))

    def hide(self, free: Floats, grain: float) -> Floats:
        """Lower `free` to what hosts show; returns what is to be added again afterwards."""
        hidden = np.empty(len(free))
        _hide(self.room, self.steady, self.single, free, grain, hidden)
        return hidden


@parallel
def _hide(room, steady, single, free, grain, hidden):  # type: ignore[no-untyped-def]
    for i in prange(len(free)):
        used = room[i] - free[i]
        shown = max(steady[i] - used, 0.0)
        if used <= 1e-9 * room[i]:
            shown = max(shown, min(single[i], grain))
        shown = min(shown, free[i])
        hidden[i] = free[i] - shown
        free[i] = shown


def keep(
    index: HostIndex,
    demand: Demand,
    weights: Floats,
    rows: Ints,
    limit: Floats,
    busy: Floats,
    weight: float,
    scv: float,
) -> Headroom:
    """The headroom at the best price for these sub-joins. Adds the time at each host to its height in the index.

    `weight` is what a ms at the host counts beside the legs' `weights`; `limit` and `busy` are by slot.
    """
    mean = float(demand.amount[rows].mean())
    step = max(1, len(index) // STRIDE_FROM)
    some = slice(step // 2, None, step)
    few = replace(
        index, points=index.points[some], heights=index.heights[some], free=index.free[some], node=index.node[some]
    )
    sample = rows[:: max(1, len(rows) // SAMPLE)]
    scale = step * float(demand.amount[sample].sum() / demand.amount[rows].sum())
    best, best_cost = np.inf, np.inf
    for price in PRICES_MS:
        shown, lifted = _as_seen(price, few.heights, few.free, limit[some], busy[some], weights, weight, scv, mean)
        cost, missing = sample_cost(replace(few, heights=lifted, free=shown * scale), demand, weights, sample)
        if missing > 1e-9 or cost > best_cost * 1.01:
            break  # lower prices leave less room, and only lengthen the ways from here on
        if cost < best_cost:
            best, best_cost = price, cost
    _, index.heights = _as_seen(best, index.heights, index.free, limit, busy, weights, weight, scv, mean)
    raise_bounds(index)
    return Headroom.at(best, index.free.copy(), limit, busy, scv)


def _as_seen(
    price: float,
    heights: Floats,
    free: Floats,
    limit: Floats,
    busy: Floats,
    weights: Floats,
    weight: float,
    scv: float,
    mean: float,
) -> tuple[Floats, Floats]:
    """Room that hosts show at a price, and their heights with the time there."""
    shown = Headroom.at(price, free, limit, busy, scv).shown(mean)
    stay = sojourn_ms(np.minimum(shown + busy, limit), limit, scv)
    return shown, heights + weight * stay / weights.sum()
