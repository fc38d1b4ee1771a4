"""The minimum spanning tree of nodes in a cost space, exact at every size.

Edges are ordered by length, then by their lower and higher node. This order is strict, so the tree is unique and the
same by whichever way it is found, also where many nodes share a place or a distance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay, QhullError

from nova.jit import kernel
from nova.model.problem import Floats
from nova.model.space import CostSpace

DENSE = 20_000
"""Up to this many nodes all pairs are compared (time n², memory n). Beyond, flat spaces in two dimensions use their
Delaunay graph, which holds the tree; others still compare all pairs."""

Edges = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]


def spanning_tree(space: CostSpace, nodes: npt.NDArray[np.integer] | None = None) -> Edges:
    """Ends of the edges of the minimum spanning tree over the given nodes (default: all)."""
    rows = np.arange(len(space)) if nodes is None else np.asarray(nodes)
    points = np.ascontiguousarray(space.coordinates[rows])
    heights = np.ascontiguousarray(space.heights[rows])
    if len(rows) > DENSE and space.dimensions == 2 and not heights.any():
        first, second = by_delaunay(points)
    else:
        first, second = by_pairs(points, heights)
    return rows[first], rows[second]


def by_pairs(points: Floats, heights: Floats) -> Edges:
    """Prim's algorithm over all pairs."""
    edges: Edges = _prim(points, heights)
    return edges


def by_delaunay(points: Floats) -> Edges:
    """Kruskal's algorithm over the Delaunay graph. Nodes that share a place hang on the first of them."""
    places, owner = np.unique(points, axis=0, return_inverse=True)
    owner = owner.ravel()
    n, m = len(points), len(places)
    leader = np.full(m, n, np.int64)
    np.minimum.at(leader, owner, np.arange(n))
    follower = np.flatnonzero(leader[owner] != np.arange(n))
    try:
        corners = Delaunay(places).simplices
    except QhullError:  # fewer than three places, or all on one line: along the line neighbours are enough
        along = np.lexsort(places.T[::-1])
        a, b = along[:-1], along[1:]
    else:
        sides = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
        a, b = sides[:, 0], sides[:, 1]
    ends = np.unique(np.sort(np.column_stack([leader[a], leader[b]]), axis=1), axis=0)
    low, high = ends[:, 0], ends[:, 1]
    length = np.linalg.norm(points[low] - points[high], axis=1)
    # ranks instead of lengths: a strict order, and no zero that a sparse graph would take for "no edge"
    rank = np.empty(len(length))
    rank[np.lexsort((high, low, length))] = np.arange(1, len(length) + 1)
    tree = minimum_spanning_tree(coo_array((rank, (low, high)), shape=(n, n)).tocsr()).tocoo()
    return np.concatenate([tree.row, leader[owner[follower]]]), np.concatenate([tree.col, follower])


@kernel
def _prim(points: Floats, heights: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    n, d = points.shape
    reach = np.full(n, np.inf)
    via = np.full(n, -1, np.int64)
    waiting = np.arange(n)
    first, second = np.empty(max(n - 1, 0), np.int64), np.empty(max(n - 1, 0), np.int64)
    last, left = 0, n - 1
    if n > 0:
        waiting[0] = waiting[n - 1]
    for step in range(n - 1):
        best = -1
        for i in range(left):
            v = waiting[i]
            total = 0.0
            for k in range(d):
                gap = points[v, k] - points[last, k]
                total += gap * gap
            length = np.sqrt(total) + heights[v] + heights[last]
            if length < reach[v] or (length == reach[v] and _before(v, last, v, via[v])):
                reach[v], via[v] = length, last
            if best < 0:
                best = i
            else:
                u = waiting[best]
                if reach[v] < reach[u] or (reach[v] == reach[u] and _before(v, via[v], u, via[u])):
                    best = i
        v = waiting[best]
        first[step], second[step] = via[v], v
        left -= 1
        waiting[best] = waiting[left]
        last = v
    return first, second


@kernel
def _before(a: int, b: int, c: int, d: int) -> bool:
    """Whether edge a–b comes before edge c–d among edges of one length."""
    low, other = min(a, b), min(c, d)
    return low < other or (low == other and max(a, b) < max(c, d))
