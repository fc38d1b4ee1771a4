"""Sensor archives as arrow tables: one row per reading, times and values typed, faults dropped and counted."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from nova.datasets.catalog import Dataset, files_of, find
from nova.datasets.folder import require
from nova.model.errors import InvalidInput

FAULT = -142.36
"""What a broken BMP280 of the artifact reports, in °C: far below anything on Earth."""


@dataclass(frozen=True)
class Readings:
    """An archive, cleaned."""

    name: str
    table: pa.Table
    """`sensor, location, time, …`: for the artifact's streams `time` is a counter and `value` the reading; for raw
    archives `time` is a timestamp and each quantity has a column."""
    dropped: int
    """Readings dropped as sensor faults."""


def readings(name: str) -> Readings:
    """A sensor archive by name."""
    dataset = find(name)
    if dataset.kind != "sensors":
        raise InvalidInput(f"data set {name} holds no sensor readings, but {dataset.kind}")
    table = _streams(dataset) if name.startswith("nova-") else _archive(dataset)
    if "value" not in table.column_names:
        return Readings(name, table, 0)
    sound = table.filter(pc.not_equal(table["value"], pa.scalar(FAULT)))
    return Readings(name, sound, table.num_rows - sound.num_rows)


def pings(name: str) -> pa.Table:
    """A table of pairs (repeated pings, or statistics per pair) by name; lost pings are dropped."""
    dataset = find(name)
    if dataset.kind != "pairs":
        raise InvalidInput(f"data set {name} holds no table of pairs, but {dataset.kind}")
    options = pa_csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=False)
    table = pa_csv.read_csv(require(dataset), convert_options=options)
    if "rtt_ms" not in table.column_names:
        return table
    return table.filter(pc.is_valid(table["rtt_ms"]))


def _streams(dataset: Dataset) -> pa.Table:
    names = ["sensor", "location", "time", "value"]
    parts = [
        pa_csv.read_csv(
            require(dataset, file),
            read_options=pa_csv.ReadOptions(column_names=names),
            convert_options=pa_csv.ConvertOptions(
                column_types={"sensor": pa.int64(), "location": pa.int64(), "time": pa.int64(), "value": pa.float64()}
            ),
        )
        for file in files_of(dataset)
    ]
    return pa.concat_tables(parts)


def _archive(dataset: Dataset) -> pa.Table:
    table = pa_csv.read_csv(
        require(dataset),
        parse_options=pa_csv.ParseOptions(delimiter=";"),
        convert_options=pa_csv.ConvertOptions(column_types={"timestamp": pa.timestamp("s")}),
    )
    return table.rename_columns([{"sensor_id": "sensor", "timestamp": "time"}.get(c, c) for c in table.column_names])
