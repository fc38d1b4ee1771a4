"""Routes: the ways that tuples take where they do not travel straight, hop by hop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from nova.evaluation.metrics import Distances
from nova.jit import kernel
from nova.model.problem import Floats, Ints
from nova.model.subjoins import SubJoins


class Routes(Protocol):
    """Distances along routes, and what the routes carry past each node."""

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """ms from `a` to `b` along the route, every hop counted."""
        ...

    def through(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], rate: Floats) -> Floats:
        """Tuples/s that pass each node when `rate[i]` flows from `a[i]` to `b[i]`; the ends are not passed."""
        ...

    def over(self, distances: Distances) -> Routes:
        """The same routes with hops as long as `distances` says: measured instead of estimated, or in another hour."""
        ...


def relay_load(routes: Routes, joins: SubJoins, hosts: Ints) -> Floats:
    """Tuples/s that relays pass on when sub-join i runs on `hosts[i]`: both inputs, and the results where their rate
    is known."""
    results = np.nan_to_num(joins.output_rate, nan=0.0)
    return (
        routes.through(joins.left_node, hosts, joins.left_rate)
        + routes.through(joins.right_node, hosts, joins.right_rate)
        + routes.through(hosts, joins.sink, results)
    )


@dataclass(frozen=True)
class Tree:
    """A spanning tree over all nodes, rooted anywhere. `over` gives it lengths."""

    parent: Ints
    """−1 at the root."""
    order: Ints
    """Nodes from the root down: parents before children."""
    depth: Ints
    up: npt.NDArray[np.int32]
    """up[k, v]: the ancestor of v that lies 2^k levels above it, the root where there is none."""

    @staticmethod
    def spanning(n: int, first: npt.NDArray[np.integer], second: npt.NDArray[np.integer], root: int = 0) -> Tree:
        """The tree of n nodes with the given n − 1 edges."""
        edges = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(n, n)).tocsr()
        order, parent = breadth_first_order(edges, root, directed=False)
        if len(order) != n:
            raise ValueError(f"the edges reach {len(order)} of {n} nodes: not a spanning tree")
        order, parent = order.astype(np.int32), np.where(parent < 0, -1, parent).astype(np.int32)
        depth = _depths(order, parent)
        levels = max(1, int(depth.max(initial=0)).bit_length())
        up = np.empty((levels, n), np.int32)
        up[0] = np.where(parent < 0, root, parent)
        for k in range(1, levels):
            up[k] = up[k - 1][up[k - 1]]
        return Tree(parent, order, depth, up)

    def common(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Ints:
        """The lowest common ancestor of each pair."""
        a, b = np.broadcast_arrays(a, b)
        flat: Ints = _common(a.ravel().astype(np.int32), b.ravel().astype(np.int32), self.depth, self.up)
        return flat.reshape(a.shape)

    def meeting(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], c: npt.NDArray[np.integer]) -> Ints:
        """The one node that lies on all three ways between a, b and c: where the routes a → c and b → c meet."""
        candidates = np.stack([self.common(a, b), self.common(a, c), self.common(b, c)])
        deepest = np.argmax(self.depth[candidates], axis=0)
        meet: Ints = np.take_along_axis(candidates, deepest[None, :], axis=0)[0]
        return meet

    def next_hop(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Ints:
        """The neighbour of `a` on its way to `b`; `a` itself where it is there already."""
        a32, b32 = np.asarray(a, dtype=np.int32), np.asarray(b, dtype=np.int32)
        below = self.common(a32, b32) == a32
        down = _climb(b32, np.maximum(self.depth[b32] - self.depth[a32] - 1, 0), self.up)
        hop: Ints = np.where(a32 == b32, a32, np.where(below, down, self.parent[a32])).astype(np.int32)
        return hop

    def over(self, distances: Distances) -> TreeRoutes:
        """Routes along the tree whose hops are as long as `distances` says."""
        down = self.order[1:]
        hop = np.zeros(len(self.parent))
        hop[down] = distances.between(down, self.parent[down])
        return TreeRoutes(self, _from_root(self.order, self.parent, hop))


@dataclass(frozen=True)
class TreeRoutes:
    """Ways along a tree."""

    tree: Tree
    from_root: Floats
    """ms from the root to each node."""

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """ms from `a` to `b` along the tree."""
        reach: Floats = self.from_root[a] + self.from_root[b] - 2 * self.from_root[self.tree.common(a, b)]
        return np.maximum(reach, 0.0)

    def through(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], rate: Floats) -> Floats:
        """Tuples/s that pass each node, the ends of each way left out."""
        moving = a != b
        a, b, rate = a[moving], b[moving], rate[moving]
        top = self.tree.common(a, b)
        n = len(self.tree.parent)
        flow: Floats = np.asarray(np.bincount(a, rate, n) + np.bincount(b, rate, n), dtype=np.float64)
        ends = flow.copy()
        flow -= np.bincount(top, rate, n)
        above = self.tree.parent[top]
        flow -= np.bincount(above[above >= 0], rate[above >= 0], n)
        passed: Floats = _sums_below(self.tree.order, self.tree.parent, flow) - ends
        # sums of cancelling rates leave dust: no node passes less than nothing
        return np.where(passed > 1e-9 * max(1.0, float(rate.sum())), passed, 0.0)

    def over(self, distances: Distances) -> TreeRoutes:
        """The same tree, its hops as long as `distances` says."""
        return self.tree.over(distances)


@dataclass(frozen=True)
class HeadRoutes:
    """Two levels: members reach others through their cluster's head; heads and sinks reach each other straight."""

    head: Ints
    """The head of each node's cluster; heads and sinks are their own."""
    distances: Distances

    def between(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """ms from `a` over its head and the head of `b` to `b`."""
        a, b = np.broadcast_arrays(a, b)
        reach = self.distances.between
        over = reach(a, self.head[a]) + reach(self.head[a], self.head[b]) + reach(self.head[b], b)
        return np.where(a == b, 0.0, over)

    def through(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], rate: Floats) -> Floats:
        """Tuples/s that pass each head."""
        n = len(self.head)
        first, second = self.head[a], self.head[b]
        moving = a != b
        at_first = moving & (first != a) & (first != b)
        at_second = moving & (second != a) & (second != b) & (second != first)
        return np.asarray(
            np.bincount(first[at_first], rate[at_first], n) + np.bincount(second[at_second], rate[at_second], n)
        )

    def over(self, distances: Distances) -> HeadRoutes:
        """The same heads, hops as long as `distances` says."""
        return HeadRoutes(self.head, distances)


@kernel
def _depths(order: Ints, parent: Ints) -> Ints:
    depth = np.zeros(len(order), np.int32)
    for v in order[1:]:
        depth[v] = depth[parent[v]] + 1
    return depth


@kernel
def _from_root(order: Ints, parent: Ints, hop: Floats) -> Floats:
    total = np.zeros(len(order))
    for v in order[1:]:
        total[v] = total[parent[v]] + hop[v]
    return total


@kernel
def _sums_below(order: Ints, parent: Ints, values: Floats) -> Floats:
    total = values.copy()
    for i in range(len(order) - 1, 0, -1):
        v = order[i]
        total[parent[v]] += total[v]
    return total


@kernel
def _climb(nodes: Ints, steps: Ints, up: npt.NDArray[np.int32]) -> Ints:
    """The ancestor that lies `steps` levels above each node."""
    out = nodes.copy()
    for i in range(len(nodes)):
        left, k = steps[i], 0
        while left > 0:
            if left & 1:
                out[i] = up[k, out[i]]
            left >>= 1
            k += 1
    return out


@kernel
def _common(a: Ints, b: Ints, depth: Ints, up: npt.NDArray[np.int32]) -> Ints:
    levels = len(up)
    out = np.empty(len(a), np.int32)
    for i in range(len(a)):
        x, y = a[i], b[i]
        if depth[x] < depth[y]:
            x, y = y, x
        left, k = depth[x] - depth[y], 0
        while left > 0:
            if left & 1:
                x = up[k, x]
            left >>= 1
            k += 1
        if x != y:
            for k in range(levels - 1, -1, -1):
                if up[k, x] != up[k, y]:
                    x, y = up[k, x], up[k, y]
            x = up[0, x]
        out[i] = x
    return out
