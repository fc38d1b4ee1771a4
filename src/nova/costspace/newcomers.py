"""Newcomers: a coordinate for a node from a fixed number of measurements to nodes that stay where they are.

Minimises the same robust cost as the stress solver's last epochs, Σ (1/d)·ρ(‖x − x_k‖ + h + h_k − d_k), over the
newcomer's own coordinate and height, by Gauss–Newton steps with damping (Levenberg–Marquardt) from a few starts. The
time depends on the number of measurements only, not on the size of the network.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.problem import Floats, Ints
from nova.model.space import CostSpace

STEPS = 15
"""Gauss–Newton steps per start and tolerance, at most."""
SETTLED = 1e-4
"""Stop where a step improves the cost by less than this share."""
TIGHT = 0.05
"""Relative residual beyond which a measurement pulls with constant force."""
LOOSE = 0.5
"""The same in the first steps, so that a start on the wrong side still finds its way."""


def embed_new(
    space: CostSpace, neighbours: npt.ArrayLike, rtts: npt.ArrayLike, *, heights: bool | None = None
) -> tuple[Floats, Floats]:
    """Coordinate and height of one newcomer, or of a batch, from RTTs (ms) to nodes of the space, which stays as it is.

    One newcomer: `neighbours` and `rtts` have one entry per measurement; returns (d,) and a 0-dimensional height. A
    batch: one row per newcomer, unused places filled with a negative neighbour; returns (b × d) and (b,).
    `heights`: whether newcomers get one; by default where the space has any. RTTs have to be positive and finite, and
    each newcomer needs one measurement at least; ValueError otherwise.
    """
    to = np.asarray(neighbours, dtype=np.int32)
    times = np.asarray(rtts, dtype=np.float64)
    if to.shape != times.shape or to.ndim not in (1, 2):
        raise ValueError(f"neighbours and rtts have to be of one shape (found {to.shape} and {times.shape})")
    single = to.ndim == 1
    to, times = np.atleast_2d(to), np.atleast_2d(times)
    real = to >= 0
    if (to >= len(space)).any():
        raise ValueError(f"neighbours are rows of the space, below {len(space)} (found {int(to.max())})")
    if not real.any(axis=1).all():
        raise ValueError(f"newcomer {int(np.flatnonzero(~real.any(axis=1))[0])} has no measurement")
    wrong = real & ~((times > 0) & np.isfinite(times))
    if wrong.any():
        raise ValueError(f"an RTT is a positive number of ms (found {times[wrong][0]!r})")
    lift = bool(space.heights.any()) if heights is None else heights
    state = _solve(space.coordinates, space.heights, to, times, lift)
    if single:
        return state[0, :-1].copy(), state[0, -1]
    return np.ascontiguousarray(state[:, :-1]), np.ascontiguousarray(state[:, -1])


@kernel
def _solve(coordinates: Floats, heights: Floats, to: Ints, rtt: Floats, lift: bool) -> Floats:
    state = np.empty((len(to), coordinates.shape[1] + 1))
    for b in range(len(to)):
        _place(coordinates, heights, to, rtt, lift, b, state)
    return state


@kernel
def _place(coordinates: Floats, heights: Floats, to: Ints, rtt: Floats, lift: bool, b: int, state: Floats) -> None:
    """Fill row b of `state` (coordinate, then height) for newcomer b: the cheapest end of a few starts.

    Plain loops throughout: array expressions would take ten seconds to compile.
    """
    d = coordinates.shape[1]
    k = 0
    for q in range(to.shape[1]):
        k += to[b, q] >= 0
    x, h, target, centre = np.empty((k, d)), np.empty(k), np.empty(k), np.zeros(d)
    nearest = 0
    k = 0
    for q in range(to.shape[1]):
        if to[b, q] >= 0:
            h[k], target[k] = heights[to[b, q]], rtt[b, q]
            for c in range(d):
                x[k, c] = coordinates[to[b, q], c]
                centre[c] += x[k, c]
            if target[k] < target[nearest]:
                nearest = k
            k += 1
    for c in range(d):
        centre[c] /= k
    cheapest = np.inf
    trial = np.empty(d + 1)
    for attempt in range(3):
        # towards the nearest neighbour, at the middle of all, and beyond the nearest, seen from the middle
        share = 1.0 if attempt == 0 else (0.0 if attempt == 1 else 2.0)
        for c in range(d):
            # a small, uneven shift: exactly on a neighbour or on a line with all of them, no step leads away
            trial[c] = centre[c] + share * (x[nearest, c] - centre[c]) + 0.05 * target[nearest] / (c + 1.5)
        trial[d] = 0.1 * target[nearest] if lift else 0.0
        cost = _descend(trial, x, h, target, lift)
        if cost < cheapest:
            cheapest = cost
            for c in range(d + 1):
                state[b, c] = trial[c]


@kernel
def _cost(state: Floats, x: Floats, h: Floats, target: Floats, tolerance: float) -> float:
    d = x.shape[1]
    total = 0.0
    for q in range(len(target)):
        square = 0.0
        for c in range(d):
            square += (state[c] - x[q, c]) ** 2
        z = (np.sqrt(square) + state[d] + h[q] - target[q]) / (target[q] * tolerance)
        total += target[q] * (np.sqrt(1.0 + z * z) - 1.0)
    return total


@kernel
def _descend(state: Floats, x: Floats, h: Floats, target: Floats, lift: bool) -> float:
    """Levenberg–Marquardt with reweighting; `state` changes in place. Returns the robust cost at the end."""
    _levenberg(state, x, h, target, lift, LOOSE)
    cost: float = _levenberg(state, x, h, target, lift, TIGHT)
    return cost


@kernel
def _levenberg(state: Floats, x: Floats, h: Floats, target: Floats, lift: bool, tolerance: float) -> float:
    d = x.shape[1]
    size = d + 1 if lift else d
    hessian, gradient, row = np.empty((size, size)), np.empty(size), np.empty(size)
    trial = np.empty(d + 1)
    trial[d] = state[d]
    damping = 1e-2
    cost: float = _cost(state, x, h, target, tolerance)
    for _ in range(STEPS):
        for a in range(size):
            gradient[a] = 0.0
            for b in range(size):
                hessian[a, b] = 0.0
        for q in range(len(target)):
            square = 0.0
            for c in range(d):
                square += (state[c] - x[q, c]) ** 2
            straight = max(np.sqrt(square), 1e-9 * target[q])
            residual = straight + state[d] + h[q] - target[q]
            z = residual / (target[q] * tolerance)
            weight = 1.0 / (target[q] * np.sqrt(1.0 + z * z))
            for c in range(d):
                row[c] = (state[c] - x[q, c]) / straight
            if lift:
                row[d] = 1.0
            for a in range(size):
                gradient[a] += weight * residual * row[a]
                for b in range(a + 1):
                    hessian[a, b] += weight * row[a] * row[b]
        for a in range(size):
            hessian[a, a] += damping * hessian[a, a] + 1e-12
        _solve_positive(hessian, gradient)
        for c in range(size):
            trial[c] = state[c] - gradient[c]
        if trial[d] < 0.0:
            trial[d] = 0.0
        after = _cost(trial, x, h, target, tolerance)
        if after < cost:
            settled = cost - after <= SETTLED * cost
            for c in range(d + 1):
                state[c] = trial[c]
            cost = after
            damping = max(1e-6, damping * 0.3)
            if settled:
                break
        else:
            damping *= 8.0
            if damping > 1e3:
                break
    return cost


@kernel
def _solve_positive(matrix: Floats, vector: Floats) -> None:
    """Solve matrix · y = vector in place by Cholesky; only the lower triangle is read. The matrix is tiny."""
    size = len(vector)
    for a in range(size):
        for b in range(a + 1):
            value = matrix[a, b]
            for c in range(b):
                value -= matrix[a, c] * matrix[b, c]
            if a == b:
                matrix[a, a] = np.sqrt(max(value, 1e-18))
            else:
                matrix[a, b] = value / matrix[b, b]
    for a in range(size):
        for c in range(a):
            vector[a] -= matrix[a, c] * vector[c]
        vector[a] /= matrix[a, a]
    for a in range(size - 1, -1, -1):
        for c in range(a + 1, size):
            vector[a] -= matrix[c, a] * vector[c]
        vector[a] /= matrix[a, a]
