"""The Nova approach: Algorithm 1 of the paper, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nova.costspace import embed
from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.merges import Merges, merge_loads
from nova.model.options import Options
from nova.model.plan import Plan, Summary
from nova.model.policy import OVERLOAD, usable
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment, Start
from nova.placement.check import check
from nova.placement.links import in_the_way
from nova.placement.merging import merge_trees
from nova.placement.resolve import resolve
from nova.placement.sinks import beside_results
from nova.placement.stages import assign_stages

Observer = Callable[[str, Any], None]
"""Called after each stage with its name and result: for progress displays and timing."""


@dataclass
class Planning:
    """What the stages share: each adds what it found."""

    problem: Problem
    options: Options
    start: Start | None = None
    space: CostSpace = field(init=False)
    joins: SubJoins = field(init=False)
    assignment: Assignment = field(init=False)
    merges: Merges = field(init=False)
    plan: Plan = field(init=False)


def optimize(
    problem: Problem, options: Options = Options(), observe: Observer | None = None, start: Start | None = None
) -> Plan:
    """Decide where every join runs; small problems from what runs at the `start`, else afresh. Raises `Infeasible`
    where the nodes cannot take the load."""
    planning = Planning(problem, options, start)
    for name, stage in STAGES:
        result = stage(planning)
        if observe is not None:
            observe(name, result)
    return planning.plan


def _embed(planning: Planning) -> CostSpace:
    planning.space = embed(planning.problem, planning.options)
    return planning.space


def _resolve(planning: Planning) -> SubJoins:
    planning.joins = resolve(planning.problem)
    return planning.joins


def _assign(planning: Planning) -> Assignment:
    found = _assigned(planning, beside_results(planning.problem, planning.joins))
    if found.why:
        raise Infeasible("\n".join(found.why))
    if len(found.unplaced) and not planning.options.allow_overload:
        raise Infeasible(_what_is_missing(planning.problem, planning.joins, found, planning.options))
    return found


def _assigned(planning: Planning, problem: Problem) -> Assignment:
    """Hosts for all sub-joins. Where sinks have no room beside their results, joins go first: what that means for the
    sinks is told with the plan."""
    joins = planning.joins
    planning.joins, planning.assignment = assign_stages(
        problem, joins, planning.space, planning.options, planning.start
    )
    found = planning.assignment
    if problem is not planning.problem and (found.why or len(found.unplaced)):
        planning.joins = joins
        return _assigned(planning, planning.problem)
    return found


def _merge(planning: Planning) -> Merges:
    problem, joins, options = planning.problem, planning.joins, planning.options
    planning.merges = merge_trees(problem, joins, planning.assignment.replicas, planning.space, options)
    return planning.merges


def _write_down(planning: Planning) -> Plan:
    problem, joins, options, found = planning.problem, planning.joins, planning.options, planning.assignment
    loads = node_loads(joins, found.replicas, len(problem.nodes))
    loads += merge_loads(problem, joins, found.replicas, planning.merges)
    loads = np.where(loads > 0, loads + problem.nodes.other_load, 0.0)
    above = loads > problem.nodes.limit * (1 + OVERLOAD)
    planning.plan = Plan(
        joins,
        found.replicas,
        planning.space,
        options,
        overloaded=np.flatnonzero(above).astype(np.int32) if options.allow_overload else np.empty(0, np.int32),
        digest=problem.digest,
        summary=Summary.of(
            problem, joins, found.replicas, loads, int(above.sum()), float(found.missing.sum()), planning.merges
        ),
        merges=planning.merges,
    )
    return planning.plan


def _check(planning: Planning) -> Plan:
    check(planning.problem, planning.plan)
    return planning.plan


STAGES: tuple[tuple[str, Callable[[Planning], Any]], ...] = (
    ("embed", _embed),  # Phase I: nodes get coordinates, so that every distance is known
    ("resolve", _resolve),  # Phase II: queries become sub-joins, one per pair of sources that may join
    # The paper now puts each sub-join at its virtual position, the median of its ends, and looks for hosts around it.
    # Here hosts are searched by the cost itself, which is least at the median: `explain` and `show` work the positions
    # out where they are asked for.
    ("assign", _assign),  # Phase III: sub-joins get hosts, whole or cut, by legs, service and waiting
    ("merge", _merge),  # partial aggregates meet on their way to the sink, where that pays
    ("plan", _write_down),  # replicas, loads and a summary
    ("check", _check),  # a wrong plan never leaves
)
"""Algorithm 1, in order."""


def _what_is_missing(problem: Problem, joins: SubJoins, assignment: Assignment, options: Options) -> str:
    need, have = float(joins.demand.sum()), float(usable(problem.nodes, options).sum())
    lines = [
        f"the nodes cannot take the load: {assignment.missing.sum():.6g} tuples/s of {len(assignment.unplaced)} "
        f"sub-joins found no host (the joins need {need:.6g} tuples/s, the hosts have {have:.6g})"
    ]
    for number in np.unique(joins.query[assignment.unplaced]).tolist():
        hosts = problem.allowed(number)
        if hosts is not None:
            query, room = problem.queries[number], usable(problem.nodes, options)[hosts]
            told = " and ".join(map(str, query.requires))
            count, have = np.count_nonzero(room), room.sum()
            lines.append(f"  query {query.id} requires {told}: {count} hosts, which have {have:.6g} tuples/s")
    for query in problem.queries:
        if query.tuple_bytes:
            told = f"{query.tuple_bytes:g} bytes for each tuple of its open windows"
            memory = problem.nodes.memory[problem.nodes.hosts]
            lines.append(f"  query {query.id} takes {told}: the hosts have {memory.sum() / 1e6:.6g} MB")
    if problem.links:
        free = usable(problem.nodes, options) - node_loads(joins, assignment.replicas, len(problem.nodes))
        rows = assignment.unplaced.astype(np.intp)
        lines += [
            f"  {line}" for line in in_the_way(problem, joins, assignment.replicas, rows, assignment.missing, free)
        ]
    ids = problem.sources.ids
    for row, missing in list(zip(assignment.unplaced, assignment.missing, strict=True))[:10]:
        lines.append(
            f"  {ids[int(joins.left[row])]} ⋈ {ids[int(joins.right[row])]}: "
            f"{missing:.6g} of {joins.demand[row]:.6g} tuples/s"
        )
    if len(assignment.unplaced) > 10:
        lines.append(f"  … and {len(assignment.unplaced) - 10} more")
    lines.append("Maybe add capacity, lower c_min, raise utilisation, or plan with --allow-overload.")
    return "\n".join(lines)
