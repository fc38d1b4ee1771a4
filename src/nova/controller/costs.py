"""Costs: what a sub-join takes in, and what it costs where.

Kernels here and in the modules beside work on the arrays of `State`: those that Python calls take the handle `h`, those
that only kernels call the unpacked arrays `s` (see `nova.controller.layout`). `j` is the row of a sub-join, `r` of a
replica, `i` a slot of the host index.
"""

from __future__ import annotations

import numpy as np

from nova.controller.layout import HYSTERESIS, WORTH, unpack
from nova.jit import inline, kernel

TINY = 1e-12


@inline
def demand_of(s, j):  # type: ignore[no-untyped-def]
    """Tuples/s of a sub-join's input."""
    return s.sources[s.joins[j].left].rate + s.sources[s.joins[j].right].rate


@inline
def charge_of(s, j, box):  # type: ignore[no-untyped-def]
    """Tuples/s that a box of a sub-join brings to its host."""
    left = s.sources[s.joins[j].left].rate * (box[1] - box[0])
    right = s.sources[s.joins[j].right].rate * (box[3] - box[2])
    return (left + right) * (box[5] - box[4])


@inline
def share_of(box):  # type: ignore[no-untyped-def]
    """Part of the sub-join's results that a box computes."""
    return (box[1] - box[0]) * (box[3] - box[2]) * (box[5] - box[4])


@inline
def is_slice(box):  # type: ignore[no-untyped-def]
    """Whether a box takes both streams whole, and so shares no input with others on its host."""
    return box[0] == 0.0 and box[1] == 1.0 and box[2] == 0.0 and box[3] == 1.0


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
    if s.legs.shape[0] > 0:
        known = s.legs[a, b]
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
def worth_moving_below(s, cost):  # type: ignore[no-untyped-def]
    """What a sub-join that costs `cost` has to cost elsewhere for a move that is not forced."""
    return cost - s.limits[WORTH] - s.limits[HYSTERESIS] * cost


@kernel
def total_cost(h, joins):  # type: ignore[no-untyped-def]
    """Share-weighted cost of everything that runs, in ms."""
    s = unpack(h)
    total = 0.0
    for j in range(joins):
        r = s.joins[j].first
        while r >= 0:
            total += share_of(s.replicas[r].box) * cost_on(s, j, s.replicas[r].node)
            r = s.replicas[r].next
    return total


@kernel
def refresh_ideals(h, joins):  # type: ignore[no-untyped-def]
    """Virtual positions of sub-joins whose pinned nodes are new or moved."""
    s = unpack(h)
    for j in joins:
        s.joins[j].ideal = _ideal_cost(s, j) if s.queries[s.joins[j].query].sink >= 0 else np.inf


@kernel
def _ideal_cost(s, j):  # type: ignore[no-untyped-def]
    """What sub-join j would cost at its virtual position, the weighted median of its three pinned nodes.

    A corner is the median where its weight outpulls the other two; else the point inside has barycentric coordinates
    1/(cot A + cot α): see `nova.placement.median.fermat`, of which this is the scalar twin.
    """
    d = s.at.shape[1]
    ends = ends_of(s, j)
    w = s.weights
    high = w[0] * s.nodes[ends[0]].height + w[1] * s.nodes[ends[1]].height + w[2] * s.nodes[ends[2]].height
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
