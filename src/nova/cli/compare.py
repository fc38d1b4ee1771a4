"""`nova compare`: all approaches on one scenario."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nova.cli.opening import SCENARIO
from nova.cli.output import JSON, console, emit_json, estimated_bound, progress, table, warn

if TYPE_CHECKING:
    from nova.evaluation.approaches import Row

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

    First what people feel: how long after its events a result is at the sink. All approaches share one cost space, take
    measured latencies where there are any, get the same simulated tuples and are charged alike: latency along every
    hop, load by the distinct tuples/s that reach a host. Nova spreads what does not fit evenly here, as a comparison
    needs a plan from everyone. The gap is to a lower bound for placements within capacities, so a plan that overloads
    nodes may lie below it.

    Example: `nova compare demo/scenario.yaml -a nova,source,top-c -o compare.html`
    """
    from nova.draw.comparison import check_ending, draw
    from nova.evaluation.approaches import COMPARED, check_names
    from nova.evaluation.compare import compare, ranked, told
    from nova.evaluation.words import latency
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
            with_bound=True,
            report=lambda what: bar.update(task, description=what),
        )
    rows = [one.row for one in done]
    if output is not None:
        draw(rows, output, title=str(scenario))
    if as_json:
        emit_json({"scenario": str(scenario), "seed": loaded.options.seed, "simulated_s": duration, "approaches": rows})
        return
    best_first = ranked(rows)
    source = told(rows)
    how = f"{duration:g} s simulated" if duration > 0 else "predicted"
    table(
        f"How long until a result is at the sink, ms ({how}), best first",
        ["approach", "mean", "median", "90 %", "99 %", "network", "service", "waiting"],
        [
            [
                _name(row),
                *(latency(row[f"{source}_{name}_ms"]) for name in ("mean", "p50", "p90", "p99")),
                *(latency(row[f"simulated_{name}_ms" if duration > 0 else f"{name}_ms"]) for name in PARTS),
            ]
            for row in best_first
        ],
    )
    table(
        "What was predicted, ms, and what each plan does to the nodes",
        ["approach", "mean", "99 %", "over %", "parts", "tuples/s", "gap %", "plan, ms"],
        [
            [
                _name(row),
                latency(row["felt_mean_ms"]),
                latency(row["felt_p99_ms"]),
                round(row["overloaded_percent"]),
                row["replicas"],
                round(row["tuples_in"]),
                None if row["overloaded"] or row["forbidden"] else 100 * row["gap"],
                1000 * row["seconds"],
            ]
            for row in best_first
        ],
    )
    typer.echo(explained(best_first))
    if output is not None:
        typer.echo(f"wrote {output}")


PARTS = ("network", "service", "waiting")
"""What the mean is made of."""


def _name(row: Row) -> str:
    """The approach for a cell, marked where nobody could run its plan."""
    from nova.evaluation.compare import usable

    return f"{row['approach']}{'' if usable(row) else ' !'}"


def explained(rows: list[Row]) -> str:
    """Who is first, what the marked ones would do, where each approach runs joins, and what the columns say."""
    from nova.evaluation.approaches import look
    from nova.evaluation.compare import hindrance, verdict

    lines = [verdict(rows)]
    hindered = [why for row in rows if (why := hindrance(row))]
    if hindered:
        lines.append(f"! cannot be run: {'; '.join(hindered)}.")
    lines.append(
        "Where each runs the joins: " + "; ".join(f"{r['approach']}: {look(r['approach']).rule}" for r in rows)
    )
    lines.append(
        "A result counts from the later of its two events; the mean is the sum of network, service and waiting. "
        "Waiting is time in line at the host: it grows without end (never) where a host gets all it can take. "
        "over %: hosts that get more than they can take. gap %: cost over a lower bound of what is possible"
        f"{estimated_bound(rows[0]['bound_certainty'])}."
    )
    return "\n".join(textwrap.fill(line, min(console.width, 120), break_on_hyphens=False) for line in lines)
