"""How a join is cut into parts: the paper's rule, grids of equal parts, and boxes that follow the hosts' capacities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nova.problem import Floats


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


def grid_traffic(left_rate: float, right_rate: float, m: int, n: int) -> float:
    """Tuples/s sent when the left stream is cut into m parts and the right one into n: each left part goes to n
    replicas, each right part to m."""
    return left_rate * n + right_rate * m


def grid_load(left_rate: float, right_rate: float, m: int, n: int) -> float:
    """Tuples/s that reach one replica of an m × n grid of equal parts."""
    return left_rate / m + right_rate / n


def smallest_grid(left_rate: float, right_rate: float, largest: float) -> tuple[int, int]:
    """The m × n grid of least traffic whose replicas take at most `largest` tuples/s each.

    Replaces the paper's σ from a bandwidth budget, whose formula rises with σ while traffic falls with it.
    """
    if left_rate + right_rate <= largest:
        return 1, 1
    best = None
    for m in range(1, math.ceil(left_rate / largest) * 64 + 64):
        room = largest - left_rate / m
        if room <= 0:
            continue
        n = max(1, math.ceil(right_rate / room - 1e-9))
        traffic = grid_traffic(left_rate, right_rate, m, n)
        if best is None or (traffic, m * n) < best[0]:
            best = ((traffic, m * n), (m, n))
        if n == 1:
            break
    if best is None:
        raise ValueError(f"no grid brings {left_rate} + {right_rate} tuples/s down to {largest}")
    return best[1]


@dataclass(frozen=True)
class Boxes:
    """Parts of one sub-join: `host[i]` (a place in the candidate list) takes these shares of both streams."""

    host: list[int]
    left: list[tuple[float, float]]
    right: list[tuple[float, float]]
    cost: float
    """Cost weighted by the tuples on each part."""


def split(
    left_rate: float,
    right_rate: float,
    free: Floats,
    cost: Floats,
    weights: tuple[float, float, float],
    legs: Floats,
    part_rate: float | None = None,
    max_parts: int | None = None,
) -> Boxes | None:
    """Cut a sub-join into boxes over hosts given in order of cost, or None where they cannot take it.

    One stream is cut into n equal columns; within a column the other stream is dealt out, each host taking as much as
    its free capacity allows after the column is broadcast to it. All n and both ways round are tried; the cheapest
    wins. `legs` are the unweighted distances left→host, right→host, host→sink (3 × hosts). With `part_rate` (the
    paper's p_max) cuts fall on a grid of parts of at most that rate.
    """
    best: Boxes | None = None
    for swap in (False, True):
        dealt, column = (right_rate, left_rate) if swap else (left_rate, right_rate)
        dealt_grain = len(equal_parts(dealt, part_rate)) if part_rate else 0
        column_grain = len(equal_parts(column, part_rate)) if part_rate else 0
        for n in range(1, 65):
            if column_grain and n > column_grain:
                break
            cuts = _column_cuts(n, column_grain)
            boxes = _deal(dealt, column, cuts, dealt_grain, free, max_parts)
            if boxes is None:
                continue
            host, along, across = boxes
            left, right = (across, along) if swap else (along, across)
            total = _weighted_cost(left_rate, right_rate, host, left, right, weights, legs)
            if best is None or total < best.cost - 1e-9:
                best = Boxes(host, left, right, total)
            if n > 1 and len(host) > 4 * len(best.host):
                break
    return best


def _column_cuts(n: int, grain: int) -> list[float]:
    if not grain:
        return [k / n for k in range(n)] + [1.0]
    return [round(k * grain / n) / grain for k in range(n)] + [1.0]


def _deal(
    dealt: float, column: float, cuts: list[float], grain: int, free: Floats, max_parts: int | None
) -> tuple[list[int], list[tuple[float, float]], list[tuple[float, float]]] | None:
    """Deal each column's other stream out over the hosts in order, every host once."""
    host: list[int] = []
    along: list[tuple[float, float]] = []
    across: list[tuple[float, float]] = []
    candidates = iter(np.flatnonzero(free > 0))
    for low, high in zip(cuts, cuts[1:], strict=False):
        at = 0.0
        while at < 1.0:
            h = next(candidates, None)
            if h is None or (max_parts is not None and len(host) == max_parts):
                return None
            share = (free[h] - column * (high - low)) / dealt
            end = at + share
            if grain:
                end = math.floor(end * grain + 1e-9) / grain
            if end >= 1.0 - 1e-12:
                end = 1.0
            # Broadcasting a column to a host for a sliver of the other stream only moves tuples about.
            elif end - at < max(0.1, 1 / grain if grain else 0.0) - 1e-12:
                continue
            host.append(int(h))
            along.append((at, end))
            across.append((low, high))
            at = end
    return host, along, across


def _weighted_cost(
    left_rate: float, right_rate: float, host: list[int],
    left: list[tuple[float, float]], right: list[tuple[float, float]],
    weights: tuple[float, float, float], legs: Floats,
) -> float:
    """Cost of a split sub-join: each source's way is averaged over the tuples it sends, the way to the sink over all."""
    h = np.array(host)
    lefts = left_rate * np.array([b - a for a, b in left])
    rights = right_rate * np.array([b - a for a, b in right])
    to_sink = (lefts @ legs[2, h] / lefts.sum() + rights @ legs[2, h] / rights.sum()) / 2
    return float(
        weights[0] * (lefts @ legs[0, h]) / lefts.sum() + weights[1] * (rights @ legs[1, h]) / rights.sum()
        + weights[2] * to_sink
    )
