"""`nova compare`: all approaches on one scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nova.cli.opening import SCENARIO
from nova.cli.output import JSON, console, emit_json, progress, table, warn

app = typer.Typer()


@app.command()
def command(
    scenario: Path = SCENARIO,
    approaches: str | None = typer.Option(
        None, "--approaches", "-a", metavar="NAME,…", help="Which ones, with commas between; all but the optimum."
    ),
    duration: float = typer.Option(
        20.0, "--duration", "-t", metavar="SECONDS", help="Seconds to simulate each plan; 0: no simulation."
    ),
    seed: int | None = typer.Option(None, help="Same seed, same table; the scenario's by default."),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="FILE", help="Picture, with the table in it for .html, else .png."
    ),
    as_json: bool = JSON,
) -> None:
    """Place the joins of SCENARIO by Nova and by every baseline, and set the figures side by side.

    All share one cost space and are charged alike: latency along every hop, load by the distinct tuples/s that reach a
    host. Nova spreads what does not fit evenly here, as a comparison needs a plan from everyone. The gap is to a lower
    bound for placements within capacities, so a plan that overloads nodes may lie below it.

    Example: `nova compare demo/scenario.yaml -a nova,source,top-c -o compare.html`
    """
    from nova.draw.comparison import check_ending, draw
    from nova.evaluation.approaches import COMPARED, check_names
    from nova.evaluation.bounds import lower_bound
    from nova.evaluation.compare import compare
    from nova.scenario import load

    names = check_names([name.strip() for name in approaches.split(",")]) if approaches else list(COMPARED)
    if output is not None:
        check_ending(output)
    loaded = load(scenario, {"seed": seed})
    warn(loaded.warnings)
    with progress("comparing") as bar:
        task = bar.task_ids[0]
        done = compare(
            loaded.problem,
            names,
            loaded.options,
            simulated_s=duration,
            bound=lower_bound,
            report=lambda what: bar.update(task, description=what),
        )
    rows = [one.row for one in done]
    if output is not None:
        draw(rows, output, title=str(scenario))
    if as_json:
        emit_json({"scenario": str(scenario), "seed": loaded.options.seed, "simulated_s": duration, "approaches": rows})
        return
    columns = columns_of(simulated=duration > 0)
    for part in fitting(columns, console.width):
        table(
            f"{scenario}: latency and cost in ms, + is over sink-based",
            ["approach", *(columns[key] for key in part)],
            [[row["approach"], *(_value(row, key) for key in part)] for row in rows],
        )
    if output is not None:
        typer.echo(f"wrote {output}")


def columns_of(simulated: bool) -> dict[str, str]:
    """The figures of the table, and the heading of each."""
    columns = {
        "latency_mean_ms": "mean",
        "latency_p90_ms": "90P",
        "delta_mean_ms": "+mean",
        "delta_p90_ms": "+90P",
        "gap": "gap %",
        "overloaded_percent": "over %",
        "replicas": "replicas",
        "tuples_in": "tuples/s",
        "cost_eq1_ms": "Eq. 1",
    }
    if simulated:
        columns |= {"simulated_p99_ms": "sim. p99", "simulated_backlog": "backlog"}
    return columns | {"seconds": "seconds"}


def fitting(columns: dict[str, str], width: int) -> list[list[str]]:
    """The figures in one table, or in two halves where the terminal is too narrow for one."""
    keys = list(columns)
    half = (len(keys) + 1) // 2
    return [keys] if width >= 14 + 10 * len(keys) else [keys[:half], keys[half:]]


def _value(row: dict[str, Any], key: str) -> Any:
    return 100 * row[key] if key == "gap" else row[key]
