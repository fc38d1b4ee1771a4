"""Place: hosts for what has none. Lost and new sub-joins first, then those that wait, as a fresh plan would place them:
whole on the cheapest host with room, cut into a grid, or dealt out by windows. Of a sub-join that is dealt out only the
lost windows are placed; a grid is cut anew. `auto` slices, and leaves waiting, only what has no room on whole hosts,
whatever `utilisation` wishes. What fits nowhere waits."""

from __future__ import annotations

import numpy as np

from nova.controller.impact import Impact
from nova.controller.ledger import (
    NOWHERE,
    RESERVE,
    ROUNDING,
    TINY,
    axis_of,
    charge,
    cost_on,
    demand_of,
    drop_all,
    drop_join,
    ends_of,
    felt_on,
    leg,
    make_part,
    merge,
    parts_of,
    put,
)
from nova.controller.schema import (
    C_MIN,
    LARGEST,
    MOST_PARTS,
    NONE,
    RUNNING,
    SPARE_TOP,
    STAY,
    WAITING,
    WINDOWS,
    WORTH,
    unpack,
)
from nova.controller.state import WHOLE, Rows, State
from nova.jit import kernel
from nova.model.policy import CRUMB, FAR, PART, SLIVER, SPREAD
from nova.placement import grid
from nova.placement.index import cheapest, nearest, set_free

NO_ROOM, DONE, NO_ROWS = 0, 1, -1
"""`NO_ROWS`: too few spare replica rows; the caller grows the table and calls again, and the kernel goes on."""
CANDIDATES = 8
"""Hosts, the nearest with room, that are compared by what they cost with waiting."""
ROOMY = (4.0, 16.0)
"""… and the nearest with so many times the room that is needed: on those little waits."""
SILENT = 1e-9
"""Tuples/s that a stream counts for at least where it is divided by."""
GRID_TRIES = 4
"""Waiting grid joins that are tried again although a smaller one did not fit."""
ROWS = 3 * RESERVE
"""Replica rows that a kernel gets to work with."""


def place(state: State, impact: Impact) -> None:
    """Find hosts for all that a batch of events left without, and for what waits where there is more room now."""
    impact.placed = place_joins(state, impact.unplaced, impact.reasons)
    if impact.opened or impact.retry:
        place_waiting(state, impact)


def place_joins(state: State, joins: dict[int, str], reasons: dict[int, str]) -> list[int]:
    """Hosts for sub-joins of which some share has none: grids first, since they need hosts with more room, the largest
    first; then slices, the smallest first, among them what finds no room as a grid. What does not fit waits. `joins`
    says why each needs a host. Returns those that run."""
    if not joins:
        return []
    rows = np.array([join for join in joins if state.joins["state"][join] != NONE], np.int64)
    if not len(rows):
        return []
    for row in rows.tolist():
        reasons.setdefault(row, joins[row])
    demand, query = state.demand(rows), state.joins["query"][rows]
    sliced = state.queries["sliced"][query] | state.divided(rows)
    late = rows[~sliced][np.argsort(-demand[~sliced], kind="stable")]
    _place_unsliced(state, late)
    while len(late := late[state.joins["state"][late] == WAITING]) and state.widen():
        _place_unsliced(state, late)
    sliced |= (state.joins["state"][rows] == WAITING) & state.queries["may_slice"][query]
    late = rows[sliced][np.argsort(demand[sliced], kind="stable")]
    _place_sliced(state, late)
    while len(late := late[state.joins["state"][late] == WAITING]) and state.widen():
        _place_sliced(state, late)
    fits = state.joins["state"][rows] != WAITING
    for row, needs in zip(rows[~fits].tolist(), demand[~fits].tolist(), strict=True):
        if not (state.options.allow_overload and _overload(state, row, needs)):
            reasons[row] = f"does not fit: {reasons[row]}"
        state.backlog.add(row, needs)
    return [int(row) for row in rows[fits]]


def _place_sliced(state: State, rows: Rows) -> None:
    """Windows, or ranges of keys, that no host has: on whichever hosts have room, in this order of sub-joins."""
    done = 0
    while done < len(rows):
        state.have_spare(ROWS, RESERVE)
        done = int(place_slices(state.handle, rows, done, PART))
        if done < len(rows):
            state.grow_replicas()


def _place_unsliced(state: State, rows: Rows) -> None:
    """Sub-joins whose windows are not dealt out: whole on one host where one takes them, else cut into boxes. Replaces
    all they have; what fits neither way waits."""
    done = 0
    while done < len(rows):
        state.have_spare(ROWS, RESERVE)
        done = int(place_whole(state.handle, rows, done))
    for row in rows[state.joins["state"][rows] == WAITING].tolist():
        _place_grid(state, row)


def _place_grid(state: State, row: int) -> None:
    """Boxes for a sub-join that no host takes whole, as long as hosts near enough can take them."""
    options, (left, right) = state.options, _rates(state, row)
    part = None if options.sigma is None else grid.p_max(options.sigma, left, right)
    least = max(options.c_min, SLIVER * min(left, right))
    for most in FAR[:1] if state.queries["may_slice"][state.joins["query"][row]] else FAR:
        there, free, legs = near(state.handle, row, most, least)
        room = np.minimum(free, state.limits[LARGEST])
        boxes = None
        if len(there):
            boxes = grid.split(left, right, room, legs, state.weights, part, options.max_replicas)
        if boxes is not None:
            state.have_spare(len(boxes.host), RESERVE)
            shares = np.tile(WHOLE, (len(boxes.host), 1))
            shares[:, :4] = np.column_stack([boxes.left_from, boxes.left_to, boxes.right_from, boxes.right_to])
            for host, box in zip(there[boxes.host].tolist(), shares, strict=True):
                put(state.handle, row, host, box)
            state.joins["state"][row] = RUNNING
            return
        if len(there) < most:
            return


def _rates(state: State, row: int) -> tuple[float, float]:
    """Left and right tuples/s of a sub-join. A stream that is silent now still has to be cut somehow."""
    join, rate = state.joins.rows[row], state.sources["rate"]
    return max(float(rate[join["left"]]), SILENT), max(float(rate[join["right"]]), SILENT)


def _overload(state: State, row: int, demand: float) -> bool:
    """What fits nowhere goes evenly to the nearest hosts, as many as it would need if they were free."""
    state.have_spare(ROWS, RESERVE)
    there = near(state.handle, row, SPREAD, 0.0)[0]
    if not len(there):
        return False
    median = float(np.median(state.nodes["room"][there]))
    count = int(np.clip(np.ceil(demand / max(median, SILENT)), 1, len(there)))
    cuts = [*(np.arange(count) / count).tolist(), 1.0]
    query = state.queries.rows[state.joins["query"][row]]
    axis = int(query["axis"]) if query["may_slice"] else 0  # freely, else by the left stream
    for host, low, high in zip(there.tolist(), cuts, cuts[1:], strict=False):
        box = WHOLE.copy()
        box[axis : axis + 2] = low, high
        put(state.handle, row, host, box)
    state.joins["state"][row] = RUNNING
    return True


def place_waiting(state: State, impact: Impact) -> None:
    """Waiting sub-joins, the smallest first, until one does not fit; grids may fit where a smaller one did not."""
    misses = 0
    missed: dict[int, float] = {}
    for row, demand in state.backlog.smallest_first():
        now = float(state.demand(np.array([row]))[0])
        if now != demand:
            state.backlog.add(row, now)
            continue
        drop_all(state.handle, row)  # where overload is allowed, it runs
        if not place_joins(state, {row: "there is room again"}, impact.reasons):
            missed[row] = demand
            state.backlog.remove(row)
            misses += GRID_TRIES + 1 if state.queries["may_slice"][state.joins["query"][row]] else 1
            if misses > GRID_TRIES:
                break
    for row, demand in missed.items():
        state.backlog.add(row, demand)


@kernel
def search(s, j, cut, share, amount, need, limit):  # type: ignore[no-untyped-def]
    """The host with at least `need` free on which `share` of sub-join j, `amount` tuples/s, costs least, if less than
    `limit` (as if it were all of the sub-join): (slot or −1, cost). Where waiting counts, of the hosts in the index the
    nearest few are looked at, and the nearest with much more room."""
    left, right, sink = ends_of(s, j)
    best, best_cost = np.int64(-1), limit
    if s.rtts.shape[0] > 0:  # measured RTTs obey no geometry: look at every host
        if s.i_most[len(s.i_most) - 1] < need:
            return best, best_cost
        for i in range(len(s.i_node)):
            if s.i_free[i] >= need and s.i_node[i] >= 0:
                host = np.int64(s.i_node[i])
                if s.limits[STAY] > 0.0 and cost_on(s, j, host) >= best_cost:
                    continue
                cost = felt_on(s, j, host, cut, share, amount)
                if cost < best_cost:
                    best, best_cost = np.int64(i), cost
        return best, best_cost
    w = s.weights
    tree = (s.i_points, s.i_heights, s.i_free, s.i_low, s.i_high, s.i_most, s.i_height, s.i_offsets)
    high = w[0] * s.nodes[left].height + w[1] * s.nodes[right].height + w[2] * s.nodes[sink].height
    if s.limits[STAY] <= 0.0:
        best, best_cost = cheapest(s.at[left], s.at[right], s.at[sink], w, need, limit - high, tree)
        best_cost += high
    else:
        slots, costs = np.empty(CANDIDATES, np.int64), np.empty(CANDIDATES)
        found = nearest(s.at[left], s.at[right], s.at[sink], w, need, limit - high, tree, slots, costs)
        for q in range(found):
            if costs[q] + high >= best_cost:
                break
            cost = felt_on(s, j, np.int64(s.i_node[slots[q]]), cut, share, amount)
            if cost < best_cost:
                best, best_cost = slots[q], cost
        if found == CANDIDATES:
            for times in ROOMY:
                i, _ = cheapest(s.at[left], s.at[right], s.at[sink], w, times * need, best_cost - high, tree)
                if i >= 0:
                    cost = felt_on(s, j, np.int64(s.i_node[i]), cut, share, amount)
                    if cost < best_cost:
                        best, best_cost = i, cost
    # The index counts heights on every leg; a pinned node reaches itself without any.
    for end in (left, right, sink):
        i = s.nodes[end].slot
        if i >= 0 and s.i_free[i] >= need:
            cost = felt_on(s, j, end, cut, share, amount)
            if cost < best_cost:
                best, best_cost = i, cost
    return best, best_cost


@kernel
def place_whole(h, joins, begin):  # type: ignore[no-untyped-def]
    """Put sub-joins joins[begin:], in that order, unsplit onto the cheapest hosts; replaces all they have. One that no
    host takes waits. Returns the next to do."""
    s = unpack(h)
    for q in range(begin, len(joins)):
        if s.counts[SPARE_TOP] < RESERVE:
            return q
        j = joins[q]
        drop_join(s, j)
        s.joins[j].state = WAITING
        demand = demand_of(s, j)
        if demand <= s.limits[LARGEST]:
            i, _ = search(s, j, 0, 1.0, demand, max(max(demand, s.limits[C_MIN]), TINY), np.inf)
            if i >= 0:
                make_part(s, j, np.int64(s.i_node[i]), WINDOWS, 0.0, 1.0, NOWHERE)
                s.joins[j].state = RUNNING
    return len(joins)


@kernel
def near(h, j, most, least):  # type: ignore[no-untyped-def]
    """The `most` cheapest hosts of sub-join j with at least `least` free, in order of cost, their free tuples/s, and
    the legs left→host, right→host, host→sink in ms."""
    s = unpack(h)
    left, right, sink = ends_of(s, j)
    slots, costs = np.empty(most, np.int64), np.empty(most)
    n = 0
    if s.rtts.shape[0] > 0:
        for i in range(len(s.i_node)):
            if s.i_node[i] < 0 or s.i_free[i] < least:
                continue
            cost = cost_on(s, j, np.int64(s.i_node[i]))
            if n == most and cost >= costs[n - 1]:
                continue
            n = min(n + 1, most)
            q = n - 1
            while q > 0 and costs[q - 1] > cost:
                costs[q], slots[q] = costs[q - 1], slots[q - 1]
                q -= 1
            costs[q], slots[q] = cost, i
    else:
        tree = (s.i_points, s.i_heights, s.i_free, s.i_low, s.i_high, s.i_most, s.i_height, s.i_offsets)
        n = nearest(s.at[left], s.at[right], s.at[sink], s.weights, least, np.inf, tree, slots, costs)
    hosts, free, legs = np.empty(n, np.int64), np.empty(n), np.empty((3, n))
    for q in range(n):
        host = np.int64(s.i_node[slots[q]])
        hosts[q], free[q] = host, s.i_free[slots[q]]
        legs[0, q], legs[1, q], legs[2, q] = leg(s, left, host), leg(s, right, host), leg(s, sink, host)
    return hosts, free, legs


@kernel
def place_slices(h, joins, begin, part):  # type: ignore[no-untyped-def]
    """Deal out the windows that have no host of sub-joins joins[begin:], in that order. One that does not fit beside
    what it has is placed wholly anew; if it does not fit even so, it waits. Returns the next to do."""
    s = unpack(h)
    for q in range(begin, len(joins)):
        j = joins[q]
        status = _cover(s, j, part)
        if status == NO_ROOM and s.joins[j].first >= 0:
            drop_join(s, j)
            status = _cover(s, j, part)
        if status == NO_ROWS:
            return q
        if status == NO_ROOM:
            drop_join(s, j)
            s.joins[j].state = WAITING
        else:
            s.joins[j].state = RUNNING
            merge(s, j)
    return len(joins)


@kernel
def _cover(s, j, part):  # type: ignore[no-untyped-def]
    """Hosts for all windows (or keys) of sub-join j that have none."""
    axis = axis_of(s, j)
    begin = 0.0
    while begin < 1.0:
        # the first window from `begin` on without a host, and the next that has one
        moved = True
        while moved:
            moved = False
            r = s.joins[j].first
            while r >= 0:
                box = s.replicas[r].box
                if box[axis] <= begin < box[axis + 1]:
                    begin = box[axis + 1]
                    moved = True
                r = s.replicas[r].next
        if begin >= 1.0:
            break
        end = 1.0
        r = s.joins[j].first
        while r >= 0:
            if begin < s.replicas[r].box[axis] < end:
                end = s.replicas[r].box[axis]
            r = s.replicas[r].next
        status = _fill_gap(s, j, axis, begin, end, part)
        if status != DONE:
            return status
        begin = end
    return DONE


@kernel
def _fill_gap(s, j, axis, low, high, part):  # type: ignore[no-untyped-def]
    """Hosts for the windows (or keys) [low, high) of sub-join j: the cheapest with room for a good part, then any."""
    largest, c_min, most = s.limits[LARGEST], s.limits[C_MIN], s.limits[MOST_PARTS]
    demand = demand_of(s, j)
    parts = parts_of(s, j)
    hidden = [np.int64(0)]
    hidden.clear()
    relaxed = False
    status = DONE
    while high - low > 0.0:
        if s.counts[SPARE_TOP] < RESERVE:
            status = NO_ROWS
            break
        rest = high - low
        share = CRUMB if relaxed else part
        if most < np.inf:
            if parts >= most:
                status = NO_ROOM
                break
            share = rest / (most - parts)
        need = max(max(min(min(rest, share) * demand, largest), c_min), TINY)
        wanted = min(min(rest, share), largest / max(demand, TINY))
        cut = axis if parts > 0 or wanted < 1.0 else 0
        i, cost = search(s, j, cut, wanted, wanted * demand, need, np.inf)
        if i >= 0 and s.i_free[i] < rest * demand <= largest:
            # a cut has to be worth it: another replica makes windows meet late
            cut = axis if rest < 1.0 else 0
            whole, _ = search(s, j, cut, rest, rest * demand, max(rest * demand, c_min), cost + s.limits[WORTH])
            i = whole if whole >= 0 else i
        if i < 0:
            if relaxed or most < np.inf:
                status = NO_ROOM
                break
            relaxed = True
            continue
        node = np.int64(s.i_node[i])
        free = min(s.i_free[i], largest)
        end = high
        if rest * demand * (1 - ROUNDING) > free:
            end = min(low + free / demand, high)
        if end <= low:
            status = NO_ROOM
            break
        make_part(s, j, node, axis, low, end, NOWHERE)
        parts += 1
        if largest < np.inf and end < high:  # a host takes its largest part once
            hidden.append(node)
            set_free(i, 0.0, s.i_free, s.i_most, s.i_offsets)
        low = end
    for node in hidden:
        charge(s, node, 0.0, 0.0)
    return status
