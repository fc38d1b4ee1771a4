"""Large problems by felt latency: how full hosts may get before waiting there costs more than going elsewhere.

One more sub-join of demand d on a host costs its own time there and what all others then wait longer: about
stay + price · d, both rising with the load. At the optimum nobody gains by moving, so hosts that many want, near the
sinks, get fuller than far ones. Three steps find that balance without looking at every pair:

1. every cell of hosts says how many tuples/s it takes at which margin (ms that one more mean sub-join costs);
2. a sample of the sub-joins, each standing for its like, spreads over the cells by legs and margin until no part of
   it has a cheaper one;
3. all sub-joins are dealt out, largest first: to cells by legs, stay and price, to hosts by what they really add there.
   Hosts take what stays within the margin of their cell; what finds no place so tries again at wider margins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova.jit import kernel, parallel, prange, vector
from nova.model.problem import Floats, Ints
from nova.model.waiting import sojourn_ms
from nova.placement.cells import (
    CLOSED,
    Demand,
    Placed,
    Singles,
    children_of,
    costs_at,
    descend,
    descend_first,
    levels_of,
    same_point,
    sort_by_child,
    summary,
    way_to_sink,
)
from nova.placement.index import HostIndex, raise_free

MARGINS_MS = np.geomspace(1.0, 20_000.0, 48)
"""Margins at which cells say what they take."""
SAMPLE = 128
"""Sub-joins that stand for all where margins are balanced."""
GRAINS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""Quantiles of demand that stand for all where cells say what they take."""
LOOKED_AT = 128
"""Hosts of a cell that say what they take, at most."""
PARTS, ROUNDS = 16, 6
"""Parts of each of them that choose a cell by themselves, and how often each does."""
CLASSES = 12
"""Classes of demand in which sub-joins are dealt out."""
AROUND, PAIRS = 256, 40_000_000
"""Hosts of a neighbourhood in which sub-joins look for a cheaper one at last: more where that makes fewer pairs."""
TURNS = 2
"""Times that each does, in neighbourhoods that begin elsewhere."""
WIDER = (1.0, 2.0, 8.0, np.inf)
"""Margins, times the balanced ones, at which sub-joins look for a place, one after the other."""


@dataclass(frozen=True)
class Queues:
    """The hosts' queues, by slot: what placing changes, and how time there is reckoned."""

    limit: Floats
    """Tuples/s that a host serves."""
    load: Floats
    """Tuples/s that it takes in, its other work included."""
    present: Floats
    """Sub-joins there."""
    weight: float
    """What a ms at a host counts, beside the legs' weights."""
    scv: float
    """Squared coefficient of variation of arrivals."""

    @staticmethod
    def of(limit: Floats, busy: Floats, weight: float, scv: float) -> Queues:
        return Queues(limit, busy.copy(), np.zeros(len(limit)), weight, scv)


def fill_felt(index: HostIndex, demand: Demand, weights: Floats, order: Ints, queues: Queues) -> Placed:
    """Deal out the sub-joins `order`, largest first, each whole; takes from `index.free`. What no host could take is
    left out."""
    market = _Market(index, demand, weights, order, queues)
    late, parts = order, []
    placed = np.zeros(len(demand), np.bool_)
    for wider in WIDER:
        classes = min(-(-CLASSES * len(late) // len(order)), len(late))
        for some in np.array_split(late, classes):
            parts.append(market.deal(some, wider))
            placed[parts[-1].join] = True
        late = order[~placed[order]]
        if not len(late):
            break
    found = market.improve(Placed.concat(parts))
    raise_free(index.free, index.most_free, index.offsets)
    return found


class _Market:
    """Hosts in cells with balanced margins, as vector code wants them."""

    def __init__(self, index: HostIndex, demand: Demand, weights: Floats, order: Ints, queues: Queues) -> None:
        self.index, self.demand, self.queues = index, demand, queues
        f32 = np.float32
        self.legs = weights.astype(f32)
        self.ends = demand.left.astype(f32), demand.right.astype(f32), demand.sink.astype(f32), demand.amount
        self.at, self.heights = index.points.T.astype(f32), index.heights.astype(f32)
        self.levels = levels_of(len(index))
        top = self.levels[0] if len(self.levels) > 1 else np.array([0, len(index)], np.int64)
        self.top = top
        self.children = children_of(self.levels)
        self.mean = float(demand.amount[order].mean())
        offered, stays = _offers(
            index.free,
            queues.limit,
            queues.load,
            np.quantile(demand.amount[order], GRAINS),
            self.mean,
            queues.scv,
            top,
            MARGINS_MS,
        )
        step = max(1, len(order) // SAMPLE)
        sample = order[step // 2 :: step]
        at, heights, _ = summary(index.points, index.heights, index.free, 0.0, top)
        legs = sum(
            weight * np.linalg.norm(end[sample][:, :, None] - at[None], axis=1)
            for weight, end in zip(weights, (demand.left, demand.right, demand.sink), strict=True)
        )
        amount = demand.amount[sample]
        self.margin, self.stay = _balance(
            (legs + weights.sum() * heights).astype(f32),
            amount,
            float(demand.amount[order].sum() / amount.sum()),
            offered,
            stays,
            MARGINS_MS,
            self.mean,
            queues.weight,
        )
        price = queues.weight * (self.margin - self.stay) / self.mean
        self.prices = [price.astype(f32), *(np.zeros(len(cuts) - 1, f32) for cuts in self.levels[1:])]
        self.lift = (queues.weight * self.stay / weights.sum()).astype(f32)

    def cells(self, grain: float, wider: float) -> list[tuple[Singles, Singles, Floats]]:
        """The cells of every level above the hosts, as if they were hosts, with their places of one grain."""
        index, queues = self.index, self.queues
        if len(self.levels) == 1:
            return []
        fine = self.levels[-2]
        margin = self.margin * wider
        places = _places(
            index.free, queues.limit, queues.load, queues.present, margin, self.stay, self.mean, queues.scv, grain,
            self.top,
        )  # fmt: skip
        found: list[tuple[Singles, Singles, Floats]] = [summary(index.points, index.heights, places, 0.0, fine)]
        for depth in range(len(self.levels) - 3, -1, -1):
            at, heights, free = found[0]
            below = at.T.astype(np.float64), heights.astype(np.float64), free
            found.insert(0, summary(*below, 0.0, self.children[depth + 1]))
        at, heights, free = found[0]
        found[0] = at, heights + self.lift, free
        return found

    def deal(self, order: Ints, wider: float) -> Placed:
        """Deal these out, of which the first is the largest, within the margins times `wider`."""
        index, queues = self.index, self.queues
        grain = float(self.demand.amount[order[0]])
        items = Placed(order.astype(np.int32), np.zeros(len(order), np.int32), np.full(len(order), grain))
        starts = np.array([0, len(order)], dtype=np.int64)
        for depth, (at, heights, free) in enumerate(self.cells(grain, wider)):
            where = *self.ends, self.legs, at, heights, free, self.prices[depth], True, np.inf, 0.0
            if depth == 0:
                out = descend_first(items.join, items.amount, *where)
            else:
                out = descend(items.join, items.amount, starts, self.children[depth], *where)
            *by_child, starts = sort_by_child(*out, len(free))
            items = Placed(*by_child)
        host = _settle(
            items.join, starts, self.children[-1], *self.ends, self.legs, self.at, self.heights, index.free,
            queues.limit, queues.load, queues.present, self.margin * wider, self.stay, self.mean, self.top,
            queues.weight, queues.scv,
        )  # fmt: skip
        found = host >= 0
        join = items.join[found]
        return Placed(join, host[found], self.demand.amount[join])

    def improve(self, placed: Placed) -> Placed:
        """Let each sub-join look for a cheaper host around its own, in neighbourhoods that do not end where cells
        do."""
        index, queues, host = self.index, self.queues, placed.slot.astype(np.int64)
        size = max(AROUND, min(PAIRS // max(len(host), 1), len(index)))
        for turn in range(1 if size == AROUND else TURNS):
            begin = size // (2 + turn)
            cuts = np.concatenate([[0], np.arange(begin, len(index), size), [len(index)]])
            near = np.searchsorted(cuts, host, side="right") - 1
            every = np.arange(len(host), dtype=np.int32)
            place, _, _, starts = sort_by_child(every, near, placed.amount, len(cuts) - 1)
            _look_around(
                placed.join, host, place, starts, cuts, *self.ends, self.legs, self.at, self.heights, index.free,
                queues.limit, queues.load, queues.present, queues.weight, queues.scv,
            )  # fmt: skip
        return replace(placed, slot=host.astype(np.int32))


@kernel
def _added(present, load, limit, more, amount, scv):  # type: ignore[no-untyped-def]
    """(ms that `more` sub-joins of `amount` tuples/s each add at a host, per sub-join; their own time there)"""
    before = present * sojourn_ms(load, limit, scv, 0.0) if present > 0.0 else 0.0
    stay = sojourn_ms(load + more * amount, limit, scv, 0.0)
    return ((present + more) * stay - before) / more, stay


@parallel
def _offers(free, limit, load, grains, mean, scv, cuts, margins):  # type: ignore[no-untyped-def]
    """Tuples/s that each cell takes at each margin or less, and the mean time at its hosts then. A host is reckoned
    with the demand that suits it best: the small ones leave large hosts to the large. In large cells some hosts stand
    for all."""
    cells, levels = len(cuts) - 1, len(margins)
    offered, stays = np.zeros((cells, levels)), np.zeros((cells, levels))
    for c in prange(cells):
        stride = max(1, (cuts[c + 1] - cuts[c]) // LOOKED_AT)
        best, best_stay, mine, mine_stay = np.empty(levels), np.empty(levels), np.empty(levels), np.empty(levels)
        for i in range(cuts[c] + stride // 2, cuts[c + 1], stride):
            best[:] = 0.0
            for grain in grains:
                fit = np.floor(min(free[i] / grain, 1e6))
                step = max(1.0, np.floor(fit / 32.0))
                mine[:] = 0.0
                here, level = 0.0, 0
                while here + step <= fit and level < levels:
                    added, stay = _added(here, load[i] + here * grain, limit[i], step, grain, scv)
                    level = max(level, np.searchsorted(margins, stay + (added - stay) * mean / grain))
                    here += step
                    if level < levels:
                        mine[level], mine_stay[level] = here * grain, stay
                for k in range(levels):
                    if k > 0 and mine[k] == 0.0:
                        mine[k], mine_stay[k] = mine[k - 1], mine_stay[k - 1]
                    if mine[k] > best[k]:
                        best[k], best_stay[k] = mine[k], mine_stay[k]
            for k in range(levels):
                offered[c, k] += best[k] * stride
                stays[c, k] += best[k] * stride * best_stay[k] if best[k] > 0.0 else 0.0
        for k in range(levels):
            stays[c, k] = stays[c, k] / offered[c, k] if offered[c, k] > 0.0 else margins[k]
    return offered, stays


@kernel
def _margin_at(flow, offered, stays, margins):  # type: ignore[no-untyped-def]
    """(margin, mean time at hosts) of a cell that takes `flow` tuples/s."""
    k = np.searchsorted(offered, flow)
    if k == len(margins):  # more than it takes at any margin
        return margins[-1] * (1.0 + flow - offered[-1]), stays[-1]
    below, at = (offered[k - 1], margins[k - 1]) if k > 0 else (0.0, 0.5 * margins[0])
    margin = at + (flow - below) / max(offered[k] - below, 1e-300) * (margins[k] - at)
    return margin, min(stays[k], margin)


@vector
def _cheapest(legs, stay, rise, size):  # type: ignore[no-untyped-def]
    """The first cell of least cost."""
    best = np.float32(1e30)
    for c in range(len(legs)):
        best = min(best, legs[c] + stay[c] + rise[c] * size)
    for c in range(len(legs)):
        if legs[c] + stay[c] + rise[c] * size == best:
            return c
    return 0


@kernel
def _balance(legs, amount, scale, offered, stays, margins, mean, weight):  # type: ignore[no-untyped-def]
    """(margin, mean time at hosts) of every cell such that no part of a sub-join has a cheaper one. Parts choose in
    turn, seeing all others; each choice lowers a common cost, so this ends."""
    joins, cells = legs.shape
    flow = np.zeros(cells)
    where = np.full((PARTS, joins), -1, np.int64)
    margin, stay = np.empty(cells), np.empty(cells)
    stay32, rise32 = np.empty(cells, np.float32), np.empty(cells, np.float32)
    chunk = amount.sum() * scale / (joins * PARTS)
    for c in range(cells):
        margin[c], stay[c] = _margin_at(chunk, offered[c], stays[c], margins)
        stay32[c], rise32[c] = weight * stay[c], weight * (margin[c] - stay[c])
    for _ in range(ROUNDS):
        for part in range(PARTS):
            for j in range(joins):
                more = amount[j] * scale / PARTS
                was = where[part, j]
                if was >= 0:
                    flow[was] -= more
                    m, s = _margin_at(flow[was] + chunk, offered[was], stays[was], margins)
                    stay32[was], rise32[was] = weight * s, weight * (m - s)
                c = _cheapest(legs[j], stay32, rise32, np.float32(amount[j] / mean))
                where[part, j] = c
                flow[c] += more
                m, s = _margin_at(flow[c] + chunk, offered[c], stays[c], margins)
                stay32[c], rise32[c] = weight * s, weight * (m - s)
    for c in range(cells):
        margin[c], stay[c] = _margin_at(flow[c] + 0.5 * chunk, offered[c], stays[c], margins)
    return margin, stay


@parallel
def _places(free, limit, load, present, margin, stay, mean, scv, grain, cuts):  # type: ignore[no-untyped-def]
    """Tuples/s of sub-joins of one grain that each host takes within the margin of its cell."""
    places = np.zeros(len(free))
    for c in prange(len(cuts) - 1):
        most = stay[c] + (margin[c] - stay[c]) * grain / mean
        for i in range(cuts[c], cuts[c + 1]):
            fit = np.floor(min(free[i] / grain, 1e9))
            if fit < 1.0 or _added(present[i], load[i], limit[i], 1.0, grain, scv)[0] > most:
                continue
            low, high = 1.0, fit
            while low < high:  # the last one that still stays within it
                middle = np.ceil(0.5 * (low + high))
                before = middle - 1.0
                last, _ = _added(present[i] + before, load[i] + before * grain, limit[i], 1.0, grain, scv)
                if last <= most:
                    low = middle
                else:
                    high = before
            places[i] = low * grain
    return places


@vector
def _host_costs(cost, free, limit, load, present, amount, most, weight, scv):  # type: ignore[no-untyped-def]
    """Add what a sub-join of `amount` tuples/s adds at each host to its ways; returns the first of the cheapest."""
    best = CLOSED
    for i in range(len(cost)):
        before = present[i] * sojourn_ms(load[i], limit[i], scv, 0.0)
        added = (present[i] + 1.0) * sojourn_ms(load[i] + amount, limit[i], scv, 0.0) - before
        cost[i] = np.float32(cost[i] + weight * added) if free[i] >= amount and added <= most else CLOSED
        best = min(best, cost[i])
    if best >= CLOSED:
        return -1
    for i in range(len(cost)):
        if cost[i] == best:
            return i
    return -1


@parallel
def _settle(  # type: ignore[no-untyped-def]
    join, starts, children, left, right, sink, demand, legs, at, heights, free, limit, load, present, margin, stay,
    mean, cuts, weight, scv,
):  # fmt: skip
    """The host of each item among the children of its cell, −1 where none takes it. Cells are independent."""
    found = np.full(len(join), -1, np.int32)
    parents = len(starts) - 1
    for p in prange(parents):
        if starts[p] == starts[p + 1]:
            continue
        first, last = children[p], children[p + 1]
        c = np.searchsorted(cuts, first, side="right") - 1
        here = at[:, first:last].copy()
        base, cost = np.empty(last - first, np.float32), np.empty(last - first, np.float32)
        nothing = np.zeros(last - first, np.float32)
        last_sink = -1
        for q in range(starts[p], starts[p + 1]):
            j = join[q]
            if last_sink < 0 or not same_point(sink[j], sink[last_sink]):
                way_to_sink(sink[j], legs, here, heights[first:last], base)
                last_sink = j
            costs_at(left[j], right[j], legs, here, base, nothing, np.float32(0.0), cost)
            most = stay[c] + (margin[c] - stay[c]) * demand[j] / mean
            best = _host_costs(
                cost, free[first:last], limit[first:last], load[first:last], present[first:last], demand[j], most,
                weight, scv,
            )  # fmt: skip
            if best < 0:
                continue
            found[q] = first + best
            free[first + best] -= demand[j]
            load[first + best] += demand[j]
            present[first + best] += 1.0
    return found


@parallel
def _look_around(  # type: ignore[no-untyped-def]
    join, host, place, starts, cuts, left, right, sink, demand, legs, at, heights, free, limit, load, present, weight,
    scv,
):  # fmt: skip
    """Move sub-joins to the cheapest host of their neighbourhood, one after the other. Neighbourhoods share nothing."""
    for p in prange(len(starts) - 1):
        if starts[p] == starts[p + 1]:
            continue
        first, last = cuts[p], cuts[p + 1]
        here = at[:, first:last].copy()
        base, cost = np.empty(last - first, np.float32), np.empty(last - first, np.float32)
        nothing = np.zeros(last - first, np.float32)
        last_sink = -1
        for k in range(starts[p], starts[p + 1]):
            q = place[k]
            j, h = join[q], host[q]
            if last_sink < 0 or not same_point(sink[j], sink[last_sink]):
                way_to_sink(sink[j], legs, here, heights[first:last], base)
                last_sink = j
            costs_at(left[j], right[j], legs, here, base, nothing, np.float32(0.0), cost)
            free[h] += demand[j]
            load[h] -= demand[j]
            present[h] -= 1.0
            best = _host_costs(
                cost, free[first:last], limit[first:last], load[first:last], present[first:last], demand[j], np.inf,
                weight, scv,
            )  # fmt: skip
            h = first + best if best >= 0 else h
            host[q] = h
            free[h] -= demand[j]
            load[h] += demand[j]
            present[h] += 1.0
