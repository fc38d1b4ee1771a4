"""Ledger: who runs where. Replica rows made, dropped and charged to their hosts, the lists they stand in, and what a
sub-join costs on a host.

Kernels here and in `place` and `improve` work on the arrays of `nova.controller.schema`: those that Python calls take
the handle `h`, those that only kernels call the unpacked arrays `s`. `j` is the row of a sub-join, `r` of a replica,
`i` a slot of the host index.

Rows are never changed in place but for their charge: a move drops one row and makes another. Dropped rows stay readable
until the step ends, so what a step changed is found by comparing rows, without copies.
"""

from __future__ import annotations

import numpy as np

from nova.controller.schema import (
    COUPLED,
    CREATED,
    GONE,
    HYSTERESIS,
    KEYS,
    LARGEST,
    QUANTILE,
    REMOVED,
    SCV,
    SPARE_TOP,
    STAY,
    STEP,
    WINDOWS,
    WORTH,
    unpack,
)
from nova.jit import inline, kernel
from nova.model.replicas import SHARES
from nova.placement.index import set_free
from nova.placement.kernels import host_cost, slice_lateness
from nova.placement.median import median_of

AXES = len(SHARES)
"""Numbers of a box."""
TINY = 1e-12
RESERVE = 16
"""Spare replica rows that the small steps (merge, swap, backfill) may rely on."""
ROUNDING = 1e-10
"""Relative excess of a charge over the room for it that is rounding."""
NOWHERE = np.int64(-1)
"""No node. (A plain −1 among arguments would make numba compile a kernel once more for it.)"""
OVER = 1e-7
"""Relative overload that counts as rounding; plans are checked with ten times as much."""


# what a sub-join takes in, and what it costs where


@inline
def demand_of(s, j):  # type: ignore[no-untyped-def]
    """Tuples/s of a sub-join's input."""
    return s.sources[s.joins[j].left].rate + s.sources[s.joins[j].right].rate


@inline
def charge_of(s, j, box):  # type: ignore[no-untyped-def]
    """Tuples/s that a box of a sub-join brings to its host."""
    left = s.sources[s.joins[j].left].rate * (box[1] - box[0])
    right = s.sources[s.joins[j].right].rate * (box[3] - box[2])
    total = left + right
    for k in range(4, len(box), 2):
        total *= box[k + 1] - box[k]
    return total


@inline
def share_of(box):  # type: ignore[no-untyped-def]
    """Part of the sub-join's results that a box computes."""
    share = 1.0
    for k in range(0, len(box), 2):
        share *= box[k + 1] - box[k]
    return share


@inline
def cut_of(box):  # type: ignore[no-untyped-def]
    """Along which axis a box is cut freely, so that it shares no input with others on its host: `WINDOWS`, `KEYS`, or 0
    where it takes all; −1: it is part of a grid."""
    cut = 0
    if box[WINDOWS] != 0.0 or box[WINDOWS + 1] != 1.0:
        cut = WINDOWS
    if box[KEYS] != 0.0 or box[KEYS + 1] != 1.0:
        cut = KEYS if cut == 0 else -1
    for k in range(4):
        if box[k] != k % 2:
            cut = -1
    return cut


@kernel
def axis_of(s, j):  # type: ignore[no-untyped-def]
    """Along which axis sub-join j is divided: as it is already, else as its query is."""
    r = s.joins[j].first
    if r >= 0:
        cut = cut_of(s.replicas[r].box)
        if cut > 0:
            return np.int64(cut)
    return s.queries[s.joins[j].query].axis


@inline
def ends_of(s, j):  # type: ignore[no-untyped-def]
    """The three nodes a sub-join is pinned to: of the left source, of the right one, of the sink."""
    join = s.joins[j]
    return s.sources[join.left].node, s.sources[join.right].node, s.queries[join.query].sink


@kernel
def leg(s, a, b):  # type: ignore[no-untyped-def]
    """Latency in ms from a pinned node to another: measured where known."""
    if a == b:
        return 0.0
    if s.rtts.shape[0] > 0:
        known = s.rtts[a, b]
        if known == known:
            return known
    total = 0.0
    for k in range(s.at.shape[1]):
        gap = s.at[a, k] - s.at[b, k]
        total += gap * gap
    return np.sqrt(total) + s.nodes[a].height + s.nodes[b].height


@kernel
def latency(h, a, b):  # type: ignore[no-untyped-def]
    """The same for Python."""
    return leg(unpack(h), a, b)


@kernel
def cost_on(s, j, host):  # type: ignore[no-untyped-def]
    """What sub-join j costs wholly on a host."""
    left, right, sink = ends_of(s, j)
    return s.weights[0] * leg(s, left, host) + s.weights[1] * leg(s, right, host) + s.weights[2] * leg(s, sink, host)


@inline
def own_cost(s, j, host, cut):  # type: ignore[no-untyped-def]
    """The same and, where its windows are dealt out (`cut`), how late their last results are on that host."""
    cost = cost_on(s, j, host)
    if cut == WINDOWS and s.limits[STAY] > 0.0 and s.nodes[host].limit > 0.0:
        window = s.queries[s.joins[j].query].window_ms
        cost += s.limits[STAY] * slice_lateness(window, demand_of(s, j), s.nodes[host].limit)
    return cost


@kernel
def time_at(s, node, share, amount):  # type: ignore[no-untyped-def]
    """Time at a host, service and waiting, summed over all that it runs, with `share` of a sub-join (`amount` tuples/s)
    more; in ms of cost."""
    row = s.nodes[node]
    if s.limits[STAY] <= 0.0 or row.limit <= 0.0:
        return 0.0
    present, load = row.present + share, row.used + row.busy + amount
    return s.limits[STAY] * host_cost(present, max(load, 0.0), 0.0, row.limit, s.limits[SCV], s.limits[QUANTILE])


@kernel
def felt_on(s, j, host, cut, share, amount):  # type: ignore[no-untyped-def]
    """What `share` of sub-join j, `amount` tuples/s, would cost on a host: its legs, its time there, and the longer
    wait of all others there; as if it were all of the sub-join."""
    cost = own_cost(s, j, host, cut)
    if s.limits[STAY] > 0.0 and share > 0.0:
        cost += (time_at(s, host, share, amount) - time_at(s, host, 0.0, 0.0)) / share
    return cost


@kernel
def felt_of(s, r):  # type: ignore[no-untyped-def]
    """What replica r costs where it runs, as if it were all of its sub-join."""
    row = s.replicas[r]
    cost, share = own_cost(s, row.join, row.node, cut_of(row.box)), share_of(row.box)
    if s.limits[STAY] > 0.0 and share > 0.0:
        cost += (time_at(s, row.node, 0.0, 0.0) - time_at(s, row.node, -share, -row.charge)) / share
    return cost


@kernel
def own_costs(h, joins, hosts, boxes):  # type: ignore[no-untyped-def]
    """What each of some boxes of sub-joins costs on a host each, but for the time there."""
    s = unpack(h)
    costs = np.empty(len(joins))
    for q in range(len(joins)):
        costs[q] = share_of(boxes[q]) * own_cost(s, joins[q], hosts[q], cut_of(boxes[q]))
    return costs


@kernel
def times_at(h, nodes, shares, amounts):  # type: ignore[no-untyped-def]
    """Time at each of some hosts with so much more or less on it."""
    s = unpack(h)
    times = np.empty(len(nodes))
    for q in range(len(nodes)):
        times[q] = time_at(s, nodes[q], shares[q], amounts[q])
    return times


@inline
def worth_moving_below(s, cost):  # type: ignore[no-untyped-def]
    """What a sub-join that costs `cost` has to cost elsewhere for a move that is not forced."""
    return cost - s.limits[WORTH] - s.limits[HYSTERESIS] * cost


@kernel
def total_cost(h, joins, nodes):  # type: ignore[no-untyped-def]
    """Cost of everything that runs, in ms: share-weighted legs, and time at hosts."""
    s = unpack(h)
    total = 0.0
    for j in range(joins):
        r = s.joins[j].first
        while r >= 0:
            box = s.replicas[r].box
            total += share_of(box) * own_cost(s, j, s.replicas[r].node, cut_of(box))
            r = s.replicas[r].next
    for node in range(nodes):
        if s.nodes[node].first >= 0:
            total += time_at(s, node, 0.0, 0.0)
    return total


@kernel
def refresh_ideals(h, joins):  # type: ignore[no-untyped-def]
    """Virtual positions of sub-joins whose pinned nodes are new or moved."""
    s = unpack(h)
    for j in joins:
        s.joins[j].ideal = _ideal_cost(s, j) if s.queries[s.joins[j].query].sink >= 0 else np.inf


@kernel
def _ideal_cost(s, j):  # type: ignore[no-untyped-def]
    """What sub-join j would cost at its virtual position, the weighted median of its three pinned nodes."""
    d = s.at.shape[1]
    ends = ends_of(s, j)
    corners = np.empty((3, d))
    for a in range(3):
        for k in range(d):
            corners[a, k] = s.at[ends[a], k]
    median = median_of(corners, s.weights)
    total = 0.0
    for a in range(3):
        away = 0.0
        for k in range(d):
            away += (corners[a, k] - median[k]) ** 2
        total += s.weights[a] * (np.sqrt(away) + s.nodes[ends[a]].height)
    return total


# lists threaded through the rows: replicas by sub-join and by node, sub-joins by source, sources by node


@kernel
def link(s, r):  # type: ignore[no-untyped-def]
    """Put a replica first into the lists of its sub-join and its node."""
    row = s.replicas[r]
    join, node = s.joins[row.join], s.nodes[row.node]
    row.next = join.first
    join.first = r
    row.before, row.after = -1, node.first
    if node.first >= 0:
        s.replicas[node.first].before = r
    node.first = r


@kernel
def unlink(s, r):  # type: ignore[no-untyped-def]
    """Take a replica out of both lists."""
    row = s.replicas[r]
    join, node = s.joins[row.join], s.nodes[row.node]
    if join.first == r:
        join.first = row.next
    else:
        q = join.first
        while s.replicas[q].next != r:
            q = s.replicas[q].next
        s.replicas[q].next = row.next
    if row.before >= 0:
        s.replicas[row.before].after = row.after
    else:
        node.first = row.after
    if row.after >= 0:
        s.replicas[row.after].before = row.before
    row.next = GONE


@kernel
def thread(h, sources, joins, replicas):  # type: ignore[no-untyped-def]
    """Make all lists of a plan that begins to run, and charge its hosts: so many sources, sub-joins and replicas are
    filled in. Last first, so that lists read in row order. The host index does not know of charges yet."""
    s = unpack(h)
    for row in range(sources - 1, -1, -1):
        node = s.nodes[s.sources[row].node]
        s.sources[row].next = node.source
        node.source = row
    for j in range(joins - 1, -1, -1):
        for side in range(2):
            source = s.joins[j].left if side == 0 else s.joins[j].right
            first = s.sources[source].join
            s.joins[j].next[side] = first
            if first >= 0:
                s.joins[first].before[0 if s.joins[first].left == source else 1] = j
            s.sources[source].join = j
    for r in range(replicas - 1, -1, -1):
        link(s, r)
        node = s.nodes[s.replicas[r].node]
        node.used += s.replicas[r].charge
        node.present += share_of(s.replicas[r].box)


@kernel
def joins_of(h, source):  # type: ignore[no-untyped-def]
    """Sub-joins that read a source."""
    s = unpack(h)
    found = [np.int64(0)]
    j = s.sources[source].join
    while j >= 0:
        found.append(j)
        j = s.joins[j].next[0 if s.joins[j].left == source else 1]
    return np.array(found[1:], dtype=np.int64)


@kernel
def joins_on(h, node):  # type: ignore[no-untyped-def]
    """Sub-joins of the replicas on a node, with repeats."""
    s = unpack(h)
    found = [np.int64(0)]
    r = s.nodes[node].first
    while r >= 0:
        found.append(s.replicas[r].join)
        r = s.replicas[r].after
    return np.array(found[1:], dtype=np.int64)


@kernel
def parts_of(s, j):  # type: ignore[no-untyped-def]
    """Replicas of a sub-join."""
    count = 0
    r = s.joins[j].first
    while r >= 0:
        count += 1
        r = s.replicas[r].next
    return count


# rows made and dropped, and their charges


@kernel
def charge(s, node, amount, share):  # type: ignore[no-untyped-def]
    """Put `share` of a sub-join, `amount` tuples/s, more (or less) on a node."""
    row = s.nodes[node]
    row.used += amount
    row.present += share
    if row.first < 0 and row.used < 1e-9:
        row.used, row.present = 0.0, 0.0
    if row.slot >= 0:
        set_free(row.slot, max(row.room - row.used, 0.0), s.i_free, s.i_most, s.i_offsets)


@kernel
def show_room(h, node):  # type: ignore[no-untyped-def]
    """Let the index know a node's room anew."""
    charge(unpack(h), node, 0.0, 0.0)


@kernel
def make(s, j, node, box, evicted_from):  # type: ignore[no-untyped-def]
    """A new replica of sub-join j on a node, with the given shares. Callers have seen that a row is spare."""
    s.counts[SPARE_TOP] -= 1
    r = s.spare[s.counts[SPARE_TOP]]
    row = s.replicas[r]
    row.join, row.node, row.evicted_from, row.step = j, node, evicted_from, s.counts[STEP]
    for k in range(len(box)):
        row.box[k] = box[k]
    row.charge = charge_of(s, j, box)
    link(s, r)
    charge(s, node, row.charge, share_of(box))
    s.created[s.counts[CREATED]] = r
    s.counts[CREATED] += 1
    return r


@kernel
def make_part(s, j, node, axis, low, high, evicted_from):  # type: ignore[no-untyped-def]
    """A new replica that takes the windows (or keys) [low, high) of sub-join j."""
    box = np.zeros(AXES)
    box[1::2] = 1.0
    box[axis], box[axis + 1] = low, high
    return make(s, j, node, box, evicted_from)


@kernel
def put(h, j, node, box):  # type: ignore[no-untyped-def]
    """A new replica; for Python."""
    return make(unpack(h), j, node, box, NOWHERE)


@kernel
def drop(s, r):  # type: ignore[no-untyped-def]
    """Take a replica off its host. Its row stays as it is until the step ends."""
    row = s.replicas[r]
    unlink(s, r)
    charge(s, row.node, -row.charge, -share_of(row.box))
    s.removed[s.counts[REMOVED]] = r
    s.counts[REMOVED] += 1


@kernel
def move(s, r, node, evicted_from):  # type: ignore[no-untyped-def]
    """The same share on another host."""
    box, j = s.replicas[r].box, s.replicas[r].join
    drop(s, r)
    return make(s, j, node, box, evicted_from)


@kernel
def drop_join(s, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join."""
    while s.joins[j].first >= 0:
        drop(s, s.joins[j].first)


@kernel
def drop_all(h, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join; for Python."""
    drop_join(unpack(h), j)


@kernel
def shed(h, node):  # type: ignore[no-untyped-def]
    """Drop replicas of a node until the rest fits: those of the largest sub-joins first, which lose least per tuple. A
    node without room keeps nothing, not even a silent replica."""
    s = unpack(h)
    row = s.nodes[node]
    while row.first >= 0 and (row.room <= 0.0 or row.used > row.room * (1 + OVER)):
        r = chosen = row.first
        largest = -1.0
        while r >= 0:
            demand = demand_of(s, s.replicas[r].join)
            if demand > largest:
                largest, chosen = demand, r
            r = s.replicas[r].after
        drop(s, chosen)


@kernel
def recharge(h, joins):  # type: ignore[no-untyped-def]
    """Charge hosts anew after rates of `joins` changed. A replica that its host can no longer take is dropped. Returns
    the nodes that have more room now."""
    s = unpack(h)
    opened = [np.int64(0)]
    for j in joins:
        r = s.joins[j].first
        while r >= 0:
            row = s.replicas[r]
            after, node = row.next, row.node
            if s.joins[j].state == COUPLED:
                drop(s, r)
            else:
                now = charge_of(s, j, row.box)
                change = now - row.charge
                row.charge = now
                charge(s, node, change, 0.0)
                if s.nodes[node].used > s.nodes[node].room * (1 + OVER) or now > s.limits[LARGEST] * (1 + OVER):
                    drop(s, r)
                if change < 0.0:
                    opened.append(node)
            r = after
    return np.array(opened[1:], dtype=np.int64)


@kernel
def merge(s, j):  # type: ignore[no-untyped-def]
    """Parts of one sub-join that follow each other on one host become one, if a replica may be that large."""
    if s.joins[j].first < 0 or cut_of(s.replicas[s.joins[j].first].box) < 0:
        return
    axis = axis_of(s, j)
    again = True
    while again and s.counts[SPARE_TOP] > 0:
        again = False
        a = s.joins[j].first
        while a >= 0 and not again:
            b = s.joins[j].first
            while b >= 0:
                one, two = s.replicas[a], s.replicas[b]
                if a != b and one.node == two.node and one.box[axis + 1] == two.box[axis]:
                    low, high, node = one.box[axis], two.box[axis + 1], one.node
                    if demand_of(s, j) * (high - low) <= s.limits[LARGEST]:
                        origin = one.evicted_from if one.evicted_from == two.evicted_from else NOWHERE
                        drop(s, a)
                        drop(s, b)
                        make_part(s, j, node, axis, low, high, origin)
                        again = True
                        break
                b = two.next
            if not again:
                a = s.replicas[a].next


@kernel
def end_step(h):  # type: ignore[no-untyped-def]
    """Give the dropped rows back for use; the next step begins."""
    s = unpack(h)
    for q in range(s.counts[REMOVED]):
        r = s.removed[q]
        s.replicas[r].step = -1
        s.spare[s.counts[SPARE_TOP]] = r
        s.counts[SPARE_TOP] += 1
    s.counts[CREATED] = 0
    s.counts[REMOVED] = 0
    s.counts[STEP] += 1
