"""Handover: a new plan for a run that is under way, in any process on the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

from nova import plan as plans
from nova.errors import Fault, InvalidInput
from nova.problem import Problem
from nova.spark.run.folder import RunFolder
from nova.virtual.resolve import resolve


def hand_in(plan_folder: Path, folder: Path, problem: Problem) -> str:
    """Give a new plan to the run in `folder`: it takes it up with its next batch. Returns the plan's name there."""
    run = RunFolder(folder)
    names = run.plan_names()
    if not names:
        raise InvalidInput([Fault(str(folder), "no run lives in this folder")])
    plans.read(plan_folder, problem, resolve(problem))  # refuse here what the run would refuse
    name = f"{int(names[-1]) + 1:05d}"
    draft = run.plans / f".{name}"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(plan_folder, draft)
    draft.rename(run.plans / name)
    return name
