"""Place: sensors and their regions in a made-up network of gateways, fog nodes, a cloud and a sink, as a scenario."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

LEFT, RIGHT = "pressure", "humidity"
SINK = "hq"
WIDTH_MS = 40.0
"""The regions lie within a square of this many ms: a country's network."""
CLOUD_MS = 90.0
"""The cloud lies this far outside."""
NEAR_MS = 3.0
"""Sensors lie about this far from the middle of their region."""
SENSOR, GATEWAY, FOG, HQ, CLOUD = 0.4, 0.7, 1.7, 0.25, 20.0
"""Capacities: a sensor's as a multiple of its rate, the others' as multiples of the mean load of a region's joins, so
that no region's joins fit onto one gateway, and no plan can put all joins into one place but the cloud."""

SMALLEST = 0.3
"""Free capacity of the smallest host that is used, as a multiple of the same load."""


@dataclass(frozen=True)
class Sensor:
    """One source of a stream."""

    id: str
    stream: str
    region: str
    rate: float
    """Tuples/s."""


@dataclass(frozen=True)
class Region:
    """Where sensors stand. Coordinates are in any unit; they are fitted to the map."""

    name: str
    x: float
    y: float


def network(regions: Sequence[Region], sensors: Sequence[Sensor], seed: int) -> list[dict[str, Any]]:
    """Rows of `nodes.csv`: every sensor's own node, a gateway per region, a fog node per two regions, cloud, sink."""
    rng = np.random.default_rng(seed)
    at = np.array([[region.x, region.y] for region in regions], dtype=np.float64)
    extent = max(float(np.ptp(at, axis=0).max()), 1e-9)
    at = (at - at.mean(axis=0)) / extent * WIDTH_MS
    load = {region.name: _load(region.name, sensors) for region in regions}
    usual = float(np.mean(list(load.values())))
    rows = []
    for region, spot in zip(regions, at, strict=True):
        for sensor in sensors:
            if sensor.region == region.name:
                rows.append(_row(sensor.id, SENSOR * sensor.rate, spot + rng.normal(0, NEAR_MS, 2)))
        rows.append(_row(f"gateway-{region.name}", GATEWAY * load[region.name], spot + rng.normal(0, 1, 2)))
    for i in range(0, len(regions), 2):
        rows.append(_row(f"fog-{i // 2 + 1}", FOG * usual, at[i : i + 2].mean(axis=0) * 0.8))
    rows.append(_row("cloud", CLOUD * usual * len(regions), np.array([CLOUD_MS, -CLOUD_MS / 2])))
    rows.append(_row(SINK, HQ * usual, np.zeros(2)))
    return rows


def _load(region: str, sensors: Sequence[Sensor]) -> float:
    """Tuples/s that the joins of a region take in, charged per pair of sensors as plans are."""
    left, right = ([s.rate for s in sensors if s.region == region and s.stream == name] for name in (LEFT, RIGHT))
    return sum(left) * len(right) + sum(right) * len(left)


def _row(name: str, capacity: float, at: np.ndarray) -> dict[str, Any]:
    return {"id": name, "capacity": round(capacity, 6), "x": round(float(at[0]), 3), "y": round(float(at[1]), 3)}


def write(
    folder: Path,
    regions: Sequence[Region],
    sensors: Sequence[Sensor],
    inputs: Mapping[str, Any],
    window: str,
    seed: int,
) -> Path:
    """The scenario with its tables; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "nodes.csv", network(regions, sensors, seed))
    for stream in (LEFT, RIGHT):
        write_table(
            folder / f"{stream}.csv",
            [{"id": s.id, "node": s.id, "rate": s.rate, "region": s.region} for s in sensors if s.stream == stream],
        )
    file = folder / "scenario.yaml"
    load = float(np.mean([_load(region.name, sensors) for region in regions]))
    document = {
        "nova": 1,
        "nodes": "nodes.csv",
        "streams": {name: {"sources": f"{name}.csv", "input": inputs[name]} for name in (LEFT, RIGHT)},
        "queries": [
            {
                "id": "climate",
                "left": LEFT,
                "right": RIGHT,
                "on": "region",
                "window": {"tumbling": window},
                "sink": SINK,
            }
        ],
        # a slice of the windows brings whole windows at once: only hosts that can take a good part of a join, and room
        "options": {"seed": seed, "utilisation": 0.85, "c_min": round(SMALLEST * load, 6)},
    }
    file.write_text(
        "# Made by `nova showcase`: sensors by region, and a network around them.\n"
        + yaml.safe_dump(document, sort_keys=False),
        encoding="utf-8",
    )
    return file


def write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A CSV file with the columns of the first row."""
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


REGIONS = (
    Region("coast", 0, 3),
    Region("hills", 2, 4),
    Region("lake", 4, 3),
    Region("valley", 4, 1),
    Region("forest", 2, 0),
    Region("plain", 0, 1),
)
"""Where generated sensors stand."""
STRANGE = "lake"
"""Region of the generated anomalies: pressure falls and humidity rises together."""


def generated(folder: Path, seconds: float, rate: float, seed: int) -> tuple[Path, list[Sensor]]:
    """A scenario of made-up sensors: two of each kind per region, sending `rate` tuples/s for so many seconds."""
    sensors = [
        Sensor(f"{prefix}-{region.name}-{i}", stream, region.name, rate)
        for region in REGIONS
        for stream, prefix in ((LEFT, "p"), (RIGHT, "h"))
        for i in (1, 2)
    ]
    usual: dict[str, Any] = {"length": f"{seconds:g}s", "anomaly_every": f"{seconds / 2:g}s", "anomaly": "3s"}
    values: dict[str, dict[str, Any]] = {
        LEFT: {"mean": 1013, "swing": 2, "noise": 0.6, "anomaly_shift": -9},
        RIGHT: {"mean": 62, "swing": 4, "noise": 2, "anomaly_shift": 18},
    }
    inputs = {
        stream: {
            "format": "generator",
            "options": {
                "seed": 2 * seed + number,
                **usual,
                **values[stream],
                "anomaly_sources": ",".join(s.id for s in sensors if s.stream == stream and s.region == STRANGE),
            },
        }
        for number, stream in enumerate((LEFT, RIGHT))
    }
    return write(folder, REGIONS, sensors, inputs, "500ms", seed), sensors
