"""How commands that read a plan open it: with its scenario, and only if it is a right plan for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nova.cli.output import progress, warn
from nova.model.errors import BrokenPlan

if TYPE_CHECKING:
    from nova.model.plan import Plan
    from nova.scenario import Scenario

SCENARIO = typer.Argument(..., metavar="SCENARIO", help="Scenario file, YAML or JSON.")
PLAN = typer.Argument(..., metavar="PLAN", help="Folder of a plan made for it.")


@dataclass(frozen=True)
class Opened:
    """A scenario with a plan that was read and checked against it."""

    scenario: Scenario
    plan: Plan
    stale: bool
    """Whether the plan was made for another version of the scenario."""


def open_plan(scenario: Path, folder: Path) -> Opened:
    """Read a scenario and a plan, and check that they belong together.

    A plan for another version of the scenario is read with a warning where it still holds, so that one can see how an
    old plan does under new latencies or rates; a plan that loses, doubles or misplaces results is refused.
    """
    from nova.model.plan import read
    from nova.placement.check import check
    from nova.placement.resolve import resolve
    from nova.scenario import load

    with progress("reading scenario and plan"):
        loaded = load(scenario)
        problem = loaded.problem
        plan = read(folder, problem, resolve(problem))
    stale = plan.digest != problem.digest
    again = f"Maybe plan again: nova plan {scenario} -o {folder}"
    try:
        check(problem, plan)
    except BrokenPlan as error:
        if not stale:
            raise
        raise BrokenPlan(f"{folder} was made for another version of {scenario}.\n{error}\n{again}") from None
    warn(loaded.warnings)
    if stale:
        warn([f"{folder} was made for another version of {scenario}; it is judged by the present one. {again}"])
    return Opened(loaded, plan, stale)
