"""HostIndex: finds the host with room that costs a sub-join least, exactly, without wading through full ones.

Hosts are sorted along a Morton curve and grouped into boxes of eight, these into boxes of eight, and so on up to one
root. Each box knows its corners, the largest free capacity and the smallest height below it, so a search skips whatever
is full or too far. Taking or returning capacity touches one box per level.

Built with slack, the index takes inserts and deletes. Some slots stay empty; a new host goes into the leaf of its place
on the curve. Where that leaf is full, the smallest box around it with enough room spreads its hosts evenly over its
slots (a packed memory array), so the boxes stay as tight as if built afresh, wherever hosts come and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nova.jit import inline, kernel, parallel, prange
from nova.model.problem import Floats, Ints

FEW = 4096
"""Hosts up to which an index is built on one core."""
FAN = 8
"""Hosts per leaf box and boxes per box."""
DEPTH = 12
"""Levels at most: 8¹² hosts are more than anyone has."""
FULL = 0.92
"""Share of the slots of the whole index that may be taken before it is built anew with more; a leaf may be full."""
SLACK = 0.25
"""Share of the slots that an index for inserts keeps empty when it is built."""
EMPTY = -1.0
"""Free capacity of an empty slot: less than any need."""
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Place on the curve after all others: that of a box without hosts."""


@dataclass
class HostIndex:
    """The hosts of a problem as a tree of boxes. `free` changes as replicas are placed; without slack, nothing else."""

    node: Ints
    """Row of the node behind each slot, in tree order; −1 for empty slots."""
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
    code: npt.NDArray[np.uint64]
    """Place of each slot's host on the curve."""
    held: Ints
    """Hosts in each box; none where the index has no slack, and the next likewise."""
    least_code: npt.NDArray[np.uint64]
    """First place on the curve in each box."""
    origin: Floats
    scale: float
    """A point's cell on the curve is (point − origin) · scale."""

    def __len__(self) -> int:
        return len(self.node)

    @property
    def tree(self) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, npt.NDArray[np.int64]]:
        """The arrays that kernels take."""
        return (
            self.points,
            self.heights,
            self.free,
            self.low,
            self.high,
            self.most_free,
            self.least_height,
            self.offsets,
        )

    @property
    def slots(self) -> tuple[Ints, Floats, Floats, Floats, npt.NDArray[np.uint64]]:
        """The arrays with one entry per slot that `insert` and `remove` take."""
        return self.node, self.points, self.heights, self.free, self.code

    @property
    def boxes(self) -> tuple[Floats, Floats, Floats, Floats, Ints, npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The arrays with one entry per box that `insert` and `remove` take."""
        return self.low, self.high, self.most_free, self.least_height, self.held, self.least_code, self.offsets

    def add(self, row: int, point: Floats, height: float, amount: float, slot_of: Ints) -> bool:
        """Add node `row` as a host with `amount` tuples/s free; `slot_of` (slot per node row) is kept up to date.
        Returns whether the index was built anew, with other arrays. Needs an index with slack."""
        frame = self.origin, self.scale
        if insert(row, point, height, amount, frame, self.slots, self.boxes, slot_of) >= 0:
            return False
        taken = np.flatnonzero(self.node >= 0)
        bigger = build(
            np.append(self.node[taken], np.int32(row)),
            np.vstack([self.points[taken], point]),
            np.append(self.heights[taken], height),
            np.append(self.free[taken], amount),
            SLACK,
        )
        self.__dict__.update(bigger.__dict__)
        taken = np.flatnonzero(self.node >= 0)
        slot_of[self.node[taken]] = taken
        return True

    def drop(self, slot: int) -> None:
        """Take the host of a slot out. Needs an index with slack."""
        remove(slot, self.slots, self.boxes)


def build(node: Ints, points: Floats, heights: Floats, free: Floats, slack: float = 0.0) -> HostIndex:
    """Index the given nodes (rows `node`, their coordinates, heights and free capacities). `slack` is the share of
    slots kept empty for inserts; without it slots are the hosts in curve order, one after the other."""
    n, d = points.shape
    origin, scale = _frame(points)
    code = _curve(points, origin, scale)
    if slack > 0:
        order = np.argsort(code, kind="stable")
        leaves = max(2, int(np.ceil(n / ((1 - slack) * FAN))))
        return _spread(
            node[order], points[order], heights[order], free[order], code[order], leaves * FAN, origin, scale
        )
    order = _sorted(code)
    index = _empty(n, d, origin, scale, blank=False)
    columns: tuple[npt.NDArray[Any], ...] = (node, points, heights, free, code)
    slots: tuple[npt.NDArray[Any], ...] = (index.node, index.points, index.heights, index.free, index.code)
    if n > FEW:
        _gather(order, *columns, *slots)
    else:
        for column, slot in zip(columns, slots, strict=True):
            slot[:] = column[order]
    _bound(*index.tree)
    return index


@parallel
def _gather(order, node, points, heights, free, code, to_node, to_points, to_heights, to_free, to_code):  # type: ignore[no-untyped-def]
    """Copy hosts into curve order, all columns in one pass over memory."""
    for i in prange(len(order)):
        j = order[i]
        to_node[i], to_heights[i], to_free[i], to_code[i] = node[j], heights[j], free[j], code[j]
        for k in range(points.shape[1]):
            to_points[i, k] = points[j, k]


def _empty(slots: int, d: int, origin: Floats, scale: float, blank: bool = True) -> HostIndex:
    """An index without hosts. `blank`: its slots say so; otherwise somebody fills every one of them."""
    offsets = [0]
    count = slots
    while True:
        count = max(1, -(-count // FAN))
        offsets.append(offsets[-1] + count)
        if count == 1:
            break
    boxes = offsets[-1]
    return HostIndex(
        node=np.full(slots, -1, np.int32) if blank else np.empty(slots, np.int32),
        points=np.zeros((slots, d)) if blank else np.empty((slots, d)),
        heights=np.zeros(slots) if blank else np.empty(slots),
        free=np.full(slots, EMPTY) if blank else np.empty(slots),
        low=np.full((boxes, d), np.inf),
        high=np.full((boxes, d), -np.inf),
        most_free=np.zeros(boxes),
        least_height=np.full(boxes, np.inf),
        offsets=np.array(offsets, dtype=np.int64),
        code=np.full(slots, LAST) if blank else np.empty(slots, np.uint64),
        held=np.empty(0, np.int32),
        least_code=np.empty(0, np.uint64),
        origin=origin,
        scale=scale,
    )


def _spread(
    node: Ints,
    points: Floats,
    heights: Floats,
    free: Floats,
    code: npt.NDArray[np.uint64],
    slots: int,
    origin: Floats,
    scale: float,
) -> HostIndex:
    """An index with room for inserts: hosts in curve order, evenly spread over `slots`."""
    n, d = points.shape
    index = _empty(slots, d, origin, scale)
    at = np.arange(n) * slots // max(n, 1)
    index.node[at] = node
    index.points[at] = points
    index.heights[at] = heights
    index.free[at] = free
    index.code[at] = code
    boxes = len(index.most_free)
    index.held, index.least_code = np.zeros(boxes, np.int32), np.full(boxes, LAST)
    _bound(*index.tree)
    _count(index.node, index.code, index.held, index.least_code, index.offsets)
    return index


def _sorted(code: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Order along the curve; ties by row. One sort of whole words (the code's leading bits, then the row) is several
    times quicker than sorting indices by code; neighbours within 2⁻¹⁶ of the extent may keep their row order."""
    n = len(code)
    drop = max(int(code.max(initial=np.uint64(0))).bit_length() - 32, 0)
    word = (code >> np.uint64(drop) << np.uint64(32)) | np.arange(n, dtype=np.uint64)
    word.sort()
    return (word & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _frame(points: Floats) -> tuple[Floats, float]:
    """Origin and scale that map the points' extent onto the cells of the curve."""
    n, d = points.shape
    if n == 0:
        return np.zeros(d), 1.0
    low = points.min(axis=0)
    extent = float(np.maximum(points.max(axis=0) - low, 1e-300).max())
    return low, (2.0 ** _bits(d) - 1) / extent


def _bits(dimensions: int) -> int:
    return min(21, 62 // max(dimensions, 1))


def _curve(points: Floats, origin: Floats, scale: float) -> npt.NDArray[np.uint64]:
    """Position of each point along a Z-curve: bits of its scaled coordinates, interleaved. Points beyond the frame
    count as on its edge."""
    n, d = points.shape
    if n == 0:
        return np.empty(0, np.uint64)
    codes: npt.NDArray[np.uint64] = (_interleave if n > FEW else _interleave_few)(points, origin, scale, _bits(d))
    return codes


@parallel
def _interleave(points, origin, scale, bits):  # type: ignore[no-untyped-def]
    code = np.empty(len(points), np.uint64)
    for i in prange(len(points)):
        code[i] = _code(points[i], origin, scale, bits)
    return code


@kernel
def _interleave_few(points, origin, scale, bits):  # type: ignore[no-untyped-def]
    """The same on one core: threads cost more than they bring here, and a forked process must not start any."""
    code = np.empty(len(points), np.uint64)
    for i in range(len(points)):
        code[i] = _code(points[i], origin, scale, bits)
    return code


@inline
def _code(point, origin, scale, bits):  # type: ignore[no-untyped-def]
    value = np.uint64(0)
    d = len(point)
    for k in range(d):
        cell = np.uint64(min(max((point[k] - origin[k]) * scale, 0.0), 2.0**bits - 1))
        for bit in range(bits):
            value |= ((cell >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * d + d - 1 - k)
    return value


@kernel
def _bound(points, heights, free, low, high, most_free, least_height, offsets):  # type: ignore[no-untyped-def]
    """Fill the boxes of all levels from the hosts up."""
    n, d = points.shape
    for i in range(n):
        if free[i] < 0.0:
            continue
        box = i // FAN
        for k in range(d):
            low[box, k] = min(low[box, k], points[i, k])
            high[box, k] = max(high[box, k], points[i, k])
        least_height[box] = min(least_height[box], heights[i])
    for level in range(1, len(offsets) - 1):
        below, start = offsets[level - 1], offsets[level]
        for i in range(start - below):
            box, child = start + i // FAN, below + i
            for k in range(d):
                low[box, k] = min(low[box, k], low[child, k])
                high[box, k] = max(high[box, k], high[child, k])
            least_height[box] = min(least_height[box], least_height[child])
    raise_free(free, most_free, offsets)


@kernel
def raise_free(free, most_free, offsets):  # type: ignore[no-untyped-def]
    """Let all boxes know the free capacities of the hosts below them."""
    most_free[:] = 0.0
    for i in range(len(free)):
        most_free[i // FAN] = max(most_free[i // FAN], free[i])
    for level in range(1, len(offsets) - 1):
        below, start = offsets[level - 1], offsets[level]
        for i in range(start - below):
            most_free[start + i // FAN] = max(most_free[start + i // FAN], most_free[below + i])


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
def least_cost(left, right, sink, weights, low, high, box):  # type: ignore[no-untyped-def]
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
def nearest(left, right, sink, weights, need, limit, tree, slots, costs):  # type: ignore[no-untyped-def]
    """Fill `slots` and `costs` with the hosts that cost least among those with at least `need` free and a cost below
    `limit`, cheapest first; returns how many there are. Cost: weighted distances to the three points plus the host's
    height on every leg; ties go to the lower slot. Depth first, nearest box first; `limit` shrinks as hosts are
    found."""
    points, heights, free, low, high, most_free, least_height, offsets = tree
    levels = len(offsets) - 1
    all_legs = weights[0] + weights[1] + weights[2]
    found, wanted = 0, len(slots)
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
        if stack_bound[top] > limit:
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
                if cost > limit or (cost == limit and (found < wanted or i > slots[wanted - 1])):
                    continue
                place = min(found, wanted - 1)
                while place > 0 and (cost < costs[place - 1] or (cost == costs[place - 1] and i < slots[place - 1])):
                    slots[place], costs[place] = slots[place - 1], costs[place - 1]
                    place -= 1
                slots[place], costs[place] = i, cost
                found = min(found + 1, wanted)
                if found == wanted:
                    limit = costs[wanted - 1]
            continue
        first = top
        below = offsets[level - 1]
        for child in range(box * FAN, min(box * FAN + FAN, offsets[level] - below)):
            at = below + child
            if most_free[at] < need:
                continue
            bound = least_cost(left, right, sink, weights, low, high, at) + all_legs * least_height[at]
            if bound > limit:
                continue
            place = top  # insertion sort: the nearest box ends on top of the stack
            while place > first and stack_bound[place - 1] < bound:
                stack_box[place] = stack_box[place - 1]
                stack_level[place] = stack_level[place - 1]
                stack_bound[place] = stack_bound[place - 1]
                place -= 1
            stack_box[place], stack_level[place], stack_bound[place] = child, level - 1, bound
            top += 1
    return found


@kernel
def cheapest(left, right, sink, weights, need, limit, tree):  # type: ignore[no-untyped-def]
    """Slot and cost of the one host that `nearest` puts first; slot −1 and `limit` where there is none."""
    slots, costs = np.full(1, -1, np.int64), np.full(1, limit)
    nearest(left, right, sink, weights, need, limit, tree, slots, costs)
    return slots[0], costs[0]


@kernel
def _count(node, code, held, least_code, offsets):  # type: ignore[no-untyped-def]
    """Fill in how many hosts each box holds, and where on the curve it begins."""
    for i in range(len(node)):
        if node[i] >= 0:
            held[i // FAN] += 1
            least_code[i // FAN] = min(least_code[i // FAN], code[i])
    for level in range(1, len(offsets) - 1):
        below, start = offsets[level - 1], offsets[level]
        for i in range(start - below):
            held[start + i // FAN] += held[below + i]
            least_code[start + i // FAN] = min(least_code[start + i // FAN], least_code[below + i])


@kernel
def _mend_leaf(leaf, slots, boxes):  # type: ignore[no-untyped-def]
    """Work out one leaf box from its slots."""
    node, points, heights, free, code = slots
    low, high, most_free, least_height, held, least_code, _ = boxes
    d = points.shape[1]
    low[leaf, :] = np.inf
    high[leaf, :] = -np.inf
    most_free[leaf], least_height[leaf], held[leaf], least_code[leaf] = 0.0, np.inf, 0, LAST
    for i in range(leaf * FAN, min(leaf * FAN + FAN, len(node))):
        if node[i] < 0:
            continue
        for k in range(d):
            low[leaf, k] = min(low[leaf, k], points[i, k])
            high[leaf, k] = max(high[leaf, k], points[i, k])
        most_free[leaf] = max(most_free[leaf], free[i])
        least_height[leaf] = min(least_height[leaf], heights[i])
        held[leaf] += 1
        least_code[leaf] = min(least_code[leaf], code[i])


@kernel
def _mend_box(level, number, boxes):  # type: ignore[no-untyped-def]
    """Work out box `number` of a level above the leaves from the boxes below it."""
    low, high, most_free, least_height, held, least_code, offsets = boxes
    d = low.shape[1]
    box, below = offsets[level] + number, offsets[level - 1]
    low[box, :] = np.inf
    high[box, :] = -np.inf
    most_free[box], least_height[box], held[box], least_code[box] = 0.0, np.inf, 0, LAST
    for i in range(number * FAN, min(number * FAN + FAN, offsets[level] - below)):
        child = below + i
        for k in range(d):
            low[box, k] = min(low[box, k], low[child, k])
            high[box, k] = max(high[box, k], high[child, k])
        most_free[box] = max(most_free[box], most_free[child])
        least_height[box] = min(least_height[box], least_height[child])
        held[box] += held[child]
        least_code[box] = min(least_code[box], least_code[child])


@kernel
def remove(slot, slots, boxes):  # type: ignore[no-untyped-def]
    """Empty a slot."""
    slots[0][slot], slots[3][slot], slots[4][slot] = -1, EMPTY, LAST
    number = slot // FAN
    _mend_leaf(number, slots, boxes)
    for level in range(1, len(boxes[6]) - 1):
        number //= FAN
        _mend_box(level, number, boxes)


@kernel
def insert(row, point, height, amount, frame, slots, boxes, slot_of):  # type: ignore[no-untyped-def]
    """Add a host (node `row`) with `amount` free; `slot_of` (per node) follows hosts that are shifted. Returns the
    slot, or −1 where the index is too full and has to be built anew; then nothing has changed."""
    node, points, heights, free, code = slots
    held, least_code, offsets = boxes[4], boxes[5], boxes[6]
    d = points.shape[1]
    place = _place_of(point, frame[0], frame[1])
    leaf = _leaf_of(place, least_code, held, offsets)
    if held[leaf] < FAN:
        for i in range(leaf * FAN, leaf * FAN + FAN):
            if node[i] < 0:
                node[i], heights[i], free[i], code[i] = row, height, amount, place
                for k in range(d):
                    points[i, k] = point[k]
                slot_of[row] = i
                break
        _mend_leaf(leaf, slots, boxes)
        number = leaf
        for level in range(1, len(offsets) - 1):
            number //= FAN
            _mend_box(level, number, boxes)
        return slot_of[row]
    levels = len(offsets) - 1
    size, number = FAN, leaf
    for level in range(1, levels):
        size *= FAN
        number //= FAN
        first = number * size
        last = min(first + size, len(node))
        most = (1.0 - (1.0 - FULL) * level / (levels - 1)) * (last - first)
        if held[offsets[level] + number] + 1 > most:
            continue
        _even_out(first, last, row, point, height, amount, place, slots, slot_of)
        for i in range(first // FAN, (last - 1) // FAN + 1):
            _mend_leaf(i, slots, boxes)
        width = FAN
        for inner in range(1, levels):
            width *= FAN
            for i in range(first // width, (last - 1) // width + 1):
                _mend_box(inner, i, boxes)
        return slot_of[row]
    return -1


@kernel
def _place_of(point, origin, scale):  # type: ignore[no-untyped-def]
    """Position of one point along the curve; see `_curve`."""
    return _code(point, origin, scale, min(21, 62 // max(len(point), 1)))


@kernel
def _leaf_of(place, least_code, held, offsets):  # type: ignore[no-untyped-def]
    """The last leaf that begins at or before a place on the curve."""
    box = 0
    for level in range(len(offsets) - 2, 0, -1):
        below = offsets[level - 1]
        first = box * FAN
        chosen = -1
        for i in range(first, min(first + FAN, offsets[level] - below)):
            if held[below + i] == 0:
                continue
            if chosen < 0 or least_code[below + i] <= place:
                chosen = i
        box = first if chosen < 0 else chosen
    return box


@kernel
def _even_out(first, last, row, point, height, amount, place, slots, slot_of):  # type: ignore[no-untyped-def]
    """Spread the hosts of slots first … last and one more evenly over them, in curve order."""
    node, points, heights, free, code = slots
    d = points.shape[1]
    count = 1
    for i in range(first, last):
        count += node[i] >= 0
    rows, places = np.empty(count, np.int32), np.empty(count, np.uint64)
    at, high, room = np.empty((count, d)), np.empty(count), np.empty(count)
    rows[0], places[0], high[0], room[0] = row, place, height, amount
    at[0] = point
    q = 1
    for i in range(first, last):
        if node[i] >= 0:
            rows[q], places[q], high[q], room[q] = node[i], code[i], heights[i], free[i]
            at[q] = points[i]
            q += 1
            node[i], free[i], code[i] = -1, EMPTY, LAST
    order = np.argsort(places, kind="mergesort")
    for q in range(count):
        i, k = first + q * (last - first) // count, order[q]
        node[i], code[i], heights[i], free[i] = rows[k], places[k], high[k], room[k]
        points[i] = at[k]
        slot_of[rows[k]] = i
