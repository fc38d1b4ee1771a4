"""SMACOF: weighted multidimensional scaling by majorisation (de Leeuw 1977), for small, nearly full matrices.

Each step solves a quadratic problem that lies above the stress and touches it, so the stress never rises. Missing pairs
have weight zero. Dense: n × n matrices and one pseudo-inverse, hence for small n only. No heights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nova.costspace.landmarks import landmark_mds
from nova.errors import InvalidInput
from nova.problem import Floats, Ints

LARGEST = 3000
"""Nodes. Beyond, dense matrices take more memory and time than the stress solver needs for a better fit."""
STEPS = 300
TOLERANCE = 1e-7
"""Stop where a step improves the stress by less than this share."""


def solve(
    n: int, first: Ints, second: Ints, rtt: Floats, *,
    dimensions: int = 3, seed: int = 0, progress: Callable[[float], None] | None = None,
) -> tuple[Floats, Floats]:
    """Coordinates (n × dimensions) in ms, and heights of zero. Pairs weigh 1/RTT, as in the stress solver."""
    if n > LARGEST:
        raise InvalidInput(
            f"embedding mds is for at most {LARGEST} nodes (found {n}).\nMaybe use embedding: stress, the default."
        )
    if len(rtt) == 0:
        return np.zeros((n, dimensions)), np.zeros(n)
    assert 0 < float(rtt.min()) <= float(rtt.max()) < np.inf, "RTTs are positive and finite"
    target, weight = np.zeros((n, n)), np.zeros((n, n))
    target[first, second] = target[second, first] = rtt
    weight[first, second] = weight[second, first] = np.median(rtt) / rtt
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    noise = np.random.default_rng([seed, 5]).normal(scale=1e-3 * float(np.median(rtt)), size=(n, dimensions))
    x = landmark_mds(n, first, second, rtt, dimensions, seed) + noise
    before = np.inf
    for step in range(STEPS):
        away = _distances(x)
        stress = float((weight * (away - target) ** 2).sum())
        if progress is not None:
            progress((step + 1) / STEPS)
        if before - stress <= TOLERANCE * stress:
            break
        before = stress
        pull = weight * np.divide(target, away, out=np.zeros_like(away), where=away > 0)
        x = inverse @ (pull.sum(1)[:, None] * x - pull @ x)
    return x, np.zeros(n)


def _distances(x: Floats) -> Floats:
    square = (x**2).sum(1)
    away: Floats = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2.0 * (x @ x.T), 0.0))
    np.fill_diagonal(away, 0.0)
    return away
