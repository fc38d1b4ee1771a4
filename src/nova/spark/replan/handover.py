"""Handover: a new plan for a run that is under way, in any process on the same files."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from nova.model import plan as plans
from nova.model.errors import Fault, InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.reading import recall
from nova.placement.resolve import resolve
from nova.spark.job.folder import RunFolder
from nova.spark.replan import changes
from nova.spark.replan.newcomers import NOBODY, Newcomers

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
        made.append((plan, group[0][1].from_ms))
    return [put(plan, problem, run, from_ms) for plan, from_ms in made]


def put(
    plan: Plan,
    problem: Problem,
    run: RunFolder,
    from_ms: float | None = None,
    event: int | None = None,
    newcomers: Newcomers = NOBODY,
) -> str:
    """Put a plan into the run's folder under the next name, in one step. Windows that begin before `from_ms` (ms since
    1970) are not touched; `event` is the line of the event that it is due to; `newcomers` are all so far."""
    draft = run.plans / f".{uuid.uuid4().hex}"
    plan.write(draft, problem)
    (draft / SWITCH).write_text(json.dumps({"from_ms": from_ms, "event": event, "newcomers": newcomers.as_json()}))
    while True:
        name = f"{int(run.plan_names()[-1]) + 1:05d}"
        try:
            draft.rename(run.plan(name))
            return name
        except OSError:
            if not run.plan(name).exists():  # else somebody else was faster
                shutil.rmtree(draft)
                raise


@dataclass(frozen=True)
class Switch:
    """What `put` noted with a plan."""

    from_ms: float | None = None
    event: int | None = None
    newcomers: Newcomers = NOBODY


def switch_of(folder: Path) -> Switch:
    """The note beside a plan; a run's first has none."""
    file = folder / SWITCH
    return recall(file, Switch) if file.exists() else Switch()


def read_plan(run: RunFolder, name: str, problem: Problem) -> tuple[Plan, Switch]:
    """A plan of a run, in rows of `problem` and of the newcomers behind it. Plans that events led to come from the
    controller and may have sub-joins that the scenario does not; others have to fit the scenario."""
    folder = run.plan(name)
    switch = switch_of(folder)
    nodes = {*problem.nodes.ids.to_pylist(), *switch.newcomers.nodes}
    faults = [
        Fault(
            str(folder / SWITCH), f"a new source {source.id!r} has {field} that nobody knows", field=field, value=value
        )
        for source in switch.newcomers.sources
        for field, value, known in (("node", source.node, nodes), ("stream", source.stream, problem.streams))
        if value not in known
    ]
    if faults:
        raise InvalidInput(faults)
    joins = resolve(problem) if switch.event is None else None
    return plans.read(folder, switch.newcomers.added_to(problem), joins), switch
