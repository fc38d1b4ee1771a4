"""The last stage: refuses a plan that loses results, doubles them, runs where it must not, or overloads in silence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.model.errors import SHOWN, BrokenPlan
from nova.model.load import memory_loads, node_loads
from nova.model.merges import merge_loads, mergeable
from nova.model.plan import Plan
from nova.model.policy import OVERLOAD
from nova.model.problem import Bools, Problem
from nova.model.replicas import Replicas
from nova.placement.apart import not_apart
from nova.placement.links import link_totals, over_budget


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
    if plan.approach == "nova":
        faults += _forbidden(problem, plan)
        if any(query.tuple_bytes for query in problem.queries):
            held, memory = memory_loads(problem, joins, replicas), nodes.memory
            for node in np.flatnonzero(held > memory * (1 + OVERLOAD))[:SHOWN].tolist():
                mb = f"{held[node] / 1e6:.6g} MB of open windows of at most {memory[node] / 1e6:.6g} MB"
                faults.append(f"node {nodes.ids[node]} holds {mb}")
        for row in not_apart(problem, joins, replicas)[:SHOWN].tolist():
            pair = problem.sources.ids[int(joins.left[row])], problem.sources.ids[int(joins.right[row])]
            label = problem.queries[joins.query[row]].apart
            faults.append(f"sub-join {pair[0]} ⋈ {pair[1]}: its replicas are not apart by {label}")
        if problem.links:
            faults += over_budget(problem, link_totals(problem, joins, replicas, plan.merges))
    if len(plan.merges):
        wrong = _merged_wrongly(problem, plan)
        if wrong:
            raise BrokenPlan("the plan is wrong:\n" + "\n".join([*faults, *wrong]))
    loads = node_loads(joins, replicas, len(nodes)) + merge_loads(problem, joins, replicas, plan.merges)
    loads = np.where(loads > 0, loads + nodes.other_load, 0.0)
    limit = nodes.limit
    above = np.flatnonzero(loads > limit * (1 + OVERLOAD))
    for node in np.setdiff1d(above, plan.overloaded)[:SHOWN]:
        faults.append(
            f"node {nodes.ids[int(node)]} takes {loads[node]:.6g} tuples/s of at most {limit[node]:.6g}, unreported"
        )
    if faults:
        raise BrokenPlan("the plan is wrong:\n" + "\n".join(faults))


def _forbidden(problem: Problem, plan: Plan) -> list[str]:
    """Replicas on nodes that do not meet what their query requires."""
    faults = []
    query = plan.joins.query[plan.replicas.join]
    for number, one in enumerate(problem.queries):
        mask = problem.allowed(number)
        if mask is None:
            continue
        nodes = plan.replicas.node[query == number]
        told = " and ".join(map(str, one.requires))
        for node in np.unique(nodes[~mask[nodes]])[:SHOWN]:
            faults.append(f"node {problem.nodes.ids[int(node)]} hosts a replica of {one.id}, which requires {told}")
    return faults


def _merged_wrongly(problem: Problem, plan: Plan) -> list[str]:
    """Merges that lead nowhere, of what cannot be merged, or where they may not be."""
    merges, nodes = plan.merges, problem.nodes
    faults = []
    if (merges.levels() < 0).any():
        return ["partial aggregates go round in a circle and never reach the sink"]
    if len({*zip(merges.query.tolist(), merges.node.tolist(), strict=True)}) < len(merges):
        return ["a host sends its partial aggregates of one query to two others"]
    for number in np.unique(merges.query).tolist():
        query, mine = problem.queries[number], merges.query == number
        if not mergeable(query):
            faults.append(f"query {query.id} has no partial aggregates that could be merged on their way")
        if (merges.node[mine] == query.sink).any() or (merges.to[mine] == query.sink).any():
            faults.append(f"the sink of {query.id} stands among the hosts that merge before it")
        allowed = problem.allowed(number)
        may = nodes.hosts if allowed is None else nodes.hosts & allowed
        for node in np.unique(merges.to[mine])[:SHOWN]:
            if not may[node]:
                faults.append(
                    f"node {nodes.ids[int(node)]} merges partial aggregates of {query.id} although it must not"
                )
    return faults


def broken_joins(replicas: Replicas, joins: int) -> npt.NDArray[np.intp]:
    """Rows of sub-joins whose boxes do not tile the unit cube exactly."""
    broken = np.ones(joins, dtype=bool)
    if not len(replicas):
        return np.flatnonzero(broken)
    table = replicas
    step = np.diff(replicas.join)
    in_order = (step > 0) | ((step == 0) & (replicas.slice_from[1:] >= replicas.slice_from[:-1]))
    if not (in_order.all() and _whole(replicas, ("left", "right", "key")).all()):
        order = (replicas.right_from, replicas.left_from, replicas.key_from, replicas.slice_from, replicas.join)
        table = replicas.take(np.lexsort(order))
    starts = np.flatnonzero(np.diff(table.join, prepend=-1))
    if not len(starts):
        return np.flatnonzero(broken)
    ends = np.append(starts[1:], len(table))
    present = table.join[starts]
    in_range = (present >= 0) & (present < joins)
    # The common cases, all rows at once: replicas that differ along one axis only must follow each other from 0 to 1.
    simple = np.zeros(len(starts), dtype=bool)
    for axis, others in (("slice", ("left", "right", "key")), ("key", ("left", "right", "slice"))):
        along = np.logical_and.reduceat(_whole(table, others), starts)
        chained = np.logical_and.reduceat(_follows(table, axis, starts, ends), starts)
        broken[present[in_range & along & chained]] = False
        simple |= along
    for start, end, join in zip(starts[~simple], ends[~simple], present[~simple], strict=True):
        if 0 <= join < joins and _tiles(table.take(np.arange(start, end))):
            broken[join] = False
    return np.flatnonzero(broken)


def _whole(table: Replicas, axes: tuple[str, ...]) -> Bools:
    """Which replicas take all of each of these axes."""
    whole = np.ones(len(table), dtype=bool)
    for axis in axes:
        whole &= (getattr(table, f"{axis}_from") == 0) & (getattr(table, f"{axis}_to") == 1)
    return whole


def _follows(table: Replicas, axis: str, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Bools:
    """Which replicas begin along an axis where the one before them in their sub-join ends: the first at 0, and whether
    the last ends at 1."""
    low, high = getattr(table, f"{axis}_from"), getattr(table, f"{axis}_to")
    follows = np.ones(len(table), dtype=bool)
    follows[1:] = low[1:] == high[:-1]
    follows[starts] = low[starts] == 0.0
    follows[ends - 1] &= high[ends - 1] == 1.0
    follows &= low < high
    return follows


def _tiles(boxes: Replicas) -> bool:
    """Whether boxes cover the unit cube once: each cell of the grid that their edges span lies in exactly one."""
    spans = [
        (boxes.left_from, boxes.left_to),
        (boxes.right_from, boxes.right_to),
        (boxes.slice_from, boxes.slice_to),
        (boxes.key_from, boxes.key_to),
    ]
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
