"""Tables of sources with measured rates, and a scenario that plans as it is: a skeleton to put one's own nodes into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from nova.spark.ingest.sensors.kinds import HUMIDITY, PRESSURE

MS_PER_DEGREE = 2.2
"""Round trip per degree of latitude: 111 km of fibre and back take 1.1 ms, and routes are twice the straight way."""
HEADROOM = 2.0
"""Capacity of a region's node as a multiple of the load of all its joins: the skeleton must fit."""
SINK = "hq"


@dataclass(frozen=True)
class Written:
    """What was written."""

    file: Path | None
    """None where one of the streams has no sensor, so that there is nothing to join."""
    sub_joins: int


def write_scenario(folder: Path, sources: pa.Table) -> Written:
    """Write `<stream>.csv` for every stream and, where both are there, `nodes.csv` and `scenario.yaml`."""
    known = sources.filter(pc.is_valid(sources["interval_s"]))  # one reading alone has no rate
    tables = {}
    for name in sorted(set(known["stream"].to_pylist())):
        mine = known.filter(pc.equal(known["stream"], name))
        rate = [float(f"{1.0 / interval:.9g}") for interval in mine["interval_s"].to_pylist()]
        tables[name] = pa.table(
            {
                "id": mine["source"],
                "node": _gateways(mine["region"]),
                "rate": rate,
                "region": mine["region"],
                "sensor_type": mine["sensor_type"],
                "location": mine["location"],
                "lat": mine["lat"],
                "lon": mine["lon"],
                "readings": mine["readings"],
            }
        )
        _write(tables[name], folder / f"{name}.csv")
    left, right = tables.get(PRESSURE.stream), tables.get(HUMIDITY.stream)
    if left is None or right is None:
        return Written(None, 0)
    demand = _demand(left, right)
    _write(_nodes(pa.concat_tables([left, right]), demand), folder / "nodes.csv")
    file = folder / "scenario.yaml"
    file.write_text(SKELETON, encoding="utf-8")
    counts = [(np.sum(_is(left, region)), np.sum(_is(right, region))) for region in demand]
    return Written(file, int(sum(a * b for a, b in counts)))


def _gateways(regions: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(pa.scalar("gateway"), regions, "-")


def _is(table: pa.Table, region: str) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray(pc.equal(table["region"], region).to_numpy(), dtype=np.bool_)


def _demand(left: pa.Table, right: pa.Table) -> dict[str, float]:
    """Tuples/s that the joins of every region take in: each pair of sensors costs both their rates."""
    demand = {}
    for region in sorted({*left["region"].to_pylist(), *right["region"].to_pylist()}):
        mine, theirs = (table["rate"].to_numpy()[_is(table, region)] for table in (left, right))
        demand[region] = float(mine.sum() * len(theirs) + theirs.sum() * len(mine))
    return demand


def _nodes(sources: pa.Table, demand: dict[str, float]) -> pa.Table:
    """A gateway per region in the middle of its sensors, and a sink in the middle of all; coordinates are ms on a flat
    map, until somebody measures."""
    lat, lon = sources["lat"].to_numpy(), sources["lon"].to_numpy()
    middle = float(np.mean(lat)), float(np.mean(lon))
    rows = []
    for region, load in demand.items():
        mine = _is(sources, region)
        rows.append(
            (f"gateway-{region}", max(1.0, HEADROOM * load), float(lat[mine].mean()), float(lon[mine].mean()), True)
        )
    rows.append((SINK, max(1.0, sum(demand.values())), *middle, False))
    ids, capacity, south, west, hosts = zip(*rows, strict=True)
    x = MS_PER_DEGREE * np.cos(np.radians(middle[0])) * (np.array(west) - middle[1])
    y = MS_PER_DEGREE * (np.array(south) - middle[0])
    return pa.table(
        {"id": ids, "capacity": np.round(capacity, 6), "x": np.round(x, 4), "y": np.round(y, 4), "hosts": hosts}
    )


def _write(table: pa.Table, path: Path) -> None:
    pacsv.write_csv(table, path, pacsv.WriteOptions(quoting_style="needed"))


SKELETON = f"""\
# Pressure and humidity of one region, joined in windows. Sources and rates are as measured in the archive; the rest is
# a guess that plans as it is: one gateway per region, roomy, and straight lines instead of measured latencies.
# Put in your own nodes, and `latency: latency.parquet` from `nova measurements`.
nova: 1
nodes: nodes.csv
streams:
  {PRESSURE.stream}:
    sources: {PRESSURE.stream}.csv
    input: {{format: parquet, path: readings/stream={PRESSURE.stream}}}
  {HUMIDITY.stream}:
    sources: {HUMIDITY.stream}.csv
    input: {{format: parquet, path: readings/stream={HUMIDITY.stream}}}
queries:
  - id: climate
    left: {PRESSURE.stream}
    right: {HUMIDITY.stream}
    on: region
    window: {{tumbling: 5min}}   # sensors send every 150 s or so
    sink: {SINK}
"""
