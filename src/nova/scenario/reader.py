"""Reading tables: CSV (plain or gzipped), Parquet, or rows in the scenario file itself.

Files in order go through Arrow's reader, without a loop over rows in Python. Only a file that it refuses is read again
by a slower reader, which can say what is wrong on which line.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from nova.model.errors import InvalidInput
from nova.model.tables import read_parquet
from nova.model.units import NUMBER
from nova.scenario.dialect import Dialect, dialect_of, opened, refuse_large, text_of
from nova.scenario.faults import SHOWN, Faults, suggestion
from nova.scenario.table import Table

_BLOCK = 1 << 23
"""Bytes that the reader takes at once: longer than the longest line of a large matrix."""


def read_table(
    source: str | list[Any] | pa.Table,
    scenario: Path,
    field: str,
    faults: Faults,
    *,
    matrix: Callable[[list[str]], bool] = lambda _: False,
) -> Table | None:
    """The table that a field of the scenario names or holds; None (with faults) where it is unreadable or has no rows.

    `matrix` says from the column names whether all but the first column are numbers, which are then read as such.
    """
    if isinstance(source, list):
        table = _inline(source, f"{scenario}: {field}", faults)
    elif isinstance(source, pa.Table):
        table = _arrow(source, f"{scenario}: {field}", faults)
    else:
        path = scenario.parent / source
        name = path.name.lower()
        try:
            there = path.exists()
        except OSError as error:  # a name too long, a folder that may not be entered
            faults.add(str(path), f"cannot be read: {error.strerror}", field=field)
            return None
        if not there:
            near = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
            faults.add(str(path), f"no such file{suggestion(path.name, near)}", field=field)
            return None
        if path.is_dir():
            faults.add(str(path), "this is a folder, not a table", field=field)
            return None
        try:
            if name.endswith((".csv", ".csv.gz")):
                table = _csv(path, faults, matrix)
            elif name.endswith(".parquet"):
                table = _parquet(path, faults)
            else:
                faults.add(str(path), "tables end in .csv, .csv.gz or .parquet", field=field)
                return None
        except InvalidInput as error:
            for fault in error.faults:
                faults.add(fault.file, fault.message, fault.row, field, fault.value)
            return None
        except (OSError, EOFError, zlib.error) as error:
            faults.add(str(path), f"cannot be read: {error}", field=field)
            return None
    if table is not None and not len(table):
        faults.add(table.place, "the table has no rows", field=field)
        return None
    return table


def _parquet(path: Path, faults: Faults) -> Table | None:
    try:
        content = read_parquet(path)
    except InvalidInput as error:
        for fault in error.faults:
            faults.add(fault.file, fault.message, fault.row, fault.field, fault.value)
        return None
    return _arrow(content, str(path), faults)


def _arrow(content: pa.Table, place: str, faults: Faults) -> Table | None:
    """A typed table, from a file or from memory."""
    names = [name.strip() for name in content.column_names]
    if not _unique(names, place, faults):
        return None
    columns = dict(zip(names, content.columns, strict=True))
    unusable = {name: str(column.type) for name, column in columns.items() if not _usable(column.type)}
    kept = {name: _plain(column) for name, column in columns.items() if name not in unusable}
    return Table(place, kept, content.num_rows, faults, unusable=unusable)


def read_rows(rows: list[Any]) -> pa.Table:
    """Inline rows as an Arrow table. Raises `InvalidInput` where they are no table."""
    faults = Faults()
    table = _inline(rows, "rows", faults)
    faults.check()
    assert table is not None
    return pa.table(table.columns)


def _usable(kind: pa.DataType) -> bool:
    """Whether the checks can read a column: nothing nested, no raw bytes."""
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """One array of a type that the checks know: dictionaries and the other kinds of text become plain text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.string())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _inline(source: list[Any], place: str, faults: Faults) -> Table | None:
    if not source:
        return Table(place, {}, 0, faults)
    if isinstance(source[0], list):
        header, records = [str(name).strip() for name in source[0]], source[1:]
        ragged = [i for i, record in enumerate(records) if len(record) != len(header)]
        for i in ragged:
            faults.add(place, f"{len(records[i])} values where the first row names {len(header)} columns", i + 1)
        if not _unique(header, place, faults) or ragged:
            return None
        rows = len(records)
        cells: dict[str, list[Any]] = {name: [record[k] for record in records] for k, name in enumerate(header)}
    else:
        rows = len(source)
        names = dict.fromkeys(key for record in source for key in record)
        cells = {str(name).strip(): [record.get(name) for record in source] for name in names}
    columns = {}
    for name, values in cells.items():
        nested = [i for i, value in enumerate(values) if isinstance(value, list | dict)]
        for i in nested:
            faults.add(place, "a single value expected", i + 1, name, values[i])
            values[i] = None
        columns[name] = _typed(values)
    return Table(place, columns, rows, faults)


def _typed(values: list[Any]) -> pa.Array:
    """Plain values as one column: of numbers or of truths where all are, else of text."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int} and all(abs(value) < 1 << 63 for value in values if value is not None):
        return pa.array(values, pa.int64())
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else NUMBER.parse(value) for value in values], pa.float64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: object) -> str:
    """A value as text; half a character (a lone surrogate, which JSON can write) becomes what no id may have."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isascii() else "".join("\x1a" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


def _csv(path: Path, faults: Faults, matrix: Callable[[list[str]], bool]) -> Table | None:
    """A CSV file. The quick reader takes it where it is in order; else the careful one says what is wrong."""
    refuse_large(path)
    dialect = dialect_of(path)
    header = _header(path, dialect, faults)
    if header is None:
        return None
    names = [name.strip() for name in header]
    if not _unique(names, str(path), faults, row=1):
        return None
    kinds = dict.fromkeys(header, pa.string())
    semicolons = dialect.delimiter == ";"
    if matrix(names) and not semicolons:  # between semicolons, what a point means is told by the text
        kinds = {name: pa.string() if k == 0 else pa.float64() for k, name in enumerate(header)}
    try:
        content = pacsv.read_csv(
            path if dialect.plain else io.BytesIO(text_of(path, dialect).read().encode()),
            read_options=pacsv.ReadOptions(block_size=_BLOCK),
            parse_options=pacsv.ParseOptions(delimiter=dialect.delimiter),
            convert_options=pacsv.ConvertOptions(column_types=kinds, null_values=[""], strings_can_be_null=True),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError):
        return _careful_csv(path, names, dialect, faults)
    if content.num_columns != len(names):
        return _careful_csv(path, names, dialect, faults)
    if names and all(column.null_count for column in content.columns):
        blank = reduce(pc.and_, (column.is_null() for column in content.columns))
        content = content.filter(pc.invert(blank))
    columns = {name: _plain(column) for name, column in zip(names, content.columns, strict=True)}
    lines = partial(_lines, path, dialect, content.num_rows)
    return Table(str(path), columns, content.num_rows, faults, lines, semicolons=semicolons)


def _lines(path: Path, dialect: Dialect, rows: int) -> Sequence[int]:
    """The line on which each row starts. A field may be longer than the careful reader takes: then as if each row had
    one line."""
    try:
        return [line for line, _ in _records(path, dialect)][1:]
    except csv.Error:
        return range(2, rows + 2)


def _blank(record: list[str]) -> bool:
    """Whether a record says nothing: a blank line, or the separators alone that spreadsheets write below a table."""
    return not any(record) or (len(record) == 1 and not record[0].strip())


def _records(path: Path, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """The records of a CSV file that are not blank, header included, each with the line it starts on."""
    records: list[tuple[int, list[str]]] = []
    with text_of(path, dialect) as file:
        reader = csv.reader(file, delimiter=dialect.delimiter)
        start = 1
        for record in reader:
            if not _blank(record):
                records.append((start, record))
            start = reader.line_num + 1
    return records


def _header(path: Path, dialect: Dialect, faults: Faults) -> list[str] | None:
    try:
        with text_of(path, dialect) as file:
            for record in csv.reader(file, delimiter=dialect.delimiter):
                if not _blank(record):
                    return record
    except UnicodeDecodeError:
        _note_encoding(path, faults)
        return None
    except csv.Error as error:
        faults.add(str(path), f"not CSV: {error}", 1)
        return None
    faults.add(str(path), "the file is empty")
    return None


def _careful_csv(path: Path, names: list[str], dialect: Dialect, faults: Faults) -> Table | None:
    """Read a file that the quick reader refused: names every ragged row, and keeps the others to be checked too."""
    try:
        records = _records(path, dialect)[1:]
    except UnicodeDecodeError:
        _note_encoding(path, faults)
        return None
    except csv.Error as error:
        faults.add(str(path), f"not CSV: {error}")
        return None
    ragged = [(line, record) for line, record in records if len(record) != len(names)]
    for line, record in ragged[:SHOWN]:
        message = f"{len(record)} fields where the header has {len(names)}"
        faults.add(str(path), message, line, value=dialect.delimiter.join(record)[:60])
    faults.count_more(max(0, len(ragged) - SHOWN))
    kept = [(line, record) for line, record in records if len(record) == len(names)]
    if not kept and ragged:
        return None
    columns = {name: pa.array([record[k] or None for _, record in kept], pa.string()) for k, name in enumerate(names)}
    lines = [line for line, _ in kept]
    return Table(str(path), columns, len(kept), faults, lambda: lines, semicolons=dialect.delimiter == ";")


def _note_encoding(path: Path, faults: Faults) -> None:
    """Name the first line that is not UTF-8."""
    with opened(path) as file:
        for line, raw in enumerate(file, 1):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as error:
                fix = f"save the file as UTF-8, say with `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8.csv`"
                faults.add(
                    str(path),
                    f"not UTF-8 text: {fix}",
                    line,
                    value=raw[max(0, error.start - 10) : error.end + 10],
                )
                return


def _unique(names: Sequence[str], place: str, faults: Faults, row: int | None = None) -> bool:
    twice = [] if len(set(names)) == len(names) else [name for name in dict.fromkeys(names) if names.count(name) > 1]
    for name in twice[:SHOWN]:
        faults.add(place, "two columns have this name", row, name)
    return not twice
