"""How well a cost space tells latencies: errors on pairs that it was not fitted to, and how much no space could fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nova.costspace import dice
from nova.costspace.neighbours import adjacency
from nova.jit import kernel
from nova.model.problem import Floats, Ints
from nova.model.space import Accuracy, CostSpace, HeldOut, Rows

TRIPLES = 200_000
"""How many triples are drawn where there are too many to look at all: a share of 7 % is then known to 0.1 %."""
ENOUGH = 400
"""A draw that met fewer measured triples says nothing: sparse measurements have hardly any."""
AT_ONCE = 4_000_000
"""Pairs whose distances are computed at a time: bounds memory."""


def measure(
    space: CostSpace, first: Ints, second: Ints, rtt: Floats, heldout: HeldOut, tiv_share: float = float("nan")
) -> Accuracy:
    """Errors of the space on the given pairs. NaN where there are none."""
    if len(rtt) == 0:
        return Accuracy(0, float("nan"), float("nan"), float("nan"), tiv_share, heldout)
    error = _errors(space.estimate, first, second, rtt)
    relative = error / rtt
    alone = None
    if space.residual is not None:
        alone = float(np.median(_errors(space.between, first, second, rtt) / rtt))
    return Accuracy(
        heldout_pairs=len(rtt),
        median_relative_error=float(np.median(relative)),
        p90_relative_error=float(np.percentile(relative, 90)),
        mae_ms=float(error.mean()),
        tiv_share=tiv_share,
        heldout=heldout,
        coordinates_median=alone,
    )


def _errors(told: Callable[[Ints, Ints], Floats], first: Ints, second: Ints, rtt: Floats) -> Floats:
    """Absolute error of each pair, in ms."""
    error = np.empty(len(rtt))
    for begin in range(0, len(rtt), AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        error[part] = np.abs(told(first[part], second[part]) - rtt[part])
    return error


def tiv(n: int, first: Ints, second: Ints, rtt: Floats, seed: int = 0, triples: int = TRIPLES) -> float:
    """Share of triples (i, j, k), all three pairs measured, in which the way over k beats the direct one:
    d(i,j) > d(i,k) + d(k,j). Every three nodes count three times, once for each direct pair.

    Exact where at most `triples` have to be looked at, otherwise from a seeded draw. NaN where (hardly) any triple is
    measured.
    """
    if len(rtt) == 0:
        return float("nan")
    offsets, pairs = adjacency(n, first, second)
    other = np.where(first[pairs] == np.repeat(np.arange(n), np.diff(offsets)), second[pairs], first[pairs])
    # neighbours in ascending order, so that a measurement is found by bisection
    order = np.lexsort((other, np.repeat(np.arange(n), np.diff(offsets))))
    neighbour, time = other[order], rtt[pairs[order]]
    degree = np.diff(offsets)
    if int((degree[first] + degree[second]).sum()) <= 2 * triples:
        return float(_tiv_exact(offsets, neighbour, time, first, second, rtt))
    return float(_tiv_drawn(offsets, neighbour, time, first, second, rtt, triples, seed))


@kernel
def _find(neighbour: Ints, low: int, high: int, node: int) -> int:
    """Row of `node` among neighbour[low:high] (ascending), or -1."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if neighbour[middle] < node:
            low = middle + 1
        else:
            high = middle
    return low if low < end and neighbour[low] == node else -1


@kernel
def _tiv_exact(offsets: Rows, neighbour: Ints, time: Floats, first: Ints, second: Ints, rtt: Floats) -> float:
    seen = 0
    broken = 0
    for pair in range(len(rtt)):
        a, b = offsets[first[pair]], offsets[second[pair]]
        while a < offsets[first[pair] + 1] and b < offsets[second[pair] + 1]:
            if neighbour[a] == neighbour[b]:
                seen += 1
                broken += rtt[pair] > time[a] + time[b]
                a += 1
                b += 1
            elif neighbour[a] < neighbour[b]:
                a += 1
            else:
                b += 1
    return broken / seen if seen else np.nan


@kernel
def _tiv_drawn(
    offsets: Rows, neighbour: Ints, time: Floats, first: Ints, second: Ints, rtt: Floats, draws: int, seed: int
) -> float:
    """Draw a pair (i, j) and a neighbour k of i. Each is as likely as 1 / degree(i), so it counts degree(i) times."""
    count = 0
    seen = 0
    broken = 0
    for draw in range(draws):
        pair = dice.below(len(rtt), draw, 3 * seed)
        i, j = first[pair], second[pair]
        if dice.below(2, draw, 3 * seed + 1) == 0:
            i, j = j, i
        degree = offsets[i + 1] - offsets[i]
        to = offsets[i] + dice.below(degree, draw, 3 * seed + 2)
        on = _find(neighbour, offsets[j], offsets[j + 1], neighbour[to])
        if on >= 0:
            count += 1
            seen += int(degree)
            if rtt[pair] > time[to] + time[on]:
                broken += int(degree)
    return broken / seen if count >= ENOUGH else np.nan
