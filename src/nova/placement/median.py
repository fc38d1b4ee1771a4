"""Phase II, step 3: virtual positions, the weighted geometric medians of the pinned nodes, found exactly."""

from __future__ import annotations

import numpy as np

from nova.jit import inline, kernel
from nova.model.options import LEG_WEIGHTS, Objective
from nova.model.problem import Floats
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

TINY = 1e-12


def virtual_positions(joins: SubJoins, space: CostSpace, objective: Objective) -> Floats:
    """Where each sub-join would sit if nodes were everywhere. Heights do not matter: they are the same anywhere."""
    at = space.coordinates
    return fermat(at[joins.left_node], at[joins.right_node], at[joins.sink], LEG_WEIGHTS[objective])


def fermat(a: Floats, b: Floats, c: Floats, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Floats:
    """Points minimising the weighted sum of distances to three points each, row by row."""
    w = np.array(weights)
    heaviest = int(w.argmax())
    if w[heaviest] >= w.sum() / 2:
        return (a, b, c)[heaviest]  # outpulls the others wherever they are
    answer: Floats = _medians(np.ascontiguousarray(np.stack([a, b, c], axis=1), dtype=np.float64), w)
    return answer


@kernel
def _medians(corners, w):  # type: ignore[no-untyped-def]
    answer = np.empty((corners.shape[0], corners.shape[2]))
    for row in range(len(corners)):
        answer[row] = median_of(corners[row], w)
    return answer


@kernel
def median_of(corners, w):  # type: ignore[no-untyped-def]
    """The point minimising the weighted sum of distances to three points (the rows of `corners`), in closed form.

    A corner is the answer where its weight outpulls the other two. Inside, the point sees the sides under the angles
    π − α, π − β, π − γ, with α, β, γ the angles of a triangle whose sides are the weights; its barycentric
    coordinates are then 1/(cot A + cot α) and so on, in any dimension, since only angles of the triangle enter.
    """
    d = corners.shape[1]
    for k in range(3):
        pull = np.zeros(d)
        own = w[k]  # a point that coincides with the corner does not pull: it adds its weight to the corner's
        for i in ((k + 1) % 3, (k + 2) % 3):
            away = _apart(corners[i], corners[k])
            if away > 0.0:
                for c in range(d):
                    pull[c] += w[i] * (corners[i, c] - corners[k, c]) / away
            else:
                own += w[i]
        total = 0.0
        for c in range(d):
            total += pull[c] * pull[c]
        if np.sqrt(total) <= own * (1 + TINY):
            return corners[k].copy()
    half = (w[0] + w[1] + w[2]) / 2
    area = np.sqrt(max(half * (half - w[0]) * (half - w[1]) * (half - w[2]), TINY))  # Heron
    answer, everything = np.zeros(d), 0.0
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        dot = uu = 0.0
        for c in range(d):
            u, v = corners[i, c] - corners[k, c], corners[j, c] - corners[k, c]
            dot += u * v
            uu += u * u
        upright = 0.0  # v less its part along u: exact for flat triangles too, where uu·vv − dot² cancels
        for c in range(d):
            u, v = corners[i, c] - corners[k, c], corners[j, c] - corners[k, c]
            upright += (v - dot / uu * u) ** 2
        cross = max(np.sqrt(uu) * np.sqrt(upright), TINY * uu)
        share = 1 / (dot / cross + (w[i] ** 2 + w[j] ** 2 - w[k] ** 2) / (4 * area))
        everything += share
        for c in range(d):
            answer[c] += share * corners[k, c]
    return answer / everything


@inline
def _apart(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(len(a)):
        gap = a[c] - b[c]
        total += gap * gap
    return np.sqrt(total)


def geometric_median(points: Floats, weights: Floats, tolerance: float = 1e-10, rounds: int = 1000) -> Floats:
    """The point minimising Σ wᵢ·‖pointᵢ − y‖ for any number of points: Weiszfeld's iteration with the correction of
    Vardi and Zhang, which does not stick to data points."""
    y: Floats = np.average(points, axis=0, weights=weights)
    scale = max(float(np.abs(points - y).max()), TINY)
    for _ in range(rounds):
        away = np.linalg.norm(points - y, axis=1)
        here = away <= TINY * scale
        pull_weights = np.where(here, 0.0, weights / np.where(here, 1.0, away))
        if not pull_weights.any():
            return y
        target: Floats = pull_weights @ points / pull_weights.sum()
        force = float(np.linalg.norm(pull_weights @ (points - y)))
        rest = float(weights[here].sum())
        if force <= rest:
            return y  # the point under y holds it against all others
        hold = rest / force
        step = (1 - hold) * (target - y)
        y = y + step
        if np.linalg.norm(step) <= tolerance * scale:
            break
    return y
