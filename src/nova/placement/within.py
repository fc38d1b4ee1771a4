"""Placing queries that may not run everywhere: hosts that meet their requirements, the choosiest queries first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.policy import usable
from nova.model.problem import Bools, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment, assign


def assign_within(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Assignment:
    """Place all sub-joins, each on hosts that its query may use.

    Queries that may use the same hosts are placed together; those whose hosts have the least room go first, and what
    they take is other work to those that come after. Where no query requires anything, this is `assign`.
    """
    masks = [problem.allowed(row) for row in range(len(problem.queries))]
    if all(mask is None for mask in masks):
        return assign(problem, joins, space, options)
    classes: dict[bytes, tuple[Bools, list[int]]] = {}
    everywhere = np.ones(len(problem.nodes), dtype=np.bool_)
    for row, mask in enumerate(masks):
        own = everywhere if mask is None else mask
        classes.setdefault(own.tobytes(), (own, []))[1].append(row)
    room = usable(problem.nodes, options)
    loads = np.zeros(len(problem.nodes))
    parts: list[Assignment] = []
    for mask, queries in sorted(classes.values(), key=lambda one: float(room[one[0]].sum())):
        rows = np.flatnonzero(np.isin(joins.query, queries))
        nodes = problem.nodes
        left = replace(nodes, hosts=nodes.hosts & mask, busy=nodes.other_load + loads)
        mine = joins.take(rows)
        placed = assign(replace(problem, nodes=left), mine, space, options)
        loads += node_loads(mine, placed.replicas, len(nodes))
        numbered = replace(placed.replicas, join=rows[placed.replicas.join].astype(np.int32))
        parts.append(Assignment(numbered, rows[placed.unplaced].astype(np.int32), placed.missing))
    replicas = Replicas.concat([part.replicas for part in parts])
    return Assignment(
        replicas.take(np.argsort(replicas.join, kind="stable")),
        np.concatenate([part.unplaced for part in parts]),
        np.concatenate([part.missing for part in parts]),
    )
