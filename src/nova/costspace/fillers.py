"""Filler values: entries that stand for "not measured" and look like very small RTTs, such as 1 in data of RIPE Atlas.

A filler is the least value of all, it repeats exactly, and it lies far below what the other measurements say: two nodes
that are 1 ms apart see every third node at nearly the same distance.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from nova.model.problem import Bools, Floats, Ints, Latency

REPEATS = 5
"""Pairs that must have the least value, and be far below their estimate, before it counts as a filler."""
WITNESSES = 5
"""Third nodes, measured from both ends, that an estimate needs."""
FAR_BELOW = 20.0
"""A filler's estimate is more than this many times its value. Pairs of one machine room stay within a few times."""


def fillers(n: int, latency: Latency) -> Bools:
    """Which pairs hold a filler instead of a measurement.

    The estimate of a pair is the median over third nodes k of |d(i,k) − d(j,k)|, which no metric lets exceed d(i,j).
    """
    found: Bools = np.zeros(len(latency), bool)
    if not len(latency):
        return found
    value = float(latency.rtt_ms.min())
    suspects = np.flatnonzero(latency.rtt_ms == value)
    if len(suspects) < REPEATS:
        return found
    ends = (np.r_[latency.first, latency.second], np.r_[latency.second, latency.first])
    known = coo_array((np.r_[latency.rtt_ms, latency.rtt_ms], ends), shape=(n, n)).tocsr()
    known.sort_indices()
    for pair in suspects:
        (near, there), (far, back) = (_row(known, int(end[pair])) for end in (latency.first, latency.second))
        _, mine, other = np.intersect1d(near, far, assume_unique=True, return_indices=True)
        if len(mine) >= WITNESSES:
            found[pair] = float(np.median(np.abs(there[mine] - back[other]))) > FAR_BELOW * value
    return found if np.count_nonzero(found) >= REPEATS else np.zeros(len(latency), bool)


def _row(matrix: csr_array[np.float64, tuple[int, int]], i: int) -> tuple[Ints, Floats]:
    """Neighbours of node i, ascending, and their RTTs."""
    part = slice(matrix.indptr[i], matrix.indptr[i + 1])
    return matrix.indices[part], matrix.data[part]
