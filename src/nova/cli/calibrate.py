"""`nova calibrate`: what this machine can take."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import typer

from nova.cli.opening import SCENARIO
from nova.cli.output import JSON, emit_json, progress, table

app = typer.Typer()


@app.command()
def command(
    scenario: Path = SCENARIO,
    query: str | None = typer.Option(None, metavar="ID", help="The query to measure; without it, all of them."),
    node: str | None = typer.Option(None, metavar="ID", help="Name of this machine in the row; else its host name."),
    cores: int | None = typer.Option(None, min=1, help="Cores that joins may use; else all that this process may."),
    keys: int = typer.Option(1, min=1, help="Different keys in a window; 1: every two tuples of a sub-join match."),
    utilisation: float = typer.Option(0.7, min=0.01, max=1.0, help="Share of the machine that joins may take."),
    repeats: int = typer.Option(7, min=3, help="Measurements."),
    as_json: bool = JSON,
) -> None:
    """Measure how many tuples/s this machine joins, and print a row for `nodes.csv`.

    Runs the code that joins tuples in a run, on tuples of the queries of SCENARIO: their windows and usual rates. The
    capacity is that of the most costly query, for all cores, times the utilisation. Run it on every type of machine.

    Example: `nova calibrate demo/scenario.yaml --node fog-1 --utilisation 0.6`
    """
    from nova.model.errors import Fault, InvalidInput
    from nova.placement.resolve import resolve
    from nova.routing.calibrate import calibrate, workload_of
    from nova.scenario import load
    from nova.scenario.faults import suggestion

    problem = load(scenario).problem
    names = [one.id for one in problem.queries]
    if query is not None and query not in names:
        raise InvalidInput(
            [Fault(str(scenario), f"no such query{suggestion(query, names)}", field="--query", value=query)]
        )
    joins = resolve(problem)
    wanted = [number for number, name in enumerate(names) if query is None or name == query]
    with progress("measuring"):
        found = [calibrate(workload_of(problem, joins, number, keys), repeats) for number in wanted]
    usable = cores or len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = [
        {
            "query": names[number],
            "tuples_per_s_per_core": one.tuples_per_s,
            "lowest": one.low,
            "highest": one.high,
            "spread": one.spread,
            "results_per_tuple": one.results_per_tuple,
            "capacity": float(f"{one.tuples_per_s * usable * utilisation:.3g}"),
        }
        for number, one in zip(wanted, found, strict=True)
    ]
    here = node or platform.node() or "here"
    capacity = min(row["capacity"] for row in rows)
    if as_json:
        emit_json({"node": here, "capacity": capacity, "cores": usable, "utilisation": utilisation, "queries": rows})
        return
    table(
        f"Tuples/s that one core joins, {repeats} measurements each",
        ["query", "median", "lowest", "highest", "results per tuple", f"{usable} cores at {utilisation:.0%}"],
        [
            [row["query"], *(round(row[name]) for name in ("tuples_per_s_per_core", "lowest", "highest")),
             row["results_per_tuple"], round(row["capacity"])]
            for row in rows
        ],
    )  # fmt: skip
    typer.echo("for nodes.csv:")
    typer.echo("id,capacity")
    typer.echo(f"{here},{capacity:g}")
