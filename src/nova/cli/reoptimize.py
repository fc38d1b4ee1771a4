"""`nova reoptimize`: events in, plan changes out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.changes import HYSTERESIS, JITTER, MIGRATION, print_changes, stability_of, write_running
from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, progress, table, unkept, warn

if TYPE_CHECKING:
    from nova.controller import Waiting

app = typer.Typer()


@app.command()
def command(
    scenario: Path = SCENARIO,
    plan: Path = PLAN,
    events: Path = typer.Option(..., "--events", "-e", metavar="FILE", help="Events, a JSON line a step; - is stdin."),
    output: Path = typer.Option(..., "--output", "-o", metavar="PLAN2", help="Folder of the plan afterwards."),
    jitter_ms: float | None = JITTER,
    migration_ms: float | None = MIGRATION,
    hysteresis: float | None = HYSTERESIS,
    as_json: bool = JSON,
) -> None:
    """Take events into a running PLAN, print what changes, and write the plan afterwards.

    Only what the events affect changes, and only where it is worth its cost. Each change says the sub-join, its shares,
    its host, the reason, and from which window on it holds. A line with a JSON list is a batch, and one step. If a line
    is wrong, the command names file, line, field and value, ends with exit code 2 and writes nothing. The scenario that
    the events lead to is written into PLAN2/scenario. Forms of events and changes: docs/reference/events.md.

    Example: `echo '{"event": "node_removed", "node": "north-fog"}' | nova reoptimize demo/scenario.yaml demo/plan
    -e - -o demo/plan2`
    """
    from nova.controller import Change, Controller
    from nova.controller.codec import change_to_json, parse_steps
    from nova.controller.export import inputs_of
    from nova.scenario.folder import refuse_other_folder

    refuse_other_folder(output)
    opened = open_plan(scenario, plan)
    steps: list[dict[str, Any]] = []
    changes: list[Change] = []
    with progress("taking in events"):
        running = Controller.from_plan(
            opened.scenario.problem, opened.plan, stability_of(jitter_ms, migration_ms, hysteresis)
        )
        cost = running.cost()
        for step in parse_steps(lines_of(events), name_of(events)):
            made = running.handle(step.events, step.file, step.line)
            steps.append(
                {
                    "line": step.line,
                    "changes": [change_to_json(change) for change in made],
                    "replan_gain_ms": running.replan_gain_ms,
                }
            )
            changes += made
        file = write_running(running, output, inputs_of(opened.scenario))
    waiting = running.waiting_list()
    if as_json:
        emit_json(
            {
                "plan": str(output),
                "scenario": None if file is None else str(file),
                "steps": steps,
                "cost_before_ms": cost,
                "cost_after_ms": running.cost(),
                "waiting": [{name: getattr(one, name) for name in one.__slots__} for one in waiting],
            }
        )
    else:
        print_changes(f"Changes of {plan}", changes)
        kinds = Counter(change.kind for change in changes)
        table(
            "Summary",
            ["", "value"],
            [
                ["steps", len(steps)],
                *([f"changes: {kind}", count] for kind, count in sorted(kinds.items())),
                ["cost before, ms", cost],
                ["cost after, ms", running.cost()],
                *([] if (gain := running.replan_gain_ms) is None else [["a re-plan would save, ms", gain]]),
                ["sub-joins that do not run", len(waiting)],
            ],
        )
        typer.echo(f"wrote {output}" + ("" if file is None else f", for the scenario {file}"))
    warn(unkept(running.options.utilisation, running.fullest()))
    if file is None:
        why = (
            "no two sources join any more" if not len(running.plan().joins) else "of a query of several joins some wait"
        )
        warn([f"{why}: no scenario was written, as none can say that"])
    if waiting:
        warn([f"{len(waiting):,} sub-joins do not run, among them {waiting_text(waiting[0])}"])


def waiting_text(one: Waiting) -> str:
    """A sub-join that does not run, in words."""
    return f"{one.query}: {one.left} ⋈ {one.right} ({one.reason})"


def name_of(events: Path) -> str:
    """How errors call the file of events."""
    return "stdin" if str(events) == "-" else str(events)


def lines_of(events: Path) -> Iterator[str]:
    """The lines of a file of events, or of stdin."""
    from nova.controller import codec
    from nova.model.errors import Fault, InvalidInput

    if str(events) != "-":
        yield from codec.lines_of(events)
        return
    try:
        yield from sys.stdin
    except UnicodeDecodeError:
        raise InvalidInput([Fault(name_of(events), "not UTF-8 text")]) from None
