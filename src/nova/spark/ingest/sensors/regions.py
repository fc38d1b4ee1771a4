"""Regions: where on Earth a sensor stands, as a cell of a grid or as one of given polygons. Plain arrays, no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Bools, Floats
from nova.model.reading import read_json, short


class Regions(Protocol):
    """Anything that knows the region of a place."""

    def of(self, lat: Floats, lon: Floats) -> list[str | None]:
        """Region of every place (degrees); None where it is in none."""
        ...


@dataclass(frozen=True)
class Grid:
    """Cells of equal size in degrees, named after their south-west corner."""

    size: float

    def of(self, lat: Floats, lon: Floats) -> list[str | None]:
        """Every place has a cell."""
        decimals = max(0, -int(np.floor(np.log10(self.size)))) + 1
        # a hair inwards: 57.3 / 0.1 must not fall below 573
        south = np.floor(lat / self.size + 1e-9) * self.size
        west = np.floor(lon / self.size + 1e-9) * self.size
        return [f"{a + 0.0:.{decimals}f}_{b + 0.0:.{decimals}f}" for a, b in zip(south, west, strict=True)]


@dataclass(frozen=True)
class Polygons:
    """Regions by outline, with holes; a place in several is in the first."""

    names: Sequence[str]
    outlines: Sequence[Sequence[Floats]]
    """Rings of every region, each an array of (lon, lat); a place is inside where it is in an odd number of them."""

    def of(self, lat: Floats, lon: Floats) -> list[str | None]:
        """Region of every place; None outside of all."""
        found: list[str | None] = [None] * len(lat)
        for name, rings in zip(self.names, self.outlines, strict=True):
            inside = np.zeros(len(lat), dtype=bool)
            for ring in rings:
                inside ^= _inside(ring, lat, lon)
            for place in np.flatnonzero(inside):
                if found[place] is None:
                    found[place] = name
        return found


def read_polygons(path: Path) -> Polygons:
    """Regions of a GeoJSON file: features with a property `id`, `region` or `name`, or an id of their own."""
    file = str(path)
    features = read_json(path, "GeoJSON").get("features")
    if not isinstance(features, list) or not features:
        raise InvalidInput([Fault(file, "a GeoJSON FeatureCollection with features expected")])
    faults: list[Fault] = []
    names: list[str] = []
    outlines: list[list[Floats]] = []
    for row, feature in enumerate(features, start=1):
        properties = (feature.get("properties") or {}) if isinstance(feature, dict) else None
        if not isinstance(properties, dict):
            faults.append(Fault(file, "a GeoJSON feature expected", row, value=short(feature)))
            continue
        name = next(
            (properties[key] for key in ("id", "region", "name") if properties.get(key) is not None), feature.get("id")
        )
        if name is None:
            faults.append(Fault(file, "a feature needs a property id, region or name", row))
            continue
        if str(name) in names:
            faults.append(Fault(file, "region occurs twice", row, "id", name))
            continue
        try:
            rings = _rings(feature.get("geometry") or {})
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            faults.append(Fault(file, f"not an outline: {error}", row, "geometry", name))
            continue
        names.append(str(name))
        outlines.append(rings)
    if faults:
        raise InvalidInput(faults)
    return Polygons(names, outlines)


def _rings(geometry: dict[str, Any]) -> list[Floats]:
    kind = geometry.get("type")
    if kind not in ("Polygon", "MultiPolygon"):
        raise ValueError(f"Polygon or MultiPolygon expected, found {kind!r}")
    polygons = [geometry["coordinates"]] if kind == "Polygon" else geometry["coordinates"]
    rings = [np.asarray([point[:2] for point in ring], dtype=np.float64) for polygon in polygons for ring in polygon]
    if not rings or any(len(ring) < 4 or not np.isfinite(ring).all() for ring in rings):
        raise ValueError("a ring needs four points at least")
    return rings


def _inside(ring: Floats, lat: Floats, lon: Floats) -> Bools:
    """Whether a ray eastwards crosses the ring an odd number of times."""
    inside = np.zeros(len(lat), dtype=bool)
    for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        if y1 == y2:
            continue
        between = (y1 > lat) != (y2 > lat)
        inside ^= between & (lon < x1 + (lat - y1) * (x2 - x1) / (y2 - y1))
    return inside
