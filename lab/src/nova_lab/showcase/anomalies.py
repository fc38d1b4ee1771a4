"""Anomalies: windows in which a region's pressure and humidity both leave what the other regions see at that time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from nova.model.problem import Floats

STRANGE = 4.0
"""Robust z-scores from which on a window is an anomaly, of pressure and of humidity both."""
SPELL = 3
"""Strange windows at most so many windows apart belong to one anomaly."""
MAD = 1.4826
"""Median absolute deviation to standard deviation, for normal values."""


@dataclass(frozen=True)
class Climate:
    """Means by region (rows) and window (columns); NaN where a region had no result."""

    regions: list[str]
    window_us: np.ndarray
    """Beginnings of the windows, µs since 1970, in order."""
    pressure: Floats
    humidity: Floats
    recorded_us: np.ndarray
    """When the window's readings were recorded; the window's own beginning where they are live."""


@dataclass(frozen=True)
class Anomaly:
    """Consecutive strange windows of a region."""

    region: str
    from_us: int
    until_us: int
    windows: int
    pressure: float
    """Mean deviation from the other regions, beyond the region's usual one."""
    humidity: float
    score: float
    """Largest of the smaller of the two z-scores."""

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "region": self.region,
            "from": _moment(self.from_us),
            "until": _moment(self.until_us),
            "windows": self.windows,
            "pressure": self.pressure,
            "humidity": self.humidity,
            "score": self.score,
        }


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def climate(results: Path, region_of: Mapping[str, str]) -> Climate:
    """Means by region and window from the results of the join; `region_of` knows each left source's region."""
    table = ds.dataset(results, format="parquet", exclude_invalid_files=False).to_table()
    named = [region_of[id_] for id_ in table["left_source"].to_pylist()]
    regions = sorted(set(named))
    row = {region: i for i, region in enumerate(regions)}
    code = np.array([row[name] for name in named], dtype=np.int64)
    start = table["window_start"].cast(pa.int64()).to_numpy()
    recorded = (
        table["left_recorded_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        if "left_recorded_at" in table.column_names
        else start
    )
    windows, column = np.unique(start, return_inverse=True)
    cell = code * len(windows) + column
    size = len(regions) * len(windows)
    count = np.bincount(cell, minlength=size).astype(np.float64)

    def mean(name: str) -> Floats:
        total = np.bincount(cell, weights=table[name].to_numpy(), minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            grid: Floats = (total / count).reshape(len(regions), len(windows))
        return grid

    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, cell, recorded)
    earliest = first.reshape(len(regions), -1).min(axis=0)
    return Climate(regions, windows, mean("left_value"), mean("right_value"), earliest)


def deviations(values: Floats) -> tuple[Floats, Floats]:
    """(how far each window lies from what is usual, the same in robust standard deviations).

    Usual is the region's own level plus what the other regions see in that window, where there are others.
    """
    apart = values - np.nanmedian(values, axis=1, keepdims=True)
    off = np.empty_like(values)
    for r in range(len(values)):
        others = np.delete(apart, r, axis=0)
        seen = np.isfinite(others).any(axis=0)
        off[r] = apart[r]
        off[r, seen] -= np.nanmedian(others[:, seen], axis=0)
    off -= np.nanmedian(off, axis=1, keepdims=True)
    spread = MAD * np.nanmedian(np.abs(off), axis=1, keepdims=True)
    return off, off / np.maximum(spread, 1e-9)


def find(of: Climate, window_us: int, least: float = STRANGE) -> list[Anomaly]:
    """Anomalies with scores of `least` and more, the strangest first."""
    pressure, pressure_z = deviations(of.pressure)
    humidity, humidity_z = deviations(of.humidity)
    both = np.minimum(np.abs(pressure_z), np.abs(humidity_z))
    found = []
    for r, region in enumerate(of.regions):
        strange = np.flatnonzero(np.nan_to_num(both[r]) >= least)
        breaks = np.flatnonzero(np.diff(of.window_us[strange]) > SPELL * window_us) + 1
        for run in np.split(strange, breaks) if len(strange) else []:
            found.append(
                Anomaly(
                    region,
                    int(of.recorded_us[run[0]]),
                    int(of.recorded_us[run[-1]]),
                    len(run),
                    float(pressure[r, run].mean()),
                    float(humidity[r, run].mean()),
                    float(both[r, run].max()),
                )
            )
    return sorted(found, key=lambda anomaly: -anomaly.score)
