"""Phase II for operator graphs: the spring model of Rizou et al. All free operators of an instance find their positions
at once, where Σ weight × distance over the edges is least; the weights are the rates on the edges, or 1 for latency.

The sum is convex but has corners where operators meet. It is solved as a sequence of smooth ones, Σ w √(d² + ε²) with ε
falling to nothing, each by a few Newton steps that all instances take together. Forces in balance at a smooth optimum
are a feasible point of the dual problem, so every answer comes with its distance to the true optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nova.model.problem import Floats
from nova.placement.median import fermat

ACCURATE = 1e-9
"""Gap to the optimum, relative to it, at which an instance is done."""
SHARPEST = 1e-12
"""Smallest ε, as a share of the extent of an instance's fixed points."""
STEPS = 30
"""Newton steps at most for each ε."""


@dataclass(frozen=True)
class Springs:
    """The positions of free operators, one row per instance."""

    positions: Floats
    """instances × free operators × dimensions."""
    cost: Floats
    """Σ weight × distance over the edges of each instance."""
    bound: Floats
    """What no positions can be below."""


def springs(fixed: Floats, free: int, edges: Sequence[tuple[int, int]], weights: Floats) -> Springs:
    """Positions of `free` operators per instance.

    `fixed` holds instances × pinned operators × dimensions; operators are numbered pinned ones first. `weights` holds
    one weight ≥ 0 per edge, or instances × edges. Every free operator is connected to a pinned one.
    """
    count, pinned = fixed.shape[:2]
    weights = np.broadcast_to(np.asarray(weights, dtype=np.float64), (count, len(edges)))
    ends = np.array(edges, dtype=np.intp).reshape(-1, 2)
    if _is_star(ends, pinned, free) and count and (weights == weights[0]).all():
        order = np.argsort(np.where(ends[:, 0] < pinned, ends[:, 0], ends[:, 1]))
        a, b, c = weights[0, order].tolist()
        found = fermat(fixed[:, 0], fixed[:, 1], fixed[:, 2], (a, b, c))[:, None, :]
        cost = _cost(np.concatenate([fixed, found], axis=1), ends, weights)
        return Springs(found, cost, cost)
    return _Solver(fixed, free, ends, weights).solve()


def _is_star(ends: np.ndarray, pinned: int, free: int) -> bool:
    """Whether this is one operator between three pinned ones, which has a closed form."""
    return pinned == 3 and free == 1 and len(ends) == 3 and set(ends.min(axis=1).tolist()) == {0, 1, 2}


def _cost(points: Floats, ends: np.ndarray, weights: Floats) -> Floats:
    apart = points[:, ends[:, 0]] - points[:, ends[:, 1]]
    cost: Floats = np.einsum("ne,ne->n", weights, np.linalg.norm(apart, axis=2))
    return cost


class _Solver:
    """Newton's method on the smoothed sum, in all instances at once. Vectors over edges: a free operator enters edge e
    with the sign incidence[e, operator]."""

    def __init__(self, fixed: Floats, free: int, ends: np.ndarray, weights: Floats) -> None:
        count, pinned, dimensions = fixed.shape
        self.shape = (count, free, dimensions)
        self.ends, self.weights = ends, weights
        self.centre = fixed.mean(axis=1, keepdims=True)
        spread = np.abs(fixed - self.centre).max(axis=(1, 2), initial=0.0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.fixed = (fixed - self.centre) / self.scale[:, None, None]
        self.incidence = np.zeros((len(ends), free))
        rows = np.arange(len(ends))
        for side, sign in ((0, 1.0), (1, -1.0)):
            at_free = ends[:, side] >= pinned
            self.incidence[rows[at_free], ends[at_free, side] - pinned] += sign
        outer = np.zeros((len(ends), pinned))
        for side, sign in ((0, 1.0), (1, -1.0)):
            at_fixed = ends[:, side] < pinned
            outer[rows[at_fixed], ends[at_fixed, side]] += sign
        self.offset = np.einsum("ep,npd->ned", outer, self.fixed)
        """Part of each edge's vector that does not move."""

    def solve(self) -> Springs:
        count = self.shape[0]
        x = np.zeros(self.shape)
        cost, bound = self._true_cost(x), np.zeros(count)
        best = x.copy()
        active = np.arange(count)
        epsilon = 1.0
        while len(active) and epsilon >= SHARPEST:
            x[active] = self._newton(x[active], active, epsilon)
            found, dual = self._true_cost(x[active], active), self._dual(x[active], active, epsilon)
            better = found < cost[active]
            cost[active] = np.minimum(found, cost[active])
            best[active[better]] = x[active[better]]
            bound[active] = np.maximum(bound[active], np.minimum(dual, cost[active]))
            active = active[cost[active] - bound[active] > ACCURATE * cost[active]]
            epsilon /= 8
        positions = best * self.scale[:, None, None] + self.centre
        return Springs(positions, cost * self.scale, bound * self.scale)

    def _vectors(self, x: Floats, rows: np.ndarray) -> Floats:
        vectors: Floats = self.offset[rows] + np.einsum("ef,nfd->ned", self.incidence, x)
        return vectors

    def _true_cost(self, x: Floats, rows: np.ndarray | None = None) -> Floats:
        rows = np.arange(len(x)) if rows is None else rows
        cost: Floats = np.einsum("ne,ne->n", self.weights[rows], np.linalg.norm(self._vectors(x, rows), axis=2))
        return cost

    def _smooth_cost(self, x: Floats, rows: np.ndarray, epsilon: float) -> Floats:
        length = np.sqrt((self._vectors(x, rows) ** 2).sum(axis=2) + epsilon**2)
        cost: Floats = (self.weights[rows] * length).sum(axis=1)
        return cost

    def _newton(self, x: Floats, rows: np.ndarray, epsilon: float) -> Floats:
        count, free, dimensions = x.shape
        size = free * dimensions
        weights = self.weights[rows]
        value = self._smooth_cost(x, rows, epsilon)
        moving = np.arange(count)
        for _ in range(STEPS):
            vectors = self._vectors(x[moving], rows[moving])
            length = np.sqrt((vectors**2).sum(axis=2) + epsilon**2)
            pull = weights[moving] / length
            gradient = np.einsum("ef,ne,ned->nfd", self.incidence, pull, vectors)
            unit = vectors / length[:, :, None]
            block = pull[:, :, None, None] * (np.eye(dimensions) - unit[:, :, :, None] * unit[:, :, None, :])
            hessian = np.einsum("ef,eg,nedk->nfdgk", self.incidence, self.incidence, block).reshape(-1, size, size)
            ridge = 1e-14 * np.trace(hessian, axis1=1, axis2=2)[:, None, None] * np.eye(size)
            flat = gradient.reshape(-1, size)
            step = -np.linalg.solve(hessian + ridge + 1e-300 * np.eye(size), flat[:, :, None])[:, :, 0]
            slope = np.einsum("ns,ns->n", flat, step)
            shift = step.reshape(-1, free, dimensions)
            length_of_step = np.ones(len(moving))
            waiting = np.ones(len(moving), dtype=bool)
            for _ in range(40):  # halve until the value falls as it should
                tried = x[moving] + length_of_step[:, None, None] * shift
                fallen = self._smooth_cost(tried, rows[moving], epsilon)
                waiting = fallen > value[moving] + 1e-4 * length_of_step * slope
                waiting &= -slope > 1e-16 * value[moving]
                if not waiting.any():
                    break
                length_of_step = np.where(waiting, length_of_step / 2, length_of_step)
            accepted = fallen <= value[moving]
            x[moving[accepted]] = tried[accepted]
            value[moving[accepted]] = fallen[accepted]
            moving = moving[accepted & (-slope > 1e-15 * value[moving])]
            if not len(moving):
                break
        return x

    def _dual(self, x: Floats, rows: np.ndarray, epsilon: float) -> Floats:
        """A lower bound: forces along the edges, none above its weight. What balance they lack at free operators is
        paid for by the farthest that an optimum can lie."""
        vectors = self._vectors(x, rows)
        length = np.sqrt((vectors**2).sum(axis=2) + epsilon**2)
        force = (self.weights[rows] / length)[:, :, None] * vectors
        left_over = np.einsum("ef,ned->nfd", self.incidence, force)
        # an optimum lies within the box of the fixed points: no coordinate beyond 1 after scaling
        lost = np.abs(left_over).sum(axis=(1, 2))
        bound: Floats = np.einsum("ned,ned->n", force, self.offset[rows]) - lost
        return bound
