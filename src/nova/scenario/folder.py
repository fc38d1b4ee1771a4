"""A plan's folder: opened with its scenario and checked, or saved whole with the scenario it was made for."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nova.model.errors import BrokenPlan, Fault, InvalidInput, NovaError
from nova.model.plan import Plan, read, read_replicas
from nova.model.problem import Problem
from nova.placement.check import check
from nova.placement.resolve import resolve
from nova.scenario.scenario import Scenario, load
from nova.scenario.writer import FILE, write

SCENARIO = "scenario"
"""Folder inside a plan's folder: the scenario that the plan was made for, so that it can be read by itself."""


@dataclass(frozen=True)
class Opened:
    """A scenario with a plan that was read and checked against it."""

    scenario: Scenario
    plan: Plan
    stale: bool
    """Whether the plan was made for another version of the scenario."""


def open_plan(scenario: Scenario, folder: Path) -> Opened:
    """Read a plan, and check that it belongs to a scenario.

    A plan for another version of the scenario is read where it still holds, and called stale, so that one can see how
    an old plan does under new latencies or rates; a plan that loses, doubles or misplaces results is refused.
    """
    problem = scenario.problem
    plan = read(folder, problem, resolve(problem))
    stale = plan.digest != problem.digest
    try:
        check(problem, plan)
    except BrokenPlan as error:
        if not stale:
            raise
        again = f"Maybe plan again: nova plan {scenario.path} -o {folder}"
        raise BrokenPlan(f"{folder} was made for another version of {scenario.path}.\n{error}\n{again}") from None
    return Opened(scenario, plan, stale)


def open_alone(folder: Path) -> Opened:
    """Read a plan with the scenario in its own folder, as `save` has put it there."""
    file = folder / SCENARIO / FILE
    if (folder / "plan.json").exists() and not file.exists():
        nothing = not len(read_replicas(folder))
        why = "no two sources join any more in this plan, so it " if nothing else ""
        message = f"{why}holds no {SCENARIO}/{FILE}: name the scenario the plan was made for"
        raise InvalidInput([Fault(str(folder), message)])
    scenario = load(file) if file.exists() else None
    if scenario is None:
        raise InvalidInput([Fault(str(folder / "plan.json"), "no such plan file")])
    opened = open_plan(scenario, folder)
    problem = replace(scenario.problem, digest=opened.plan.digest)  # the rewritten tables say the same
    return Opened(replace(scenario, problem=problem), opened.plan, stale=False)


def save(plan: Plan, output: Path, problem: Problem, inputs: Mapping[str, Any] | None = None) -> None:
    """Write a plan, and the scenario it was made for into a folder in it. `inputs`: see `scenario.writer.write`."""
    write_whole(plan, output, problem, lambda folder: write(folder / SCENARIO, problem, plan.options, inputs))


def refuse_other_folder(output: Path) -> None:
    """A plan may replace a plan, but nothing else that happens to have the name."""
    if output.is_dir():
        if any(output.iterdir()) and not (output / "plan.json").exists():
            raise InvalidInput([Fault(str(output), "is a folder with other things than a plan: choose another name")])
    elif output.exists():
        raise InvalidInput([Fault(str(output), "is a file: a plan is a folder")])


def write_whole(plan: Plan, output: Path, problem: Problem, also: Callable[[Path], object] = lambda _: None) -> None:
    """Write a plan wholly or not at all: into a folder beside the target, which then takes its name. `also` may add
    to that folder.

    Where a plan stands already, its files are replaced one by one and other files in the folder stay.
    """
    beside: Path | None = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
        plan.write(beside, problem)
        also(beside)
        if output.exists():
            for file in beside.iterdir():
                if file.is_dir():
                    shutil.rmtree(output / file.name, ignore_errors=True)
                os.replace(file, output / file.name)
        else:
            beside.chmod(0o777 & ~_umask())
            os.replace(beside, output)
    except OSError as error:
        raise NovaError(f"cannot write {output}: {error.strerror}") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


def _umask() -> int:
    """The process's mask for new files, which the private temporary folder was made without."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
