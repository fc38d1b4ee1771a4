"""HostIndex: finds the host with room that costs a sub-join least, exactly, without wading through full ones.

Hosts are sorted along a Morton curve and grouped into boxes of eight, these into boxes of eight, and so on up to one
root. Each box knows its corners, the largest free capacity and the smallest height below it, so a search skips whatever
is full or too far. Taking or returning capacity touches one box per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.jit import inline, kernel
from nova.problem import Floats, Ints

FAN = 8
"""Hosts per leaf box and boxes per box."""
DEPTH = 12
"""Levels at most: 8¹² hosts are more than anyone has."""


@dataclass
class HostIndex:
    """The hosts of a problem as a tree of boxes. `free` changes as replicas are placed; all else stays."""

    node: Ints
    """Row of the node behind each slot, in tree order."""
    points: Floats
    heights: Floats
    free: Floats
    """Free tuples/s per slot."""
    low: Floats
    """Boxes, all levels one after the other, leaves first."""
    high: Floats
    most_free: Floats
    least_height: Floats
    offsets: npt.NDArray[np.int64]
    """Where each level's boxes begin; the last entry is the number of boxes."""

    def __len__(self) -> int:
        return len(self.node)

    @property
    def tree(self) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, npt.NDArray[np.int64]]:
        """The arrays that kernels take."""
        return (self.points, self.heights, self.free, self.low, self.high, self.most_free, self.least_height,
                self.offsets)


def build(node: Ints, points: Floats, heights: Floats, free: Floats) -> HostIndex:
    """Index the given nodes (rows `node`, their coordinates, heights and free capacities)."""
    order = np.argsort(_morton(points), kind="stable")
    n, d = points.shape
    offsets = [0]
    count = n
    while True:
        count = max(1, -(-count // FAN))
        offsets.append(offsets[-1] + count)
        if count == 1:
            break
    boxes = offsets[-1]
    index = HostIndex(
        node=node[order].astype(np.int32),
        points=np.ascontiguousarray(points[order]),
        heights=heights[order],
        free=free[order].astype(np.float64),
        low=np.full((boxes, d), np.inf),
        high=np.full((boxes, d), -np.inf),
        most_free=np.zeros(boxes),
        least_height=np.full(boxes, np.inf),
        offsets=np.array(offsets, dtype=np.int64),
    )
    _bound(*index.tree)
    return index


def _morton(points: Floats) -> npt.NDArray[np.uint64]:
    """Position of each point along a Z-curve: bits of its scaled coordinates, interleaved."""
    n, d = points.shape
    bits = min(21, 62 // max(d, 1))
    if n == 0:
        return np.empty(0, np.uint64)
    low = points.min(axis=0)
    extent = float(np.maximum(points.max(axis=0) - low, 1e-300).max())
    cells = np.minimum((points - low) * ((2**bits - 1) / extent), 2**bits - 1).astype(np.uint64)
    return _interleave(cells, bits)


@kernel
def _interleave(cells: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    n, d = cells.shape
    code = np.zeros(n, np.uint64)
    for i in range(n):
        value = np.uint64(0)
        for bit in range(bits - 1, -1, -1):
            for k in range(d):
                value = (value << np.uint64(1)) | ((cells[i, k] >> np.uint64(bit)) & np.uint64(1))
        code[i] = value
    return code


@kernel
def _bound(points, heights, free, low, high, most_free, least_height, offsets):  # type: ignore[no-untyped-def]
    """Fill the boxes of all levels from the hosts up."""
    n, d = points.shape
    for i in range(n):
        box = i // FAN
        for k in range(d):
            low[box, k] = min(low[box, k], points[i, k])
            high[box, k] = max(high[box, k], points[i, k])
        most_free[box] = max(most_free[box], free[i])
        least_height[box] = min(least_height[box], heights[i])
    for level in range(1, len(offsets) - 1):
        below, start = offsets[level - 1], offsets[level]
        for i in range(start - below):
            box, child = start + i // FAN, below + i
            for k in range(d):
                low[box, k] = min(low[box, k], low[child, k])
                high[box, k] = max(high[box, k], high[child, k])
            most_free[box] = max(most_free[box], most_free[child])
            least_height[box] = min(least_height[box], least_height[child])


@kernel
def set_free(slot, amount, free, most_free, offsets):  # type: ignore[no-untyped-def]
    """Set the free capacity of one host and mend the boxes above it."""
    free[slot] = amount
    begin = slot // FAN * FAN
    most = 0.0
    for i in range(begin, min(begin + FAN, len(free))):
        most = max(most, free[i])
    box = slot // FAN
    for level in range(len(offsets) - 1):
        at = offsets[level] + box
        if most_free[at] == most:
            return
        most_free[at] = most
        if level == len(offsets) - 2:
            return
        begin = box // FAN * FAN
        most = 0.0
        for i in range(begin, min(begin + FAN, offsets[level + 1] - offsets[level])):
            most = max(most, most_free[offsets[level] + i])
        box //= FAN


@inline
def _least_cost(left, right, sink, weights, low, high, box):  # type: ignore[no-untyped-def]
    """A lower bound of the cost anywhere in a box. The cost is convex, so it lies above its tangent plane at the
    centre; where legs cancel this is far tighter than three separate distances to the box."""
    d = len(left)
    to_left = to_right = to_sink = 0.0
    for k in range(d):
        centre = 0.5 * (low[box, k] + high[box, k])
        to_left += (centre - left[k]) ** 2
        to_right += (centre - right[k]) ** 2
        to_sink += (centre - sink[k]) ** 2
    to_left, to_right, to_sink = np.sqrt(to_left), np.sqrt(to_right), np.sqrt(to_sink)
    pull_left = weights[0] / to_left if to_left > 0 else 0.0
    pull_right = weights[1] / to_right if to_right > 0 else 0.0
    pull_sink = weights[2] / to_sink if to_sink > 0 else 0.0
    bound = weights[0] * to_left + weights[1] * to_right + weights[2] * to_sink
    for k in range(d):
        centre = 0.5 * (low[box, k] + high[box, k])
        slope = pull_left * (centre - left[k]) + pull_right * (centre - right[k]) + pull_sink * (centre - sink[k])
        bound -= abs(slope) * 0.5 * (high[box, k] - low[box, k])
    return bound


@inline
def _to_point(point, points, i):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(point)):
        gap = points[i, k] - point[k]
        total += gap * gap
    return np.sqrt(total)


@kernel
def cheapest(left, right, sink, weights, need, limit, tree):  # type: ignore[no-untyped-def]
    """Slot and cost of the host with at least `need` free that costs least, if it costs less than `limit`; slot −1
    where there is none. Cost: weighted distances to the three points plus the host's height on every leg; ties go to
    the lower slot. Depth first, nearest box first; `limit` shrinks as better hosts are found."""
    points, heights, free, low, high, most_free, least_height, offsets = tree
    levels = len(offsets) - 1
    all_legs = weights[0] + weights[1] + weights[2]
    best, best_cost = -1, limit
    stack_box = np.empty(DEPTH * FAN, np.int64)
    stack_level = np.empty(DEPTH * FAN, np.int64)
    stack_bound = np.empty(DEPTH * FAN)
    stack_box[0], stack_level[0], stack_bound[0] = 0, levels - 1, 0.0
    top = 1
    if most_free[offsets[levels - 1]] < need:
        top = 0
    while top > 0:
        top -= 1
        box, level = stack_box[top], stack_level[top]
        if stack_bound[top] > best_cost:
            continue
        if level == 0:
            for i in range(box * FAN, min(box * FAN + FAN, len(free))):
                if free[i] < need:
                    continue
                cost = (
                    weights[0] * _to_point(left, points, i)
                    + weights[1] * _to_point(right, points, i)
                    + weights[2] * _to_point(sink, points, i)
                    + all_legs * heights[i]
                )
                if cost < best_cost or (cost == best_cost and 0 <= i < best):
                    best, best_cost = i, cost
            continue
        first = top
        below = offsets[level - 1]
        for child in range(box * FAN, min(box * FAN + FAN, offsets[level] - below)):
            at = below + child
            if most_free[at] < need:
                continue
            bound = _least_cost(left, right, sink, weights, low, high, at) + all_legs * least_height[at]
            if bound > best_cost:
                continue
            place = top  # insertion sort: the nearest box ends on top of the stack
            while place > first and stack_bound[place - 1] < bound:
                stack_box[place] = stack_box[place - 1]
                stack_level[place] = stack_level[place - 1]
                stack_bound[place] = stack_bound[place - 1]
                place -= 1
            stack_box[place], stack_level[place], stack_bound[place] = child, level - 1, bound
            top += 1
    return best, best_cost
