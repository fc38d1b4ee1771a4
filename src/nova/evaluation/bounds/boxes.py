"""Boxes over priced hosts: finds, for every sub-join, the host where cost plus price is least. Exact at every size.

A balanced k-d tree whose boxes know the least height inside and a plane below all prices inside. A sub-join's cost is
convex in the host's place, so within a box the sum of cost and plane lies above its tangent at the centre; whatever
lies above the best host found so far is skipped. Good prices fall where costs rise: only bounds in which the two slopes
cancel tell boxes apart. Kept apart from the optimizer's index on purpose: a mistake there must not hide in the bound.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.evaluation.bounds.costs import LegWeights
from nova.jit import kernel
from nova.model.problem import Floats, Ints
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

LEAF = 8
"""Hosts per leaf, at most."""
STACK = 128
"""Boxes waiting at most: one per level of a binary tree would do."""
CHUNK = 512
"""Sub-joins that one thread takes at a time."""


@dataclass(frozen=True)
class Boxes:
    """Hosts in tree order. Box 1 is the root, boxes 2k and 2k + 1 halve box k; the last `leaves` boxes are leaves."""

    host: Ints
    """Node row of each slot."""
    slot: npt.NDArray[np.int64]
    """Slot of each node, −1 for nodes that cannot host."""
    points: Floats
    heights: Floats
    low: Floats
    high: Floats
    least_height: Floats
    leaves: int

    def __len__(self) -> int:
        return len(self.host)


def boxes(space: CostSpace, hosts: npt.NDArray[np.integer]) -> Boxes:
    """The tree over the given nodes."""
    n = len(hosts)
    depth = max(0, int(np.ceil(np.log2(max(n, 1) / LEAF))))
    leaves = 1 << depth
    points = np.ascontiguousarray(space.coordinates[hosts])
    order = np.arange(n)
    _split(points, order, depth)
    points = np.ascontiguousarray(points[order])
    heights = np.ascontiguousarray(space.heights[hosts][order])
    low, high = _corners(points, leaves)
    host = np.asarray(hosts)[order].astype(np.int32)
    slot = np.full(len(space), -1, np.int64)
    slot[host] = np.arange(n)
    return Boxes(host, slot, points, heights, low, high, least(heights, leaves), leaves)


def cheapest(
    tree: Boxes,
    space: CostSpace,
    joins: SubJoins,
    legs: LegWeights,
    price: Floats,
    hint: npt.NDArray[np.int64],
    slack: float = 0.0,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """A lower bound, per sub-join, of cost + demand · price over all hosts, and the slot of a host near it.

    The bound is the least itself with `slack` 0, else at most this share below it: where prices level the costs of
    thousands of hosts, a little slack spares most of the search. `price` is per slot, in ms per tuple/s. `hint` is a
    slot per sub-join to start from: a good one saves time.
    """
    ends = np.stack([joins.left_node, joins.right_node, joins.sink])
    given = (
        slack,
        space.coordinates[ends],
        space.heights[ends],
        tree.slot[ends],
        np.array(legs),
        joins.demand,
        price,
        hint,
        tree.points,
        tree.heights,
        tree.low,
        tree.high,
        tree.least_height,
        *planes(tree.points, price, tree.leaves),
    )
    value, where = np.empty(len(joins)), np.empty(len(joins), np.int64)
    cuts = range(0, len(joins), CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # kernels release the lock, so threads use all cores
        list(threads.map(lambda cut: _cheapest(cut, min(cut + CHUNK, len(joins)), value, where, *given), cuts))
    return value, where


@kernel
def _begin(n: int, leaves: int, leaf: int) -> int:
    """First slot of a leaf: leaves share the slots evenly."""
    return n * leaf // leaves


@kernel
def _split(points: Floats, order: npt.NDArray[np.int64], depth: int) -> None:
    """Order the rows so that each box's halves are split at the median of its longest side."""
    n, d = points.shape
    for level in range(depth):
        boxes_here = 1 << level
        for box in range(boxes_here):
            start, end = _begin(n, boxes_here, box), _begin(n, boxes_here, box + 1)
            middle = _begin(n, 2 * boxes_here, 2 * box + 1)
            side, longest = 0, -1.0
            for k in range(d):
                lowest, highest = np.inf, -np.inf
                for i in range(start, end):
                    lowest = min(lowest, points[order[i], k])
                    highest = max(highest, points[order[i], k])
                if highest - lowest > longest:
                    side, longest = k, highest - lowest
            _select(points, order, side, start, end - 1, middle)


@kernel
def _select(points: Floats, order: npt.NDArray[np.int64], side: int, first: int, last: int, wanted: int) -> None:
    """Hoare's selection: afterwards nothing before `wanted` is larger, nothing behind it smaller."""
    while first < last:
        pivot = points[order[(first + last) // 2], side]
        i, j = first, last
        while i <= j:
            while points[order[i], side] < pivot:
                i += 1
            while points[order[j], side] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if wanted <= j:
            last = j
        elif wanted >= i:
            first = i
        else:
            return


@kernel
def _corners(points: Floats, leaves: int) -> tuple[Floats, Floats]:
    n, d = points.shape
    low, high = np.full((2 * leaves, d), np.inf), np.full((2 * leaves, d), -np.inf)
    for leaf in range(leaves):
        for i in range(_begin(n, leaves, leaf), _begin(n, leaves, leaf + 1)):
            for k in range(d):
                low[leaves + leaf, k] = min(low[leaves + leaf, k], points[i, k])
                high[leaves + leaf, k] = max(high[leaves + leaf, k], points[i, k])
    for box in range(leaves - 1, 0, -1):
        for k in range(d):
            low[box, k] = min(low[2 * box, k], low[2 * box + 1, k])
            high[box, k] = max(high[2 * box, k], high[2 * box + 1, k])
    return low, high


@kernel
def least(values: Floats, leaves: int) -> Floats:
    """The least of a value per slot in every box."""
    n = len(values)
    smallest = np.full(2 * leaves, np.inf)
    for leaf in range(leaves):
        for i in range(_begin(n, leaves, leaf), _begin(n, leaves, leaf + 1)):
            smallest[leaves + leaf] = min(smallest[leaves + leaf], values[i])
    for box in range(leaves - 1, 0, -1):
        smallest[box] = min(smallest[2 * box], smallest[2 * box + 1])
    return smallest


@kernel
def _eliminate(matrix: Floats, right: Floats, out: Floats) -> None:
    """Solve a small, positive definite system by elimination; destroys `matrix` and `right`."""
    d = len(right)
    for k in range(d):
        for m in range(k + 1, d):
            factor = matrix[m, k] / matrix[k, k]
            right[m] -= factor * right[k]
            for c in range(k, d):
                matrix[m, c] -= factor * matrix[k, c]
    for k in range(d - 1, -1, -1):
        out[k] = right[k]
        for m in range(k + 1, d):
            out[k] -= matrix[k, m] * out[m]
        out[k] /= matrix[k, k]


@kernel
def planes(points: Floats, values: Floats, leaves: int) -> tuple[Floats, Floats]:
    """For every box a plane that lies below the values of all its slots: offset and slope. The slope is that of least
    squares, so the plane hugs values that change evenly."""
    n, d = points.shape
    offset, slope = np.full(2 * leaves, np.inf), np.zeros((2 * leaves, d))
    middle, moment, product = np.empty(d), np.empty((d, d)), np.empty(d)
    level = leaves
    while level >= 1:
        for box in range(level):
            start, end = _begin(n, level, box), _begin(n, level, box + 1)
            if start == end:
                continue
            middle[:], moment[:], product[:] = 0.0, 0.0, 0.0
            mean = 0.0
            for i in range(start, end):
                mean += values[i]
                for k in range(d):
                    middle[k] += points[i, k]
            mean /= end - start
            middle /= end - start
            for i in range(start, end):
                for k in range(d):
                    product[k] += (points[i, k] - middle[k]) * (values[i] - mean)
                    for m in range(d):
                        moment[k, m] += (points[i, k] - middle[k]) * (points[i, m] - middle[m])
            spread = 0.0
            for k in range(d):
                spread += moment[k, k]
            if spread > 0.0:
                for k in range(d):
                    moment[k, k] += 1e-9 * spread
                _eliminate(moment, product, slope[level + box])
            least_rest = np.inf
            for i in range(start, end):
                rest = values[i]
                for k in range(d):
                    rest -= slope[level + box, k] * points[i, k]
                least_rest = min(least_rest, rest)
            offset[level + box] = least_rest
        level //= 2
    return offset, slope


@kernel
def _at_least(
    ends: Floats,
    join: int,
    legs: Floats,
    need: float,
    low: Floats,
    high: Floats,
    offset: Floats,
    slope: Floats,
    box: int,
    pull: Floats,
) -> float:
    """A lower bound of the weighted distances to the three ends plus `need` times the price, anywhere in a box.
    `pull` is scratch."""
    d = ends.shape[2]
    bound: float = need * offset[box]
    for e in range(3):
        squared = 0.0
        for k in range(d):
            off = 0.5 * (low[box, k] + high[box, k]) - ends[e, join, k]
            squared += off * off
        length = np.sqrt(squared)
        bound += legs[e] * length
        pull[e] = legs[e] / length if length > 0.0 else 0.0
    for k in range(d):
        centre = 0.5 * (low[box, k] + high[box, k])
        tilt = need * slope[box, k]
        bound += tilt * centre
        for e in range(3):
            tilt += pull[e] * (centre - ends[e, join, k])
        bound -= abs(tilt) * 0.5 * (high[box, k] - low[box, k])
    return bound


@kernel
def _cost(
    ends: Floats,
    tall: Floats,
    slots: npt.NDArray[np.int64],
    join: int,
    legs: Floats,
    points: Floats,
    heights: Floats,
    i: int,
) -> float:
    """Weighted distances from the host in slot i to the three ends; zero to itself."""
    total: float = 0.0
    for e in range(3):
        if slots[e, join] == i:
            continue
        squared = 0.0
        for k in range(points.shape[1]):
            gap = points[i, k] - ends[e, join, k]
            squared += gap * gap
        total += legs[e] * (np.sqrt(squared) + heights[i] + tall[e, join])
    return total


@kernel
def _cheapest(  # type: ignore[no-untyped-def]
    start,
    end,
    value,
    where,
    slack,
    ends,
    tall,
    slots,
    legs,
    demand,
    price,
    hint,
    points,
    heights,
    low,
    high,
    least_height,
    offset,
    slope,
):
    n = len(points)
    leaves = len(offset) // 2
    waiting, floor, pull = np.empty(STACK, np.int64), np.empty(STACK), np.empty(3)
    for join in range(start, end):
        need = demand[join]
        best = hint[join]
        best_value = _cost(ends, tall, slots, join, legs, points, heights, best) + need * price[best]
        for e in range(3):  # the ends themselves: heights do not count there, so boxes may overrate them
            i = slots[e, join]
            if i >= 0:
                there = _cost(ends, tall, slots, join, legs, points, heights, i) + need * price[i]
                if there < best_value:
                    best, best_value = i, there
        lift = legs[0] * tall[0, join] + legs[1] * tall[1, join] + legs[2] * tall[2, join]
        all_legs = legs[0] + legs[1] + legs[2]
        waiting[0], floor[0] = 1, -np.inf
        top = 1
        skipped = np.inf  # the least bound of a box that was not searched
        while top > 0:
            top -= 1
            box = waiting[top]
            if floor[top] >= best_value * (1 - slack):
                skipped = min(skipped, floor[top])
                continue
            if box >= leaves:
                for i in range(_begin(n, leaves, box - leaves), _begin(n, leaves, box - leaves + 1)):
                    there = _cost(ends, tall, slots, join, legs, points, heights, i) + need * price[i]
                    if there < best_value:
                        best, best_value = i, there
                continue
            one, two = 2 * box, 2 * box + 1
            at_one = (
                _at_least(ends, join, legs, need, low, high, offset, slope, one, pull)
                + lift
                + all_legs * least_height[one]
            )
            at_two = (
                _at_least(ends, join, legs, need, low, high, offset, slope, two, pull)
                + lift
                + all_legs * least_height[two]
            )
            if at_one < at_two:  # the nearer box on top
                one, two, at_one, at_two = two, one, at_two, at_one
            waiting[top], floor[top] = one, at_one
            waiting[top + 1], floor[top + 1] = two, at_two
            top += 2
        value[join], where[join] = min(best_value, skipped), best
