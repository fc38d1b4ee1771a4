"""`nova showcase`: regional climate anomalies from end to end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import typer

from nova.cli.output import JSON, console, emit_json, progress, table
from nova.errors import Fault, InvalidInput

app = typer.Typer()

SHOWN = 10
"""Anomalies listed; all are in the page and in --json."""


@app.command()
def command(
    out: Path = typer.Option(Path("out/showcase"), "-o", "--out", metavar="DIR", help="Folder for everything."),
    seconds: float = typer.Option(40.0, min=8.0, help="Length of the generated streams."),
    rate: float = typer.Option(20.0, min=1.0, help="Tuples/s of each of the 24 generated sensors."),
    speed: float = typer.Option(4.0, min=0.01, help="Play the streams at this multiple of their speed."),
    seed: int = typer.Option(7, min=0, help="Same seed, same sensors."),
    master: str | None = typer.Option(None, help="Address of a Spark cluster; without one, this machine."),
    as_json: bool = JSON,
) -> None:
    """Find regional climate anomalies: pressure and humidity sensors, joined by region and window on Spark under Nova's
    plan, in a network of sensors, gateways, fog nodes, a cloud and a sink.

    The same tuples also go through emulated hosts under the plan of every baseline. DIR gets `scenario.yaml` with its
    tables, `plan.html`, `run/` with the results, and `index.html`, which shows it all.

    Example: `nova showcase -o showcase`
    """
    from nova.spark.session import open_session
    from nova.spark.showcase.place import generated
    from nova.spark.showcase.show import Case, show

    if out.exists() and any(out.iterdir()) and not (out / "scenario.yaml").exists():
        raise InvalidInput([Fault(str(out), "is a folder with other things than a showcase: it is not deleted")])
    shutil.rmtree(out, ignore_errors=True)
    scenario, sensors = generated(out, seconds, rate, seed)
    with progress("starting Spark") as bar, open_session(master, name="nova showcase") as spark:
        case = Case(scenario, sensors, out, speed, "Regional climate anomalies, generated sensors")
        figures = show(spark, case, lambda step: bar.update(bar.task_ids[0], description=step))
    if as_json:
        emit_json(figures)
    else:
        _print(figures)


def _print(figures: dict[str, Any]) -> None:
    from nova.cli.compare import fitting
    from nova.report.approaches import label
    from nova.spark.showcase.show import COLUMNS

    run, found = figures["run"], figures["anomalies"]
    table(f"{len(found)} anomalies in {run['results']:,} results of {run['tuples']:,} readings",
          ["region", "from", "windows", "pressure, off by", "humidity, off by", "score"],
          [[value for key, value in one.items() if key != "until"] for one in found[:SHOWN]])
    columns = {key: heading for key, heading in COLUMNS.items() if key != "approach"}
    for part in fitting(columns, console.width):
        table("Nova beside the baselines, on the tuples of this run", ["approach", *(columns[key] for key in part)],
              [[label(row["approach"]), *(row[key] for key in part)] for row in figures["placements"]])
    told = run["emulation"]["compared"]
    table("Nova's plan: emulated hosts and the simulation's prediction", ["", "emulated", "predicted"],
          [(row["figure"], row["emulated"], row["predicted"]) for row in told])
    latency = run["latency_ms"] or {}
    typer.echo(f"Spark itself took {latency.get('p50', 0):,.0f} ms from event to sink in the median, at this speed.")
    typer.echo(f"look at {figures['page']} and {Path(figures['page']).with_name('plan.html')}")
