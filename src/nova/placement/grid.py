"""How a join is cut into parts: the paper's rule, grids of equal parts, and boxes that follow the hosts' capacities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.policy import COLUMNS, SLIVER
from nova.model.problem import Floats


def p_max(sigma: float, left_rate: float, right_rate: float) -> float:
    """Largest part of a stream in tuples/s (Section 3.4): max(1, σ · 0.5 · (dr(s) + dr(t)))."""
    return max(1.0, sigma * 0.5 * (left_rate + right_rate))


def paper_parts(rate: float, largest: float) -> Floats:
    """A stream cut after the paper: parts of `largest` tuples/s and a remainder (10 by 3 gives 3, 3, 3, 1)."""
    full = math.floor(rate / largest + 1e-9)
    rest = rate - full * largest
    parts = [largest] * full + ([rest] if rest > 1e-9 * rate else [])
    return np.array(parts or [rate])


def equal_parts(rate: float, largest: float) -> Floats:
    """A stream cut into as many parts as the paper's rule makes, all of one size: less load at the same traffic."""
    count = len(paper_parts(rate, largest))
    return np.full(count, rate / count)


@dataclass(frozen=True)
class Boxes:
    """Parts of one sub-join: `host[i]` (a place in the candidate list) takes these shares of both streams."""

    host: npt.NDArray[np.int64]
    left_from: Floats
    left_to: Floats
    right_from: Floats
    right_to: Floats
    cost: float
    """Cost weighted by the tuples on each part."""


def split(
    left_rate: float,
    right_rate: float,
    free: Floats,
    legs: Floats,
    weights: Floats,
    part_rate: float | None = None,
    max_parts: int | None = None,
) -> Boxes | None:
    """Cut a sub-join into boxes over hosts given in order of cost, or None where they cannot take it.

    One stream is cut into n equal columns; within a column the other stream is dealt out, each host taking as much as
    its free capacity allows after the column is broadcast to it. Several n and both ways round are tried; the
    cheapest wins. `legs` are the distances left→host, right→host, host→sink (3 × hosts). With `part_rate` (the paper's
    p_max) all cuts fall on a grid of equal parts of at most that rate.
    """
    grains = (0, 0)
    if part_rate is not None:
        grains = len(equal_parts(left_rate, part_rate)), len(equal_parts(right_rate, part_rate))
    count, host, dealt, column, swapped, cost = _split(
        left_rate,
        right_rate,
        free,
        legs,
        weights,
        np.array(grains),
        len(free) if max_parts is None else max_parts,
        np.array(COLUMNS),
    )
    if not count:
        return None
    left, right = (column, dealt) if swapped else (dealt, column)
    return Boxes(host[:count], left[0, :count], left[1, :count], right[0, :count], right[1, :count], cost)


@kernel
def _split(left_rate, right_rate, free, legs, weights, grains, max_parts, columns):  # type: ignore[no-untyped-def]
    hosts = len(free)
    best_host = np.empty(hosts, np.int64)
    best_dealt, best_column = np.empty((2, hosts)), np.empty((2, hosts))
    host = np.empty(hosts, np.int64)
    dealt, column = np.empty((2, hosts)), np.empty((2, hosts))
    best_count, best_swap, best_cost = 0, False, np.inf
    for swap in (False, True):
        dealt_rate, column_rate = (right_rate, left_rate) if swap else (left_rate, right_rate)
        dealt_leg, column_leg = (1, 0) if swap else (0, 1)
        dealt_grain, column_grain = (grains[1], grains[0]) if swap else (grains[0], grains[1])
        for n in columns:
            if column_grain > 0 and n > column_grain:
                break
            count = _deal(dealt_rate, column_rate, n, dealt_grain, column_grain, free, max_parts, host, dealt, column)
            if count == 0:
                continue
            if best_count > 0 and count > 4 * best_count:
                break
            # Each source's way is averaged over the tuples it sends, the way to the sink over both.
            sent_dealt = sent_column = way_dealt = way_column = sink_dealt = sink_column = 0.0
            for i in range(count):
                tuples_dealt = dealt_rate * (dealt[1, i] - dealt[0, i])
                tuples_column = column_rate * (column[1, i] - column[0, i])
                sent_dealt += tuples_dealt
                sent_column += tuples_column
                way_dealt += tuples_dealt * legs[dealt_leg, host[i]]
                way_column += tuples_column * legs[column_leg, host[i]]
                sink_dealt += tuples_dealt * legs[2, host[i]]
                sink_column += tuples_column * legs[2, host[i]]
            cost = (
                weights[dealt_leg] * way_dealt / sent_dealt
                + weights[column_leg] * way_column / sent_column
                + weights[2] * 0.5 * (sink_dealt / sent_dealt + sink_column / sent_column)
            )
            if cost < best_cost - 1e-9:
                best_count, best_swap, best_cost = count, swap, cost
                best_host[:count] = host[:count]
                best_dealt[:, :count] = dealt[:, :count]
                best_column[:, :count] = column[:, :count]
    return best_count, best_host, best_dealt, best_column, best_swap, best_cost


@kernel
def _deal(  # type: ignore[no-untyped-def]
    dealt_rate, column_rate, n, dealt_grain, column_grain, free, max_parts, host, dealt, column
):
    """Deal one stream out over the hosts in order, column by column of the other, every host once. Returns the number
    of boxes, 0 where the hosts do not suffice."""
    count, candidate = 0, 0
    sliver = max(SLIVER, 1.0 / dealt_grain if dealt_grain > 0 else 0.0) - 1e-12
    low = 0.0
    for k in range(n):
        high = (k + 1) / n
        if column_grain > 0:
            high = np.round(high * column_grain) / column_grain
        if k == n - 1:
            high = 1.0
        at = 0.0
        while at < 1.0:
            if candidate == len(free) or count == max_parts:
                return 0
            h = candidate
            candidate += 1
            end = at + (free[h] - column_rate * (high - low)) / dealt_rate
            if dealt_grain > 0:
                end = np.floor(end * dealt_grain + 1e-9) / dealt_grain
            if end >= 1.0 - 1e-12:
                end = 1.0
            elif end - at < sliver:
                continue  # broadcasting a column for a sliver of the other stream only moves tuples about
            host[count] = h
            dealt[0, count], dealt[1, count] = at, end
            column[0, count], column[1, count] = low, high
            count += 1
            at = end
        low = high
    return count
