"""Export: the plan that runs, with the scenario that events have made of the first one, for all other commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nova.controller.controller import Controller
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.scenario import Scenario, load
from nova.scenario.writer import write


def inputs_of(scenario: Scenario) -> dict[str, Any]:
    """Where the tuples of each stream come from, with paths that hold from anywhere."""
    folder = scenario.path.resolve().parent
    return {
        name: stream.input.model_dump(exclude_defaults=True)
        | ({} if stream.input.path is None else {"path": stream.input.location(folder)})
        for name, stream in scenario.streams.items()
        if stream.input is not None
    }


def export(controller: Controller, folder: Path, inputs: Mapping[str, Any] | None) -> tuple[Problem, Plan, Path | None]:
    """Write the scenario of what runs now into a folder. Returns the problem, the plan for it, and the scenario file;
    None where no scenario can say it: see `nova.scenario.writer.write`."""
    problem, plan = controller.problem(), controller.plan()
    file = write(folder, problem, controller.options, inputs)
    # rows stand in another order in the file, so it has a digest of its own
    return problem, plan if file is None else replace(plan, digest=load(file).digest), file
