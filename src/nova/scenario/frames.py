"""Tables that live in Python: Arrow, pandas, polars and whatever else speaks Arrow's C stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def is_frame(value: object) -> bool:
    """Whether a value is a table in memory (Arrow, pandas, polars, DuckDB, …)."""
    return hasattr(value, "__arrow_c_stream__")


def as_arrow(frame: Any) -> pa.Table:
    """The table as Arrow. A pandas index with names of its own becomes the first column, `id` where it has no name."""
    if isinstance(frame, pa.Table):
        return frame
    if type(frame).__module__.partition(".")[0] == "pandas":
        if type(frame.index).__name__ != "RangeIndex":
            frame = frame.rename_axis(index=frame.index.name or "id").reset_index()
        return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
    return pa.table(frame)
