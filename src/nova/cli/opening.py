"""How commands that read a plan open it: with its scenario, and a warning where that has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nova.cli.output import progress, warn

if TYPE_CHECKING:
    from nova.scenario.folder import Opened

SCENARIO = typer.Argument(..., metavar="SCENARIO", help="Scenario file, YAML or JSON.")
PLAN = typer.Argument(..., metavar="PLAN", help="Folder of a plan made for it.")


def open_plan(scenario: Path, folder: Path) -> Opened:
    """Read a scenario and a plan that belong together: see `nova.scenario.folder`."""
    from nova.scenario import folder as plans
    from nova.scenario import load

    with progress("reading scenario and plan"):
        opened = plans.open_plan(load(scenario), folder)
    warn(opened.scenario.warnings)
    if opened.stale:
        again = f"Maybe plan again: nova plan {scenario} -o {folder}"
        warn([f"{folder} was made for another version of {scenario}; it is judged by the present one. {again}"])
    return opened
