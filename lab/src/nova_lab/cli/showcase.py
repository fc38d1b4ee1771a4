"""`nova showcase`: regional climate anomalies from end to end."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

import typer

from nova.cli.output import JSON, console, emit_json, progress, table
from nova.model.errors import Fault, InvalidInput

app = typer.Typer()

ARCHIVES = ("aberdeen-bme280", "aberdeen-dht22")
"""Data sets that make up the recorded showcase."""
MARK = ".showcase"
"""File that marks a folder as one that may be made anew."""
SHOWN = 10
"""Anomalies listed; all are in the page and in --json."""


@app.command()
def command(
    out: Path = typer.Option(Path("out/showcase"), "-o", "--out", metavar="DIR", help="Folder for everything."),
    archive: list[str] = typer.Option(
        [],
        "--archive",
        metavar="FILES",
        help="Sensor.Community archives of both kinds "
        "of sensors: files, folders or globs. Without any, those of `nova data` that are "
        "at hand, else generated sensors.",
    ),
    made_up: bool = typer.Option(False, "--generated", help="Generated sensors, whatever is at hand."),
    days: int = typer.Option(2, min=1, help="Days of an archive: its fullest."),
    seconds: float = typer.Option(24.0, min=8.0, help="Length of the generated streams."),
    rate: float = typer.Option(20.0, min=1.0, help="Tuples/s of a sensor; archives are sped up to it."),
    speed: float = typer.Option(1.0, min=0.01, help="Play the streams at this multiple of their speed."),
    seed: int = typer.Option(7, min=0, help="Same seed, same sensors."),
    master: str | None = typer.Option(None, help="Address of a Spark cluster; without one, this machine."),
    as_json: bool = JSON,
) -> None:
    """Find regional climate anomalies: pressure and humidity sensors, joined by region and window on Spark under Nova's
    plan, in a network of sensors, gateways, fog nodes, a cloud and a sink.

    The same streams also go through simulated hosts under the plan of every baseline. DIR gets `scenario.yaml` with its
    tables, `plan.html`, `run/` with the results, and `index.html`, which shows it all.

    Example: `nova showcase -o showcase`
    """
    from nova.spark.realtime.job import SLOTS
    from nova.spark.session import open_session
    from nova_lab.showcase.place import generated
    from nova_lab.showcase.show import Case, show

    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise InvalidInput([Fault(str(out), "is a folder with other things than a showcase: it is not deleted")])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
    recordings = [] if made_up else archive or at_hand()
    with progress("starting Spark") as bar, open_session(master, name="nova showcase", slots=SLOTS + 2) as spark:

        def step(name: str) -> None:
            bar.update(bar.task_ids[0], description=name)

        if recordings:
            from nova_lab.showcase.archive import recorded

            scenario, sensors = recorded(spark, recordings, out, days, rate, seed, step)
        else:
            scenario, sensors = generated(out, seconds, rate, seed)
        kind = "a Sensor.Community archive" if recordings else "generated sensors"
        figures = show(spark, Case(scenario, sensors, out, speed, f"Regional climate anomalies, {kind}"), step)
    if as_json:
        emit_json(figures)
    else:
        _print(figures)


def at_hand() -> list[str]:
    """Archives that `nova data` knows and that lie on this machine; none unless both kinds of sensors are there."""
    from nova.datasets.catalog import find
    from nova.datasets.folder import locate

    found = [locate(find(name).file) for name in ARCHIVES]
    return [str(path) for path in found if path is not None] if all(found) else []


def _print(figures: dict[str, Any]) -> None:
    from nova.evaluation.compare import verdict
    from nova_lab.showcase.show import COLUMNS, SIMULATED_S, beside, spoken

    run, found = figures["run"], figures["anomalies"]
    none = "" if found else "; these windows come nearest to one"
    table(
        f"{len(found)} anomalies in {run['results']:,} results of {run['tuples']:,} readings{none}",
        ["region", "from", "windows", "pressure by", "humidity by", "score"],
        [
            (
                one["region"],
                one["from"][:-1].replace("T", " "),
                one["windows"],
                one["pressure"],
                one["humidity"],
                one["score"],
            )
            for one in (found or figures["strangest"])[:SHOWN]
        ],
    )
    table(
        f"Event to sink, ms, {SIMULATED_S:g} s simulated: Nova beside the usual ways, best first",
        ["approach", *COLUMNS.values()],
        beside(figures["placements"]),
    )
    typer.echo(
        textwrap.fill(
            f"{verdict(figures['placements'])} over: nodes that get more than they can take; results there come "
            "ever later.",
            min(console.width, 120),
        )
    )
    typer.echo(f"On Spark: {spoken(run)}")
    typer.echo(f"look at {figures['page']} and {Path(figures['page']).with_name('plan.html')}")
