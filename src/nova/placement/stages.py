"""Placing joins of joins: level by level, each from where the level before it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.model.chain import linked
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.policy import usable
from nova.model.problem import Floats, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment, Start, assign
from nova.placement.together import together
from nova.placement.within import Rows, assign_within


def assign_stages(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    start: Start | None = None,
    rows: Rows | None = None,
    kept: Replicas | None = None,
) -> tuple[SubJoins, Assignment]:
    """Place sub-joins: all, or `rows` beside the replicas `kept` of others. Returns all of them with the ends that
    placing gave them, and the replicas of those that were placed.

    A join whose results another one reads is drawn to the query's sink, as every tuple of it has to get there in the
    end. What it makes is then a stream like any other, born at its host. What a level takes is other work to the next;
    queries whose hosts have the least room go first, with all their levels.
    Where all are placed, joins and their readers then look for better hosts together.
    Where no join reads another's results, this is `assign_within`.
    """
    levels = problem.levels()[joins.query]
    if not levels.any():
        return joins, assign_within(problem, joins, space, options, start, rows, kept)
    every = np.arange(len(joins)) if rows is None else rows
    others: list[Replicas] = []
    if kept is not None:
        others, joins = [kept], linked(problem, joins, kept)
    parts: list[Assignment] = []
    room = _room(problem, options)[joins.query]
    for least, level in sorted(set(zip(room[every].tolist(), levels[every].tolist(), strict=True))):
        some = every[(levels[every] == level) & (room[every] == least)]
        beside = [*others, *(one.replicas for one in parts)]
        before = Replicas.concat(beside) if beside else None
        place = assign_within if problem.bound or options.objective == "network" else _assign_beside
        parts.append(place(problem, joins, space, options, start, some, before))
        joins = linked(problem, joins, Replicas.concat([*beside, parts[-1].replicas]))
    if not parts:
        return joins, Assignment.nothing()
    placed = Replicas.concat([one.replicas for one in parts])
    placed = placed.take(np.argsort(placed.join, kind="stable"))
    if rows is None:
        joins, placed = together(problem, joins, space, options, placed)
    return joins, Assignment(
        placed,
        np.concatenate([one.unplaced for one in parts]),
        np.concatenate([one.missing for one in parts]),
        tuple(line for one in parts for line in one.why),
    )


def _room(problem: Problem, options: Options) -> Floats:
    """Tuples/s that the hosts of each query may take; all alike where none requires anything."""
    room = usable(problem.nodes, options)
    masks = [problem.allowed(number) for number in range(len(problem.queries))]
    return np.array([room.sum() if mask is None else room[mask].sum() for mask in masks])


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
