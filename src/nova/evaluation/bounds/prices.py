"""Prices for hosts where the linear program is too large: the better they balance load, the higher the bound.

In a cost space prices are found coarse to fine: hosts are pooled into cells and sub-joins sampled, a small linear
program gives the cells' prices, and each finer level starts from the prices of the coarser one. Only the last step, at
full size, makes the bound; all before it merely finds good prices. Ascent follows the supergradient load − room.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from nova.evaluation.bounds.boxes import Boxes, boxes, cheapest
from nova.evaluation.bounds.costs import LegWeights, cost_blocks, cost_matrix
from nova.evaluation.bounds.linear import solve
from nova.evaluation.metrics import Distances
from nova.model.prices import Prices
from nova.model.problem import Floats
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

COARSEST = 192
"""Cells of the coarsest level, whose linear program is solved exactly."""
FINER = 4
"""Cells of a level per cell of the coarser one."""
SAMPLE = 6
"""Sub-joins sampled per cell."""
SLACK = 5e-4
"""Share of a sub-join's cost that the inner minimum may lie too low: buys a far shorter search."""
FINEST = 12_288
"""Cells of the finest pooled level: beyond, prices change too little from cell to cell to be worth a level."""
WORK = 600_000
"""Inner minima per level: bounds the time, whatever the size."""
NEAREST = 6
"""Cells whose prices a finer cell or host takes the mean of, by inverse squared distance."""
FEWEST, MOST = 4, 400
"""Rounds of ascent per level."""
CLOSE = 2e-5
"""Share of the bound below which a further rise is not worth a round."""
ROUNDING = 1e-12
"""Relative error that sums of millions of numbers stay far below."""
STALL = 6
"""Rounds without progress after which ascent aims half as high."""

Evaluate = Callable[[Floats], tuple[float, Floats]]
"""Prices → the bound they give, and the load that each host gets at these prices beyond what it offers."""


def space_prices(
    space: CostSpace, joins: SubJoins, hosts: npt.NDArray[np.integer], room: Floats, legs: LegWeights, seed: int
) -> tuple[float, Floats]:
    """A bound and its prices per host, for hosts in a cost space."""
    rng = np.random.default_rng([seed, 29])
    tree = boxes(space, hosts)
    order = np.argsort(hosts, kind="stable")
    spare = room[order[np.searchsorted(hosts[order], tree.host)]]
    cells = COARSEST
    at, price = _coarsest(space, joins, tree, spare, legs, rng)
    while cells * FINER <= min(FINEST, len(tree) // 2):
        cells *= FINER
        some = _sample(joins, cells * SAMPLE, rng)
        pool = _Pool.of(tree, spare, cells)
        scale = float(some.demand.sum() / joins.demand.sum())
        wide, anchors = pool.anchored(space)
        # the cells stand in for hosts: same search, fewer places
        price = _interpolate(at, price, anchors.points)
        room_here = pool.room[anchors.host - len(space)] * scale
        _, price = ascend(_search(anchors, wide, some, legs, room_here), room_here, price, WORK // len(some))
        at = anchors.points
    price = _interpolate(at, price, tree.points)
    value, price = ascend(_search(tree, space, joins, legs, spare), spare, price, WORK // len(joins))
    by_host = np.empty(len(hosts))
    by_host[order[np.searchsorted(hosts[order], tree.host)]] = price
    return value, by_host


def dense_prices(
    distances: Distances,
    joins: SubJoins,
    hosts: npt.NDArray[np.integer],
    room: Floats,
    legs: LegWeights,
    prices: Prices | None = None,
) -> tuple[float, Floats]:
    """A bound and its prices per host for any distances: every round looks at all pairs, some rows at a time."""
    demand = joins.demand

    def evaluate(price: Floats) -> tuple[float, Floats]:
        total, load = 0.0, np.zeros(len(hosts))
        for rows, block in cost_blocks(joins, distances, hosts, legs, prices):
            block += demand[rows, None] * price
            where = np.argmin(block, axis=1)
            total += float(np.take_along_axis(block, where[:, None], axis=1).sum())
            load += np.bincount(where, demand[rows], len(hosts))
        return _below(total, float(price @ room)), load - room

    return ascend(evaluate, room, np.zeros(len(hosts)), 200)


def ascend(evaluate: Evaluate, room: Floats, price: Floats, rounds: int, reach: float = 0.02) -> tuple[float, Floats]:
    """Climb towards the prices with the highest bound; returns the highest met.

    Polyak's step towards a target that lies `reach` above the best bound so far; a target that is not approached is
    halved. Steps are scaled by room, so that large and small hosts change their price alike.
    """
    best, best_price, stalled = -np.inf, price, 0
    for _ in range(max(FEWEST, min(MOST, rounds))):
        value, excess = evaluate(price)
        stalled = 0 if value > best + 1e-5 * abs(best) or not np.isfinite(best) else stalled + 1
        if value > best:
            best, best_price = value, price
        if stalled >= STALL:
            reach, stalled, price = reach / 2, 0, best_price
            if reach < CLOSE:
                break
            continue
        excess[np.abs(excess) <= ROUNDING * room] = 0.0
        excess[(price <= 0) & (excess < 0)] = 0.0
        size = float((excess**2 / room).sum())
        if size <= 0:
            break  # nobody is overloaded and no price is paid for spare room: the optimum
        step = (best + reach * abs(best) - value) / size
        price = np.maximum(price + step * excess / room, 0.0)
    return best, best_price


def _below(gain: float, paid: float) -> float:
    """Their difference, less what rounding may have added: prices without measure must not make a bound."""
    return gain - paid - ROUNDING * (abs(gain) + paid)


def _search(tree: Boxes, space: CostSpace, joins: SubJoins, legs: LegWeights, room: Floats) -> Evaluate:
    hint = np.zeros(len(joins), np.int64)

    def evaluate(price: Floats) -> tuple[float, Floats]:
        least, where = cheapest(tree, space, joins, legs, price, hint, SLACK)
        hint[:] = where
        load = np.bincount(where, weights=joins.demand, minlength=len(tree))
        return _below(float(least.sum()), float(price @ room)), np.asarray(load - room, dtype=np.float64)

    return evaluate


def _sample(joins: SubJoins, count: int, rng: np.random.Generator) -> SubJoins:
    if count >= len(joins):
        return joins
    return joins.take(np.sort(rng.choice(len(joins), count, replace=False)))


def _coarsest(
    space: CostSpace, joins: SubJoins, tree: Boxes, room: Floats, legs: LegWeights, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Places and prices of the coarsest cells, from the linear program over a sample."""
    some = _sample(joins, COARSEST * SAMPLE, rng)
    pool = _Pool.of(tree, room, min(COARSEST, len(tree)))
    wide, anchors = pool.anchored(space)
    spare = pool.room[anchors.host - len(space)]
    # the sample's share of the room, and never less than it needs: rounding must not make it infeasible
    spare = spare * max(float(some.demand.sum() / joins.demand.sum()), float(some.demand.sum() / spare.sum()))
    spare *= 1 + 1e-9
    solution = solve(cost_matrix(some, wide, anchors.host, legs), some.demand, spare, tolerance=1e-3)
    return anchors.points, solution.prices


def _interpolate(at: Floats, price: Floats, points: Floats) -> Floats:
    """Prices at other places: the mean of the nearest known ones, nearer ones more."""
    count = min(NEAREST, len(at))
    found = cKDTree(at).query(points, list(range(1, count + 1)))  # a list keeps one column per neighbour, even for one
    weight = 1.0 / np.maximum(np.asarray(found[0]), 1e-9) ** 2
    mean: Floats = (weight * price[np.asarray(found[1])]).sum(axis=1) / weight.sum(axis=1)
    return mean


class _Pool:
    """Hosts pooled into cells of neighbours: consecutive slots of the tree."""

    def __init__(self, points: Floats, heights: Floats, room: Floats) -> None:
        self.points, self.heights, self.room = points, heights, room

    @staticmethod
    def of(tree: Boxes, room: Floats, cells: int) -> _Pool:
        cell = np.arange(len(tree)) * cells // len(tree)
        total = np.asarray(np.bincount(cell, room, cells), dtype=np.float64)
        middle = np.column_stack(
            [np.bincount(cell, room * tree.points[:, k], cells) / total for k in range(tree.points.shape[1])]
        )
        return _Pool(middle, np.bincount(cell, room * tree.heights, cells) / total, total)

    def anchored(self, space: CostSpace) -> tuple[CostSpace, Boxes]:
        """The space with the cells' middles as further nodes, and the boxes over these."""
        wide = CostSpace(
            np.concatenate([space.coordinates, self.points]), np.concatenate([space.heights, self.heights])
        )
        return wide, boxes(wide, np.arange(len(space), len(wide)))
