"""What coordinates cannot say: a low-rank residual of measured RTTs, used only where cross-validation says it helps.

Between the regions of a cloud, RTTs follow its backbone: cables, not geometry. Their deviations from any embedding are
nearly of low rank, and a few factors per node complete them for pairs that nobody measured. Between machines on the
open Internet deviations are noise, and completing them does harm. So a part of the measurements decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import eigsh

from nova.costspace.neighbours import spanning
from nova.model.problem import Bools, Floats, Ints, Latency
from nova.model.space import CostSpace, Residual

RANK = 8
"""Factors at most; shrinking drops those that are noise."""
SHRINK = 0.5
"""Eigenvalues lose this share of what noise of the size of the deviations would bring (its spectral norm)."""
ROUNDS = 25
"""Rounds of completion at most."""
SETTLED = 1e-3
"""Completion ends when a round changes no entry by more than this share of the largest one."""
FEWEST_NODES, MOST_NODES = 16, 256
"""Fewer nodes have too few pairs to tell; more make every round an eigen-decomposition of seconds."""
DENSE = 64
"""Nodes up to which all eigenvalues are computed, which is quicker than asking for a few."""
LEAST_DEGREE = 10.0
"""Measured neighbours per node, on average, that completion needs."""
FOLDS = 3
FOLD_SHARE = 0.1
"""Cross-validation: so many times, so large a share of the pairs is left out of both fits."""
GAIN = 0.9
"""The residual is kept where the median error on pairs left out falls at least to this share of what it was."""
TAIL = 1.05
"""… and the 90th percentile stays below this many times what it was."""

Fit = Callable[[Bools], CostSpace]
"""The cost space from the pairs that a mask names."""


def complete(n: int, first: Ints, second: Ints, excess: Floats) -> Residual:
    """The low-rank matrix that fits what was measured beyond the coordinates, in ms (soft-impute: fill in what is
    missing by the present guess, keep the largest eigenvalues, shrink them by what noise alone would bring)."""
    shrink = SHRINK * float(np.median(np.abs(excess))) * np.sqrt(2.0 * len(excess) / n)
    guess = np.zeros((n, n))
    vectors, values = np.zeros((n, 1)), np.zeros(1)
    for _ in range(ROUNDS):
        filled = guess.copy()
        filled[first, second] = filled[second, first] = excess
        values, vectors = _largest(filled)
        values = np.sign(values) * np.maximum(np.abs(values) - shrink, 0.0)
        after = (vectors * values) @ vectors.T
        moved = float(np.abs(after - guess).max())
        guess = after
        if moved <= SETTLED * max(float(np.abs(after).max()), 1e-12):
            break
    kept = np.abs(values) > 0
    return Residual(vectors[:, kept] * np.sqrt(np.abs(values[kept])), np.sign(values[kept]))


def helpful(n: int, latency: Latency, used: Bools, fit: Fit, seed: int) -> bool:
    """Whether a residual lowers the error on measurements that neither the coordinates nor it have seen."""
    rows = np.flatnonzero(used)
    if not FEWEST_NODES <= n <= MOST_NODES or 2 * len(rows) < LEAST_DEGREE * n:
        return False
    order = np.random.default_rng([seed, 8]).permutation(rows).astype(np.int64)
    needed = np.zeros(len(latency), bool)
    needed[order[spanning(n, latency.first[order], latency.second[order], np.arange(len(order)))]] = True
    spare = order[~needed[order]]
    size = round(FOLD_SHARE * len(rows))
    plain: list[Floats] = []
    refined: list[Floats] = []
    for fold in range(FOLDS):
        out = spare[fold * size : (fold + 1) * size]
        if not len(out):
            break
        kept = used.copy()
        kept[out] = False
        space = with_residual(fit(kept), latency, kept)
        ends, rtt = (latency.first[out], latency.second[out]), latency.rtt_ms[out]
        plain.append(np.abs(space.between(*ends) - rtt) / rtt)
        refined.append(np.abs(space.estimate(*ends) - rtt) / rtt)
        if fold == 0 and np.median(refined[0]) >= np.median(plain[0]):
            return False  # a fold without any gain is enough: most networks end here
    return bool(plain) and _better(np.concatenate(plain), np.concatenate(refined))


def with_residual(space: CostSpace, latency: Latency, used: Bools) -> CostSpace:
    """The space with the residual of the pairs used."""
    first, second = latency.first[used], latency.second[used]
    excess = latency.rtt_ms[used] - space.between(first, second)
    return CostSpace(space.coordinates, space.heights, space.accuracy, complete(len(space), first, second, excess))


def _better(before: Floats, after: Floats) -> bool:
    """Whether the errors fall: clearly at the median, and not at the cost of the tail."""
    tail = np.percentile(after, 90) <= TAIL * np.percentile(before, 90)
    return bool(np.median(after) <= GAIN * np.median(before) and tail)


def _largest(matrix: Floats) -> tuple[Floats, Floats]:
    """The eigenvalues that are largest in size, and their vectors."""
    if len(matrix) <= DENSE:
        values, vectors = np.linalg.eigh(matrix)
        largest = np.argsort(-np.abs(values), kind="stable")[:RANK]
        return values[largest], vectors[:, largest]
    values, vectors = eigsh(matrix, RANK, which="LM", v0=np.ones(len(matrix)), tol=1e-4)
    return values, vectors
