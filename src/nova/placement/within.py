"""Placing queries that may not run everywhere: hosts that meet their requirements, and links that are not overfull."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.policy import OVERLOAD, usable
from nova.model.problem import Bools, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.assign import Assignment, Start, assign
from nova.placement.links import crossing, ends_of, hosts_off, over_budget, sent_from

ROUNDS = 20
"""How often sub-joins are sent around overfull links before the scenario counts as too tight."""


def assign_within(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, start: Start | None = None
) -> Assignment:
    """Place all sub-joins, each on hosts that its query may use, and none of the links above its budget.

    Where a link carries too much, the sub-joins that send most over it are kept to hosts where they send least, and all
    is placed again. Where no query requires anything and no link has a budget, this is `assign`.
    """
    masks = [problem.allowed(row) for row in range(len(problem.queries))]
    if not problem.links and all(mask is None for mask in masks):
        return assign(problem, joins, space, options, start)
    everywhere = np.ones(len(problem.nodes), dtype=np.bool_)
    whole = [everywhere if mask is None else mask for mask in masks]
    has_room = usable(problem.nodes, options) > 0
    ends = ends_of(problem)
    spared: list[frozenset[int]] = [frozenset()] * len(joins)
    found = _by_mask(problem, joins, space, options, spared, whole, ends, start)
    if not problem.links:
        return found
    for _ in range(ROUNDS):
        sent = crossing(joins, found.replicas, ends)
        totals = sent.totals(len(problem.links))
        if not over_budget(problem, totals):
            return found
        moved = False
        for number, link in enumerate(problem.links):
            excess = totals[number] - link.budget * (1 + OVERLOAD)
            mine = np.flatnonzero(sent.link == number)
            rate = np.bincount(sent.join[mine], weights=sent.rate[mine], minlength=len(joins))
            for row in np.argsort(-rate, kind="stable").tolist():
                if excess <= 0 or rate[row] <= 0:
                    break
                if number in spared[row]:
                    continue
                wanted = spared[row] | {number}
                hosts = hosts_off(joins, row, wanted, ends, whole[joins.query[row]] & has_room)
                least = sent_from(joins, row, ends)[number, hosts].min(initial=np.inf)
                if least < rate[row] * (1 - OVERLOAD):
                    spared[row], moved = wanted, True
                    excess -= rate[row] - least
        if not moved:
            break
        found = _by_mask(problem, joins, space, options, spared, whole, ends, start)
    told = over_budget(problem, crossing(joins, found.replicas, ends).totals(len(problem.links)))
    if told:
        raise Infeasible("\n".join(["the links cannot take the load:", *(f"  {line}" for line in told)]))
    return found


def _by_mask(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    spared: list[frozenset[int]],
    whole: list[Bools],
    ends: Bools,
    start: Start | None,
) -> Assignment:
    """Sub-joins that may use the same hosts are placed together; those whose hosts have the least room go first, and
    what they take is other work to those that come after."""
    nodes, room = problem.nodes, usable(problem.nodes, options)
    classes: dict[bytes, tuple[Bools, list[int]]] = {}
    for row, query in enumerate(joins.query.tolist()):
        mine = hosts_off(joins, row, spared[row], ends, whole[query] & (room > 0)) if spared[row] else whole[query]
        classes.setdefault(mine.tobytes(), (mine, []))[1].append(row)
    loads = np.zeros(len(nodes))
    parts: list[Assignment] = []
    for mask, members in sorted(classes.values(), key=lambda one: float(room[one[0]].sum())):
        rows = np.array(members)
        left = replace(nodes, hosts=nodes.hosts & mask, busy=nodes.other_load + loads)
        these = joins.take(rows)
        running = None if start is None else start.of(rows, len(joins))
        placed = assign(replace(problem, nodes=left), these, space, options, running)
        loads += node_loads(these, placed.replicas, len(nodes))
        numbered = replace(placed.replicas, join=rows[placed.replicas.join].astype(np.int32))
        parts.append(Assignment(numbered, rows[placed.unplaced].astype(np.int32), placed.missing))
    replicas = Replicas.concat([part.replicas for part in parts])
    return Assignment(
        replicas.take(np.argsort(replicas.join, kind="stable")),
        np.concatenate([part.unplaced for part in parts]),
        np.concatenate([part.missing for part in parts]),
    )
