"""SMACOF: weighted multidimensional scaling by majorisation (de Leeuw 1977), for small, nearly full matrices.

Each step solves a quadratic problem that lies above the stress and touches it, so the stress never rises. Missing pairs
have weight zero. Dense: n × n matrices and one pseudo-inverse, hence for small n only. No heights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nova.costspace.landmarks import landmark_mds
from nova.jit import kernel
from nova.model.errors import InvalidInput
from nova.model.problem import Floats, Ints

LARGEST = 3000
"""Nodes. Beyond, dense matrices take more memory and time than the stress solver needs for a better fit."""
STEPS = 300
TOLERANCE = 1e-5
"""Stop where a step improves the stress by less than this share."""


def solve(
    n: int,
    first: Ints,
    second: Ints,
    rtt: Floats,
    *,
    dimensions: int = 3,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
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
        pulled, stress = _pull(x, target, weight)
        if progress is not None:
            progress((step + 1) / STEPS)
        if before - stress <= TOLERANCE * stress:
            break
        before = stress
        x = inverse @ pulled
    return x, np.zeros(n)


@kernel
def _pull(x: Floats, target: Floats, weight: Floats) -> tuple[Floats, float]:
    """B(x)·x of the Guttman transform, and the stress at x."""
    n, d = x.shape
    pulled = np.zeros((n, d))
    stress = 0.0
    for i in range(n):
        for j in range(n):
            if weight[i, j] > 0.0:
                square = 0.0
                for c in range(d):
                    square += (x[i, c] - x[j, c]) ** 2
                away = np.sqrt(square)
                stress += weight[i, j] * (away - target[i, j]) ** 2
                if away > 0.0:
                    force = weight[i, j] * target[i, j] / away
                    for c in range(d):
                        pulled[i, c] += force * (x[i, c] - x[j, c])
    return pulled, stress
