"""Phase III: every sub-join gets its hosts, and each host its share, within capacity and bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.distances import LegLengths, weighted
from nova.model.load import fullest
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.policy import (
    CRUMB,
    DENSE,
    FAR,
    LONG_WINDOW_MS,
    NEAR,
    OVERLOAD,
    PER_REPLICA,
    ROOMS,
    SHORT_WINDOW_MS,
    SLIVER,
    SPREAD,
    TIE,
    UNLIMITED,
    key_ranges,
    rooms_down_to,
    usable,
)
from nova.model.prices import Prices
from nova.model.problem import Bools, Floats, Ints, Problem
from nova.model.rates import counts
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement import drain, felt, shares
from nova.placement import grid as partition
from nova.placement.cells import Demand, Placed, fill, fill_exactly, fill_whole
from nova.placement.cuts import (
    BY_GRID,
    BY_HUGE_GRID,
    BY_KEY,
    BY_LARGE_GRID,
    BY_SLICES,
    GRID,
    KEY,
    SLICE,
    WHOLE,
    recognise,
)
from nova.placement.cuts import replicas as replicas_of
from nova.placement.headroom import Queues, fill_felt
from nova.placement.index import HostIndex, build, nearest, raise_free, set_free
from nova.placement.local import improve, place_whole
from nova.placement.skew import Parts
from nova.placement.tails import felt_figures, least_regret, under_way
from nova.placement.transport import transport


@dataclass(frozen=True)
class Assignment:
    """The replicas, and what did not fit."""

    replicas: Replicas
    unplaced: Ints
    """Sub-joins of which some part found no host."""
    missing: Floats
    """Tuples/s of input that found no host, for each of `unplaced`."""
    why: tuple[str, ...] = ()
    """What else than room was missing, in words."""

    @property
    def lacking(self) -> tuple[float, int]:
        """Tuples/s that found no host, and the sub-joins that had to be sliced: the less, the better."""
        sliced = self.replicas.join[self.replicas.sliced]
        return float(self.missing.sum()), len(np.unique(sliced))

    @staticmethod
    def nothing() -> Assignment:
        """No sub-joins, no replicas."""
        return Assignment(_no_replicas(), np.empty(0, np.int32), np.empty(0))


@dataclass(frozen=True)
class Start:
    """What runs already: small problems placed by felt latency are improved from there instead of planned afresh."""

    replicas: Replicas
    trials: int
    """Cuts tried in exchanges of a few sub-joins, in all: about a hundred in a millisecond at a hundred hosts."""

    def of(self, rows: npt.NDArray[np.integer], joins: int) -> Start:
        """What runs of some sub-joins, numbered in the order of `rows`."""
        number = np.full(joins, -1, np.int32)
        number[rows] = np.arange(len(rows))
        mine = self.replicas.take(number[self.replicas.join] >= 0)
        return Start(replace(mine, join=number[mine.join]), self.trials)


def assign(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, start: Start | None = None
) -> Assignment:
    """Place all sub-joins, each whole or divided by key, by grid, or by windows, as the options say; where there are
    heavy keys, also in parts, each heavy key on its own, if that fits or is felt sooner."""
    found = _assign_all(problem, joins, space, options, start)
    parts = Parts.of(problem, joins, options)
    if parts is None:
        return found
    begin = None if start is None else Start(parts.divided(start.replicas), start.trials)
    placed = _assign_all(parts.problem, parts.joins, space, options, begin)
    unplaced, missing = parts.lacking(placed.unplaced, placed.missing)
    divided = Assignment(parts.together(placed.replicas, options.bandwidth_budget is None), unplaced, missing)
    return divided if _better(problem, joins, space, options, found, divided) else found


def _better(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, now: Assignment, other: Assignment
) -> bool:
    """Whether another placement leaves less out, slices less, or is felt sooner; where time at hosts does not count, or
    queues settle in neither, whether less is under way."""
    most = np.bincount(other.replicas.join).max(initial=0)
    if options.max_replicas is not None and most > options.max_replicas:
        return False
    needs = [one.lacking for one in (now, other)]
    if not np.isclose(needs[0][0], needs[1][0], rtol=1e-9, atol=0.0) or needs[0][1] != needs[1][1]:
        return needs[1] < needs[0]
    few = len(joins) * int(np.count_nonzero(usable(problem.nodes, options) > 0)) <= DENSE
    between = LegLengths(space, problem.latency if few else None).between
    if options.waiting > 0:
        figures = [felt_figures(problem, joins, one.replicas, between, options.arrival_scv) for one in (now, other)]
        if np.isfinite(figures).any():
            return least_regret(figures) == 1
    before, after = (under_way(problem, joins, one.replicas, between) for one in (now, other))
    return after < before * (1 - PER_REPLICA)


def _assign_all(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, start: Start | None
) -> Assignment:
    """The same, none in parts.

    `auto` slices windows of what finds no room in any other way, since hosts of keys and grids see steady streams.
    Grids need more capacity, so where something is left over, all is done again with slices.
    """
    if options.partition in ("grid", "window"):
        every = np.full(len(joins), options.partition == "window")
        return _assign(problem, joins, space, options, every, start=start)
    if options.partition == "auto" and options.waiting > 0 and options.utilisation < 1:
        hosts = np.count_nonzero(usable(problem.nodes, options))
        if len(joins) * hosts > DENSE:  # small problems keep to it, or not, in `_soonest`
            return _assign_sparing(problem, joins, space, options)
    return _assign_freely(problem, joins, space, options, start)


def _assign_sparing(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Assignment:
    """Place a large problem by `auto` within `utilisation`, or within the least of `ROOMS` beyond it in which all that
    fits finds room, no more is sliced, and predicted p99 is that of more room, ties aside."""
    chosen, soonest = None, np.inf
    for share in rooms_down_to(options.utilisation):
        if chosen is not None and fullest(problem, joins, chosen.replicas) <= share * (1 + OVERLOAD):
            continue  # kept to already
        found = _assign_freely(problem, joins, space, replace(options, utilisation=share), None)
        late = float(felt_figures(problem, joins, found.replicas, space.between, options.arrival_scv)[-1])
        if chosen is None or (found.lacking <= chosen.lacking and late <= (1 + TIE) * soonest):
            chosen = found
        soonest = min(soonest, late)
    assert chosen is not None
    return chosen


def _assign_freely(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, start: Start | None
) -> Assignment:
    """Place all sub-joins by `auto` or by key; large problems within `utilisation`."""
    keyed = _keyed(problem, joins, options)
    by_distance = options.waiting == 0  # where waiting costs nothing, what divides freely is divided at once
    if options.partition == "key":
        return _assign(problem, joins, space, options, keyed & by_distance, keyed, start)
    windows = np.array([query.window_ms for query in problem.queries])[joins.query]
    at_once = (keyed | (windows <= SHORT_WINDOW_MS)) & by_distance
    if_needed = keyed | (windows <= LONG_WINDOW_MS)
    mixed = _assign(problem, joins, space, options, at_once, if_needed, start)
    if not len(mixed.unplaced):
        return mixed
    sliced = _assign(problem, joins, space, options, if_needed)
    return sliced if sliced.missing.sum() < mixed.missing.sum() else mixed


def _keyed(problem: Problem, joins: SubJoins, options: Options) -> Bools:
    """Which sub-joins may be divided by key: then ranges of keys stand where else slices of windows would."""
    ranges = np.array([key_ranges(query.key) for query in problem.queries])
    return (ranges >= 2)[joins.query] & (options.partition in ("auto", "key"))


def _assign(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    sliced: Bools,
    may_slice: Bools | None = None,
    start: Start | None = None,
) -> Assignment:
    """Slice the sub-joins `sliced`, cut the others into grids. Grids go first, since they need hosts with more room;
    slices fill what is left. Of `may_slice`, what found no room as a grid is sliced as well."""
    state = _State(problem, joins, space, options)
    grids, left_over = _place_grids(state, np.flatnonzero(~sliced), start)
    if may_slice is not None:
        sliced = sliced.copy()
        sliced[left_over] = may_slice[left_over]
        left_over = left_over[~may_slice[left_over]]
    if len(left_over) and options.allow_overload:
        grids = Replicas.concat([grids, _overloading_grids(state, left_over)])
    slices = _place_slices(state, np.flatnonzero(sliced))
    replicas = slices.replicas  # in order of sub-joins already
    if len(grids):
        replicas = _in_join_order(Replicas.concat([grids, replicas]))
    return Assignment(
        replicas,
        np.concatenate([left_over, slices.unplaced]),
        np.concatenate([joins.demand[left_over], slices.missing]),
    )


class _State:
    """What the placing steps share: the hosts with their free capacity, and the prices of legs."""

    def __init__(self, problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> None:
        self.joins, self.options = joins, options
        self.weights = np.array(LEG_WEIGHTS[options.objective])
        room = usable(problem.nodes, options)
        rows = np.flatnonzero(room > 0).astype(np.int32)
        self.index: HostIndex = build(rows, space.coordinates[rows], space.heights[rows], room[rows])
        self.largest = np.inf if options.bandwidth_budget is None else options.bandwidth_budget
        self.dense = len(joins) * len(rows) <= DENSE
        # Measured legs are looked up pair by pair; beyond the dense size the cost space stands for them.
        self.legs = LegLengths(space, problem.latency if self.dense else None)
        self.space, self.problem = space, problem
        self.prices = Prices.of(problem, joins, options)

    @cached_property
    def slot_of(self) -> npt.NDArray[np.int64]:
        """Slot of each node in the index; −1 where it is no host, and at the end, for what is nowhere."""
        slots = np.full(len(self.problem.nodes) + 1, -1, np.int64)
        slots[self.index.node] = np.arange(len(self.index))
        return slots

    @cached_property
    def demand(self) -> Demand:
        at, joins = self.space.coordinates, self.joins
        left, right, sink = (np.take(at, nodes, axis=0) for nodes in (joins.left_node, joins.right_node, joins.sink))
        return Demand(left, right, sink, joins.demand)

    def costs(self, rows: npt.NDArray[np.integer]) -> Floats:
        nodes = self.index.node
        legs = self.legs.of(self.joins, rows, nodes)
        return weighted(legs, self.weights) if self.prices is None else self.prices.cost(rows[:, None], nodes, legs)

    def ways(self, row: int, nodes: Ints) -> tuple[Floats, Floats]:
        """Legs of one sub-join to some nodes, and their weights; what it costs beside them lies on the ways of its
        input."""
        legs = self.legs.of(self.joins, np.array([row]), nodes)[:, 0]
        if self.prices is None:
            return legs, self.weights
        weights = np.ascontiguousarray(self.prices.legs[:, row])
        legs[:2] += self.prices.beside(np.array([row]), nodes) / max(float(weights[0] + weights[1]), 1e-12)
        return legs, weights

    def candidates(self, row: int, host: int) -> Iterator[tuple[npt.NDArray[np.int64], float]]:
        """Hosts for a cut of sub-join `row`, cheapest first, and what its present `host` costs (∞ where that is −1):
        all that are worth it where pairs are priced, otherwise some and then more."""
        index, least = self.index, max(self.options.c_min, 1e-300)
        if self.dense:
            cost = self.costs(np.array([row]))[0]
            now = np.inf if host < 0 else cost[host]
            near = np.flatnonzero((index.free >= least) & (cost < now * (1 - 2 * PER_REPLICA)))
            yield near[np.argsort(cost[near], kind="stable")][: len(near) if host < 0 else NEAR], now
            return
        at, joins = self.space.coordinates, self.joins
        least = max(least, SLIVER * min(joins.left_rate[row], joins.right_rate[row]))
        for most in FAR[:1] if self.options.partition == "auto" else FAR:  # auto has slices left
            slots, costs = np.empty(most, np.int64), np.empty(most)
            found = nearest(
                at[joins.left_node[row]],
                at[joins.right_node[row]],
                at[joins.sink[row]],
                self.weights,
                least,
                np.inf,
                index.tree,
                slots,
                costs,
            )
            yield slots[:found], np.inf
            if found < most:
                return


def _place_slices(state: _State, rows: npt.NDArray[np.integer]) -> Assignment:
    """Whole windows go to different hosts: demands divide freely, at no extra traffic."""
    joins, options, index = state.joins, state.options, state.index
    if not len(rows):
        return Assignment.nothing()
    demand = joins.demand
    order = rows[np.argsort(demand[rows], kind="stable")].astype(np.int32)
    if options.c_min > 0:
        placed = fill_exactly(
            index,
            state.demand,
            state.weights,
            order,
            demand[order],
            state.largest,
            options.c_min,
            options.max_replicas,
        )
    else:
        room = index.free.copy()
        placed = _divide(state, rows, order)
        if options.max_replicas is not None:
            placed = _with_fewer_parts(state, placed, order, room, options.max_replicas)
    return _as_slices(state, rows, placed)


def _divide(state: _State, rows: npt.NDArray[np.integer], order: Ints) -> Placed:
    """Sub-joins in as many parts as it takes: the optimum where all pairs are priced, by cells of hosts elsewhere."""
    demand, index = state.joins.demand, state.index
    if state.dense and state.largest >= demand[rows].max(initial=0.0):
        smallest_first = np.argsort(demand[rows], kind="stable").astype(np.int32)
        flow, _ = transport(state.costs(rows), demand[rows], index.free, smallest_first)
        slot, column = np.nonzero(flow)
        index.free = np.maximum(index.free - flow.sum(axis=1), 0.0)
        return Placed(rows[column].astype(np.int32), slot.astype(np.int32), flow[slot, column])
    placed = fill(index, state.demand, state.weights, order, largest=state.largest)
    rest = demand - np.bincount(placed.join, weights=placed.amount, minlength=len(demand))
    left_over = order[rest[order] > 1e-9 * demand[order]]
    if not len(left_over):
        return placed
    if np.isfinite(state.largest):  # a host that has a part already may take no other: begin these anew
        again = np.isin(placed.join, left_over)
        np.add.at(index.free, placed.slot[again], placed.amount[again])
        raise_free(index.free, index.most_free, index.offsets)
        placed, rest = placed.take(~again), demand
    more = fill_exactly(index, state.demand, state.weights, left_over, rest[left_over], state.largest)
    return Placed.concat([placed, more])


def _with_fewer_parts(state: _State, placed: Placed, order: Ints, room: Floats, most: int) -> Placed:
    """Place sub-joins in more than `most` parts again, largest first, in the room that they leave; all of them, in
    the `room` of the start, where that does not suffice."""
    demand, index = state.joins.demand, state.index
    crowd = np.bincount(placed.join, minlength=len(demand)) > most
    if not crowd.any():
        return placed
    kept = ~crowd[placed.join]
    settled = placed.take(kept)
    left = np.bincount(placed.slot[~kept], weights=placed.amount[~kept], minlength=len(index))
    fewer = _place_again(state, order[crowd[order]], index.free + left, most)
    if fewer.amount.sum() >= demand[crowd].sum() * (1 - 1e-9):
        return Placed.concat([settled, fewer])
    return _place_again(state, order, room, most)


def _place_again(state: _State, rows: Ints, room: Floats, most: int) -> Placed:
    index = state.index
    index.free = room
    raise_free(index.free, index.most_free, index.offsets)
    largest_first = rows[::-1].copy()
    return fill_exactly(
        index,
        state.demand,
        state.weights,
        largest_first,
        state.joins.demand[largest_first],
        state.largest,
        max_parts=most,
    )


def _as_slices(state: _State, rows: npt.NDArray[np.integer], placed: Placed) -> Assignment:
    """Amounts become slices of the windows; what found no host is dealt out evenly or reported."""
    joins = state.joins
    demand = joins.demand
    total = np.bincount(placed.join, weights=placed.amount, minlength=len(joins))
    unplaced = rows[total[rows] < demand[rows] * (1 - 1e-9)].astype(np.int32)
    missing = demand[unplaced] - total[unplaced]
    if len(unplaced) and state.options.allow_overload:
        placed = Placed.concat([placed, _spread(state, unplaced, missing)])
    join, slot, start, to = _slices(placed.join, placed.slot, placed.amount / demand[placed.join], len(joins))
    zero, one = np.zeros(len(join)), np.ones(len(join))
    keyed = _keyed(state.problem, joins, state.options)[join]
    slices = np.where(keyed, 0.0, start), np.where(keyed, 1.0, to)
    keys = np.where(keyed, start, 0.0), np.where(keyed, to, 1.0)
    replicas = Replicas(join, state.index.node[slot], zero, one, zero, one, *slices, *keys)
    return Assignment(replicas, unplaced, missing)


@kernel
def _slices(join, slot, share, joins):  # type: ignore[no-untyped-def]
    """Shares of sub-joins on hosts as ranges of windows from 0 to 1: by sub-join, then by host, one range each.
    Summed per sub-join: one running sum over all would round by more than a small host has to spare."""
    begin = np.zeros(joins + 1, np.int64)
    for q in range(len(join)):
        begin[join[q] + 1] += 1
    for j in range(joins):
        begin[j + 1] += begin[j]
    fill = begin[:-1].copy()
    hosts, shares = np.empty(len(join), np.int32), np.empty(len(join))
    for q in range(len(join)):  # insertion sort within each sub-join: it has few hosts
        j = join[q]
        at = fill[j]
        fill[j] += 1
        while at > begin[j] and hosts[at - 1] > slot[q]:
            hosts[at], shares[at] = hosts[at - 1], shares[at - 1]
            at -= 1
        hosts[at], shares[at] = slot[q], share[q]
    out_join, out_slot = np.empty(len(join), np.int32), np.empty(len(join), np.int32)
    start, to = np.empty(len(join)), np.empty(len(join))
    count = 0
    for j in range(joins):
        at = 0.0
        for q in range(begin[j], begin[j + 1]):
            end = min(at + shares[q], 1.0)
            if q > begin[j] and hosts[q] == hosts[q - 1] and count > 0 and out_join[count - 1] == j:
                to[count - 1] = end
            elif end - at > 1e-9:  # less is rounding
                out_join[count], out_slot[count], start[count], to[count] = j, hosts[q], at, end
                count += 1
            else:
                continue
            at = end
        if count > 0 and out_join[count - 1] == j:
            to[count - 1] = 1.0
    return out_join[:count], out_slot[:count], start[:count], to[:count]


def _spread(state: _State, rows: Ints, amount: Floats) -> Placed:
    """Deal what did not fit evenly over the nearest hosts, as many as it would need if they were free (the paper's
    k: demand over the median capacity)."""
    index = state.index
    if not len(index):
        return Placed.none()
    median = float(np.median(state.index.free + 1.0))
    parts = []
    for row, rest in zip(rows, amount, strict=True):
        k = int(np.clip(np.ceil(rest / median), 1, min(len(index), SPREAD)))
        nearest = np.argsort(state.costs(np.array([row]))[0], kind="stable")[:k].astype(np.int32)
        parts.append(Placed(np.full(k, row, np.int32), nearest, np.full(k, rest / k)))
    return Placed.concat(parts)


def _place_grids(state: _State, rows: npt.NDArray[np.integer], start: Start | None) -> tuple[Replicas, Ints]:
    """Sub-joins go whole to one host where one has room, largest first; the others are cut into boxes. Returns the
    replicas and the sub-joins that found no room."""
    if not len(rows) or not len(state.index):
        return _no_replicas(), rows.astype(np.int32)
    joins, options, index = state.joins, state.options, state.index
    demand = joins.demand
    if state.dense and options.waiting > 0:
        return _place_by_felt_latency(state, rows, start)
    host = np.full(len(joins), -1, dtype=np.int32)
    fits = rows[demand[rows] <= state.largest]
    order = fits[np.argsort(-demand[fits], kind="stable")].astype(np.int32)
    if state.dense:
        costs = state.costs(np.arange(len(joins)))
        host = place_whole(costs, demand, index.free, order, options.c_min)
        if options.c_min == 0.0:
            host = improve(costs, demand, index.free, host)
    elif options.c_min > 0:
        placed = fill_exactly(
            index, state.demand, state.weights, order, demand[order], np.inf, options.c_min, max_parts=1
        )
        host[placed.join] = placed.slot
    else:
        if options.waiting > 0 and len(order) and len(index):
            nodes = state.problem.nodes
            limit = np.minimum(nodes.limit[index.node], UNLIMITED)
            busy = nodes.other_load[index.node]
            queues = Queues.of(limit, busy, options.at_host, options.arrival_scv)
            placed = fill_felt(index, state.demand, state.weights, order, queues)
        else:
            placed = fill_whole(index, state.demand, state.weights, order)
        host[placed.join] = placed.slot
        late = order[host[order] < 0]
        if len(late):
            more = fill_exactly(index, state.demand, state.weights, late, demand[late], max_parts=1)
            host[more.join] = more.slot
    boxes = _cut(state, rows, host)
    found = host >= 0
    whole = np.flatnonzero(found)
    found[boxes.join] = True
    left_over = rows[~found[rows]].astype(np.int32)
    return Replicas.concat([Replicas.whole(whole, index.node[host[whole]]), boxes]), left_over


def _place_by_felt_latency(state: _State, rows: npt.NDArray[np.integer], start: Start | None) -> tuple[Replicas, Ints]:
    """The same, priced by legs and time at hosts. `auto` may slice what fits in no other way."""
    joins, options, index, nodes = state.joins, state.options, state.index, state.problem.nodes
    some = joins.take(rows)
    windows = np.array([query.window_ms for query in state.problem.queries])[some.query]
    ranges = np.array([key_ranges(query.key) for query in state.problem.queries])[some.query]
    large = (*BY_LARGE_GRID, *(BY_HUGE_GRID if (some.part < 1).any() else ()))
    ways = (WHOLE, *BY_KEY, *BY_GRID, *large, *BY_SLICES)
    last = np.array([way in large or way in BY_SLICES for way in ways])
    allowed = np.ones((len(rows), len(ways)), np.bool_)
    for x, way in enumerate(ways):
        if way.kind == KEY:
            allowed[:, x] = (way.pieces <= ranges) & (options.partition != "grid")
        elif way.kind == SLICE:
            allowed[:, x] = (windows <= LONG_WINDOW_MS) & (options.partition == "auto")
        elif way in BY_HUGE_GRID:
            allowed[:, x] = some.part < 1
        if way.kind == GRID and way != WHOLE and options.sigma is not None:
            largest = np.maximum(1.0, options.sigma * 0.5 * some.demand / some.part) * (1 + 1e-9)
            allowed[:, x] &= (some.left_rate / way.left <= largest) & (some.right_rate / way.right <= largest)
    limit, busy = np.minimum(nodes.limit[index.node], UNLIMITED), nodes.other_load[index.node]
    most = len(index) if options.max_replicas is None else options.max_replicas
    tail = 0.0 if options.percentile is None else options.percentile / 100.0
    rules = np.array([options.at_host, options.arrival_scv, tail, state.largest, options.c_min, most])
    begin = None
    if start is not None:
        begun, at = recognise(ways, start.of(rows, len(joins)).replicas, len(rows))
        at = state.slot_of[at]
        gone = (at < 0) & (np.arange(at.shape[1]) < np.array([way.pieces for way in ways])[begun][:, None])
        begin = felt.Start(np.where(gone.any(axis=1), -1, begun), at, start.trials)
    by_key = _keyed(state.problem, some, options)
    costs = state.costs(rows)
    counted = counts(state.problem, some, options)
    by_slices = np.array([x for x, way in enumerate(ways) if way.kind == SLICE])

    def search(room: float, begin: felt.Start | None) -> _Search:
        """Within the share `room` of all hosts, and beyond it only for what else would be sliced."""
        now, here, most_used = (
            usable(nodes, replace(options, utilisation=share))[index.node]
            for share in (options.utilisation, room, 1.0 if options.partition == "auto" else options.utilisation)
        )
        free = np.maximum(index.free - (now - here), 0.0)
        hosts = felt.Hosts.of(limit, free, np.maximum(most_used - here, 0.0), busy)
        rates = (some.left_rate, some.right_rate)
        cut, where = felt.place(
            *(costs, *rates, counted, windows, allowed, ways, last, hosts, rules, options.seed, begin)
        )
        placed = replicas_of(ways, cut, index.node[where])
        slot = state.slot_of[placed.node]
        return _Search(
            cut,
            where,
            placed,
            hosts.load - busy,
            (cut < 0) | np.isin(cut, by_slices),
            float((hosts.load[slot] / limit[slot]).max(initial=0.0)),
            felt_figures(state.problem, some, placed, state.legs.between, options.arrival_scv),
        )

    alone = start is not None or options.percentile is not None
    if start is None and by_key.all():
        placed = _no_replicas()
        if some.demand.sum() <= ROOMS[-1] * index.free.sum():  # beyond, grids do not fit
            keys = [way.kind == KEY for way in ways]
            allowed[:, keys], with_keys = False, allowed[:, keys]
            placed = (search(options.utilisation, None) if alone else _soonest(search, options)).placed
            allowed[:, keys] = with_keys
        shared = _by_shares(state, some, costs, counted, ranges, rules, placed)
        if shared is not None:
            return replace(shared, join=rows[shared.join].astype(np.int32)), np.empty(0, np.int32)
    chosen = search(options.utilisation, begin) if alone else _soonest(search, options)
    cut, placed, sliced = chosen.cut, chosen.placed, chosen.sliced
    if sliced.any():
        task = drain.Task(costs, some.demand, windows, limit, busy, options.at_host, options.arrival_scv, tail)
        other = _by_drain_time(state, some, task, np.where(by_key, ranges, 1.0), placed, bool((cut >= 0).all()))
        if other is not None:
            return replace(other, join=rows[other.join].astype(np.int32)), np.empty(0, np.int32)
    index.free = np.maximum(index.free - chosen.load, 0.0)
    raise_free(index.free, index.most_free, index.offsets)
    placed = replace(placed, join=rows[placed.join].astype(np.int32))
    homeless = rows[cut < 0].astype(np.int32)
    nowhere = np.full(len(joins), -1, np.int32)
    boxes = _cut(state, homeless, nowhere)
    found = np.isin(homeless, boxes.join)
    return Replicas.concat([placed, boxes]), homeless[~found]


@dataclass(frozen=True)
class _Search:
    """What a search within some share of all hosts found."""

    cut: npt.NDArray[np.int64]
    where: npt.NDArray[np.int64]
    """Slots of the pieces."""
    placed: Replicas
    load: Floats
    """Tuples/s that each host takes in by it."""
    sliced: Bools
    """Sub-joins that are sliced, or have no place."""
    fullest: float
    """Highest share of a host that is busy."""
    figures: Floats
    """Of `felt_figures`."""


def _soonest(search: Callable[[float, felt.Start | None], _Search], options: Options) -> _Search:
    """The search that is felt soonest, of those within less room than may be used; at their ends they get the rest, so
    that nothing is left which a single move would better.

    `auto` keeps to `utilisation` where predicted p99 stays what more room would give, ties aside, and where nothing
    needs slicing for it; else to the next larger of `ROOMS` that does: p99 does not rise as `utilisation` falls."""
    most = options.utilisation
    within = cache(lambda room: search(room, None))
    shares = rooms_down_to(most) if options.partition == "auto" else (most,)
    found: list[_Search] = []
    chosen, soonest = None, np.inf
    for share in shares:
        if chosen is not None and chosen.fullest <= share * (1 + OVERLOAD):
            continue  # kept to already
        found.append(within(share))
        if not found[-1].sliced.any() and ROOMS[-1] < found[-1].fullest <= share * (1 + OVERLOAD):
            narrow = [within(room) for room in ROOMS if room < share]
            found += [search(share, felt.Start(one.cut, one.where, 0)) for one in narrow] + narrow
        fit = [one for one in found if one.fullest <= share * (1 + OVERLOAD)] if chosen is not None else found
        fewest = min(int(one.sliced.sum()) for one in found)
        fit = [one for one in fit if one.sliced.sum() == fewest and one.figures[-1] <= (1 + TIE) * soonest]
        if fit:
            chosen = fit[least_regret([one.figures for one in fit])]
            soonest = min(soonest, float(chosen.figures[-1]))
    assert chosen is not None
    return chosen


def _by_shares(
    state: _State,
    some: SubJoins,
    costs: Floats,
    counted: Floats,
    ranges: Floats,
    rules: Floats,
    placed: Replicas,
) -> Replicas | None:
    """All sub-joins by ranges of their keys: shares improved from what is `placed` as if there were no keys, and from
    hosts that are filled evenly, whichever is felt soonest, and in no figure later than what is `placed`; None where
    none of these has room for all."""
    options, index, nodes = state.options, state.index, state.problem.nodes
    limit, busy = np.minimum(nodes.limit[index.node], UNLIMITED), nodes.other_load[index.node]
    room, total = usable(nodes, options)[index.node], float(some.demand.sum())
    if room.sum() < total * (1 - 1e-9) and options.partition == "auto":
        room = usable(nodes, replace(options, utilisation=1.0))[index.node]
    if room.sum() < total * (1 - 1e-9):
        return None
    task = shares.Task(costs, some.demand, counted, np.maximum(1.0 / ranges, CRUMB), limit, room, busy, rules)
    begun = np.zeros(costs.shape)
    np.add.at(begun, (placed.join, state.slot_of[placed.node]), placed.volume)
    without = task.tidy(begun)
    starts = [without, *(task.take(even) for even in task.even_rooms() if options.c_min == 0)]
    found = [task.improve(start) for start in starts if start is not None]
    anew = [task.again(share) for share, _ in found]
    found += [task.improve(share) for share in anew if share is not None]
    if not found:
        return None

    def divided(share: Floats) -> Replicas:
        join, slot = np.nonzero(share)
        join, slot, start, to = _slices(join.astype(np.int32), slot.astype(np.int32), share[join, slot], len(some))
        zero, one = np.zeros(len(join)), np.ones(len(join))
        return Replicas(join, index.node[slot], zero, one, zero, one, zero, one, start, to)

    def figures(share: Floats) -> Floats:
        return felt_figures(state.problem, some, divided(share), state.legs.between, options.arrival_scv)

    share = min(found, key=lambda one: one[1])[0]
    if options.percentile is None:
        told = [(one, figures(one)) for one, _ in found]
        if without is not None:
            most = figures(without)
            told = [(without, most), *((one, theirs) for one, theirs in told if (theirs <= most).all())]
        share = told[least_regret([theirs for _, theirs in told])][0]
    index.free = np.maximum(index.free - (task.load(share) - busy), 0.0)
    raise_free(index.free, index.most_free, index.offsets)
    return divided(share)


def _by_drain_time(
    state: _State, some: SubJoins, task: drain.Task, ranges: Floats, placed: Replicas, complete: bool
) -> Replicas | None:
    """All sub-joins by the transportation problem of drain times, where that has room for all and costs less than what
    is `placed`; None elsewhere. `ranges` of keys that a sub-join divides into, 1 where it has no key."""
    options, index, nodes, demand = state.options, state.index, state.problem.nodes, some.demand
    keyed = ranges >= 2
    divisible = keyed | ((task.windows <= LONG_WINDOW_MS) & (options.partition == "auto"))
    if options.c_min > 0 or state.largest < demand.max() or not divisible.any():
        return None
    most_used = 1.0 if options.partition == "auto" else options.utilisation
    for level in drain.LEVELS:
        used = replace(options, utilisation=min(level, most_used))
        flow = task.divide(usable(nodes, used)[index.node], keyed)
        if flow.sum() >= demand.sum() * (1 - 1e-9):
            break
    else:
        return None
    slot, join = np.nonzero(flow)
    share = flow[slot, join] / demand[join]
    kept = ~keyed[join] | (share * ranges[join] >= 1)  # a part has a range of keys at least; others take its crumbs
    share = share / np.bincount(join[kept], share[kept], len(some))[join]
    join, slot, share = join[kept], slot[kept], share[kept]
    join, slot, start, to = _slices(join.astype(np.int32), slot.astype(np.int32), share, len(some))
    parts = np.bincount(join, minlength=len(some))
    most = len(index) if options.max_replicas is None else options.max_replicas
    if (parts > np.where(divisible, most, 1)).any() or (parts == 0).any():
        return None
    load = np.bincount(slot, (to - start) * demand[join], len(index))
    if (load > usable(nodes, replace(options, utilisation=most_used))[index.node] * (1 + 1e-9)).any():
        return None
    left, right = placed.rates(some)
    narrow = placed.slice_to - placed.slice_from < 1
    now = task.cost(placed.join, state.slot_of[placed.node], placed.volume, left + right, narrow)
    by_key, share = keyed[join], to - start
    if complete and task.cost(join, slot, share, share * demand[join], (share < 1) & ~by_key) >= now:
        return None
    index.free = np.maximum(index.free - load, 0.0)
    raise_free(index.free, index.most_free, index.offsets)
    zero, one = np.zeros(len(join)), np.ones(len(join))
    slices = np.where(by_key, 0.0, start), np.where(by_key, 1.0, to)
    keys = np.where(by_key, start, 0.0), np.where(by_key, to, 1.0)
    return Replicas(join, index.node[slot], zero, one, zero, one, *slices, *keys)


def _cut(state: _State, rows: npt.NDArray[np.integer], host: Ints) -> Replicas:
    """Cut sub-joins that no host takes whole, and (where all pairs are priced) those that boxes on nearer hosts serve
    better. Changes `host`: −1 for what was cut."""
    joins, index = state.joins, state.index
    parts: list[Replicas] = []
    homeless = rows[host[rows] < 0]
    improvable = rows[host[rows] >= 0] if state.dense else rows[:0]
    for row in np.concatenate([homeless, improvable]):
        cut = _boxes(state, row, host[row])
        if cut is None:
            continue
        slots, boxes = cut
        if host[row] >= 0:
            back = index.free[host[row]] + joins.demand[row]
            set_free(host[row], back, index.free, index.most_free, index.offsets)
            host[row] = -1
        left, right = joins.left_rate[row], joins.right_rate[row]
        taken = left * (boxes.left_to - boxes.left_from) + right * (boxes.right_to - boxes.right_from)
        for slot, rest in zip(slots, np.maximum(index.free[slots] - taken, 0.0), strict=True):
            set_free(slot, rest, index.free, index.most_free, index.offsets)
        n = len(slots)
        parts.append(
            Replicas(
                np.full(n, row, np.int32),
                index.node[slots],
                boxes.left_from,
                boxes.left_to,
                boxes.right_from,
                boxes.right_to,
                np.zeros(n),
                np.ones(n),
            )
        )
    return Replicas.concat(parts) if parts else _no_replicas()


def _boxes(state: _State, row: int, host: int) -> tuple[npt.NDArray[np.int64], partition.Boxes] | None:
    """Boxes for one sub-join and their slots, if they are worth leaving `host` for (−1: it has none)."""
    joins, options, index = state.joins, state.options, state.index
    left, right = float(joins.left_rate[row]), float(joins.right_rate[row])
    share = float(joins.part[row])  # σ is of a whole sub-join
    part_rate = None if options.sigma is None else partition.p_max(options.sigma, left / share, right / share)
    for near, now in state.candidates(row, host):
        legs, weights = state.ways(int(row), index.node[near])
        room = np.minimum(index.free[near], state.largest)
        boxes = partition.split(left, right, room, legs, weights, part_rate, options.max_replicas)
        if boxes is not None and boxes.cost < now * (1 - PER_REPLICA * len(boxes.host)):
            return near[boxes.host], boxes
    return None


def _overloading_grids(state: _State, rows: Ints) -> Replicas:
    """Cut what fits nowhere into equal left parts over the nearest hosts."""
    parts = []
    for row in rows:
        spread = _spread(state, np.array([row], np.int32), state.joins.demand[[row]])
        k = len(spread.slot)
        cuts = np.append(np.arange(k) / k, 1.0)
        zero, one = np.zeros(k), np.ones(k)
        parts.append(Replicas(spread.join, state.index.node[spread.slot], cuts[:-1], cuts[1:], zero, one, zero, one))
    return Replicas.concat(parts)


def _no_replicas() -> Replicas:
    empty = np.empty(0, np.int32)
    return Replicas.whole(empty, empty)


def _in_join_order(replicas: Replicas) -> Replicas:
    return replicas.take(
        np.lexsort((replicas.right_from, replicas.left_from, replicas.key_from, replicas.slice_from, replicas.join))
    )
