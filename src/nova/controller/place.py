"""Hosts for sub-joins: the cheapest with room, and hosts for all windows that have none."""

from __future__ import annotations

import numpy as np

from nova.controller.costs import TINY, cost_on, demand_of, ends_of, leg
from nova.controller.layout import C_MIN, LARGEST, MOST_PARTS, RUNNING, SPARE_TOP, WAITING, WORTH, unpack
from nova.controller.ledger import NOWHERE, RESERVE, ROUNDING, charge, drop_join, make, merge
from nova.controller.lists import parts_of
from nova.jit import kernel
from nova.model.policy import CRUMB
from nova.placement.index import cheapest, nearest, set_free

NO_ROOM, DONE, NO_ROWS = 0, 1, -1
"""`NO_ROWS`: too few spare replica rows; the caller grows the table and calls again, and the kernel goes on."""


@kernel
def search(s, j, need, limit):  # type: ignore[no-untyped-def]
    """Cheapest host with at least `need` free for sub-join j, if cheaper than `limit`: (slot or −1, cost)."""
    left, right, sink = ends_of(s, j)
    if s.legs.shape[0] > 0:  # measured RTTs obey no geometry: look at every host
        best, best_cost = -1, limit
        if s.i_most[len(s.i_most) - 1] < need:
            return best, best_cost
        for i in range(len(s.i_node)):
            if s.i_free[i] >= need and s.i_node[i] >= 0:
                cost = cost_on(s, j, np.int64(s.i_node[i]))
                if cost < best_cost:
                    best, best_cost = i, cost
        return best, best_cost
    w = s.weights
    tree = (s.i_points, s.i_heights, s.i_free, s.i_low, s.i_high, s.i_most, s.i_height, s.i_offsets)
    high = w[0] * s.nodes[left].height + w[1] * s.nodes[right].height + w[2] * s.nodes[sink].height
    best, best_cost = cheapest(s.at[left], s.at[right], s.at[sink], w, need, limit - high, tree)
    best_cost += high
    # The index counts heights on every leg; a pinned node reaches itself without any.
    for end in (left, right, sink):
        i = s.nodes[end].slot
        if i >= 0 and s.i_free[i] >= need:
            cost = cost_on(s, j, end)
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
            i, _ = search(s, j, max(max(demand, s.limits[C_MIN]), TINY), np.inf)
            if i >= 0:
                make(s, j, np.int64(s.i_node[i]), 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, NOWHERE)
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
    if s.legs.shape[0] > 0:
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
def settle(h, joins, begin, part):  # type: ignore[no-untyped-def]
    """Deal out the windows that have no host of sub-joins joins[begin:], in that order. One that does not fit beside
    what it has is placed wholly anew; if it does not fit even so, it waits. Returns the next to do."""
    s = unpack(h)
    for q in range(begin, len(joins)):
        j = joins[q]
        status = _place_slices(s, j, part)
        if status == NO_ROOM and s.joins[j].first >= 0:
            drop_join(s, j)
            status = _place_slices(s, j, part)
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
def _place_slices(s, j, part):  # type: ignore[no-untyped-def]
    """Hosts for all windows of sub-join j that have none."""
    begin = 0.0
    while begin < 1.0:
        # the first window from `begin` on without a host, and the next that has one
        moved = True
        while moved:
            moved = False
            r = s.joins[j].first
            while r >= 0:
                box = s.replicas[r].box
                if box[4] <= begin < box[5]:
                    begin = box[5]
                    moved = True
                r = s.replicas[r].next
        if begin >= 1.0:
            break
        end = 1.0
        r = s.joins[j].first
        while r >= 0:
            if begin < s.replicas[r].box[4] < end:
                end = s.replicas[r].box[4]
            r = s.replicas[r].next
        status = _fill_gap(s, j, begin, end, part)
        if status != DONE:
            return status
        begin = end
    return DONE


@kernel
def _fill_gap(s, j, low, high, part):  # type: ignore[no-untyped-def]
    """Hosts for the windows [low, high) of sub-join j: the cheapest with room for a good part, then any."""
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
        i, cost = search(s, j, need, np.inf)
        if i >= 0 and s.i_free[i] < rest * demand <= largest:
            # a cut has to be worth it: another replica makes windows meet late
            whole, _ = search(s, j, max(rest * demand, c_min), cost + s.limits[WORTH])
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
        make(s, j, node, 0.0, 1.0, 0.0, 1.0, low, end, NOWHERE)
        parts += 1
        if largest < np.inf and end < high:  # a host takes its largest part once
            hidden.append(node)
            set_free(i, 0.0, s.i_free, s.i_most, s.i_offsets)
        low = end
    for node in hidden:
        charge(s, node, 0.0)
    return status
