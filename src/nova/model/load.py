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
        both = [
            (replicas.slice_from[group], replicas.slice_to[group]),
            (replicas.key_from[group], replicas.key_to[group]),
        ]
        lefts = _union((replicas.left_from[group], replicas.left_to[group]), *both)
        rights = _union((replicas.right_from[group], replicas.right_to[group]), *both)
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


def _union(*spans: tuple[Floats, Floats]) -> float:
    """Volume of a union of boxes, given by their (from, to) along each axis: by the grid that their edges span."""
    edges = [np.unique(np.concatenate(span)) for span in spans]
    covered = np.zeros([len(cuts) - 1 for cuts in edges])
    places = [
        (np.searchsorted(cuts, low), np.searchsorted(cuts, high))
        for cuts, (low, high) in zip(edges, spans, strict=True)
    ]
    for box in range(len(spans[0][0])):
        covered[tuple(slice(low[box], high[box]) for low, high in places)] = 1.0
    for cuts in reversed(edges):
        covered = covered @ np.diff(cuts)
    return float(covered)
