"""The Nova approach: Algorithm 1 of the paper, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nova.costspace import embed
from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.plan import Plan, Summary
from nova.model.policy import OVERLOAD, usable
from nova.model.problem import Problem
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment
from nova.placement.check import check
from nova.placement.median import virtual_positions
from nova.placement.resolve import resolve
from nova.placement.within import assign_within

Observer = Callable[[str, Any], None]
"""Called after each stage with its name and result: how `nova explain` and progress displays look inside."""


def optimize(problem: Problem, options: Options = Options(), observe: Observer | None = None) -> Plan:
    """Decide where every join runs. Raises `Infeasible` where the nodes cannot take the load."""
    tell = observe or _nobody

    space = embed(problem, options)  # Phase I: nodes get coordinates
    tell("embed", space)

    joins = resolve(problem)  # Phase II: queries become sub-joins …
    tell("resolve", joins)
    positions = virtual_positions(joins, space, options.objective)  # … with ideal positions
    tell("place", positions)

    assignment = assign_within(problem, joins, space, options)  # Phase III: sub-joins get hosts
    tell("assign", assignment)
    if len(assignment.unplaced) and not options.allow_overload:
        raise Infeasible(_what_is_missing(problem, joins, assignment, options))

    loads = node_loads(joins, assignment.replicas, len(problem.nodes))
    loads = np.where(loads > 0, loads + problem.nodes.other_load, 0.0)
    above = loads > problem.nodes.limit * (1 + OVERLOAD)
    plan = Plan(
        joins,
        assignment.replicas,
        space,
        options,
        overloaded=np.flatnonzero(above).astype(np.int32) if options.allow_overload else np.empty(0, np.int32),
        digest=problem.digest,
        summary=Summary.of(
            problem, joins, assignment.replicas, loads, int(above.sum()), float(assignment.missing.sum())
        ),
    )
    check(problem, plan)  # a wrong plan never leaves
    tell("check", plan)
    return plan


def _nobody(stage: str, result: Any) -> None:
    """Observes nothing."""


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
