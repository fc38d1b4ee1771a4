"""Reading tables that a program wrote: Parquet and CSV. Whatever is in them, the answer is their content or
`InvalidInput` with file, place and value."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from nova.model.errors import Fault, InvalidInput
from nova.model.limits import refuse_beyond
from nova.model.reading import ordinary, read_text

CELL = 8
"""Bytes that a cell takes at least once it is unpacked: a run of equal values is nearly nothing in the file."""
SHOWN = 20
"""Wrong rows of one column that an error lists."""


def read_parquet(path: Path, what: str = "a table") -> pa.Table:
    """A Parquet file as it is, refused where it is damaged, holds text that is not UTF-8, or would not fit into
    memory."""
    try:
        with pq.ParquetFile(ordinary(path)) as file:
            about = file.metadata
            groups = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
            cells = about.num_rows * about.num_columns
            refuse_beyond(str(path), f"the table with {cells:,} cells", max(groups, cells * CELL))
            table = file.read()
        table.validate(full=True)
        return table
    except FileNotFoundError:
        raise InvalidInput([Fault(str(path), f"no such file of {what}")]) from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, IndexError, MemoryError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput([Fault(str(path), f"not {what}: not a Parquet file in order: {told}")]) from None


def columns_of(
    table: pa.Table, path: Path, *, texts: Iterable[str] = (), numbers: Iterable[str] = (), finite: bool = True
) -> pa.Table:
    """The named columns, as text and as numbers; one that is missing, of another kind, or has empty cells is told."""
    faults: list[Fault] = []
    found: dict[str, pa.ChunkedArray] = {}
    for names, kind in ((texts, pa.string()), (numbers, pa.float64())):
        for name in names:
            if table.column_names.count(name) != 1:
                message = "no such column" if name not in table.column_names else "two columns have this name"
                faults.append(Fault(str(path), message, field=name))
                continue
            column = table[name]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if not _alike(column.type, kind):
                faults.append(Fault(str(path), f"{_WORDS[kind]} expected, not {column.type}", field=name))
                continue
            found[name] = column.cast(kind, safe=False)
            wrong = found[name].is_null().to_numpy()
            if kind == pa.float64() and finite:
                wrong = wrong | ~np.isfinite(found[name].to_numpy())
            faults += [
                Fault(str(path), f"{_WORDS[kind]} expected", int(row) + 1, name, column[int(row)].as_py())
                for row in np.flatnonzero(wrong)[:SHOWN]
            ]
    if faults:
        raise InvalidInput(faults)
    return pa.table(found)


_WORDS = {pa.string(): "text", pa.float64(): "a number"}


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    if wanted == pa.string():
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))
    return bool(pa.types.is_floating(found) or pa.types.is_integer(found))


def read_numbers(path: Path, what: str) -> pa.Table:
    """A table that a program wrote, CSV or Parquet by its ending, with the types that its cells suggest."""
    if path.suffix.lower() == ".parquet":
        return read_parquet(path, what)
    try:
        table = pacsv.read_csv(io.BytesIO(read_text(path, what).encode()))
        table.validate(full=True)
        return table
    except pa.ArrowException as error:
        raise InvalidInput([Fault(str(path), f"not {what}: {str(error).splitlines()[0]}")]) from None
