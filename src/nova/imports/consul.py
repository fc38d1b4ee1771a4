"""Consul: network coordinates of its agents, from `/v1/coordinate/nodes` or `/v1/coordinate/datacenters`, or what
`consul rtt` says of pairs of them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from nova.imports.tables import Imported, Row, latency_rows, need, read_any, wrong
from nova.model.reading import read_text
from nova.model.units import RTT

_PAIR = re.compile(
    r"Estimated (?P<a>\S+) <-> (?P<b>\S+) rtt[:=] ?(?P<rtt>\S+ ?\S+) \(using (?P<area>\S+) coordinates\)"
)


def read(path: Path, capacity: float) -> Imported:
    """One row per agent with its coordinates and height in ms: Vivaldi's, as Consul keeps them in seconds. From the
    text of `consul rtt`: RTTs of the pairs."""
    if not read_text(path, "an answer of Consul").lstrip().startswith(("[", "{")):
        return _pairs(path)
    agents = _agents(need(read_any(path), list, path, ""), path)
    rows: list[Row] = []
    unsure = 0
    below: list[float] = []  # ms by which adjustments reach below 0 what a height could be
    for k, agent in enumerate(agents):
        one = need(agent, dict, path, str(k))
        if "Coord" not in one:
            raise wrong(path, "no coordinates here: an answer of /v1/coordinate/nodes expected", f"{k}.Coord")
        place = need(one["Coord"], dict, path, f"{k}.Coord")
        try:
            axes = [1000.0 * float(x) for x in place["Vec"]]
            error = float(place.get("Error") or 0)
            height = 1000.0 * (float(place.get("Height", 0)) + float(place.get("Adjustment", 0)))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise wrong(
                path, "Vec, Height and Adjustment are numbers of seconds", f"{k}.Coord", repr(place)[:60]
            ) from None
        if not all(map(math.isfinite, (*axes, height))) or not axes:
            raise wrong(path, "coordinates are finite", f"{k}.Coord", repr(place)[:60])
        unsure += error > 1
        if height < 0:
            below.append(-height)
        names = [f"x{k}" for k in range(len(axes))]
        rows.append(
            {
                "id": need(one.get("Node"), str, path, f"{k}.Node"),
                "capacity": capacity,
                **{name: float(f"{x:.6g}") for name, x in zip(names, axes, strict=True)},
                "height": float(f"{max(height, 0.0):.6g}"),
                **({"segment": one["Segment"]} if one.get("Segment") else {}),
            }
        )
    if not rows:
        raise wrong(path, "no agents here")
    if len({len(row) - ("segment" in row) for row in rows}) > 1:
        raise wrong(path, "all agents have coordinates of as many dimensions", "Coord.Vec")
    warnings = [f"{unsure} agents are not sure of their place yet (Error > 1)"] if unsure else []
    if below:
        most = sum(sorted(below)[-2:])
        warnings.append(
            f"{len(below)} agents have adjustments that outweigh their heights: RTTs from these coordinates are up to "
            f"{most:.2g} ms above those of `consul rtt`"
        )
    return Imported({"nodes": rows}, warnings)


def _agents(answer: list[Any], path: Path) -> list[Any]:
    """The agents of an answer; those of `/v1/coordinate/datacenters` stand below their datacenters."""
    if not any(isinstance(one, dict) and "Coordinates" in one for one in answer):
        return answer
    areas = {str(need(one, dict, path, str(k)).get("AreaID", "WAN")) for k, one in enumerate(answer)}
    if len(areas) > 1:
        message = "coordinates of different areas cannot be compared: keep one of them"
        raise wrong(path, message, "AreaID", ", ".join(sorted(areas)))
    return [
        agent
        for k, one in enumerate(answer)
        for agent in need(one.get("Coordinates") or [], list, path, f"{k}.Coordinates")
    ]


def _pairs(path: Path) -> Imported:
    """RTTs from lines of `consul rtt`; prompts and other lines between them are passed over, and counted."""
    measured: dict[tuple[str, str], list[float]] = {}
    others = 0
    for number, line in enumerate(read_text(path, "an answer of Consul").splitlines(), 1):
        found = _PAIR.search(line)
        if found is None:
            others += bool(line.strip())
            continue
        try:
            rtt = RTT.parse(found["rtt"])
        except ValueError as error:
            raise wrong(path, str(error), f"line {number}", line[:80]) from None
        if not 0 < rtt < math.inf:
            raise wrong(path, "an RTT above 0 expected", f"line {number}", line[:80])
        measured.setdefault((found["a"], found["b"]), []).append(rtt)
    if not measured:
        message = (
            "neither coordinates (/v1/coordinate/nodes) nor lines of `consul rtt` (Estimated A <-> B rtt: 0.610 ms …)"
        )
        raise wrong(path, message)
    told = [f"{others} lines that are no RTTs passed over"] if others else []
    return Imported({"rtt": latency_rows(measured)}, told)
