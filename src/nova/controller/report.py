"""Report: the change list that the rows made and dropped in a step come to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nova.controller.apply import Impact
from nova.controller.changes import Change, Deploy, Move, Part, Repartition, Shares, Undeploy
from nova.controller.schema import GONE, STEP
from nova.controller.state import State


def report(state: State, impact: Impact, time: float | None) -> list[Change]:
    """The changes of a step that has not ended, sub-join by sub-join; `time` is when it happened in ms since 1970."""
    made, gone = state.rows_created(), state.rows_removed()
    if not len(made) and not len(gone):
        return []
    replicas = state.replicas
    made = made[replicas["next"][made] != GONE]  # not dropped again in the same step
    gone = gone[replicas["step"][gone] != state.counts[STEP]]  # nor made in it
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for rows, parts in ((gone, before), (made, after)):
        for row, join in zip(rows.tolist(), replicas["join"][rows].tolist(), strict=True):
            parts.setdefault(join, []).append(row)
    changes: list[Change] = []
    for join in dict.fromkeys((*before, *after)):
        new = after.get(join, [])
        reason = impact.reasons.get(join) or _why(state, new, impact.opened)
        changes += _changes_of_one(state, join, before.get(join, []), new, reason, time)
    return changes


def _changes_of_one(
    state: State, join: int, before: list[int], after: list[int], reason: str, time: float | None
) -> list[Change]:
    names, old, new = state.names, _parts(state, before), _parts(state, after)
    same = set(old) & set(new)
    if same:
        old, new = [part for part in old if part not in same], [part for part in new if part not in same]
    if not old and not new:
        return []
    row = state.joins.rows[join]
    rule = names.rule(int(row["query"]))
    window = None if time is None else math.ceil(time / rule.window_ms)
    common: dict[str, Any] = {
        "query": rule.id,
        "left": names.sources[int(row["left"])],
        "right": names.sources[int(row["right"])],
        "from_window": window,
        "from_ms": None if window is None else window * rule.window_ms,
        "reason": reason,
    }
    if not old:
        return [Deploy(node=part.node, shares=part.shares, **common) for part in new]
    if not new:
        return [Undeploy(node=part.node, shares=part.shares, **common) for part in old]
    where = {part.shares: part.node for part in old}
    if len(where) == len(old) == len(new) and all(part.shares in where for part in new):
        return [Move(node=part.node, from_node=where[part.shares], shares=part.shares, **common) for part in new]
    return [Repartition(before=tuple(old), after=tuple(new), **common)]


def _parts(state: State, rows: list[int]) -> list[Part]:
    parts = []
    for row in rows:
        shares: Shares = tuple(state.replicas["box"][row].tolist())
        parts.append(Part(state.names.nodes[int(state.replicas["node"][row])], shares))
    parts.sort(key=lambda part: (part.shares[4], part.shares))
    return parts


def _why(state: State, after: list[int], opened: Mapping[int, str]) -> str:
    """Why a sub-join was touched that no event names."""
    replicas, names = state.replicas.rows, state.names
    for row in after:
        if replicas[row]["evicted_from"] >= 0:
            return f"gives way on {names.nodes[int(replicas[row]['evicted_from'])]} to a sub-join that would lose more"
    for row in after:
        node = int(replicas[row]["node"])
        return f"room on {names.nodes[node]}" + (f": {opened[node]}" if node in opened else "")
    return "another share of it moved"
