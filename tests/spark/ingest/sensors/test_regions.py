"""Regions by grid and by polygon, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.model.errors import InvalidInput

pytest.importorskip("pyspark")
from nova.spark.ingest.sensors.regions import Grid, read_polygons


@given(st.floats(-90, 90), st.floats(-180, 180), st.sampled_from([0.05, 0.1, 0.5, 1.0, 5.0]))
def test_a_place_lies_in_its_cell(lat: float, lon: float, size: float) -> None:
    (name,) = Grid(size).of(np.array([lat]), np.array([lon]))
    assert name is not None
    south, west = (float(part) for part in name.split("_"))
    slack = 1e-6 * size
    assert south - slack <= lat <= south + size + slack
    assert west - slack <= lon <= west + size + slack


def test_cells_begin_at_their_corner() -> None:
    assert Grid(0.1).of(np.array([57.3, 57.29]), np.array([-2.1, -2.1])) == ["57.30_-2.10", "57.20_-2.10"]


SQUARE = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]
HOLE = [[4, 4], [6, 4], [6, 6], [4, 6], [4, 4]]


def write(path: Path, *features: dict[str, object]) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return path


def feature(name: str | None, kind: str, coordinates: object) -> dict[str, object]:
    return {"type": "Feature", "properties": {"name": name}, "geometry": {"type": kind, "coordinates": coordinates}}


def test_polygons_with_holes_and_parts(tmp_path: Path) -> None:
    far = [[[20, 0], [30, 0], [25, 10], [20, 0]]]
    regions = read_polygons(
        write(
            tmp_path / "r.json",
            feature("ring", "Polygon", [SQUARE, HOLE]),
            feature("parts", "MultiPolygon", [[HOLE], far]),
        )
    )
    lat, lon = np.array([1.0, 5.0, 5.0, 50.0, 9.9]), np.array([1.0, 5.0, 25.0, 5.0, 29.0])
    assert regions.of(lat, lon) == ["ring", "parts", "parts", None, None]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not GeoJSON"),
        ('{"features": []}', "FeatureCollection"),
        ('{"features": [{"properties": {}, "geometry": null}]}', "needs a property"),
        (
            '{"features": [{"id": "a", "geometry": {"type": "Point", "coordinates": [1, 2]}}]}',
            "Polygon or MultiPolygon",
        ),
        (
            '{"features": [{"id": "a", "geometry": {"type": "Polygon", "coordinates": [[[1, 2], [3, 4]]]}}]}',
            "four points",
        ),
    ],
)
def test_bad_polygons(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(InvalidInput, match=told):
        read_polygons(tmp_path / "r.json")
