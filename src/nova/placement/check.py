"""The last stage: refuses a plan that loses results, doubles them, runs where it must not, or overloads in silence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.model.errors import SHOWN, BrokenPlan
from nova.model.load import node_loads
from nova.model.plan import Plan
from nova.model.problem import Bools, Problem
from nova.model.replicas import Replicas

SLACK = 1e-6
"""Relative overload that counts as rounding."""


def check(problem: Problem, plan: Plan) -> None:
    """Raise `BrokenPlan` unless every sub-join is tiled exactly, on nodes that may host, and no node is above its
    capacity or bandwidth but those the plan names."""
    joins, replicas = plan.joins, plan.replicas
    faults = []
    for row in broken_joins(replicas, len(joins))[:SHOWN]:
        pair = problem.sources.ids[int(joins.left[row])], problem.sources.ids[int(joins.right[row])]
        faults.append(f"sub-join {pair[0]} ⋈ {pair[1]}: its replicas do not tile the unit cube")
    nodes = problem.nodes
    for node in np.unique(replicas.node[~nodes.hosts[replicas.node]])[:SHOWN]:
        if plan.approach == "nova":
            faults.append(f"node {nodes.ids[int(node)]} hosts a replica although it must not")
    loads = node_loads(joins, replicas, len(nodes))
    limit = np.minimum(nodes.capacity, nodes.bandwidth)
    above = np.flatnonzero(loads > limit * (1 + SLACK))
    for node in np.setdiff1d(above, plan.overloaded)[:SHOWN]:
        faults.append(
            f"node {nodes.ids[int(node)]} takes {loads[node]:.6g} tuples/s of at most {limit[node]:.6g}, unreported"
        )
    if faults:
        raise BrokenPlan("the plan is wrong:\n" + "\n".join(faults))


def broken_joins(replicas: Replicas, joins: int) -> npt.NDArray[np.intp]:
    """Rows of sub-joins whose boxes do not tile the unit cube exactly."""
    broken = np.ones(joins, dtype=bool)
    if not len(replicas):
        return np.flatnonzero(broken)
    table = replicas
    step = np.diff(replicas.join)
    in_order = (step > 0) | ((step == 0) & (replicas.slice_from[1:] >= replicas.slice_from[:-1]))
    if not (in_order.all() and _sliced(replicas).all()):
        table = replicas.take(np.lexsort((replicas.right_from, replicas.left_from, replicas.slice_from, replicas.join)))
    starts = np.flatnonzero(np.diff(table.join, prepend=-1))
    ends = np.append(starts[1:], len(table))
    sizes = ends - starts
    present = table.join[starts]
    in_range = (present >= 0) & (present < joins)
    flat = _sliced(table)
    # The common case, all rows at once: replicas that differ in their slice only must follow each other from 0 to 1.
    follows = np.ones(len(table), dtype=bool)
    follows[1:] = (table.join[1:] != table.join[:-1]) | (table.slice_from[1:] == table.slice_to[:-1])
    follows[starts] = table.slice_from[starts] == 0.0
    follows[ends - 1] &= table.slice_to[ends - 1] == 1.0
    follows &= table.slice_from < table.slice_to
    simple = np.logical_and.reduceat(flat, starts) if len(starts) else np.empty(0, bool)
    chained = np.logical_and.reduceat(follows, starts) if len(starts) else np.empty(0, bool)
    broken[present[in_range & simple & chained]] = False
    for start, size, join in zip(starts[~simple], sizes[~simple], present[~simple], strict=True):
        if 0 <= join < joins and _tiles(table.take(np.arange(start, start + size))):
            broken[join] = False
    return np.flatnonzero(broken)


def _sliced(table: Replicas) -> Bools:
    """Which replicas take both streams whole."""
    return np.asarray((table.left_from == 0) & (table.left_to == 1) & (table.right_from == 0) & (table.right_to == 1))


def _tiles(boxes: Replicas) -> bool:
    """Whether boxes cover the unit cube once: each cell of the grid that their edges span lies in exactly one."""
    spans = [(boxes.left_from, boxes.left_to), (boxes.right_from, boxes.right_to), (boxes.slice_from, boxes.slice_to)]
    edges, at = [], []
    for low, high in spans:
        if (low >= high).any() or low.min() != 0.0 or high.max() != 1.0:
            return False
        cuts = np.unique(np.concatenate([low, high]))
        edges.append(cuts)
        at.append((np.searchsorted(cuts, low), np.searchsorted(cuts, high)))
    covered = np.zeros([len(cuts) - 1 for cuts in edges], dtype=np.int32)
    for row in range(len(boxes)):
        cell = tuple(slice(low[row], high[row]) for low, high in at)
        covered[cell] += 1
    return bool((covered == 1).all())
