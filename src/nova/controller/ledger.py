"""Replica rows: made, dropped and charged to their hosts.

Rows are never changed in place but for their charge: a move drops one row and makes another. Dropped rows stay readable
until the step ends, so what a step changed can be told by comparing rows, without copies.
"""

from __future__ import annotations

import numpy as np

from nova.controller.costs import charge_of, demand_of, is_slice
from nova.controller.layout import CREATED, LARGEST, REMOVED, SPARE_TOP, STEP, TANGLED, unpack
from nova.controller.lists import link, unlink
from nova.jit import kernel
from nova.placement.index import set_free

RESERVE = 16
"""Spare replica rows that the small steps (merge, swap, pull) may rely on."""
ROUNDING = 1e-10
"""Relative excess of a charge over the room for it that is rounding."""
NOWHERE = np.int64(-1)
"""No home. (A plain −1 among arguments would make numba compile a kernel once more for it.)"""
OVER = 1e-7
"""Relative overload that counts as rounding; plans are checked with ten times as much."""


@kernel
def charge(s, node, amount):  # type: ignore[no-untyped-def]
    """Put `amount` tuples/s more (or less) on a node."""
    row = s.nodes[node]
    row.used += amount
    if row.first < 0 and row.used < 1e-9:
        row.used = 0.0
    if row.slot >= 0:
        set_free(row.slot, max(row.room - row.used, 0.0), s.i_free, s.i_most, s.i_offsets)


@kernel
def show_room(h, node):  # type: ignore[no-untyped-def]
    """Let the index know a node's room anew."""
    charge(unpack(h), node, 0.0)


@kernel
def make(s, j, node, a, b, c, d, e, f, home):  # type: ignore[no-untyped-def]
    """A new replica of sub-join j on a node, with the given shares. Callers have seen that a row is spare."""
    s.counts[SPARE_TOP] -= 1
    r = s.spare[s.counts[SPARE_TOP]]
    row = s.replicas[r]
    row.join, row.node, row.home, row.step = j, node, home, s.counts[STEP]
    box = row.box
    box[0], box[1], box[2], box[3], box[4], box[5] = a, b, c, d, e, f
    row.charge = charge_of(s, j, box)
    link(s, r)
    charge(s, node, row.charge)
    s.created[s.counts[CREATED]] = r
    s.counts[CREATED] += 1
    return r


@kernel
def put(h, j, node, a, b, c, d, e, f):  # type: ignore[no-untyped-def]
    """A new replica; for Python."""
    return make(unpack(h), j, node, a, b, c, d, e, f, NOWHERE)


@kernel
def drop(s, r):  # type: ignore[no-untyped-def]
    """Take a replica off its host. Its row stays as it is until the step ends."""
    row = s.replicas[r]
    unlink(s, r)
    charge(s, row.node, -row.charge)
    s.removed[s.counts[REMOVED]] = r
    s.counts[REMOVED] += 1


@kernel
def move(s, r, node, home):  # type: ignore[no-untyped-def]
    """The same share on another host."""
    box = s.replicas[r].box
    j = s.replicas[r].join
    drop(s, r)
    return make(s, j, node, box[0], box[1], box[2], box[3], box[4], box[5], home)


@kernel
def drop_join(s, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join."""
    while s.joins[j].first >= 0:
        drop(s, s.joins[j].first)


@kernel
def take_off(h, j):  # type: ignore[no-untyped-def]
    """Drop all replicas of a sub-join; for Python."""
    drop_join(unpack(h), j)


@kernel
def relieve(h, node):  # type: ignore[no-untyped-def]
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
            if s.joins[j].state == TANGLED:
                drop(s, r)
            else:
                now = charge_of(s, j, row.box)
                change = now - row.charge
                row.charge = now
                charge(s, node, change)
                if s.nodes[node].used > s.nodes[node].room * (1 + OVER) or now > s.limits[LARGEST] * (1 + OVER):
                    drop(s, r)
                if change < 0.0:
                    opened.append(node)
            r = after
    return np.array(opened[1:], dtype=np.int64)


@kernel
def merge(s, j):  # type: ignore[no-untyped-def]
    """Slices of one sub-join that follow each other on one host become one, if a replica may be that large."""
    again = s.joins[j].first >= 0 and is_slice(s.replicas[s.joins[j].first].box)
    while again and s.counts[SPARE_TOP] > 0:
        again = False
        a = s.joins[j].first
        while a >= 0 and not again:
            b = s.joins[j].first
            while b >= 0:
                one, two = s.replicas[a], s.replicas[b]
                follows = a != b and one.node == two.node and one.box[5] == two.box[4]
                if follows:
                    low, high, node = one.box[4], two.box[5], one.node
                    if demand_of(s, j) * (high - low) <= s.limits[LARGEST]:
                        home = one.home if one.home == two.home else NOWHERE
                        drop(s, a)
                        drop(s, b)
                        make(s, j, node, 0.0, 1.0, 0.0, 1.0, low, high, home)
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
