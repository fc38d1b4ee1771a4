"""Bounds for joins of joins: nobody knows where their ends are before both are placed.

A way between two joins costs M(h, g) where one runs on host h and the other on g. Any u and v with u(h) + v(g) ≤
M(h, g) for all hosts split it: u is added to what the one costs on each host, v to what the other does, and no plan in
which both run whole gets cheaper by it. What is left are costs of sub-joins on hosts, as of sub-joins that read no
others, and every bound for those holds. The u and v are raised way by way to what both sides can bear (max-product
linear programming, Globerson and Jaakkola), with prices for the room of hosts in between; one way is exact at once.

Beyond the size of that, joins may be anywhere in the cost space, not only on hosts: the spring model bounds their ways.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from nova.model.problem import Floats
from nova.model.space import CostSpace
from nova.model.ways import Between, Chained
from nova.placement.springs import springs

DENSE = 100_000_000
"""Ways between joins × pairs of hosts up to which they are split over all hosts."""
SWEEPS = 20
"""How often all ways are split anew at most."""
ACCURATE = 1e-6
"""Relative gain of a sweep below which there is no other."""
LARGEST = 8
"""Joins that read each other which the spring model takes together; of more, the ways between them are left out."""


def split(chained: Chained, own: Floats, between: Between, hosts: npt.NDArray[np.integer], priced: Floats) -> Floats:
    """Sub-joins × hosts: their own costs with the ways between them split, as is best where `priced`, of the same
    shape, is added to the costs."""
    ways, a_b = chained.ways, (hosts[:, None], hosts[None, :])
    apart = between(*a_b)
    cost = own + priced
    to_maker, to_reader = np.zeros((2, len(ways), len(hosts)))
    order = np.lexsort((np.arange(len(ways)), ways.reader))
    value = -np.inf
    for _ in range(SWEEPS):
        for number in (*order, *order[::-1]):
            i, j = ways.maker[number], ways.reader[number]
            a, b = cost[i] - to_maker[number], cost[j] - to_reader[number]
            way = ways.cost(number, *a_b, apart)
            to_maker[number] = 0.5 * ((way + b[None, :]).min(axis=1) - a)
            to_reader[number] = 0.5 * ((way + a[:, None]).min(axis=0) - b)
            cost[i], cost[j] = a + to_maker[number], b + to_reader[number]
        before, value = value, float(cost.min(axis=1).sum())
        if value - before <= ACCURATE * abs(value):
            break
    return cost - priced


def anywhere(chained: Chained, space: CostSpace) -> float:
    """A bound of the ways where joins may be anywhere in the cost space, heights and metrics left out."""
    n, ways = len(chained.joins), chained.ways
    joined = csr_array((np.ones(len(ways)), (ways.maker, ways.reader)), shape=(n, n))
    number, group = connected_components(joined, directed=False)
    group = np.where(np.bincount(group, minlength=number)[group] <= LARGEST, group, number + np.arange(n))
    kept = np.flatnonzero(group[ways.maker] == group[ways.reader])
    order = np.argsort(group, kind="stable")
    _, first, of_group = np.unique(group[order], return_index=True, return_inverse=True)
    place = np.empty(n, np.intp)
    place[order] = np.arange(n) - first[of_group]  # number of each sub-join within its group
    size = np.diff(np.append(first, n))
    shapes: dict[tuple[tuple[tuple[int, int], ...], bytes, int], list[int]] = {}
    mine: list[list[int]] = [[] for _ in first]
    row_of = np.empty(n, np.intp)
    row_of[order] = of_group
    for way in kept.tolist():
        mine[row_of[ways.maker[way]]].append(way)
    for one, its in enumerate(mine):
        rows = order[first[one] : first[one] + size[one]]
        between = tuple((int(place[ways.maker[way]]), int(place[ways.reader[way]])) for way in its)
        shapes.setdefault((between, chained.known[:, rows].tobytes(), len(rows)), []).append(one)
    total = 0.0
    for (between, _, count), some in shapes.items():
        rows = np.stack([order[first[one] : first[one] + count] for one in some])
        legs = [(leg, k) for leg in range(3) for k in range(count) if chained.known[leg, rows[0, k]]]
        if not legs:
            continue  # all its ways lead to other joins, and were left out
        fixed = np.stack([space.coordinates[chained.ends[leg][rows[:, k]]] for leg, k in legs], axis=1)
        edges = [(number, len(legs) + k) for number, (_, k) in enumerate(legs)]
        edges += [(len(legs) + i, len(legs) + j) for i, j in between]
        weights = [chained.legs[leg, rows[:, k]] for leg, k in legs]
        weights += [ways.weight[np.array([mine[one][e] for one in some])] for e in range(len(edges) - len(legs))]
        total += float(springs(fixed, count, edges, np.stack(weights, axis=1)).bound.sum())
    return total
