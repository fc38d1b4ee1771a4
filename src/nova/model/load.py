"""What a plan costs each node: per sub-join it hosts, the distinct left plus the distinct right tuples per second."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.model.problem import Floats
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins


def node_loads(joins: SubJoins, replicas: Replicas, nodes: int) -> Floats:
    """Tuples/s that reach each of `nodes` nodes. Replicas of one sub-join on one node share their input."""
    left, right = replicas.rates(joins)
    shared = _sharing(replicas)
    alone = np.where(shared, 0.0, left + right)
    loads = np.bincount(replicas.node, weights=alone, minlength=nodes).astype(np.float64)
    for group in _groups(replicas, shared):
        join = replicas.join[group[0]]
        slices = replicas.slice_from[group], replicas.slice_to[group]
        lefts = _union(replicas.left_from[group], replicas.left_to[group], *slices)
        rights = _union(replicas.right_from[group], replicas.right_to[group], *slices)
        loads[replicas.node[group[0]]] += joins.left_rate[join] * lefts + joins.right_rate[join] * rights
    return loads


def _keys(replicas: Replicas) -> npt.NDArray[np.int64]:
    nodes = int(replicas.node.max(initial=0)) + 1
    return replicas.join.astype(np.int64) * nodes + replicas.node


def _sharing(replicas: Replicas) -> npt.NDArray[np.bool_]:
    """Which replicas share sub-join and node with another one."""
    _, inverse, count = np.unique(_keys(replicas), return_inverse=True, return_counts=True)
    return np.asarray(count[inverse] > 1)


def _groups(replicas: Replicas, shared: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.intp]]:
    rows = np.flatnonzero(shared)
    if not len(rows):
        return []
    keys = _keys(replicas)[rows]
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    return np.split(rows[order], cuts)


def _union(x_from: Floats, x_to: Floats, y_from: Floats, y_to: Floats) -> float:
    """Area of a union of rectangles, by the grid that their edges span."""
    xs, ys = np.unique(np.concatenate([x_from, x_to])), np.unique(np.concatenate([y_from, y_to]))
    covered = np.zeros((len(xs) - 1, len(ys) - 1), dtype=bool)
    for a, b, c, d in zip(
        np.searchsorted(xs, x_from),
        np.searchsorted(xs, x_to),
        np.searchsorted(ys, y_from),
        np.searchsorted(ys, y_to),
        strict=True,
    ):
        covered[a:b, c:d] = True
    return float(np.diff(xs) @ covered @ np.diff(ys))
