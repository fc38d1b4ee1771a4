"""Coordinates as a file: columns, endings, and the way back into a scenario."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from nova.costspace import CostSpace, phantom
from nova.costspace.table import axes, coordinate_table, write_coordinates
from nova.model.errors import InvalidInput
from nova.model.problem import numbered_ids


@pytest.mark.parametrize(
    ("dimensions", "names"), [(2, ["x", "y"]), (3, ["x", "y", "z"]), (4, ["x0", "x1", "x2", "x3"])]
)
def test_axes_are_those_of_a_scenario(dimensions: int, names: list[str]) -> None:
    assert axes(dimensions) == names
    table = coordinate_table(numbered_ids(9), phantom.scattered(9, dimensions))
    assert table.column_names == ["id", *names, "height"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_written_coordinates_are_read_back_exactly(tmp_path: Path, ending: str) -> None:
    space = phantom.scattered(50)
    path = tmp_path / "new" / f"coords{ending}"
    write_coordinates(path, numbered_ids(50, "n"), space)
    table = pacsv.read_csv(path) if ending == ".csv" else pq.read_table(path)
    assert table["id"].to_pylist()[:2] == ["n0", "n1"]
    assert np.array_equal(np.column_stack([table[name] for name in "xyz"]), space.coordinates)
    assert np.array_equal(table["height"].to_numpy(), space.heights)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_unreachable_nodes_have_no_row() -> None:
    space = CostSpace(np.zeros((3, 2)), np.array([1.0, np.inf, 2.0]))
    assert coordinate_table(numbered_ids(3), space)["id"].to_pylist() == ["0", "2"]


def test_other_endings_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.csv or \.parquet"):
        write_coordinates(tmp_path / "coords.txt", numbered_ids(9), phantom.grid(3))
    assert not list(tmp_path.iterdir())
