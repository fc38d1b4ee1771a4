"""`nova show`: a picture of a plan."""

from __future__ import annotations

from pathlib import Path

import typer

from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, progress

app = typer.Typer()


@app.command()
def command(
    scenario: Path = SCENARIO,
    plan: Path = PLAN,
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="FILE", help="FILE.html for an interactive page, FILE.png for a still picture."
    ),
    as_json: bool = JSON,
) -> None:
    """Draw PLAN: the cost space with sources, hosts, sinks, virtual positions and flows, and how full the hosts are.

    The page holds everything it needs and opens without a network; names and figures appear under the pointer. Large
    plans are thinned and their flows bundled; the picture says what it leaves out.

    Example: `nova show demo/scenario.yaml demo/plan -o plan.html`
    """
    from nova.draw import draw, writer

    writer(output)  # a wrong ending is said before the work, not after it
    opened = open_plan(scenario, plan)
    with progress("drawing"):
        draw(opened.scenario.problem, opened.plan, output)
    if as_json:
        emit_json({"picture": str(output), "bytes": output.stat().st_size})
    else:
        typer.echo(f"wrote {output}")
