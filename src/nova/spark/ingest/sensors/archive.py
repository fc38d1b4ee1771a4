"""Records of Sensor.Community archives as a table of readings, each with the reason why it does not count, if any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import groupby
from math import nan

import numpy as np
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from nova.model.errors import Fault, InvalidInput
from nova.spark.dead_letters import NOT_PARSED
from nova.spark.ingest.measurements.files import InputFile
from nova.spark.ingest.measurements.lines import BLANK, HEADER, cells_of, lines_of, micros
from nova.spark.ingest.sensors.kinds import KINDS
from nova.spark.ingest.sensors.regions import Regions

NEEDED = ("sensor_id", "sensor_type", "lat", "lon", "timestamp")
REASONS = {
    NOT_PARSED: "wrong number of fields",
    "sensor_missing": "no sensor id",
    "type_unknown": "a type of sensor that belongs to no stream",
    "time_unreadable": "no time, or none that can be read",
    "time_out_of_range": "a time before 2010 or after tomorrow",
    "place_unreadable": "no latitude or longitude, or none on Earth",
    "outside_regions": "a place in none of the given regions",
    "value_missing": "no value",
    "value_unreadable": "the value is not a number",
    "value_absurd": "a value that no weather has: a fault of the sensor",
}
"""Why a record is quarantined, in the order of testing."""
SINCE = datetime(2010, 1, 1, tzinfo=UTC)
"""Before the network existed."""


@dataclass(frozen=True)
class Archive:
    """Readings as read: `stream, source, sensor_type, location, lat, lon, time` (µs), `value, noticed`, and with
    `locate` also `time_text, value_text, file, block, row, record`."""

    frame: DataFrame
    texts: tuple[DataFrame, ...]


def read(spark: SparkSession, files: list[InputFile], locate: bool = False) -> Archive:
    """The records of the files. Files without the columns of an archive are refused."""
    faults = []
    for file in files:
        names = [] if file.format != "csv" else file.head.lstrip("\ufeff").split(";")
        missing = [name for name in NEEDED if name not in names]
        if missing:
            faults.append(
                Fault(
                    file.name,
                    f"no archive of Sensor.Community: a CSV file with ';' and the columns {', '.join(NEEDED)} expected",
                    row=1,
                    field=missing[0],
                    value=file.head[:80],
                )
            )
    if faults:
        raise InvalidInput(faults)
    parts: list[DataFrame] = []
    texts: list[DataFrame] = []

    def kind(file: InputFile) -> str:
        return file.head

    for head, group in groupby(sorted(files, key=kind), key=kind):
        lines = lines_of(spark, [file.path for file in group])
        texts.append(lines)
        parts.append(_records(lines, head, locate))
    return Archive(reduce(DataFrame.unionByName, parts), tuple(texts))


def _records(lines: DataFrame, head: str, locate: bool) -> DataFrame:
    cells = cells_of(lines, head)
    none = f.lit(None).cast("string")

    def text(name: str) -> Column:
        return f.trim(cells.cell(name)) if name in cells.names else none

    kind = f.upper(text("sensor_type"))
    stream, value = none, none
    for known in KINDS:
        mine = kind.isin(*known.sensors)
        stream = f.when(mine, known.stream).otherwise(stream)
        value = f.when(mine, text(known.column)).otherwise(value)
    flat = cells.frame.select(
        text("sensor_id").alias("source"),
        kind.alias("sensor_type"),
        text("location").alias("location"),
        text("lat").try_cast("double").alias("lat"),
        text("lon").try_cast("double").alias("lon"),
        text("timestamp").alias("time_text"),
        stream.alias("stream"),
        value.alias("value_text"),
        cells.noticed.alias("noticed"),
        *([f.col("file"), f.col("block"), f.col("row"), f.col("value").alias("record")] if locate else []),
    )
    return flat.select(
        "*", micros(f.col("time_text")).alias("time"), f.col("value_text").try_cast("double").alias("value")
    )


def places(frame: DataFrame, regions: Regions) -> DataFrame:
    """Table `lat, lon, region` of all places of the archive. Sensors stand still, so there are few."""
    found = frame.select("lat", "lon").distinct().where("lat is not null and lon is not null").toArrow()
    lat, lon = (found[name].to_numpy().astype(np.float64) for name in ("lat", "lon"))
    rows = list(zip(lat.tolist(), lon.tolist(), regions.of(lat, lon), strict=True))
    # a table without rows would let the optimizer leave out the whole pass, and with it the counting
    return frame.sparkSession.createDataFrame(rows or [(nan, nan, None)], "lat double, lon double, region string")


def judge(frame: DataFrame, regions: DataFrame) -> tuple[DataFrame, Observation]:
    """`frame` with `region` and `reason` (null for a good reading); the observation counts rows, good ones, headers
    and blanks."""
    until = datetime.now(UTC) + timedelta(days=1)
    since_us, until_us = round(SINCE.timestamp() * 1e6), round(until.timestamp() * 1e6)
    lat, lon, value = f.col("lat"), f.col("lon"), f.col("value")
    on_earth = f.coalesce((f.abs(lat) <= 90) & (f.abs(lon) <= 180) & ~((lat == 0) & (lon == 0)), f.lit(False))
    absurd = f.lit(False)
    for kind in KINDS:
        outside = ~value.between(kind.least, kind.most) | f.isnan(value)
        absurd = f.when(f.col("stream") == kind.stream, outside).otherwise(absurd)
    tests: list[tuple[str, Column]] = [
        ("sensor_missing", f.coalesce(f.col("source") == "", f.lit(True))),
        ("type_unknown", f.col("stream").isNull()),
        ("time_unreadable", f.col("time").isNull()),
        ("time_out_of_range", ~f.col("time").between(since_us, until_us)),
        ("place_unreadable", ~on_earth),
        ("outside_regions", f.col("region").isNull()),
        ("value_missing", f.coalesce(f.col("value_text") == "", f.lit(True))),
        ("value_unreadable", value.isNull()),
        ("value_absurd", absurd),
    ]
    reason = f.when(f.col("noticed").isNotNull(), f.col("noticed"))
    for name, failed in tests:
        reason = reason.when(failed, name)
    noticed = f.coalesce("noticed", f.lit(""))
    seen = Observation()
    judged = (
        frame.join(f.broadcast(regions), ["lat", "lon"], "left")
        .withColumn("reason", reason)
        .observe(
            seen,
            f.count_if(~noticed.isin(HEADER, BLANK)).alias("rows"),
            f.count_if(f.col("reason").isNull()).alias("good"),
            *(f.count_if(noticed == name).alias(name) for name in (HEADER, BLANK)),
        )
    )
    return judged, seen
