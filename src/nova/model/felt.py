"""Latency of results from event to sink, from rows of sub-joins on hosts: ways, queues, and the whole distribution.

A row is a sub-join on one of its hosts. `nova.evaluation.prediction` tells what a plan will feel like by these, and
placement chooses by them among plans of like cost. All latencies in ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova.jit import kernel
from nova.model.problem import Floats, Ints, Problem
from nova.model.queue import WEIGHTS, md1_waits
from nova.model.subjoins import SubJoins

GAPS = 6
"""Points that stand for the time between the two events of a pair, where it matters."""
SHIFT = 42
"""Bits of a float's mantissa that the histogram of all results leaves out: 1024 bins per doubling of the latency."""
FIRST, LAST = (int(np.array([ms]).view(np.int64)[0]) >> SHIFT for ms in (1e-3, 1e10))
"""Bins of a microsecond and of months: what lies outside counts there."""
BINS = LAST - FIRST
SPREAD = 0.6180339887
"""The golden section: its multiples, less whole numbers, are spread evenly."""


def batches(problem: Problem, joins: SubJoins, rows: tuple[Ints, Ints, Floats, Floats], load: Floats) -> Floats:
    """E[X²]/E[X] of the tuples that reach each node at once: a tuple that several sub-joins want there comes as often.

    `rows`: sub-join, host, and distinct left and right tuples/s that reach it; `load` of each node in tuples/s.
    Sub-joins that want only part of a stream want a tuple with that probability, each on its own.
    """
    sources, n = problem.sources, len(problem.nodes)
    join, node, left, right = rows
    source = np.concatenate([joins.left[join], joins.right[join]])
    rate = sources.rate[source]
    share = np.divide(np.concatenate([left, right]), rate, out=np.zeros(len(rate)), where=rate > 0)
    key = np.concatenate([node, node]).astype(np.int64) * max(1, len(sources)) + source
    pair, group = np.unique(key, return_inverse=True)
    copies = np.bincount(group, share, len(pair))
    squares = np.bincount(group, share * (1.0 - share), len(pair)) + copies**2
    node, source = np.divmod(pair, max(1, len(sources)))
    second = np.bincount(node, sources.rate[source] * squares, n) + problem.nodes.other_load
    return np.maximum(1.0, np.divide(second, load, out=np.ones(n), where=load > 0))


def mean_way(near: Floats, far: Floats, window: Floats) -> Floats:
    """Mean, over pairs of a window, of how long after the later event the last of both tuples is at the host, in ms.

    If the farther source's event is the later one, that is its way. Else the nearer one's, or what is left of the
    other's way if that is longer.
    """
    apart = far - near
    reach = np.minimum(apart / window, 1.0)
    # ∫ (apart − Δ) over Δ < apart, with density 2 (1 − Δ/window) / window
    still = apart * (1.0 - (1.0 - reach) ** 2) - window * (reach**2 - 2.0 * reach**3 / 3.0)
    return np.asarray(0.5 * far + 0.5 * (near + still))


def steady_waits(node: Ints, rho: Floats, service: Floats, batch: Floats, window: Floats, apart: Floats) -> Floats:
    """Waits of each row on its host `node` in ms, a column per stratum of `WEIGHTS`; infinite where the queue does not
    settle. `rho`, `service` (ms) and `batch` are those of all nodes, `window` and `apart`, by how much the ways of its
    two tuples differ, of the row, in ms."""
    hosts, row = np.unique(node, return_inverse=True)
    found: Floats = row_waits(md1_waits(rho[hosts]), row, rho[node], service[node], batch[node], window, apart)
    return found


@kernel
def row_waits(
    at_host: Floats,
    host: Ints,
    rho: Floats,
    service: Floats,
    batch: Floats,
    window: Floats,
    apart: Floats,
) -> Floats:
    """Waits of each row in ms at the levels of `at_host` (in services): the host's queue, those before the tuple in its
    batch, and the pair's other tuple where it is still there."""
    n, points = len(host), at_host.shape[1]
    found = np.empty((n, points))
    for i in range(n):
        one = service[i] * batch[i]
        for k in range(points):
            wait = at_host[host[i], k] * one
            if wait == np.inf or service[i] == np.inf:
                found[i, k] = np.inf
                continue
            together = _within((wait + one / 2.0) / (1.0 - rho[i]), apart[i], window[i])
            inside = ((k + 1) * SPREAD) % 1.0  # the place in the batch, spread evenly over the levels
            found[i, k] = wait + one * together + inside * (batch[i] - 1.0) * service[i]
        if batch[i] > 1.0:
            found[i].sort()
    return found


@kernel
def _within(reach: float, apart: float, window: float) -> float:
    """Probability that the tuples of a pair reach the host within `reach` of each other, when their ways differ by
    `apart` and their events lie anywhere in one window."""
    return float(_earlier((reach - apart) / window) - _earlier((-reach - apart) / window))


@kernel
def _earlier(x: float) -> float:
    """Distribution of the difference of two times in one window of length 1."""
    x = min(max(x, -1.0), 1.0)
    return (1.0 + x) ** 2 / 2.0 if x < 0.0 else 1.0 - (1.0 - x) ** 2 / 2.0


def quantiles(
    levels: Sequence[float],
    weight: Floats,
    near: Floats,
    far: Floats,
    fixed: Floats,
    window: Floats,
    waits: Floats,
) -> list[float]:
    """Latency that each of the shares `levels` of all results does not exceed. Per row: `weight` in results/s, the ways
    of its nearer and its farther tuple, what is `fixed` (service, the way to the sink), its window, and its waits."""
    bins, beyond = histogram(weight, near, far, fixed, window, waits, WEIGHTS)
    return [_quantile(bins, beyond, level) for level in levels]


@kernel
def histogram(
    weight: Floats, near: Floats, far: Floats, fixed: Floats, window: Floats, waits: Floats, weights: Floats
) -> tuple[Floats, float]:
    """Results/s per bin of latency, and those without a finite one."""
    bins, beyond = np.zeros(BINS), 0.0
    ways, chances = np.empty(GAPS + 2), np.empty(GAPS + 2)
    latency = np.empty(len(weights) * len(ways))
    places = latency.view(np.int64)
    for i in range(len(weight)):
        ways[0], chances[0] = far[i], 0.5
        reach = min((far[i] - near[i]) / window[i], 1.0)
        travels = 0.5 * (1.0 - (1.0 - reach) ** 2)  # the nearer event is the later one, and the other is on its way
        ways[1], chances[1] = near[i], 0.5 - travels
        used = 2
        if travels > 0.0:
            for g in range(GAPS):
                gap = 1.0 - np.sqrt(1.0 - (g + 0.5) / GAPS * 2.0 * travels)
                ways[used], chances[used] = far[i] - gap * window[i], travels / GAPS
                used += 1
        for k in range(len(weights)):
            for g in range(used):
                latency[k * used + g] = ways[g] + fixed[i] + waits[i, k]
        for k in range(len(weights)):
            mass = weight[i] * weights[k]
            if waits[i, k] == np.inf:
                beyond += mass
                continue
            for g in range(used):
                at = (places[k * used + g] >> SHIFT) - FIRST  # the bits of a float grow with its logarithm
                bins[min(max(at, 0), BINS - 1)] += mass * chances[g]
    return bins, beyond


def _quantile(bins: Floats, beyond: float, q: float) -> float:
    """Latency in ms that the share q does not exceed."""
    reached = np.cumsum(bins)
    wanted = q * (float(reached[-1]) + beyond)
    if wanted > reached[-1]:
        return float("inf")
    at = int(np.searchsorted(reached, wanted))
    edges = np.array([at + FIRST, at + FIRST + 1], np.int64) << SHIFT
    return float(edges.view(np.float64).mean())
