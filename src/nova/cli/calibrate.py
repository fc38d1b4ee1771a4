"""`nova calibrate`: what this machine, or another one, can take."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.output import JSON, emit_json, progress, table

if TYPE_CHECKING:
    from nova.routing.calibrate import Workload

app = typer.Typer()
REMOTE_S = 3600
"""A machine that has not answered after so long is given up."""


@app.command()
def command(
    scenario: Path = typer.Argument(
        ..., metavar="SCENARIO", help="Scenario file, YAML or JSON; - reads what --site sends."
    ),
    query: str | None = typer.Option(None, metavar="ID", help="The query to measure; without it, all of them."),
    node: str | None = typer.Option(None, metavar="ID", help="Name of the machine in the row; else its host name."),
    site: str | None = typer.Option(
        None,
        metavar="[USER@]HOST",
        help="Measure this machine instead, over ssh; nova has to be on its PATH, as for a site.",
    ),
    cores: int | None = typer.Option(None, min=1, help="Cores that joins may use; else all that the process may."),
    keys: int = typer.Option(1, min=1, help="Different keys in a window; 1: every two tuples of a sub-join match."),
    utilisation: float = typer.Option(0.7, min=0.01, max=1.0, help="Share of the machine that joins may take."),
    repeats: int = typer.Option(7, min=3, help="Measurements."),
    as_json: bool = JSON,
) -> None:
    """Measure how many tuples/s a machine joins, and print a row for `nodes.csv`.

    Runs the code that joins tuples in a run, on tuples of the queries of SCENARIO: their windows and usual rates. The
    capacity is that of the most costly query, for all cores, times the utilisation. Run it on every type of machine.

    Examples: `nova calibrate demo/scenario.yaml --node fog-1 --utilisation 0.6`,
    `nova calibrate demo/scenario.yaml --site ops@fog-2`
    """
    from nova.routing.calibrate import workloads_from_json

    if str(scenario) == "-":
        works = workloads_from_json(sys.stdin.read(), "stdin")
    else:
        works = _workloads(scenario, query, keys)
    if site is not None:
        words = ["--utilisation", f"{utilisation:g}", "--repeats", str(repeats)]
        told = _elsewhere(site, works, [*words, *(["--cores", str(cores)] if cores else [])])
        told["node"] = node or told["node"]
    else:
        told = _here(works, node, cores, utilisation, repeats)
    if as_json:
        emit_json(told)
        return
    usable = f"{told['cores']} cores at {utilisation:.0%}"
    table(
        f"Tuples/s that one core joins, {repeats} measurements each",
        ["query", "median", "lowest", "highest", "results per tuple", usable],
        [
            [row["query"], *(round(row[name]) for name in ("tuples_per_s_per_core", "lowest", "highest")),
             row["results_per_tuple"], round(row["capacity"])]
            for row in told["queries"]
        ],
    )  # fmt: skip
    typer.echo("for nodes.csv:")
    typer.echo("id,capacity")
    typer.echo(f"{told['node']},{told['capacity']:.15g}")
    typer.echo(
        "note: joins alone; what Spark adds per tuple and batch is not in it. Where `nova run` is to do it, measure "
        "that: its report has tuples/s and the share of each host that is used",
        err=True,
    )


def _workloads(scenario: Path, query: str | None, keys: int) -> dict[str, Workload]:
    """What the queries of a scenario (or one of them) are like, by id."""
    from nova.model.errors import Fault, InvalidInput
    from nova.placement.resolve import resolve
    from nova.routing.calibrate import workload_of
    from nova.scenario import load
    from nova.scenario.faults import suggestion

    problem = load(scenario).problem
    names = [one.id for one in problem.queries]
    if query is not None and query not in names:
        raise InvalidInput(
            [Fault(str(scenario), f"no such query{suggestion(query, names)}", field="--query", value=query)]
        )
    joins = resolve(problem)
    return {
        name: workload_of(problem, joins, number, keys) for number, name in enumerate(names) if query in (None, name)
    }


def _here(
    works: dict[str, Workload], node: str | None, cores: int | None, utilisation: float, repeats: int
) -> dict[str, Any]:
    from nova.routing.calibrate import calibrate

    usable = cores or len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    for name, work in works.items():
        with progress(f"measuring {name}"):
            one = calibrate(work, repeats)
        rows.append(
            {
                "query": name,
                "tuples_per_s_per_core": one.tuples_per_s,
                "lowest": one.low,
                "highest": one.high,
                "spread": one.spread,
                "results_per_tuple": one.results_per_tuple,
                "capacity": float(f"{one.tuples_per_s * usable * utilisation:.3g}"),
            }
        )
    return {
        "node": node or platform.node() or "here",
        "capacity": min(row["capacity"] for row in rows),
        "cores": usable,
        "utilisation": utilisation,
        "queries": rows,
    }


def _elsewhere(site: str, works: dict[str, Workload], words: list[str]) -> dict[str, Any]:
    """What `nova calibrate` on another machine says; the workloads go there through ssh's standard input."""
    from nova.model.errors import Fault, InvalidInput, NovaError
    from nova.model.reading import parse_json
    from nova.routing.calibrate import workloads_to_json

    if site.startswith("-") or not site.isprintable():
        raise InvalidInput([Fault("command line", "[user@]host expected", field="--site", value=site)])
    command = ["ssh", "-o", "BatchMode=yes", "--", site, "nova", "calibrate", "-", "--json", *words]
    try:
        with progress(f"measuring {site}"):
            done = subprocess.run(
                command, input=workloads_to_json(works), capture_output=True, text=True, timeout=REMOTE_S, check=False
            )
    except FileNotFoundError:
        raise NovaError("--site needs ssh: install it, or run nova calibrate on that machine") from None
    except subprocess.TimeoutExpired:
        raise NovaError(f"{site} has not answered within {REMOTE_S} s") from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        hint = ": is nova on its PATH?" if done.returncode == 127 else ""
        raise NovaError(f"{site}: {why[0]}{hint}")
    told = parse_json(done.stdout, f"the answer of {site}")
    if not isinstance(told, dict) or not {"node", "capacity", "cores", "queries"} <= told.keys():
        raise NovaError(f"{site} answers something else than a calibration: has it another version of nova?")
    return told
