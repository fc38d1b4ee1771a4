"""Changes: what re-optimization prints, applied to the plan that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.controller.changes import Change, Part
from nova.controller.codec import read_changes
from nova.model.errors import Fault, InvalidInput
from nova.model.merges import Merges
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.replicas import SHARES, Replicas
from nova.placement.check import broken_joins
from nova.placement.merging import merge_trees

Join = tuple[str, str, str]
"""Ids of query, left and right source."""
Numbered = tuple[int, Change]
"""A change and its line."""


def read(file: Path) -> list[list[Numbered]]:
    """The change list in a file, in groups that hold from the same time on."""
    return [list(group) for _, group in groupby(read_changes(file), key=lambda numbered: numbered[1].from_ms)]


def apply(problem: Problem, plan: Plan, changes: Sequence[Numbered], file: str) -> Plan:
    """The plan after some changes. A change that does not fit the plan, and a sub-join that would be left with a hole
    or an overlap, are refused with their lines."""
    rows = _join_rows(problem, plan, {_join_of(change) for _, change in changes})
    faults: list[Fault] = []
    known: dict[Join, set[Part]] = {}
    ids = problem.nodes.ids.to_pylist()
    nodes = {name: row for row, name in enumerate(ids)}
    touched = np.isin(plan.replicas.join, np.array(sorted(rows.values()), np.int32))
    by_row = {row: join for join, row in rows.items()}
    old = plan.replicas.take(touched)
    for i in range(len(old)):
        shares = tuple(float(getattr(old, name)[i]) for name in SHARES)
        known.setdefault(by_row[int(old.join[i])], set()).add(Part(ids[int(old.node[i])], shares))
    for line, change in changes:
        join = _join_of(change)
        if join not in rows:
            faults.append(Fault(file, "no such sub-join in the scenario", line, value=_words(join)))
            continue
        parts = known.setdefault(join, set())
        for part in change.stops:
            if part not in parts:
                faults.append(Fault(file, f"no such replica runs on {part.node}", line, "shares", list(part.shares)))
            parts.discard(part)
        for part in change.starts:
            if part.node not in nodes:
                faults.append(Fault(file, "no such node in the scenario", line, "node", part.node))
            parts.add(part)
    if faults:
        raise InvalidInput(faults)
    made = [(rows[join], part) for join, parts in known.items() for part in sorted(parts, key=_order)]
    new = Replicas(
        np.array([row for row, _ in made], np.int32),
        np.array([nodes[part.node] for _, part in made], np.int32),
        *np.array([part.shares for _, part in made], np.float64).reshape(-1, len(SHARES)).T,
    )
    broken = set(broken_joins(new, len(plan.joins)).tolist())
    last = {_join_of(change): line for line, change in changes}
    faults = [
        Fault(file, "the replicas that are left have a hole or overlap", last[join], value=_words(join))
        for join, row in rows.items()
        if row in broken and known.get(join)
    ]
    if faults:
        raise InvalidInput(faults)
    replicas = Replicas.concat([plan.replicas.take(~touched), new])
    return replace(plan, replicas=replicas, merges=_merges(problem, plan, replicas))


def _merges(problem: Problem, plan: Plan, replicas: Replicas) -> Merges:
    """Merges anew, on hosts that have replicas: changes do not say which nodes are gone, but those have none."""
    busy = np.isin(np.arange(len(problem.nodes)), replicas.node)
    left = replace(problem, nodes=replace(problem.nodes, hosts=problem.nodes.hosts & busy))
    return merge_trees(left, plan.joins, replicas, plan.space, plan.options)


def _join_of(change: Change) -> Join:
    return change.query, change.left, change.right


def _order(part: Part) -> tuple[str, tuple[float, ...]]:
    return part.node, part.shares


def _words(join: Join) -> str:
    return f"{join[0]}: {join[1]} ⋈ {join[2]}"


def _join_rows(problem: Problem, plan: Plan, wanted: set[Join]) -> dict[Join, int]:
    """Rows of sub-joins by their ids; those that do not exist are left out."""
    joins, ids = plan.joins, problem.sources.ids
    query = pa.array([q.id for q in problem.queries]).take(pa.array(joins.query))
    left, right = ids.take(pa.array(joins.left)), ids.take(pa.array(joins.right))
    named = pc.and_(
        pc.is_in(left, value_set=pa.array(sorted({join[1] for join in wanted}), pa.string())),
        pc.is_in(right, value_set=pa.array(sorted({join[2] for join in wanted}), pa.string())),
    )
    rows = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    at = pa.array(rows)
    found = zip(query.take(at).to_pylist(), left.take(at).to_pylist(), right.take(at).to_pylist(), strict=True)
    return {join: int(row) for join, row in zip(found, rows, strict=True) if join in wanted}
