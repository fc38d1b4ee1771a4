"""Which measurements an embedding uses: at most m neighbours per node, some near, the rest drawn from all others."""

from __future__ import annotations

import numpy as np

from nova.costspace import dice
from nova.costspace.landmarks import pieces
from nova.jit import kernel
from nova.model.problem import Bools, Floats, Ints
from nova.model.space import Rows

NEAREST_SHARE = 0.25
"""Share of a node's neighbours taken from its nearest ones. Near ones lower the tail of the error, far ones the median
(ANCHORS: half and half after Vivaldi; on RIPE Atlas and PlanetLab a quarter keeps most of both)."""


def adjacency(n: int, first: Ints, second: Ints, by: Floats | None = None) -> tuple[Rows, Rows]:
    """Rows of the pair list by node: those of node i are pairs[offsets[i]:offsets[i + 1]], in ascending order of `by`
    (one value per pair), or in no certain order."""
    count = len(first)
    ends = np.concatenate([first, second])
    keys = np.argsort(ends, kind="stable") if by is None else np.lexsort((np.concatenate([by, by]), ends))
    order = keys.astype(np.int64)
    offsets = np.searchsorted(ends[order], np.arange(n + 1)).astype(np.int64)
    return offsets, order % max(1, count)


def choose(n: int, first: Ints, second: Ints, rtt: Floats, m: int, seed: int = 0, near: float = NEAREST_SHARE) -> Bools:
    """Mask of the pairs to use: each node picks m of its measured neighbours, `near` of them the nearest by RTT.

    Both ends may pick, so a node takes part in 2·m pairs on average and in m at least, where it has that many. Never
    tears apart what is connected: drawn pairs are added where the picks alone would leave pieces.
    """
    offsets, pairs = adjacency(n, first, second, by=rtt)
    used: Bools = _pick(offsets, pairs, len(rtt), m, round(m * near), seed)
    _connect(n, first, second, used, seed)
    return used


@kernel
def _pick(offsets: Rows, pairs: Rows, count: int, m: int, near: int, seed: int) -> Bools:
    """Reorders `pairs`, which come nearest first."""
    used = np.zeros(count, dtype=np.bool_)
    for node in range(len(offsets) - 1):
        begin, end = offsets[node], offsets[node + 1]
        for k in range(begin, min(end, begin + m)):
            if k >= begin + near and end > begin + m:  # a draw without replacement from all that were not taken yet
                other = k + dice.below(end - k, seed * 1_000_003 + node, k - begin)
                pairs[k], pairs[other] = pairs[other], pairs[k]
            used[pairs[k]] = True
    return used


def _connect(n: int, first: Ints, second: Ints, used: Bools, seed: int) -> None:
    """Add pairs, in a drawn order, until `used` connects what all pairs together connect."""
    count, piece = pieces(n, first[used], second[used])
    if count == 1:
        return
    bridges = np.flatnonzero(piece[first] != piece[second])
    bridges = np.random.default_rng([seed, 4]).permutation(bridges)
    used[bridges[_joining(piece[first[bridges]], piece[second[bridges]], count)]] = True


def spanning(n: int, first: Ints, second: Ints, order: Rows) -> Rows:
    """Pairs, taken in `order`, that join two pieces each: a spanning forest. These must not be held out."""
    return order[_joining(first[order], second[order], n)]


@kernel
def _joining(a: Ints, b: Ints, count: int) -> Bools:
    """Which edges (a, b), in this order, join two pieces that were apart (union-find)."""
    parent = np.arange(count)
    joins = np.zeros(len(a), dtype=np.bool_)
    for k in range(len(a)):
        x, y = np.int64(a[k]), np.int64(b[k])
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        if x != y:
            parent[x] = y
            joins[k] = True
    return joins
