"""Placing joins of joins: level by level, each from where the level before it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.model.chain import linked
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment, Start, assign
from nova.placement.within import Rows, assign_within


def assign_stages(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, start: Start | None = None
) -> tuple[SubJoins, Assignment]:
    """Place all sub-joins. Returns them with the ends that placing gave them, and the replicas.

    A join whose results another one reads is drawn to the query's sink, as every tuple of it has to get there in the
    end. What it makes is then a stream like any other, born at its host. What a level takes is other work to the next.
    Where no join reads another's results, this is `assign_within`.
    """
    levels = problem.levels()[joins.query]
    if not levels.any():
        return joins, assign_within(problem, joins, space, options, start)
    parts: list[Assignment] = []
    kept: Replicas | None = None
    for level in range(int(levels.max()) + 1):
        rows = np.flatnonzero(levels == level)
        if problem.bound:
            parts.append(assign_within(problem, joins, space, options, start, rows, kept))
        else:
            parts.append(_assign_beside(problem, joins, space, options, start, rows, kept))
        kept = Replicas.concat([one.replicas for one in parts])
        joins = linked(problem, joins, kept)
    assert kept is not None
    return joins, Assignment(
        kept.take(np.argsort(kept.join, kind="stable")),
        np.concatenate([one.unplaced for one in parts]),
        np.concatenate([one.missing for one in parts]),
        tuple(line for one in parts for line in one.why),
    )


def _assign_beside(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    start: Start | None,
    rows: Rows,
    kept: Replicas | None,
) -> Assignment:
    """Place some sub-joins, anywhere, beside replicas of others."""
    if kept is not None:
        busy = problem.nodes.other_load + node_loads(joins, kept, len(problem.nodes))
        problem = replace(problem, nodes=replace(problem.nodes, busy=busy))
    running = None if start is None else start.of(rows, len(joins))
    placed = assign(problem, joins.take(rows), space, options, running)
    number = rows.astype(np.int32)
    return replace(
        placed,
        replicas=replace(placed.replicas, join=number[placed.replicas.join]),
        unplaced=number[placed.unplaced],
    )
