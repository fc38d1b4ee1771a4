"""`nova sensors` from end to end: archives → clean readings by stream and month, source tables, a first scenario."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.model.errors import InvalidInput, NovaError
from nova.spark.ingest.measurements.files import InputFile, find
from nova.spark.ingest.measurements.lines import BLANK, HEADER
from nova.spark.ingest.measurements.quarantine import place, write
from nova.spark.ingest.sensors.archive import judge, places, read
from nova.spark.ingest.sensors.regions import Regions
from nova.spark.ingest.sensors.scenario import write_scenario

_SOURCES = (
    "stream string, source string, region string, sensor_type string, location string, lat double, lon double, "
    "readings long, first timestamp, last timestamp, interval_s double"
)


@dataclass(frozen=True)
class Task:
    """Which archives to clean, into which folder, by which regions."""

    inputs: list[str]
    output: Path
    regions: Regions


def sensors(spark: SparkSession, task: Task, step: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Run the task; writes `readings/`, `quarantine/`, a table of sources per stream, a scenario and `report.json`
    (last) into its folder, and returns the report. Every row is good, a duplicate or quarantined: checked."""
    step("looking at the input")
    files = find(spark, task.inputs)
    report_file = task.output / "report.json"
    report_file.unlink(missing_ok=True)
    archive = read(spark, files)
    regions = places(archive.frame, task.regions)
    step("cleaning")
    judged, seen = judge(archive.frame, regions)
    good = judged.where("reason is null").select(
        f.col("source").alias("source_id"),
        f.timestamp_micros("time").alias("event_time"),
        "value",
        "region",
        "sensor_type",
        "location",
        "lat",
        "lon",
        "stream",
    )
    alone = good.dropDuplicates(["stream", "source_id", "event_time", "value"])
    dated = alone.withColumn("month", f.date_format("event_time", "yyyy-MM"))
    folder = str(task.output / "readings")
    # rebalanced: a month of one city is one file, a month of the world is cut into many
    (
        dated.hint("rebalance", "stream", "month")
        .sortWithinPartitions("stream", "month", "event_time", "source_id")
        .write.partitionBy("stream", "month")
        .mode("overwrite")
        .parquet(folder)
    )
    readings = spark.read.schema(dated.schema).parquet(folder)
    kept = readings.count()
    step("writing the quarantine")
    turned_down = _quarantine(spark, files, regions, task, anything=seen.get["rows"] != seen.get["good"])
    rows = {
        "rows": seen.get["rows"],
        "good": kept,
        "duplicates": seen.get["good"] - kept,
        "quarantined": turned_down,
        "header_lines": seen.get[HEADER],
        "blank_lines": seen.get[BLANK],
    }
    _check(rows)
    step("measuring rates")
    sources = measured_sources(readings)
    if not len(sources):
        raise InvalidInput("no reading is good: see the quarantine for the reasons")
    written = write_scenario(task.output, sources)
    report = {
        "rows": rows | {"quarantined_total": sum(turned_down.values())},
        "streams": {
            name: _figures(sources.filter(pc.equal(sources["stream"], name)))
            for name in sorted(set(sources["stream"].to_pylist()))
        },
        "regions": len(set(sources["region"].to_pylist())),
        "sub_joins": written.sub_joins,
        "scenario": None if written.file is None else str(written.file),
    }
    report_file.write_text(json.dumps(report, indent=2) + "\n")
    return report


def measured_sources(readings: DataFrame) -> pa.Table:
    """One row per sensor and stream: its place, how many readings it sent and when, and the median time between two.

    The median, as archives have gaps of weeks: it says how often a sensor sends while it is alive.
    """

    def measure(table: pa.Table) -> pa.Table:
        table = table.sort_by("event_time")
        times = table["event_time"].cast(pa.int64()).to_numpy() / 1e6
        gaps = np.diff(times)
        gaps = gaps[gaps > 0]
        last = table.slice(len(table) - 1)  # a sensor that was moved counts where it stands now
        names = ["stream", "source_id", "region", "sensor_type", "location", "lat", "lon"]
        row = {("source" if name == "source_id" else name): last[name] for name in names}
        return pa.table(
            row
            | {
                "readings": [len(table)],
                "first": table["event_time"].slice(0, 1),
                "last": last["event_time"],
                "interval_s": [float(np.median(gaps)) if len(gaps) else None],
            }
        )

    return readings.groupBy("stream", "source_id").applyInArrow(measure, _SOURCES).orderBy("stream", "source").toArrow()


def _quarantine(
    spark: SparkSession, files: list[InputFile], regions: DataFrame, task: Task, anything: bool
) -> dict[str, int]:
    archive = read(spark, files if anything else files[:1], locate=True)
    shown = {"sensor": "source", "type": "sensor_type", "time": "time_text", "value": "value_text"}
    bad = place(spark, judge(archive.frame, regions)[0], archive.texts, files, shown)
    return write(spark, bad if anything else bad.limit(0), str(task.output / "quarantine"))


def _check(rows: dict[str, Any]) -> None:
    """Refuse a result in which rows were lost or doubled."""
    turned_down = sum(rows["quarantined"].values())
    if rows["rows"] != rows["good"] + rows["duplicates"] + turned_down:
        raise NovaError(
            f"{rows['rows']:,} rows were read, but {rows['good']:,} are good, {rows['duplicates']:,} "
            f"duplicates and {turned_down:,} quarantined. Did an input file change during the run?"
        )


def _figures(sources: pa.Table) -> dict[str, Any]:
    intervals = sources["interval_s"].drop_null().to_numpy()
    return {
        "sources": len(sources),
        "readings": pc.sum(sources["readings"]).as_py(),
        "interval_s": float(np.median(intervals)) if len(intervals) else None,
        "rate": float((1.0 / intervals).sum()) if len(intervals) else 0.0,
        "first": pc.min(sources["first"]).as_py().isoformat(),
        "last": pc.max(sources["last"]).as_py().isoformat(),
    }
