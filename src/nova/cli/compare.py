"""`nova compare`: all approaches on one scenario."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

from nova.cli.opening import SCENARIO
from nova.cli.output import JSON, emit_json, progress, table, warn

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
            with_bound=True,
            report=lambda what: bar.update(task, description=what),
        )
    rows = [one.row for one in done]
    if output is not None:
        draw(rows, output, title=str(scenario))
    if as_json:
        emit_json({"scenario": str(scenario), "seed": loaded.options.seed, "simulated_s": duration, "approaches": rows})
        return
    told = "simulated" if duration > 0 else "felt"
    how = f"{duration:g} s simulated" if duration > 0 else "predicted"
    table(
        f"How long until a result is at the sink, ms ({how})",
        ["approach", "mean", "median", "90 %", "99 %", "network", "service", "waiting"],
        [
            [
                row["approach"],
                *(_ms(row[f"{told}_{name}_ms"]) for name in ("mean", "p50", "p90", "p99")),
                *(_ms(row[f"simulated_{name}_ms" if duration > 0 else f"{name}_ms"]) for name in PARTS),
            ]
            for row in rows
        ],
    )
    table(
        "What was predicted, ms, and what each plan does to the nodes",
        ["approach", "mean", "99 %", "over %", "parts", "tuples/s", "gap %", "seconds"],
        [
            [
                row["approach"],
                _ms(row["felt_mean_ms"]),
                _ms(row["felt_p99_ms"]),
                round(row["overloaded_percent"]),
                row["replicas"],
                round(row["tuples_in"]),
                None if row["overloaded"] else 100 * row["gap"],
                row["seconds"],
            ]
            for row in rows
        ],
    )
    typer.echo(verdict(rows, told))
    if output is not None:
        typer.echo(f"wrote {output}")


PARTS = ("network", "service", "waiting")
"""What the mean is made of."""


def verdict(rows: list[dict[str, Any]], told: str) -> str:
    """How to read the tables, and who is first."""
    from nova.evaluation.approaches import label

    lines = [
        "A result counts from the later of its two events; the mean is the sum of network, service and waiting. "
        "Waiting is time in line at the host: it grows without end (never) where a host gets all it can take. "
        "over %: hosts that get more than they can take. gap %: cost over what is proven impossible to beat.",
    ]
    usable = [row for row in rows if row["overloaded"] == 0 and math.isfinite(row[f"{told}_p99_ms"])]
    if len(usable) > 1:
        first = min(usable, key=lambda row: float(row[f"{told}_p99_ms"]))
        quick = min(usable, key=lambda row: float(row[f"{told}_mean_ms"]))
        mean, late = f"{quick[f'{told}_mean_ms']:,.0f}", f"{first[f'{told}_p99_ms']:,.0f}"
        link = " and" if first is quick else f", {label(first['approach'])}"
        lines.append(
            f"Of the plans that overload nobody, {label(quick['approach'])} has the lowest mean ({mean} ms){link} the "
            f"lowest 99th percentile ({late} ms)."
        )
    return "\n".join(lines)


def _ms(value: float) -> int | str | None:
    """A latency for a cell; seconds where it is long, nothing of a queue that never settles."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "never"
    return round(value) if value < 10_000 else f"{value / 1000:,.0f} s"
