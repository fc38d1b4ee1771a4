"""What a plan costs each node: per sub-join it hosts, the distinct left plus the distinct right tuples per second."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nova.model.problem import Floats, Ints, Problem
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins


def node_loads(joins: SubJoins, replicas: Replicas, nodes: int) -> Floats:
    """Tuples/s that reach each of `nodes` nodes. Replicas of one sub-join on one node share their input."""
    _, node, left, right, _ = shared_inputs(joins, replicas, replicas.volume)
    return np.bincount(node, weights=left + right, minlength=nodes).astype(np.float64)


def fullest(problem: Problem, joins: SubJoins, replicas: Replicas) -> float:
    """Highest share of a node that replicas and its other work keep busy, of the nodes that run any."""
    loads, limit = node_loads(joins, replicas, len(problem.nodes)), problem.nodes.limit
    used = loads > 0
    return float(((loads + problem.nodes.other_load)[used] / limit[used]).max(initial=0.0))


def window_bytes(problem: Problem, joins: SubJoins) -> Floats:
    """Bytes that each tuple/s of a sub-join's input takes in open windows: their length × the size of a tuple."""
    each = np.array([query.window_ms / 1000.0 * query.tuple_bytes for query in problem.queries])
    return each[joins.query] if len(joins) else np.empty(0)


def memory_limits(problem: Problem) -> Floats:
    """Bytes for open windows on each node; infinite where no query charges any."""
    charged = any(query.tuple_bytes for query in problem.queries)
    return problem.nodes.memory if charged else np.full(len(problem.nodes), np.inf)


def memory_loads(problem: Problem, joins: SubJoins, replicas: Replicas) -> Floats:
    """Bytes of open windows on each node. Whoever gets some of the windows holds a whole one while it is open."""
    size = window_bytes(problem, joins)
    if not size.any():
        return np.zeros(len(problem.nodes))
    heavy = replace(joins, left_rate=joins.left_rate * size, right_rate=joins.right_rate * size)
    open_ = replace(replicas, slice_from=np.zeros(len(replicas)), slice_to=np.ones(len(replicas)))
    return node_loads(heavy, open_, len(problem.nodes))


def shared_inputs(joins: SubJoins, replicas: Replicas, share: Floats) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """What each sub-join sends to each of its hosts, one row per pair of them: sub-join, host, left and right tuples/s,
    and the share of its results that is born there, where each replica makes `share` of them."""
    left, right = replicas.rates(joins)
    shared = _sharing(replicas)
    groups = _groups(replicas, shared)
    if not groups:
        return replicas.join, replicas.node, left, right, share
    alone = ~shared
    firsts = np.array([group[0] for group in groups])
    lefts, rights = np.empty(len(groups)), np.empty(len(groups))
    for number, group in enumerate(groups):
        both = [
            (replicas.slice_from[group], replicas.slice_to[group]),
            (replicas.key_from[group], replicas.key_to[group]),
        ]
        join = replicas.join[group[0]]
        lefts[number] = joins.left_rate[join] * _union((replicas.left_from[group], replicas.left_to[group]), *both)
        rights[number] = joins.right_rate[join] * _union((replicas.right_from[group], replicas.right_to[group]), *both)
    return (
        np.concatenate([replicas.join[alone], replicas.join[firsts]]),
        np.concatenate([replicas.node[alone], replicas.node[firsts]]),
        np.concatenate([left[alone], lefts]),
        np.concatenate([right[alone], rights]),
        np.concatenate([share[alone], [float(share[group].sum()) for group in groups]]),
    )


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
