"""Handover: a new plan for a run that is under way, in any process on the same files."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nova import plan as plans
from nova.errors import Fault, InvalidInput
from nova.plan import Plan
from nova.problem import Nodes, Problem
from nova.spark.run import changes
from nova.spark.run.folder import RunFolder
from nova.virtual.resolve import resolve

SWITCH = "switch.json"
"""Beside the files of a plan that was handed in: from when on it holds, and which event it is due to."""


def hand_in(given: Path, folder: Path, problem: Problem) -> list[str]:
    """Give a new plan, or a file of changes, to the run in `folder`: it takes it up with its next batch. Returns the
    names that the plans have there."""
    run = RunFolder(folder)
    names = run.plan_names()
    if not names:
        raise InvalidInput([Fault(str(folder), "no run lives in this folder")])
    if run.watched.exists():
        raise InvalidInput([Fault(str(folder), "events drive this run (--watch): say what has happened there")])
    joins = resolve(problem)
    if given.is_dir() or not given.exists():
        return [put(plans.read(given, problem, joins), problem, run)]  # refused here, not by the run
    plan = plans.read(run.plan(names[-1]), problem, joins)
    made = []
    for group in changes.read(given):
        plan = changes.apply(problem, plan, group, str(given))
        made.append((plan, group[0].from_ms))
    return [put(plan, problem, run, from_ms) for plan, from_ms in made]


def put(plan: Plan, problem: Problem, run: RunFolder, from_ms: float | None = None, event: int | None = None,
        newcomers: Mapping[str, float] | None = None) -> str:
    """Put a plan into the run's folder under the next name, in one step. Windows that begin before `from_ms` (ms since
    1970) are not touched; `event` is the line of the event that it is due to; `newcomers` are all nodes so far that
    the scenario does not have, with their capacities."""
    draft = run.plans / f".{uuid.uuid4().hex}"
    plan.write(draft, problem)
    (draft / SWITCH).write_text(json.dumps({"from_ms": from_ms, "event": event,
                                                 "newcomers": dict(newcomers or {})}))
    while True:
        name = f"{int(run.plan_names()[-1]) + 1:05d}"
        try:
            draft.rename(run.plan(name))
            return name
        except OSError:
            if not run.plan(name).exists():  # else somebody else was faster
                shutil.rmtree(draft)
                raise


def switch_of(folder: Path) -> dict[str, Any]:
    """What `put` noted with a plan; nothing with a run's first."""
    file = folder / SWITCH
    none: dict[str, Any] = {"from_ms": None, "event": None, "newcomers": {}}
    return json.loads(file.read_text()) if file.exists() else none


def with_newcomers(problem: Problem, newcomers: Mapping[str, float]) -> Problem:
    """The problem with further nodes behind its own, by id and capacity. Only to read and report: nobody plans here."""
    if not newcomers:
        return problem
    nodes, n = problem.nodes, len(newcomers)
    ids = pa.concat_arrays([nodes.ids, pa.array(list(newcomers), nodes.ids.type)])
    return replace(problem, nodes=Nodes(
        ids, np.append(nodes.capacity, list(newcomers.values())), np.append(nodes.bandwidth, np.full(n, np.inf)),
        np.append(nodes.hosts, np.ones(n, bool)),
    ))
