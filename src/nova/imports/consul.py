"""Consul: network coordinates of its agents, from `/v1/coordinate/nodes`."""

from __future__ import annotations

import math
from pathlib import Path

from nova.imports.tables import Imported, Row, need, read_any, wrong


def read(path: Path, capacity: float) -> Imported:
    """One row per agent with its coordinates and height in ms: Vivaldi's, as Consul keeps them in seconds."""
    agents = need(read_any(path), list, path, "")
    rows: list[Row] = []
    unsure = 0
    for k, agent in enumerate(agents):
        one = need(agent, dict, path, str(k))
        place = need(one.get("Coord"), dict, path, f"{k}.Coord")
        try:
            axes = [1000.0 * float(x) for x in place["Vec"]]
            error = float(place.get("Error") or 0)
            height = 1000.0 * max(0.0, float(place.get("Height", 0)) + float(place.get("Adjustment", 0)))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise wrong(
                path, "Vec, Height and Adjustment are numbers of seconds", f"{k}.Coord", repr(place)[:60]
            ) from None
        if not all(map(math.isfinite, (*axes, height))) or not axes:
            raise wrong(path, "coordinates are finite", f"{k}.Coord", repr(place)[:60])
        unsure += error > 1
        names = [f"x{k}" for k in range(len(axes))]
        rows.append(
            {
                "id": need(one.get("Node"), str, path, f"{k}.Node"),
                "capacity": capacity,
                **{name: float(f"{x:.6g}") for name, x in zip(names, axes, strict=True)},
                "height": float(f"{height:.6g}"),
                **({"segment": one["Segment"]} if one.get("Segment") else {}),
            }
        )
    if not rows:
        raise wrong(path, "no agents here")
    if len({len(row) - ("segment" in row) for row in rows}) > 1:
        raise wrong(path, "all agents have coordinates of as many dimensions", "Coord.Vec")
    warnings = [f"{unsure} agents are not sure of their place yet (Error > 1)"] if unsure else []
    return Imported({"nodes": rows}, warnings)
