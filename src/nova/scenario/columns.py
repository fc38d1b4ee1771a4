"""Columns of a stream's tuples: as the scenario declares them, or as its input shows them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.reading import ordinary
from nova.query.statement import Schema
from nova.scenario.model import Stream, StreamInput
from nova.scenario.queries import StreamSources

_LINES = 100
"""Lines of a JSON file that are looked at for columns."""
_HEAD = 2**22
"""Characters of a file in which they, or the header, have to be: a line may be endless."""


def schema_of(stream: Stream, sources: StreamSources, folder: Path) -> Schema:
    """What a query in SQL may name of a stream."""
    attributes = {
        name: float(max(1, len(sources.table.text(name).drop_null().unique())))
        for name in sources.table.columns
        if name not in ("id", "node", "rate")
    }
    given = stream.input
    roles = (
        {}
        if given is None
        else {given.columns.source: "source", given.columns.time: "time", given.columns.value: "value"}
    )
    if stream.columns is not None:
        declared = {name: column.distinct for name, column in stream.columns.items()}
    else:
        names = None if given is None else _read(given, folder)
        if names is None:
            return Schema({}, attributes, roles, known=False)
        declared = dict.fromkeys(name for name in names if isinstance(name, str))
    columns = {
        name: count for name, count in declared.items() if name not in roles and name not in ("source", "time", "value")
    }
    return Schema(columns, attributes, roles)


def _read(given: StreamInput, folder: Path) -> list[str] | None:
    """Names of the columns that an input has; None where that cannot be told without reading the stream."""
    if "schema" in given.options:
        return re.findall(r"(?:^|,)\s*`?(\w+)`?\s+\w", str(given.options["schema"]))
    if given.format == "generator":
        return ["source_id", "event_time", "value", "key"]
    location = given.location(folder)
    if location is None or "://" in location or given.format not in ("csv", "json", "parquet"):
        return None
    path = Path(location)
    files = sorted(path.glob(f"*.{given.format}*")) if path.is_dir() else [path] if path.exists() else []
    if not files:
        return None
    try:
        return _columns(given, files[0])
    except (OSError, EOFError, ValueError, TypeError, RecursionError, csv.Error, zlib.error, pa.ArrowException):
        return None  # the run says what is wrong with its input


def _columns(given: StreamInput, file: Path) -> list[str] | None:
    if given.format == "parquet":
        return list(pq.read_schema(ordinary(file)).names)
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(ordinary(file), "rt", encoding="utf-8-sig", newline="") as whole:
        text = io.StringIO(whole.read(_HEAD), newline="")
        if given.format == "csv":
            if str(given.options.get("header", "true")).lower() != "true":
                return None
            separator = str(given.options.get("sep", given.options.get("delimiter", ",")))
            return next(csv.reader(text, delimiter=separator), None)
        names: dict[str, None] = {}
        for _, line in zip(range(_LINES), text, strict=False):
            if line.strip():
                names |= dict.fromkeys(json.loads(line))
        return list(names)
