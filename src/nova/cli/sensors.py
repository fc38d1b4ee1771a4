"""`nova sensors`: Sensor.Community archives in, clean streams and a scenario out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nova.cli.output import JSON, emit_json, progress, table
from nova.model.errors import Fault, InvalidInput

app = typer.Typer()


@app.command()
def command(
    inputs: list[str] = typer.Argument(
        ...,
        metavar="INPUT…",
        help="Files, folders or globs of archives: CSV with ';' as Sensor.Community publishes them, also compressed.",
    ),
    output: Path = typer.Option(..., "-o", "--output", metavar="DIR", help="Folder for readings, tables and scenario."),
    cell: float = typer.Option(0.1, help="Size of a region in degrees, where no polygons are given."),
    regions: Path | None = typer.Option(
        None, metavar="FILE", help="GeoJSON with one polygon per region; sensors in none of them are quarantined."
    ),
    master: str | None = typer.Option(None, help="Address of a Spark cluster; without one, this machine."),
    as_json: bool = JSON,
) -> None:
    """Clean archives of pressure (BME280, BMP280) and humidity (DHT22) on Spark: faults go to a quarantine with their
    reason, file and line; every sensor gets a region; rates are measured.

    DIR gets `readings/` (Parquet by stream and month), `pressure.csv` and `humidity.csv` (the streams' sources with
    their rates), `nodes.csv` and `scenario.yaml` (a skeleton that plans as it is), `quarantine/` and `report.json`.

    Example: `nova sensors archive/*.csv.gz -o climate --cell 0.05`
    """
    from nova.cli.measurements import HEAVY_BYTES, stored_bytes
    from nova.spark.session import open_session

    if not 0 < cell <= 90:
        raise InvalidInput([Fault("--cell", "degrees above 0 and up to 90 expected", value=cell)])
    with progress("starting Spark") as bar:
        bar_task = bar.task_ids[0]
        with open_session(master, name="nova sensors", heavy=stored_bytes(inputs) > HEAVY_BYTES) as spark:
            from nova.spark.ingest.sensors.pipeline import Task, sensors
            from nova.spark.ingest.sensors.regions import Grid, read_polygons

            task = Task(inputs, output, Grid(cell) if regions is None else read_polygons(regions))
            report = sensors(spark, task, lambda step: bar.update(bar_task, description=step))
    if as_json:
        emit_json(report | {"output": str(output)})
    else:
        _show(report, output)


def _show(report: dict[str, Any], output: Path) -> None:
    rows = report["rows"]
    kinds = [("good", rows["good"]), ("duplicates", rows["duplicates"]), *rows["quarantined"].items()]
    table(
        f"{rows['rows']:,} records",
        ("went to", "records", "share (%)"),
        [(kind, count, 100.0 * count / max(1, rows["rows"])) for kind, count in kinds],
    )
    table(
        f"streams over {report['regions']} regions",
        ("stream", "sensors", "readings", "median interval (s)", "tuples/s", "first", "last"),
        [
            (
                name,
                figures["sources"],
                figures["readings"],
                figures["interval_s"],
                figures["rate"],
                figures["first"],
                figures["last"],
            )
            for name, figures in report["streams"].items()
        ],
    )
    if report["scenario"] is None:
        typer.echo(f"only one stream has sensors, so there is no scenario; readings and tables are in {output}")
    else:
        typer.echo(f"{report['sub_joins']:,} sub-joins; next: nova plan {report['scenario']} -o {output / 'plan'}")
