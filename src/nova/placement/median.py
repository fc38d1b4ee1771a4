"""Phase II, step 3: virtual positions, the weighted geometric medians of the pinned nodes, found exactly."""

from __future__ import annotations

import numpy as np

from nova.model.options import LEGS, Objective
from nova.model.problem import Floats
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

TINY = 1e-12


def virtual_positions(joins: SubJoins, space: CostSpace, objective: Objective) -> Floats:
    """Where each sub-join would sit if nodes were everywhere. Heights do not matter: they are the same anywhere."""
    at = space.coordinates
    return fermat(at[joins.left_node], at[joins.right_node], at[joins.sink], LEGS[objective])


def fermat(a: Floats, b: Floats, c: Floats, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Floats:
    """Points minimising the weighted sum of distances to three points each, in closed form, row by row.

    A corner is the answer where its weight outpulls the other two. Inside, the point sees the sides under the angles
    π − α, π − β, π − γ, with α, β, γ the angles of a triangle whose sides are the weights; its barycentric
    coordinates are then 1/(cot A + cot α) and so on, in any dimension, since only angles of the triangle enter.
    """
    w = np.array(weights)
    heaviest = int(w.argmax())
    if w[heaviest] >= w.sum() / 2:
        return (a, b, c)[heaviest]  # outpulls the others wherever they are
    points = np.stack([a, b, c])
    answer = np.full_like(a, np.nan)
    open_rows = np.ones(len(a), dtype=bool)
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        pull = w[i] * _unit(points[i] - points[k]) + w[j] * _unit(points[j] - points[k])
        # A point that coincides with the corner does not pull: it adds its weight to the corner's.
        own = w[k] + w[i] * _same(points[i], points[k]) + w[j] * _same(points[j], points[k])
        corner = open_rows & (np.linalg.norm(pull, axis=1) <= own * (1 + TINY))
        answer[corner] = points[k][corner]
        open_rows &= ~corner
    if open_rows.any():
        answer[open_rows] = _inside(points[:, open_rows], w)
    return answer


def _inside(points: Floats, w: Floats) -> Floats:
    """The median where it lies strictly inside the triangle."""
    weight_area = _area(w[0], w[1], w[2])
    barycentric = np.empty(points.shape[:2])
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        u, v = points[i] - points[k], points[j] - points[k]
        dot = np.einsum("nd,nd->n", u, v)
        cross = np.sqrt(np.maximum(np.einsum("nd,nd->n", u, u) * np.einsum("nd,nd->n", v, v) - dot**2, TINY))
        cot_weight = (w[i] ** 2 + w[j] ** 2 - w[k] ** 2) / (4 * weight_area)
        barycentric[k] = 1 / (dot / cross + cot_weight)
    barycentric /= barycentric.sum(axis=0)
    inside: Floats = np.einsum("kn,knd->nd", barycentric, points)
    return inside


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


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return units


def _same(a: Floats, b: Floats) -> Floats:
    return np.asarray((a == b).all(axis=1), dtype=np.float64)


def _area(a: float, b: float, c: float) -> float:
    """Heron: area of a triangle from its sides."""
    s = (a + b + c) / 2
    return float(np.sqrt(max(s * (s - a) * (s - b) * (s - c), TINY)))
