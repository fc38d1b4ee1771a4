"""The inner loops of re-optimization: find hosts, move replicas, and mend what an event left worse than need be.

All work on the columns of `State`: those that Python calls take the handle `h` (see `nova.reoptimize.arrays`), those
that only kernels call the unpacked columns `s`. Replica rows are never changed in place: a move drops one row and makes
another. Dropped rows stay readable until the step ends, so what a step changed can be told by comparing rows, without
copies.

Every kernel that makes rows first sees that enough are spare, and else returns `NO_ROWS`: the caller grows the table
and calls again, and the kernel goes on where it was.
"""

from __future__ import annotations

import numpy as np

from nova.jit import inline, kernel
from nova.physical.index import FAN, cheapest, least_cost, set_free
from nova.reoptimize.arrays import unpack

NO_ROOM, DONE, NO_ROWS = 0, 1, -1
NONE, RUNNING, WAITING, TANGLED = 0, 1, 2, 3
"""States of a sub-join. `TANGLED`: runs, in boxes of which several share a host and its input, so that no box can be
moved on its own."""
SPARE_TOP, CREATED, REMOVED, STEP = 0, 1, 2, 3
"""Entries of `counts`."""
GONE = -2
"""In the list by sub-join: this row is not a running replica."""
RESERVE = 16
"""Spare replica rows that the small steps (merge, swap, pull) may rely on."""
TINY = 1e-12
ROUNDING = 1e-10
"""Relative excess of a charge over the room for it that is rounding."""
CRUMB = 1e-9
"""Smallest share of a sub-join worth a replica of its own."""
OVER = 1e-7
"""Relative overload that counts as rounding; plans are checked with ten times as much."""
RESIDENTS = 12
"""Replicas looked at per host: a host with thousands must not make an event slow."""


@inline
def demand_of(s, j):  # type: ignore[no-untyped-def]
    """Tuples/s of a sub-join's input."""
    return s.s_rate[s.j_left[j]] + s.s_rate[s.j_right[j]]


@inline
def charge_of(s, j, box):  # type: ignore[no-untyped-def]
    """Tuples/s that a box of a sub-join brings to its host."""
    left = s.s_rate[s.j_left[j]] * (box[1] - box[0])
    right = s.s_rate[s.j_right[j]] * (box[3] - box[2])
    return (left + right) * (box[5] - box[4])


@inline
def share_of(box):  # type: ignore[no-untyped-def]
    """Part of the sub-join's results that a box computes."""
    return (box[1] - box[0]) * (box[3] - box[2]) * (box[5] - box[4])


@kernel
def leg(s, a, b):  # type: ignore[no-untyped-def]
    """Latency in ms from a pinned node to another: measured where known."""
    if a == b:
        return 0.0
    if s.legs.shape[0] > 0:
        known = s.legs[a, b]
        if known == known:
            return known
    total = 0.0
    for k in range(s.at.shape[1]):
        gap = s.at[a, k] - s.at[b, k]
        total += gap * gap
    return np.sqrt(total) + s.height[a] + s.height[b]


@kernel
def latency(h, a, b):  # type: ignore[no-untyped-def]
    """The same for Python."""
    return leg(unpack(h), a, b)


@kernel
def cost_on(s, j, host):  # type: ignore[no-untyped-def]
    """What sub-join j costs wholly on a host."""
    left, right, sink = s.s_node[s.j_left[j]], s.s_node[s.j_right[j]], s.q_sink[s.j_query[j]]
    return s.weights[0] * leg(s, left, host) + s.weights[1] * leg(s, right, host) + s.weights[2] * leg(s, sink, host)


@kernel
def ideal_cost(s, j):  # type: ignore[no-untyped-def]
    """What sub-join j would cost at its virtual position, the weighted median of its three pinned nodes.

    A corner is the median where its weight outpulls the other two; else the point inside has barycentric coordinates
    1/(cot A + cot α): see `nova.virtual.median.fermat`, of which this is the scalar twin.
    """
    d = s.at.shape[1]
    ends = (s.s_node[s.j_left[j]], s.s_node[s.j_right[j]], s.q_sink[s.j_query[j]])
    w = s.weights
    high = w[0] * s.height[ends[0]] + w[1] * s.height[ends[1]] + w[2] * s.height[ends[2]]
    side = np.zeros((3, 3))
    for a in range(3):
        for b in range(3):
            for k in range(d):
                side[a, b] += (s.at[ends[a], k] - s.at[ends[b], k]) ** 2
            side[a, b] = np.sqrt(side[a, b])
    best = np.inf
    for a in range(3):
        best = min(best, w[0] * side[0, a] + w[1] * side[1, a] + w[2] * side[2, a])
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        if side[a, b] <= 0.0 or side[a, c] <= 0.0 or side[b, c] <= 0.0:
            return best + high
        cosine = (side[a, b] ** 2 + side[a, c] ** 2 - side[b, c] ** 2) / (2 * side[a, b] * side[a, c])
        if w[b] ** 2 + w[c] ** 2 + 2 * w[b] * w[c] * cosine <= w[a] ** 2 * (1 + 1e-12):
            return best + high
    half = (w[0] + w[1] + w[2]) / 2
    area = np.sqrt(max(half * (half - w[0]) * (half - w[1]) * (half - w[2]), TINY))
    weight = np.empty(3)
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        dot = (side[a, b] ** 2 + side[a, c] ** 2 - side[b, c] ** 2) / 2
        cross = np.sqrt(max(side[a, b] ** 2 * side[a, c] ** 2 - dot * dot, TINY))
        weight[a] = 1 / (dot / cross + (w[b] ** 2 + w[c] ** 2 - w[a] ** 2) / (4 * area))
    weight /= weight.sum()
    total = 0.0
    for a in range(3):
        away = 0.0
        for k in range(d):
            at = 0.0
            for b in range(3):
                at += weight[b] * s.at[ends[b], k]
            away += (at - s.at[ends[a], k]) ** 2
        total += w[a] * np.sqrt(away)
    return min(best, total) + high


@kernel
def refresh_ideals(h, joins):  # type: ignore[no-untyped-def]
    """Virtual positions of sub-joins whose pinned nodes are new or moved."""
    s = unpack(h)
    for j in joins:
        s.j_ideal[j] = ideal_cost(s, j) if s.q_sink[s.j_query[j]] >= 0 else np.inf


@kernel
def search(s, j, need, limit):  # type: ignore[no-untyped-def]
    """Cheapest host with at least `need` free for sub-join j, if cheaper than `limit`: (slot or −1, cost)."""
    left, right, sink = s.s_node[s.j_left[j]], s.s_node[s.j_right[j]], s.q_sink[s.j_query[j]]
    if s.legs.shape[0] > 0:  # measured RTTs obey no geometry: look at every host
        best, best_cost = -1, limit
        if s.i_most[len(s.i_most) - 1] < need:
            return best, best_cost
        for i in range(len(s.i_node)):
            if s.i_free[i] >= need and s.i_node[i] >= 0:
                cost = cost_on(s, j, s.i_node[i])
                if cost < best_cost:
                    best, best_cost = i, cost
        return best, best_cost
    w = s.weights
    tree = (s.i_points, s.i_heights, s.i_free, s.i_low, s.i_high, s.i_most, s.i_height, s.i_offsets)
    high = w[0] * s.height[left] + w[1] * s.height[right] + w[2] * s.height[sink]
    best, best_cost = cheapest(s.at[left], s.at[right], s.at[sink], w, need, limit - high, tree)
    best_cost += high
    # The index counts heights on every leg; a pinned node reaches itself without any.
    for end in (left, right, sink):
        i = s.slot[end]
        if i >= 0 and s.i_free[i] >= need:
            cost = cost_on(s, j, end)
            if cost < best_cost:
                best, best_cost = i, cost
    return best, best_cost


@kernel
def charge(s, node, amount):  # type: ignore[no-untyped-def]
    """Put `amount` tuples/s more (or less) on a node."""
    s.used[node] += amount
    if s.first[node] < 0 and s.used[node] < 1e-9:
        s.used[node] = 0.0
    i = s.slot[node]
    if i >= 0:
        left = s.room[node] - s.used[node]
        set_free(i, left if left > 0.0 else 0.0, s.i_free, s.i_most, s.i_offsets)


@kernel
def recharge_node(h, node):  # type: ignore[no-untyped-def]
    """Let the index know a node's room anew."""
    charge(unpack(h), node, 0.0)


@kernel
def make(s, j, node, a, b, c, d, e, f, home):  # type: ignore[no-untyped-def]
    """A new replica of sub-join j on a node, with the given shares. Callers have seen that a row is spare."""
    s.counts[SPARE_TOP] -= 1
    r = s.spare[s.counts[SPARE_TOP]]
    box = s.r_box[r]
    box[0], box[1], box[2], box[3], box[4], box[5] = a, b, c, d, e, f
    s.r_join[r], s.r_node[r], s.r_home[r], s.r_step[r] = j, node, home, s.counts[STEP]
    s.r_charge[r] = charge_of(s, j, box)
    s.r_next[r] = s.j_first[j]
    s.j_first[j] = r
    s.r_before[r], s.r_after[r] = -1, s.first[node]
    if s.first[node] >= 0:
        s.r_before[s.first[node]] = r
    s.first[node] = r
    charge(s, node, s.r_charge[r])
    s.created[s.counts[CREATED]] = r
    s.counts[CREATED] += 1
    return r


@kernel
def put(h, j, node, a, b, c, d, e, f):  # type: ignore[no-untyped-def]
    """A new replica; for Python."""
    return make(unpack(h), j, node, a, b, c, d, e, f, -1)


@kernel
def drop(s, r):  # type: ignore[no-untyped-def]
    """Take a replica off its host. Its row stays as it is until the step ends."""
    j, node = s.r_join[r], s.r_node[r]
    if s.j_first[j] == r:
        s.j_first[j] = s.r_next[r]
    else:
        q = s.j_first[j]
        while s.r_next[q] != r:
            q = s.r_next[q]
        s.r_next[q] = s.r_next[r]
    if s.r_before[r] >= 0:
        s.r_after[s.r_before[r]] = s.r_after[r]
    else:
        s.first[node] = s.r_after[r]
    if s.r_after[r] >= 0:
        s.r_before[s.r_after[r]] = s.r_before[r]
    s.r_next[r] = GONE
    charge(s, node, -s.r_charge[r])
    s.removed[s.counts[REMOVED]] = r
    s.counts[REMOVED] += 1


@kernel
def move(s, r, node, home):  # type: ignore[no-untyped-def]
    """The same share on another host."""
    box = s.r_box[r]
    j = s.r_join[r]
    drop(s, r)
    return make(s, j, node, box[0], box[1], box[2], box[3], box[4], box[5], home)


@kernel
def drop_join(s, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join."""
    while s.j_first[j] >= 0:
        drop(s, s.j_first[j])


@kernel
def take_off(h, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join; for Python."""
    drop_join(unpack(h), j)


@kernel
def drop_on(h, node, joins):  # type: ignore[no-untyped-def]
    """Drop all replicas on a node; fills in their sub-joins (with repeats) and returns how many."""
    s = unpack(h)
    n = 0
    while s.first[node] >= 0:
        joins[n] = s.r_join[s.first[node]]
        n += 1
        drop(s, s.first[node])
    return n


@kernel
def count_on(h, node):  # type: ignore[no-untyped-def]
    """Replicas on a node."""
    s = unpack(h)
    n = 0
    r = s.first[node]
    while r >= 0:
        n += 1
        r = s.r_after[r]
    return n


@kernel
def count_of(h, joins):  # type: ignore[no-untyped-def]
    """Replicas of some sub-joins."""
    s = unpack(h)
    n = 0
    for j in joins:
        r = s.j_first[j]
        while r >= 0:
            n += 1
            r = s.r_next[r]
    return n


@kernel
def joins_on(h, node, joins):  # type: ignore[no-untyped-def]
    """Fill in the sub-joins (with repeats) of the replicas on a node."""
    s = unpack(h)
    n = 0
    r = s.first[node]
    while r >= 0:
        joins[n] = s.r_join[r]
        n += 1
        r = s.r_after[r]


@kernel
def relieve(h, node, joins):  # type: ignore[no-untyped-def]
    """Drop replicas of a node until the rest fits: those of the largest sub-joins first, which lose least per tuple.
    Fills in their sub-joins and returns how many."""
    s = unpack(h)
    n = 0
    while s.used[node] > s.room[node] * (1 + OVER) and s.first[node] >= 0:
        r = s.first[node]
        largest, chosen = -1.0, r
        while r >= 0:
            demand = demand_of(s, s.r_join[r])
            if demand > largest:
                largest, chosen = demand, r
            r = s.r_after[r]
        joins[n] = s.r_join[chosen]
        n += 1
        drop(s, chosen)
    return n


@kernel
def recharge(h, joins, dirty, opened):  # type: ignore[no-untyped-def]
    """Charge hosts anew after rates of `joins` changed. A replica whose host is now too full is dropped. Fills in the
    sub-joins with dropped replicas and the nodes that have more room now; returns how many of each."""
    s = unpack(h)
    n = m = 0
    for j in joins:
        r = s.j_first[j]
        lost = False
        while r >= 0:
            after = s.r_next[r]
            node = s.r_node[r]
            if s.j_state[j] == TANGLED:
                drop(s, r)
                lost = True
            else:
                now = charge_of(s, j, s.r_box[r])
                change = now - s.r_charge[r]
                s.r_charge[r] = now
                charge(s, node, change)
                if s.used[node] > s.room[node] * (1 + OVER):
                    drop(s, r)
                    lost = True
                if change < 0.0 and m < len(opened):
                    opened[m] = node
                    m += 1
            r = after
        if lost:
            dirty[n] = j
            n += 1
    return n, m


@kernel
def _fill_gap(s, j, low, high, largest, c_min, max_parts, part, worth):  # type: ignore[no-untyped-def]
    """Hosts for the windows [low, high) of sub-join j: the cheapest with room for a good part, then any."""
    demand = demand_of(s, j)
    parts = 0
    r = s.j_first[j]
    while r >= 0:
        parts += 1
        r = s.r_next[r]
    hidden = [np.int32(0)]
    hidden.clear()
    relaxed = False
    status = DONE
    while high - low > 0.0:
        if s.counts[SPARE_TOP] < RESERVE:
            status = NO_ROWS
            break
        rest = high - low
        share = CRUMB if relaxed else part
        if max_parts >= 0:
            if parts >= max_parts:
                status = NO_ROOM
                break
            share = rest / (max_parts - parts)
        need = max(max(min(min(rest, share) * demand, largest), c_min), TINY)
        i, cost = search(s, j, need, np.inf)
        if i >= 0 and s.i_free[i] < rest * demand and rest * demand <= largest:
            # a cut has to be worth it: another replica makes windows meet late
            whole, _ = search(s, j, max(rest * demand, c_min), cost + worth)
            i = whole if whole >= 0 else i
        if i < 0:
            if relaxed or max_parts >= 0:
                status = NO_ROOM
                break
            relaxed = True
            continue
        node = s.i_node[i]
        free = min(s.i_free[i], largest)
        end = high
        if rest * demand > free + ROUNDING * s.room[node]:
            end = min(low + free / demand, high)
        if end <= low:
            status = NO_ROOM
            break
        make(s, j, node, 0.0, 1.0, 0.0, 1.0, low, end, -1)
        parts += 1
        if largest < np.inf and end < high:  # a host takes its largest part once
            hidden.append(node)
            set_free(s.slot[node], 0.0, s.i_free, s.i_most, s.i_offsets)
        low = end
    for node in hidden:
        charge(s, node, 0.0)
    return status


@kernel
def _place_slices(s, j, largest, c_min, max_parts, part, worth):  # type: ignore[no-untyped-def]
    """Hosts for all windows of sub-join j that have none."""
    begin = 0.0
    while begin < 1.0:
        # the first window from `begin` on without a host, and the next that has one
        moved = True
        while moved:
            moved = False
            r = s.j_first[j]
            while r >= 0:
                if s.r_box[r, 4] <= begin < s.r_box[r, 5]:
                    begin = s.r_box[r, 5]
                    moved = True
                r = s.r_next[r]
        if begin >= 1.0:
            break
        end = 1.0
        r = s.j_first[j]
        while r >= 0:
            if begin < s.r_box[r, 4] < end:
                end = s.r_box[r, 4]
            r = s.r_next[r]
        status = _fill_gap(s, j, begin, end, largest, c_min, max_parts, part, worth)
        if status != DONE:
            return status
        begin = end
    return DONE


@kernel
def _is_sliced(s, r):  # type: ignore[no-untyped-def]
    box = s.r_box[r]
    return box[0] == 0.0 and box[1] == 1.0 and box[2] == 0.0 and box[3] == 1.0


@kernel
def merge(s, j):  # type: ignore[no-untyped-def]
    """Slices of one sub-join that follow each other on one host become one."""
    again = True
    while again and s.counts[SPARE_TOP] > 0:
        again = False
        a = s.j_first[j]
        while a >= 0 and not again:
            b = s.j_first[j]
            while b >= 0:
                follows = a != b and s.r_node[a] == s.r_node[b] and s.r_box[a, 5] == s.r_box[b, 4]
                if follows and _is_sliced(s, a) and _is_sliced(s, b):
                    low, high, node = s.r_box[a, 4], s.r_box[b, 5], s.r_node[a]
                    home = s.r_home[a] if s.r_home[a] == s.r_home[b] else -1
                    drop(s, a)
                    drop(s, b)
                    make(s, j, node, 0.0, 1.0, 0.0, 1.0, low, high, home)
                    again = True
                    break
                b = s.r_next[b]
            if not again:
                a = s.r_next[a]


@kernel
def settle(h, joins, begin, failed, largest, c_min, max_parts, part, worth):  # type: ignore[no-untyped-def]
    """Place what has no host of the sliced sub-joins joins[begin:], in that order. A sub-join that does not fit wholly
    gives back what it has and waits. Returns (next to do, how many failed were filled in)."""
    s = unpack(h)
    count = 0
    for q in range(begin, len(joins)):
        j = joins[q]
        status = _place_slices(s, j, largest, c_min, max_parts, part, worth)
        if status == NO_ROWS:
            return q, count
        if status == NO_ROOM:
            drop_join(s, j)
            s.j_state[j] = WAITING
            failed[count] = j
            count += 1
        else:
            s.j_state[j] = RUNNING
            merge(s, j)
    return len(joins), count


@kernel
def place_whole(h, j, need_least):  # type: ignore[no-untyped-def]
    """The cheapest host that takes sub-join j unsplit; −1 where there is none."""
    s = unpack(h)
    i, _ = search(s, j, max(max(demand_of(s, j), need_least), TINY), np.inf)
    return -1 if i < 0 else s.i_node[i]


@kernel
def candidates(h, j, most, need, hosts, costs):  # type: ignore[no-untyped-def]
    """The `most` cheapest hosts of sub-join j with at least `need` free, in order of cost; returns how many. Found one
    after the other, each hidden until all are."""
    s = unpack(h)
    n = 0
    while n < most:
        i, cost = search(s, j, need, np.inf)
        if i < 0:
            break
        hosts[n], costs[n] = s.i_node[i], cost
        set_free(i, 0.0, s.i_free, s.i_most, s.i_offsets)
        n += 1
    for q in range(n):
        charge(s, hosts[q], 0.0)
    return n


@kernel
def nearest(h, j, most, hosts, costs):  # type: ignore[no-untyped-def]
    """The `most` cheapest hosts of sub-join j, full or not, in order of cost; returns how many."""
    s = unpack(h)
    n = 0
    for i in range(len(s.i_node)):
        if s.i_node[i] < 0:
            continue
        cost = cost_on(s, j, s.i_node[i])
        if n == most and cost >= costs[n - 1]:
            continue
        n = min(n + 1, most)
        q = n - 1
        while q > 0 and costs[q - 1] > cost:
            costs[q], hosts[q] = costs[q - 1], hosts[q - 1]
            q -= 1
        costs[q], hosts[q] = cost, s.i_node[i]
    return n


@kernel
def _next_random(s):  # type: ignore[no-untyped-def]
    """A 31-bit number from a generator that is seeded by what is looked at, not by when: the same question has the
    same answer on every replay, and in any order of events that do not touch."""
    s.random[0] = s.random[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return np.int64(s.random[0] >> np.uint64(33))


@kernel
def _seed(s, node, amount):  # type: ignore[no-untyped-def]
    value = np.uint64(88172645463325252)
    for k in range(s.at.shape[1]):
        value = (value ^ np.uint64(np.int64(s.at[node, k] * 1048576.0))) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    value = (value ^ np.uint64(np.int64(min(amount, 1e9) * 1024.0))) * np.uint64(0xBF58476D1CE4E5B9)
    s.random[0] = value ^ (value >> np.uint64(32))


@kernel
def _walk(s, level, box, j, limit):  # type: ignore[no-untyped-def]
    """A leaf below a box, drawn step by step among the boxes that hold hosts, and that could hold one cheaper than
    `limit` for sub-join j (any, where j is −1); −1 where there is none."""
    held, offsets, w = s.i_held, s.i_offsets, s.weights
    prune = j >= 0 and s.legs.shape[0] == 0
    left = right = sink = 0
    high, all_legs = 0.0, w[0] + w[1] + w[2]
    if prune:
        left, right, sink = s.s_node[s.j_left[j]], s.s_node[s.j_right[j]], s.q_sink[s.j_query[j]]
        high = w[0] * s.height[left] + w[1] * s.height[right] + w[2] * s.height[sink]
    while level > 0:
        below = offsets[level - 1]
        count, chosen = 0, -1
        for i in range(box * FAN, min(box * FAN + FAN, offsets[level] - below)):
            child = below + i
            if held[child] == 0:
                continue
            if prune:
                bound = least_cost(s.at[left], s.at[right], s.at[sink], w, s.i_low, s.i_high, child)
                if bound + high + all_legs * s.i_height[child] >= limit:
                    continue
            count += 1
            if _next_random(s) % count == 0:
                chosen = i
        if chosen < 0:
            return -1
        box = chosen
        level -= 1
    return box


@kernel
def oust(s, r, running, walks, worth, hysteresis):  # type: ignore[no-untyped-def]
    """Try to get replica r a better host by moving one other replica out of it. Returns whether it happened.

    Hosts that would suit r are drawn from the index; among the replicas on them, those whose share is small for the
    room they take lose least by moving. The best few are tried in earnest: where would they go, and does the whole
    gain more than the moves are worth? `running`: r runs already, so that its own move counts too.
    """
    if s.counts[SPARE_TOP] < RESERVE or s.j_state[s.r_join[r]] != RUNNING:
        return False
    j, here, amount = s.r_join[r], s.r_node[r], s.r_charge[r]
    share = share_of(s.r_box[r])
    cost = cost_on(s, j, here)
    limit = cost - worth - hysteresis * cost
    if s.j_ideal[j] >= limit or amount <= 0.0:
        return False
    _seed(s, s.s_node[s.j_left[j]], amount)
    keys, found = np.zeros(3), np.full(3, -1)
    top = len(s.i_offsets) - 2
    for _ in range(walks):
        leaf = _walk(s, top, 0, j, limit)
        if leaf < 0:
            break
        for i in range(leaf * FAN, min(leaf * FAN + FAN, len(s.i_node))):
            host = s.i_node[i]
            if host < 0 or host == here or s.first[host] < 0 or s.room[host] < amount:
                continue
            there = cost_on(s, j, host)
            if there >= limit:
                continue
            k = s.first[host]
            seen = 0
            while k >= 0 and seen < RESIDENTS:
                seen += 1
                movable = s.r_join[k] != j and s.j_state[s.r_join[k]] == RUNNING
                if movable and s.r_charge[k] + s.i_free[i] >= amount:
                    key = (cost - there) * (share - share_of(s.r_box[k]))
                    q = 0
                    while q < 3 and (key <= keys[q] or k == found[q]):
                        q += 1 if k != found[q] else 4
                    if q < 3:
                        for p in range(2, q, -1):
                            keys[p], found[p] = keys[p - 1], found[p - 1]
                        keys[q], found[q] = key, k
                k = s.r_after[k]
    for q in range(3):
        k = found[q]
        if k < 0:
            break
        host, other, out = s.r_node[k], s.r_join[k], s.r_charge[k]
        other_share, other_cost = share_of(s.r_box[k]), cost_on(s, s.r_join[k], s.r_node[k])
        gain = share * (cost - cost_on(s, j, host)) - other_share * (worth + hysteresis * other_cost)
        if running:
            gain -= share * (worth + hysteresis * cost)
        if gain <= 0.0:
            continue
        charge(s, here, -amount)
        charge(s, host, amount - out)
        better = -1
        if s.used[host] <= s.room[host]:
            i, _ = search(s, other, max(out, TINY), other_cost + gain / other_share)
            if i >= 0:
                better = s.i_node[i]
        charge(s, here, amount)
        charge(s, host, out - amount)
        if better >= 0 and better != host and not _serves(s, other, better) and not _serves(s, j, host):
            box, moved = s.r_box[r], s.r_box[k]
            drop(s, r)
            drop(s, k)
            make(s, j, host, box[0], box[1], box[2], box[3], box[4], box[5], -1)
            make(s, other, better, moved[0], moved[1], moved[2], moved[3], moved[4], moved[5], host)
            return True
    return False


@kernel
def _serves(s, j, node):  # type: ignore[no-untyped-def]
    """Whether a node runs a box of a sub-join that is cut into boxes: two on one host would share input."""
    if s.q_sliced[s.j_query[j]]:
        return False
    r = s.j_first[j]
    while r >= 0:
        if s.r_node[r] == node:
            return True
        r = s.r_next[r]
    return False


@kernel
def oust_for(h, joins, begin, tries, walks, worth, hysteresis):  # type: ignore[no-untyped-def]
    """Let the replicas of this step's sub-joins look for better hosts, `tries` times at most. Returns the next
    sub-join to do (all done: their number)."""
    s = unpack(h)
    step = s.counts[STEP]
    for q in range(begin, len(joins)):
        if tries <= 0:
            break
        r = s.j_first[joins[q]]
        while r >= 0 and tries > 0:
            if s.counts[SPARE_TOP] < RESERVE:
                return q
            after = s.r_next[r]
            if s.r_step[r] == step:
                tries -= 1
                oust(s, r, False, walks, worth, hysteresis)
            r = after
        if s.q_sliced[s.j_query[joins[q]]]:
            merge(s, joins[q])
    return len(joins)


@kernel
def go_home(h, rows, node, largest):  # type: ignore[no-untyped-def]
    """Replicas that were ousted from `node` return where there is room again and it is cheaper. Their move was not
    their choice, so their return needs no further reason."""
    s = unpack(h)
    i = s.slot[node]
    if i < 0:
        return
    for r in rows:
        if s.counts[SPARE_TOP] < RESERVE:
            return
        j = s.r_join[r]
        if s.r_next[r] == GONE or s.r_home[r] != node or s.j_state[j] != RUNNING:
            continue
        if s.r_charge[r] > min(s.i_free[i], largest) or _serves(s, j, node):
            continue
        if cost_on(s, j, node) < cost_on(s, j, s.r_node[r]):
            move(s, r, node, -1)
            if s.q_sliced[s.j_query[j]]:
                merge(s, j)


@kernel
def pull(h, node, walks, moves, worth, hysteresis, largest, part, opened):  # type: ignore[no-untyped-def]
    """Fill room on a node with replicas that run worse elsewhere: those that gain most per tuple/s. Looks at other
    parts of what runs here, and at hosts drawn near and far. Fills in the nodes that were left; returns how many."""
    s = unpack(h)
    i = s.slot[node]
    count = 0
    if i < 0:
        return count
    levels = len(s.i_offsets) - 1
    for _ in range(moves):
        free = s.i_free[i]
        if free <= TINY * s.room[node] or s.counts[SPARE_TOP] < RESERVE:
            break
        best, best_key = -1, 0.0
        r = s.first[node]
        seen = 0
        while r >= 0 and seen < RESIDENTS:
            seen += 1
            k = s.j_first[s.r_join[r]]
            while k >= 0:
                key = _wish(s, k, node, free, worth, hysteresis, largest, part)
                if key > best_key:
                    best, best_key = k, key
                k = s.r_next[k]
            r = s.r_after[r]
        _seed(s, node, free)
        for w in range(walks):
            level = levels - 1 - w % (levels - 1) if levels > 1 else 0
            leaf = _walk(s, level, (i // FAN) // FAN**level, -1, 0.0)
            if leaf < 0:
                continue
            for q in range(leaf * FAN, min(leaf * FAN + FAN, len(s.i_node))):
                if s.i_node[q] < 0 or s.i_node[q] == node:
                    continue
                k = s.first[s.i_node[q]]
                seen = 0
                while k >= 0 and seen < RESIDENTS:
                    seen += 1
                    key = _wish(s, k, node, free, worth, hysteresis, largest, part)
                    if key > best_key:
                        best, best_key = k, key
                    k = s.r_after[k]
        if best < 0:
            break
        j, left = s.r_join[best], s.r_node[best]
        if s.r_charge[best] <= free * (1 + ROUNDING):
            move(s, best, node, -1)
        else:
            low, high = s.r_box[best, 4], s.r_box[best, 5]
            cut = low + free / demand_of(s, j)
            drop(s, best)
            make(s, j, left, 0.0, 1.0, 0.0, 1.0, cut, high, -1)
            make(s, j, node, 0.0, 1.0, 0.0, 1.0, low, cut, -1)
        if s.q_sliced[s.j_query[j]]:
            merge(s, j)
        if count < len(opened):
            opened[count] = left
            count += 1
    return count


@kernel
def _wish(s, k, node, free, worth, hysteresis, largest, part):  # type: ignore[no-untyped-def]
    """How much replica k would gain per tuple/s on a node with `free` room; 0 where it may not or need not move."""
    j = s.r_join[k]
    if s.r_node[k] == node or s.j_state[j] != RUNNING:
        return 0.0
    demand = demand_of(s, j)
    if s.r_charge[k] > free * (1 + ROUNDING) or s.r_charge[k] > largest:
        sliced = s.q_sliced[s.j_query[j]] and _is_sliced(s, k)
        if not sliced or min(free, s.r_charge[k] - free) < part * demand or largest < np.inf:
            return 0.0
    cost = cost_on(s, j, s.r_node[k])
    gain = cost - cost_on(s, j, node)
    if gain <= worth + hysteresis * cost or demand <= 0.0 or _serves(s, j, node):
        return 0.0
    return gain / demand


@kernel
def reconsider(h, joins, begin, walks, worth, hysteresis, largest, opened):  # type: ignore[no-untyped-def]
    """Move replicas of the given sub-joins for which a clearly better host has room, or can be made room on. Returns
    the next to do, and how many left nodes were filled in."""
    s = unpack(h)
    count = 0
    for q in range(begin, len(joins)):
        j = joins[q]
        if s.j_state[j] != RUNNING:
            continue
        r = s.j_first[j]
        while r >= 0:
            if s.counts[SPARE_TOP] < RESERVE:
                return q, count
            after = s.r_next[r]
            left = s.r_node[r]
            cost = cost_on(s, j, left)
            limit = cost - worth - hysteresis * cost
            if s.j_ideal[j] < limit or s.legs.shape[0] > 0:
                i, _ = search(s, j, max(s.r_charge[r], TINY), limit)
                gone = False
                if i >= 0 and not _serves(s, j, s.i_node[i]) and s.r_charge[r] <= largest:
                    move(s, r, s.i_node[i], -1)
                    gone = True
                elif walks > 0:
                    gone = oust(s, r, True, walks, worth, hysteresis)
                if gone and count < len(opened):
                    opened[count] = left
                    count += 1
            r = after
        if s.q_sliced[s.j_query[j]]:
            merge(s, j)
    return len(joins), count


@kernel
def end_step(h):  # type: ignore[no-untyped-def]
    """Give the dropped rows back for use; the next step begins."""
    s = unpack(h)
    for q in range(s.counts[REMOVED]):
        r = s.removed[q]
        s.r_step[r] = -1
        s.spare[s.counts[SPARE_TOP]] = r
        s.counts[SPARE_TOP] += 1
    s.counts[CREATED] = 0
    s.counts[REMOVED] = 0
    s.counts[STEP] += 1


@kernel
def link(h, rows):  # type: ignore[no-untyped-def]
    """Put given replica rows, whose columns are filled, into the lists and charge their hosts; last first, so that
    lists read in row order."""
    s = unpack(h)
    for q in range(len(rows) - 1, -1, -1):
        r = rows[q]
        j, node = s.r_join[r], s.r_node[r]
        s.r_next[r] = s.j_first[j]
        s.j_first[j] = r
        s.r_before[r], s.r_after[r] = -1, s.first[node]
        if s.first[node] >= 0:
            s.r_before[s.first[node]] = r
        s.first[node] = r
        s.used[node] += s.r_charge[r]


@kernel
def total_cost(h, joins):  # type: ignore[no-untyped-def]
    """Share-weighted cost of everything that runs, in ms."""
    s = unpack(h)
    total = 0.0
    for j in range(joins):
        r = s.j_first[j]
        while r >= 0:
            total += share_of(s.r_box[r]) * cost_on(s, j, s.r_node[r])
            r = s.r_next[r]
    return total
