"""`nova paper`: the paper's experiments, run again."""

from __future__ import annotations

from pathlib import Path

import typer

from nova.cli.output import JSON, console, emit_json, errors, progress

app = typer.Typer()


@app.command()
def command(
    experiments: list[str] = typer.Argument(
        None,
        metavar="[EXPERIMENT]…",
        help="maps, overload, latency, estimation, resilience, scaling, queueing, e2e: all.",
    ),
    output: Path = typer.Option(..., "-o", "--output", metavar="DIR", help="Folder of the report."),
    quick: bool = typer.Option(False, "--quick", help="Fewer draws, levels and sizes: a few minutes."),
    seeds: int | None = typer.Option(None, "--seeds", min=1, help="Draws per point: 3, or 1 with --quick."),
    instances: Path | None = typer.Option(
        None,
        "--instances",
        metavar="DIR",
        help="Folder with the fixed instances of the published scripts.",
        exists=True,
        file_okay=False,
    ),
    as_json: bool = JSON,
) -> None:
    """Draw the paper's workloads, run its experiments, and write one page that reads like its evaluation section.

    Writes DIR/index.html (needs nothing else), one CSV per experiment, and DIR/units with the finished pieces of work:
    start the same command again after an interruption and it goes on where it stopped. Real topologies are used where
    `NOVA_DATA` or `nova data fetch` has brought them; without, what needs them is left out and the page says so.

    Example: `nova paper --quick -o report`
    """
    from nova_lab.report.experiment import Setting
    from nova_lab.report.paper import reproduce

    setting = Setting(quick=quick, seeds=seeds or (1 if quick else 3), instances=instances)
    with progress("drawing workloads") as bar:
        task = bar.task_ids[0]
        outcome = reproduce(
            experiments or [],
            output,
            setting,
            lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    if as_json:
        emit_json(
            {
                "report": str(outcome.page),
                "units": outcome.units,
                "reused": outcome.reused,
                "tables": {name: str(file) for name, file in outcome.tables.items()},
                "findings": {section.name: list(section.reading) for section in outcome.sections},
                "skipped": outcome.skipped,
            }
        )
        return
    for section in outcome.sections:
        console.print(f"[bold]{section.title}[/bold]", highlight=False)
        console.print(section.reading[0], highlight=False, markup=False)
    for name, why in outcome.skipped.items():
        errors.print(f"left out {name}: {why}", highlight=False, markup=False)
    typer.echo(f"wrote {outcome.page} ({outcome.units} units, {outcome.reused} of them from an earlier run)")
