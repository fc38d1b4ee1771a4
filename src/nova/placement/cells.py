"""Filling hosts nearest by the objective.

A sub-join costs the same whatever its rate, so a host near the sink serves many small ones better than one large one:
small demands choose first, unless they must stay whole. Two ways to find the host:

`fill` and `fill_whole` deal all sub-joins out at once, down a tree of cells: first over some hundred cells of hosts,
then inside each cell over its hosts (with a level between for very many hosts). A level is one dense, vectorised pass
over the children of a cell per sub-join; cells know only the sum of their free capacity. It is what makes a million
nodes quick.

`fill_exactly` asks the host index for the cheapest host with room, one sub-join after the other. It takes what `fill`
left over, and the cases with further limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nova.jit import inline, kernel, parallel, prange, vector
from nova.model.policy import CRUMB, PART
from nova.model.problem import Bools, Floats, Ints
from nova.placement.index import HostIndex, cheapest, raise_free, set_free
from nova.placement.transport import transport

TOP = 512
"""Cells that the first level chooses among at most: this level is sequential, the others run in parallel."""
FAN = 512
"""Hosts that a cell may have before it gets a level of its own in between."""
SAMPLE = 32
"""Sub-joins that the prices of cells are worked out from."""
CLOSED = np.float32(1e30)
"""Cost of a host that is out of question; finite, because vector code assumes finite numbers."""
CLASSES = 24
"""Classes of demand in which sub-joins that stay whole are dealt out."""
BLOCK = 2048
"""Sub-joins whose costs are worked out at once on the first level."""
PIECES = 16
"""Pieces of a block, for as many cores at most; each works the way to the sink out once."""


Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Placed:
    """Who takes how much of what: rows of sub-joins, slots of the host index, tuples/s."""

    join: Ints
    slot: Ints
    amount: Floats

    @staticmethod
    def none() -> Placed:
        return Placed(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))

    def take(self, some: Bools) -> Placed:
        """Some of the rows."""
        return Placed(self.join[some], self.slot[some], self.amount[some])

    @staticmethod
    def concat(parts: list[Placed]) -> Placed:
        return Placed(
            np.concatenate([p.join for p in parts]),
            np.concatenate([p.slot for p in parts]),
            np.concatenate([p.amount for p in parts]),
        )


@dataclass(frozen=True)
class Demand:
    """What has to be placed: the three pinned points, in ms, and the input in tuples/s of each sub-join."""

    left: Floats
    right: Floats
    sink: Floats
    amount: Floats

    def __len__(self) -> int:
        return len(self.amount)


def fill(index: HostIndex, demand: Demand, weights: Floats, order: Ints, largest: float = np.inf) -> Placed:
    """Deal out the sub-joins `order` in that order, in as many parts as it takes; takes from `index.free`. What no host
    could take is left out. `largest`: no host takes more than this of one sub-join (tuples/s)."""
    placed = _Dealer(index, demand, weights, order).deal(order, 0.0, largest)
    raise_free(index.free, index.most_free, index.offsets)
    return placed


def fill_whole(index: HostIndex, demand: Demand, weights: Floats, order: Ints) -> Placed:
    """The same with sub-joins that may not be split. They come largest first: a large one finds room only while hosts
    are empty.

    They are dealt out in classes of similar demand, so that a cell can count what its hosts are able to use: as many
    times the class's largest demand as each has room for. The sum of all crumbs would lure into a cell what none of
    its hosts takes.
    """
    if not len(order):
        return Placed.none()
    dealer = _Dealer(index, demand, weights, order)
    classes = np.array_split(order, min(CLASSES, len(order)))
    placed = Placed.concat([dealer.deal(some, float(demand.amount[some[0]])) for some in classes])
    raise_free(index.free, index.most_free, index.offsets)
    return placed


class _Dealer:
    """Deals sub-joins out over an index, down a tree of cells. Knows the sub-joins and hosts as vector code wants
    them, and what room is worth in each cell when all of `order` have to share it."""

    def __init__(self, index: HostIndex, demand: Demand, weights: Floats, order: Ints) -> None:
        self.index, self.demand = index, demand
        f32 = np.float32
        self.ends = (
            demand.left.astype(f32),
            demand.right.astype(f32),
            demand.sink.astype(f32),
            demand.amount,
            weights.astype(f32),
        )
        self.hosts = index.points.T.astype(f32), index.heights.astype(f32)
        self.levels = levels_of(len(index))
        self.children = children_of(self.levels)
        self.prices = [np.zeros(len(cuts) - 1, f32) for cuts in self.levels]
        if len(self.levels) > 1:
            self.prices[0] = _prices(demand, weights, order, *self.cells(0.0)[0])

    def cells(self, grain: float) -> list[tuple[Singles, Singles, Floats]]:
        """The cells of every level above the hosts, as if they were hosts; the coarse ones from the fine."""
        levels: list[tuple[Singles, Singles, Floats]] = []
        below = self.index.points, self.index.heights, self.index.free, grain
        for depth in range(len(self.levels) - 2, -1, -1):
            levels.insert(0, summary(*below, self.children[depth + 1]))
            at, heights, free = levels[0]
            below = at.T.astype(np.float64), heights.astype(np.float64), free, 0.0
        return levels

    def deal(self, order: Ints, grain: float, largest: float = np.inf) -> Placed:
        """Deal these out in this order. `grain` above zero: they stay whole, and none is larger. Cells then count
        places of one grain, host by host, and give one to each sub-join: hosts take all that their cell was given."""
        amount = self.demand.amount[order]
        by_place = grain > 0 and len(self.levels) > 1
        items = Placed(
            order.astype(np.int32),
            np.zeros(len(order), np.int32),
            np.full(len(order), grain) if by_place else amount,
        )
        starts = np.array([0, len(order)], dtype=np.int64)
        for depth, (at, heights, free) in enumerate([*self.cells(grain), (*self.hosts, self.index.free)]):
            most = np.inf
            if depth == len(self.levels) - 1:
                most = largest
                if by_place:
                    items = replace(items, amount=self.demand.amount[items.join])
            where = *self.ends, at, heights, free, self.prices[depth], grain > 0, most, PART
            if depth == 0:
                out = descend_first(items.join, items.amount, *where)
            else:
                out = descend(items.join, items.amount, starts, self.children[depth], *where)
            items = Placed(*out)
            if depth < len(self.levels) - 1:
                *sorted_items, starts = sort_by_child(*out, len(free))
                items = Placed(*sorted_items)
        return items


def levels_of(hosts: int) -> list[npt.NDArray[np.int64]]:
    """Cuts of the host table into cells, level by level, down to single hosts."""
    levels = []
    size = -(-hosts // TOP)
    if size > 1:
        levels.append(_cuts(hosts, size))
        if size > FAN:
            middle = -(-size // 64)
            inner = np.concatenate([np.arange(a, b, middle) for a, b in zip(levels[0], levels[0][1:], strict=False)])
            levels.append(np.append(inner, hosts).astype(np.int64))
    levels.append(np.arange(hosts + 1, dtype=np.int64))
    return levels


def children_of(levels: list[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Where the children of each cell begin, level by level; the first level has one parent, the whole table."""
    parents = [levels[0][[0, -1]], *levels]
    return [np.searchsorted(cuts, above) for cuts, above in zip(levels, parents, strict=False)]


def _cuts(hosts: int, size: int) -> npt.NDArray[np.int64]:
    return np.append(np.arange(0, hosts, size), hosts).astype(np.int64)


@parallel
def summary(points, heights, free, grain, cuts):  # type: ignore[no-untyped-def]
    """Cells as if they were hosts: the centre of their free capacity, its mean height, its sum. With a `grain` above
    zero only whole multiples of it count, host by host."""
    cells, d = len(cuts) - 1, points.shape[1]
    at, height, total = np.empty((d, cells), np.float32), np.empty(cells, np.float32), np.empty(cells)
    grains = 1.0 / grain if grain > 0 else 0.0
    for c in prange(cells):
        room, weight, lift = 0.0, 0.0, 0.0
        centre = np.zeros(d)
        for i in range(cuts[c], cuts[c + 1]):
            part = np.floor(free[i] * grains) * grain if grain > 0 else free[i]
            room += part
            part = min(part, 1e12)  # infinite capacities count alike
            if part > 0:
                weight += part
                lift += part * heights[i]
                for k in range(d):
                    centre[k] += part * points[i, k]
        total[c] = room
        if weight == 0:  # nobody goes there; any place will do
            weight = 1.0
            lift = heights[cuts[c]]
            centre[:] = points[cuts[c]]
        height[c] = lift / weight
        for k in range(d):
            at[k, c] = centre[k] / weight
    return at, height, total


def _prices(demand: Demand, weights: Floats, order: Ints, at: Singles, heights: Singles, free: Floats) -> Singles:
    """What a tuple/s is worth in each cell, in ms: the prices of the optimum for a sample of the sub-joins, each
    standing for its like. They keep a sub-join from taking room where others would suffer more without it."""
    step = max(1, len(order) // SAMPLE)
    sample = order[step // 2 :: step]
    legs = [
        np.linalg.norm(end[sample][:, :, None] - at[None], axis=1) for end in (demand.left, demand.right, demand.sink)
    ]
    cost = np.tensordot(weights, np.array(legs), axes=1) + weights.sum() * heights
    scale = demand.amount[order].sum() / demand.amount[sample].sum()
    amount = demand.amount[sample] * scale
    _, price = transport(cost * scale, amount, free, np.arange(len(sample), dtype=np.int32))
    return price.astype(np.float32)


@vector
def costs_at(left, right, legs, at, base, price, amount, out):  # type: ignore[no-untyped-def]
    """out[i] = base[i] + what `amount` tuples/s pay at child i + the weighted ways from both sources to it."""
    d, n = at.shape
    if d == 2:
        for i in range(n):
            a, b = at[0, i] - left[0], at[1, i] - left[1]
            c, e = at[0, i] - right[0], at[1, i] - right[1]
            out[i] = base[i] + amount * price[i] + legs[0] * np.sqrt(a * a + b * b) + legs[1] * np.sqrt(c * c + e * e)
    elif d == 3:
        for i in range(n):
            a, b, u = at[0, i] - left[0], at[1, i] - left[1], at[2, i] - left[2]
            c, e, v = at[0, i] - right[0], at[1, i] - right[1], at[2, i] - right[2]
            ways = legs[0] * np.sqrt(a * a + b * b + u * u) + legs[1] * np.sqrt(c * c + e * e + v * v)
            out[i] = base[i] + amount * price[i] + ways
    else:
        for i in range(n):
            a = c = np.float32(0)
            for k in range(d):
                a += (at[k, i] - left[k]) ** 2
                c += (at[k, i] - right[k]) ** 2
            out[i] = base[i] + amount * price[i] + legs[0] * np.sqrt(a) + legs[1] * np.sqrt(c)


@vector
def way_to_sink(sink, legs, at, heights, base):  # type: ignore[no-untyped-def]
    """The part of the cost that all sub-joins with this sink share."""
    d, n = at.shape
    all_legs = legs[0] + legs[1] + legs[2]
    for i in range(n):
        a = np.float32(0)
        for k in range(d):
            a += (at[k, i] - sink[k]) ** 2
        base[i] = legs[2] * np.sqrt(a) + all_legs * heights[i]


@vector
def _least(cost, free, need):  # type: ignore[no-untyped-def]
    """First child of least cost among those with at least `need` free; −1 where there is none."""
    best = CLOSED
    for i in range(len(cost)):
        value = cost[i] if free[i] >= need else CLOSED
        best = min(best, value)
    if best >= CLOSED:
        return -1
    for i in range(len(cost)):
        if cost[i] == best and free[i] >= need:
            return i
    return -1


@inline
def same_point(a, b):  # type: ignore[no-untyped-def]
    same = True
    for k in range(len(a)):
        same = same and a[k] == b[k]
    return same


@kernel
def sort_by_child(join, child, amount, children):  # type: ignore[no-untyped-def]
    """Items sorted by child, in dealing order within each, and where each child's items start."""
    count = len(join)
    begin = np.zeros(children + 1, np.int64)
    for q in range(count):
        begin[child[q] + 1] += 1
    for i in range(children):
        begin[i + 1] += begin[i]
    place = begin[:-1].copy()
    out_join, out_child, out_amount = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count)
    for q in range(count):
        at = place[child[q]]
        place[child[q]] += 1
        out_join[at], out_child[at], out_amount[at] = join[q], child[q], amount[q]
    return out_join, out_child, out_amount, begin


@kernel
def _deal(  # type: ignore[no-untyped-def]
    j, rest, demand, cost, first, free, free32, whole, largest, part, got_join, got_child, got_amount, out
):
    """Give `rest` tuples/s of sub-join j to the cheapest children with room, from `first` on. `free32` is the vector
    copy of their free capacity, −1 where there is none. Writes items from place `out` on; returns the next place."""
    enough, crumb = 1e-12 * demand, CRUMB * demand
    need = rest if whole else min(rest, part * demand)
    while rest > enough:
        child = _least(cost, free32, np.float32(min(need, rest, largest)))
        if child < 0:
            if whole or need <= crumb:
                break
            need = crumb
            continue
        at_most = free[first + child]
        cost[child] = CLOSED  # once is enough
        if whole and at_most < rest:  # rounding of the vector copy
            continue
        take = min(min(rest, at_most), largest)
        got_join[out], got_child[out], got_amount[out] = j, first + child, take
        out += 1
        rest -= take
        free[first + child] = at_most - take
        free32[child] = np.float32(-1) if take == at_most else np.float32(at_most - take)
    return out


@parallel
def _block_costs(join, begin, end, left, right, sink, demand, legs, at, heights, price, costs):  # type: ignore[no-untyped-def]
    """Costs of the items begin … end − 1 on every child, one row each."""
    size = (end - begin + PIECES - 1) // PIECES
    for piece in prange(PIECES):
        base = np.empty(at.shape[1], np.float32)
        last_sink = -1
        for q in range(begin + piece * size, min(begin + (piece + 1) * size, end)):
            j = join[q]
            if last_sink < 0 or not same_point(sink[j], sink[last_sink]):
                way_to_sink(sink[j], legs, at, heights, base)
                last_sink = j
            costs_at(left[j], right[j], legs, at, base, price, np.float32(demand[j]), costs[q - begin])


@kernel
def descend_first(  # type: ignore[no-untyped-def]
    join, amount, left, right, sink, demand, legs, at, heights, free, price, whole, largest, part
):
    """`descend` from one parent: who comes first chooses first, so only the costs are worked out in parallel."""
    count, children = len(join), len(free)
    extra = int(np.ceil(demand.max() / largest)) if largest < np.inf and count else 0
    room = count * (1 + extra) + children
    got_join, got_child, got_amount = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room)
    free32 = free.astype(np.float32)
    costs = np.empty((min(BLOCK, count), children), np.float32)
    out = 0
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        _block_costs(join, begin, end, left, right, sink, demand, legs, at, heights, price, costs)
        for q in range(begin, end):
            out = _deal(
                join[q],
                amount[q],
                demand[join[q]],
                costs[q - begin],
                0,
                free,
                free32,
                whole,
                largest,
                part,
                got_join,
                got_child,
                got_amount,
                out,
            )
    return got_join[:out], got_child[:out], got_amount[:out]


@parallel
def descend(  # type: ignore[no-untyped-def]
    join, amount, starts, children, left, right, sink, demand, legs, at, heights, free, price, whole, largest, part
):
    """Deal the items of each parent out over its children. Returns items (join, child, amount) by parent, in dealing
    order. Parents are independent of each other."""
    parents = len(starts) - 1
    extra = 0
    if largest < np.inf:
        extra = int(np.ceil(demand.max() / largest)) if len(demand) else 0
    room = np.empty(parents + 1, np.int64)
    room[0] = 0
    for p in range(parents):
        splits = 0 if whole else children[p + 1] - children[p]
        room[p + 1] = room[p] + (starts[p + 1] - starts[p]) * (1 + extra) + splits
    got_join = np.empty(room[parents], np.int32)
    got_child = np.empty(room[parents], np.int32)
    got_amount = np.empty(room[parents])
    got = np.zeros(parents, np.int64)
    for p in prange(parents):
        if starts[p] == starts[p + 1]:
            continue
        first, n = children[p], children[p + 1] - children[p]
        here = at[:, first : first + n].copy()
        free32 = free[first : first + n].astype(np.float32)
        base, cost = np.empty(n, np.float32), np.empty(n, np.float32)
        last_sink = -1
        out = room[p]
        for q in range(starts[p], starts[p + 1]):
            j = join[q]
            if last_sink < 0 or not same_point(sink[j], sink[last_sink]):
                way_to_sink(sink[j], legs, here, heights[first : first + n], base)
                last_sink = j
            costs_at(left[j], right[j], legs, here, base, price[first : first + n], np.float32(demand[j]), cost)
            out = _deal(
                j,
                amount[q],
                demand[j],
                cost,
                first,
                free,
                free32,
                whole,
                largest,
                part,
                got_join,
                got_child,
                got_amount,
                out,
            )
        got[p] = out - room[p]
    count = 0
    for p in range(parents):  # close the gaps between the parents' shares of the output
        for q in range(room[p], room[p] + got[p]):
            got_join[count], got_child[count], got_amount[count] = got_join[q], got_child[q], got_amount[q]
            count += 1
    return got_join[:count], got_child[:count], got_amount[:count]


def fill_exactly(
    index: HostIndex,
    demand: Demand,
    weights: Floats,
    order: Ints,
    rest: Floats,
    largest: float = np.inf,
    c_min: float = 0.0,
    max_parts: int | None = None,
) -> Placed:
    """Place `rest[i]` tuples/s of sub-join `order[i]`, one after the other, each on the cheapest hosts with room."""
    out = _fill_exactly(
        order.astype(np.int32),
        rest,
        demand.left,
        demand.right,
        demand.sink,
        demand.amount,
        weights,
        index.tree,
        largest,
        c_min,
        -1 if max_parts is None else max_parts,
        PART,
    )
    return Placed(*out)


@kernel
def _fill_exactly(  # type: ignore[no-untyped-def]
    order, rests, left, right, sink, demand, weights, tree, largest, c_min, max_parts, part
):
    free, most_free, offsets = tree[2], tree[5], tree[7]
    join, slot, amount = [np.int32(0)], [np.int32(0)], [0.0]
    used, before = [0], [0.0]
    for q in range(len(order)):
        j, rest = order[q], rests[q]
        used.clear()
        before.clear()
        enough = 1e-12 * demand[j]
        need = min(rest, part * demand[j])
        while rest > enough:
            if max_parts >= 0:
                if len(used) == max_parts:
                    break
                need = rest / (max_parts - len(used))
            least = max(min(need, min(rest, largest)), c_min)
            best, _ = cheapest(left[j], right[j], sink[j], weights, least, np.inf, tree)
            if best < 0:
                if max_parts >= 0 or need <= CRUMB * demand[j]:
                    break
                need = CRUMB * demand[j]
                continue
            take = min(min(rest, free[best]), largest)
            join.append(j)
            slot.append(np.int32(best))
            amount.append(take)
            used.append(best)
            before.append(free[best] - take)
            rest -= take
            # A host serves a sub-join once: hide it until this sub-join is done.
            set_free(best, 0.0, free, most_free, offsets)
        for k in range(len(used)):
            left_over = before[k]
            set_free(used[k], left_over if left_over > 0 else 0.0, free, most_free, offsets)
    return (
        np.array(join[1:], dtype=np.int32),
        np.array(slot[1:], dtype=np.int32),
        np.array(amount[1:], dtype=np.float64),
    )
