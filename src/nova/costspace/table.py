"""A cost space as a table of coordinates, named so that it can serve as a scenario's node columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from nova.files import appearing
from nova.model.errors import Fault, InvalidInput
from nova.model.space import CostSpace

ENDINGS = (".csv", ".parquet")


def axes(dimensions: int) -> list[str]:
    """Column names of the coordinates: x, y, z; x0, x1, … beyond three dimensions."""
    return list("xyz"[:dimensions]) if dimensions <= 3 else [f"x{k}" for k in range(dimensions)]


def coordinate_table(ids: pa.StringArray, space: CostSpace) -> pa.Table:
    """id, x, y, …, height in ms. Nodes without a finite latency to the others have no row."""
    known = np.isfinite(space.heights)
    columns = {"id": ids.filter(pa.array(known))}
    for k, name in enumerate(axes(space.dimensions)):
        columns[name] = pa.array(space.coordinates[known, k])
    columns["height"] = pa.array(space.heights[known])
    return pa.table(columns)


def check_ending(path: Path) -> None:
    """Refuse a file name whose ending says no format, before any work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidInput([Fault(str(path), f"coordinates are written as {' or '.join(ENDINGS)}", value=path.suffix)])


def write_coordinates(path: Path, ids: pa.StringArray, space: CostSpace) -> None:
    """Write the table wholly or not at all, as CSV or Parquet by the ending of the path."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = coordinate_table(ids, space)
    with appearing(path) as draft:
        if path.suffix.lower() == ".csv":
            pacsv.write_csv(content, draft, pacsv.WriteOptions(quoting_style="needed"))
        else:
            pq.write_table(content, draft)
