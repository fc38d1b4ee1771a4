"""How long tuples wait at a host: the whole distribution, not only the mean.

A host serves each tuple in 1/μ, first come, first served. Single tuples that come at random (M/D/1) wait no longer than
x = u/μ with probability (Erlang)

    F(u) = (1 − ρ) e^{ρu}                                        for u < 1,
    F(u) = (1 − ρ) (e^{ρu} − ρ(u − 1) e^{ρ(u − 1)})              for 1 ≤ u < 2,
    F(u) ≈ 1 − (1 − ρ)/(ρ e^θ − 1) · e^{−θu},  ρ(e^θ − 1) = θ    beyond,

where the last line is the leading term of the exact sum and off by less than a thousandth from u = 2 on. Batches of
k tuples are served like one tuple that takes k/μ, and each tuple also waits for those before it in its batch; a mix of
sizes counts as k = E[X²]/E[X]. The mean is then Pollaczek–Khinchine's, (ρ + k − 1) / (2μ(1 − ρ)), exactly.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from nova.jit import inline, kernel
from nova.model.problem import Floats

SETTLES = 0.99
"""Busy for this share of the time or more, a queue does not settle while anybody looks: it is said, not predicted."""

EDGES = np.concatenate([np.arange(0.0, 0.9, 0.05), np.arange(0.9, 0.99, 0.01), [0.99, 0.9925, 0.995, 0.9975, 0.999, 1]])
"""Where the strata of a distribution begin and end: finer towards the tail."""
WEIGHTS = np.diff(EDGES)
LEVELS = EDGES[:-1] + WEIGHTS / 2
"""Middle of each stratum."""
FINE = 8
"""Points whose mean a stratum's wait is."""
GRID = 1000
"""Values of ρ that waits are worked out for; those between are read off."""


def md1_waits(rho: Floats) -> Floats:
    """Waits of an M/D/1 queue in services, a row per ρ, each stratum by its mean; infinite where it does not settle."""
    table = _table()
    at = np.minimum(np.nan_to_num(rho, posinf=1.0), SETTLES) * (GRID / SETTLES)
    low = np.minimum(at.astype(np.int64), GRID - 1)
    share = (at - low)[:, None]
    found: Floats = (table[low] * (1.0 - share) + table[low + 1] * share) / (1.0 - np.minimum(rho, SETTLES))[:, None]
    found[~(rho < SETTLES)] = np.inf
    return found


@cache
def _table() -> Floats:
    """(1 − ρ) · waits for `GRID` + 1 values of ρ: smooth in ρ, so that a line between neighbours is near enough."""
    rho = np.linspace(0.0, SETTLES, GRID + 1)
    fine = (EDGES[:-1, None] + WEIGHTS[:, None] * (np.arange(FINE) + 0.5) / FINE).ravel()
    means = md1_quantiles(rho, fine).reshape(len(rho), len(WEIGHTS), FINE).mean(axis=2)
    return np.asarray(means * (1.0 - rho)[:, None])


@kernel
def md1_quantiles(rho: Floats, levels: Floats) -> Floats:
    """Waits of an M/D/1 queue in services, one row per ρ < 1."""
    found = np.empty((len(rho), len(levels)))
    for i in range(len(rho)):
        theta = _decay(rho[i])
        for k in range(len(levels)):
            found[i, k] = _quantile(levels[k], rho[i], theta)
    return found


@inline
def _decay(rho: float) -> float:
    """The root θ > 0 of ρ(e^θ − 1) = θ, by Newton from above, where the function is convex."""
    if rho <= 0.0:
        return np.inf
    theta = 2.0 * (1.0 - rho) / rho if rho > 0.5 else 2.0 * np.log(1.0 / rho) + 2.0
    for _ in range(60):
        grown = np.exp(theta)
        step = (rho * (grown - 1.0) - theta) / (rho * grown - 1.0)
        theta -= step
        if abs(step) < 1e-12 * theta:
            break
    return float(theta)


@inline
def _below(u: float, rho: float) -> float:
    """F(u) for u < 2."""
    if u < 1.0:
        return float((1.0 - rho) * np.exp(rho * u))
    return float((1.0 - rho) * (np.exp(rho * u) - rho * (u - 1.0) * np.exp(rho * (u - 1.0))))


@inline
def _quantile(level: float, rho: float, theta: float) -> float:
    """The u with F(u) = level; 0 where more do not wait at all."""
    if level <= 1.0 - rho:
        return 0.0
    if level <= (1.0 - rho) * np.exp(rho):
        return float(np.log(level / (1.0 - rho)) / rho)
    if level < _below(2.0, rho):
        low, high = 1.0, 2.0
        for _ in range(40):
            middle = (low + high) / 2.0
            if _below(middle, rho) < level:
                low = middle
            else:
                high = middle
        return high
    reach = (1.0 - rho) / (rho * np.exp(theta) - 1.0)
    return max(2.0, float(np.log(reach / (1.0 - level)) / theta))
