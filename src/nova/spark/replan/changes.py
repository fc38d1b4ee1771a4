"""Changes: what re-optimization prints, read and applied to the plan that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.errors import Fault, InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.reading import read_text
from nova.model.replicas import SHARES, Replicas
from nova.placement.check import broken_joins

Box = tuple[str, tuple[float, ...]]
"""Node and shares of a replica."""
Join = tuple[str, str, str]
"""Ids of query, left and right source."""


@dataclass(frozen=True)
class Told:
    """One change: replicas of a sub-join that stop, and replicas that start."""

    join: Join
    stop: tuple[Box, ...]
    start: tuple[Box, ...]
    from_ms: float | None
    """Windows that begin then or later have it; None: as soon as can be."""
    line: int


def read(file: Path) -> list[list[Told]]:
    """The changes in a file, in groups that hold from the same time on.

    Its lines are changes, or steps as `nova events` prints them; or it is the one document that
    `nova reoptimize --json` prints.
    """
    text = read_text(file, "changes")
    found, faults = [], []
    for line, document in _documents(text, str(file)):
        for change in _flat(document):
            try:
                found.append(_told(change, line))
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                what = f"a change lacks {error}" if isinstance(error, KeyError) else str(error)
                faults.append(Fault(str(file), what, line))
    if faults:
        raise InvalidInput(faults)
    return [list(group) for _, group in groupby(found, key=lambda change: change.from_ms)]


def _documents(text: str, file: str) -> Iterator[tuple[int, Any]]:
    """JSON documents, one a line or one in all, with their lines."""
    try:
        yield 1, json.loads(text)
        return
    except (ValueError, RecursionError):
        pass  # not one document: then one a line
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInput([Fault(file, f"not JSON: {error}", number)]) from None


def _flat(document: Any) -> Iterator[Any]:
    """The changes in a document of changes, or of steps of changes."""
    if isinstance(document, list):
        for one in document:
            yield from _flat(one)
    elif isinstance(document, dict) and "change" not in document and ("steps" in document or "changes" in document):
        steps = document.get("steps", document.get("changes"))
        yield from _flat(steps) if isinstance(steps, list) else ()  # a last line tells how many steps there were
    else:
        yield document


def _told(change: Any, line: int) -> Told:
    if not isinstance(change, dict):
        raise ValueError("a change is a JSON object")
    join = (str(change["query"]), str(change["left"]), str(change["right"]))
    kind = change["change"]
    stop: list[Box] = []
    start: list[Box] = []
    if kind in ("deploy", "move"):
        start.append(_box(change, "node"))
    if kind in ("undeploy", "move"):
        stop.append(_box(change, "node" if kind == "undeploy" else "from_node"))
    if kind == "repartition":
        stop += [_box(part, "node") for part in change["before"]]
        start += [_box(part, "node") for part in change["after"]]
    if not (stop or start):
        raise ValueError(f"no such change: {kind!r}")
    from_ms = change.get("from_ms")
    return Told(join, tuple(stop), tuple(start), None if from_ms is None else float(from_ms), line)


def _box(part: dict[str, Any], name: str) -> Box:
    shares = tuple(float(share) for share in part["shares"])
    if len(shares) == len(SHARES) - 2:  # written without keys: all of them
        shares = (*shares, 0.0, 1.0)
    if len(shares) != len(SHARES):
        raise ValueError(f"`shares` has {len(SHARES)} numbers: {', '.join(SHARES)}")
    return str(part[name]), shares


def apply(problem: Problem, plan: Plan, changes: Sequence[Told], file: str) -> Plan:
    """The plan after some changes. A change that does not fit the plan, and a sub-join that would be left with a hole
    or an overlap, are refused with their lines."""
    rows = _join_rows(problem, plan, {change.join for change in changes})
    faults: list[Fault] = []
    known: dict[Join, set[Box]] = {}
    ids = problem.nodes.ids.to_pylist()
    nodes = {name: row for row, name in enumerate(ids)}
    touched = np.isin(plan.replicas.join, np.array(sorted(rows.values()), np.int32))
    by_row = {row: join for join, row in rows.items()}
    old = plan.replicas.take(touched)
    for i in range(len(old)):
        shares = tuple(float(getattr(old, name)[i]) for name in SHARES)
        known.setdefault(by_row[int(old.join[i])], set()).add((ids[int(old.node[i])], shares))
    for change in changes:
        if change.join not in rows:
            faults.append(Fault(file, "no such sub-join in the scenario", change.line, value=_words(change.join)))
            continue
        boxes = known.setdefault(change.join, set())
        for box in change.stop:
            if box not in boxes:
                faults.append(Fault(file, f"no such replica runs on {box[0]}", change.line, "shares", list(box[1])))
            boxes.discard(box)
        for box in change.start:
            if box[0] not in nodes:
                faults.append(Fault(file, "no such node in the scenario", change.line, "node", box[0]))
            boxes.add(box)
    if faults:
        raise InvalidInput(faults)
    made = [(rows[join], nodes[node], shares) for join, boxes in known.items() for node, shares in sorted(boxes)]
    new = Replicas(
        np.array([m[0] for m in made], np.int32),
        np.array([m[1] for m in made], np.int32),
        *np.array([m[2] for m in made], np.float64).reshape(-1, len(SHARES)).T,
    )
    broken = set(broken_joins(new, len(plan.joins)).tolist())
    last = {change.join: change.line for change in changes}
    faults = [
        Fault(file, "the replicas that are left have a hole or overlap", last[join], value=_words(join))
        for join, row in rows.items()
        if row in broken and known.get(join)
    ]
    if faults:
        raise InvalidInput(faults)
    return replace(plan, replicas=Replicas.concat([plan.replicas.take(~touched), new]))


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
