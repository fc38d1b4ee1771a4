"""Archive: a few days of recorded sensors as the showcase's streams, played so fast that hosts have something to do.

Sensors of the network send every two and a half minutes. The showcase squeezes time until each sends some tuples a
second, windows included: five minutes become a fraction of a second. Every tuple carries when it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova.model.errors import InvalidInput
from nova.model.problem import Floats
from nova.spark.ingest.sensors.kinds import HUMIDITY, PRESSURE
from nova.spark.ingest.sensors.pipeline import Task, sensors
from nova.spark.ingest.sensors.regions import Grid
from nova_lab.showcase.place import LEFT, RIGHT, Region, Sensor, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW_S = 300.0
"""Recorded length of a window: two readings of each sensor."""
STREAMS = {PRESSURE.stream: LEFT, HUMIDITY.stream: RIGHT}
HECTO = {PRESSURE.stream: 0.01, HUMIDITY.stream: 1.0}
"""Archives have pressure in Pa; people read hPa."""
NEAR = 0.05
"""Pressure sensors within so many degrees stand in one region."""
SPARSE = 0.25
"""Sensors with less than this share of the median number of readings are left out."""
DAY_S = 86_400


def recorded(
    spark: SparkSession,
    inputs: Sequence[str],
    folder: Path,
    days: int,
    rate: float,
    seed: int,
    step: Callable[[str], None] = lambda _: None,
) -> tuple[Path, list[Sensor]]:
    """A scenario of the archive's fullest days; its median sensor sends `rate` tuples/s."""
    sensors(spark, Task(list(inputs), folder / "sensors", Grid(1.0)), step)
    readings = spark.read.parquet(str(folder / "sensors" / "readings"))
    step("choosing days")
    begin_s = fullest(readings, days)
    some = readings.where(
        f"event_time >= timestamp_seconds({begin_s}) AND event_time < timestamp_seconds({begin_s + days * DAY_S})"
    )
    found = some.groupBy("stream", "source_id").agg({"*": "count", "lat": "max", "lon": "max"}).toArrow()
    found = found.rename_columns(
        ["stream", "source", *("readings" if "count" in name else name[4:7] for name in found.column_names[2:])]
    )
    usual = float(np.median(found["readings"].to_numpy()))
    found = found.filter(pa.array(found["readings"].to_numpy() >= SPARSE * usual))
    factor = squeeze(usual / (days * DAY_S), rate)
    regions, kept = placed(found, factor / (days * DAY_S))
    inputs_of: dict[str, Any] = {}
    for archived, stream in STREAMS.items():
        path = folder / "readings" / stream
        _squeezed(some.where(f"stream = '{archived}'"), begin_s, factor, HECTO[archived]).write.mode(
            "overwrite"
        ).parquet(str(path))
        inputs_of[stream] = {"format": "parquet", "path": f"readings/{stream}"}
    window = f"{1000 * WINDOW_S / factor:g}ms"
    return write(folder, regions, kept, inputs_of, window, seed), kept


def fullest(readings: DataFrame, days: int) -> int:
    """Beginning (s since 1970) of the consecutive days with the most readings of the rarer stream."""
    counted = (
        readings.selectExpr(f"CAST(unix_seconds(event_time) / {DAY_S} AS INT) AS day", "stream")
        .groupBy("day", "stream")
        .count()
        .toArrow()
    )
    day, stream = counted["day"].to_numpy(), np.array(counted["stream"].to_pylist())
    missing = [name for name in STREAMS if name not in set(stream.tolist())]
    if missing:
        raise InvalidInput(f"the archive has no readings of {' and '.join(missing)}: give files of both kinds")
    first, span = int(day.min()), int(np.ptp(day)) + 1
    per_day = np.zeros((len(STREAMS), span))
    for row, name in enumerate(STREAMS):
        mine = stream == name
        per_day[row, day[mine] - first] = counted["count"].to_numpy()[mine]
    rarer = per_day.min(axis=0)
    sums = np.convolve(rarer, np.ones(min(days, span)), "valid")
    return (first + int(np.argmax(sums))) * DAY_S


def squeeze(recorded_rate: float, rate: float) -> float:
    """How many times faster to play, so that windows have a length in whole hundredths of a second."""
    wanted = rate / recorded_rate
    return WINDOW_S / max(round(WINDOW_S / wanted, 2), 0.01)


def placed(found: pa.Table, per_reading: float) -> tuple[list[Region], list[Sensor]]:
    """Regions around the pressure sensors, and every sensor in the nearest; a reading makes `per_reading` tuples/s."""
    place = np.column_stack([found["lat"].to_numpy(), found["lon"].to_numpy()]).astype(np.float64)
    kinds = found["stream"].to_pylist()
    centres: list[Floats] = []
    for at in place[[kind == PRESSURE.stream for kind in kinds]]:
        if all(np.abs(at - centre).max() > NEAR for centre in centres):
            centres.append(at)
    nearest = np.argmin(np.linalg.norm(place[:, None] - np.array(centres)[None], axis=2), axis=1)
    regions = [Region(f"{lat:.2f}N{lon:+.2f}E", float(lon), float(lat)) for lat, lon in centres]
    columns = zip(kinds, found["source"].to_pylist(), found["readings"].to_pylist(), nearest, strict=True)
    kept = [
        Sensor(f"{kind[0]}-{source}", STREAMS[kind], regions[int(r)].name, round(count * per_reading, 4))
        for kind, source, count, r in columns
    ]
    both = {
        region.name
        for region in regions
        if {LEFT, RIGHT} <= {sensor.stream for sensor in kept if sensor.region == region.name}
    }
    return (
        [region for region in regions if region.name in both],
        sorted((sensor for sensor in kept if sensor.region in both), key=lambda sensor: sensor.id),
    )


def _squeezed(readings: DataFrame, begin_s: int, factor: float, scale: float) -> DataFrame:
    begin_us = begin_s * 1_000_000
    return readings.selectExpr(
        "concat(substr(stream, 1, 1), '-', source_id) AS source_id",
        f"timestamp_micros(CAST({begin_us} + (unix_micros(event_time) - {begin_us}) / {factor!r} AS BIGINT)) "
        "AS event_time",
        f"value * {scale} AS value",
        "event_time AS recorded_at",
    )
