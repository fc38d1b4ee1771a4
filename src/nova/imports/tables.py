"""What an import gives: tables as lists of rows, and how they are written."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from nova.files import appearing, name_of
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.model.ids import REFUSED, has_control
from nova.model.reading import parse_json, read_text
from nova.scenario.document import parse_yaml

Row = Mapping[str, Any]


@dataclass
class Imported:
    """Tables by name (`nodes`, `rtt`, a stream's name), and what is worth knowing about them."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_any(path: Path) -> Any:
    """A JSON or YAML file as plain values."""
    text = read_text(path, "a document")
    if path.suffix.lower() in (".yaml", ".yml"):
        return parse_yaml(text, str(path))
    return parse_json(text, str(path))


def wrong(path: Path, message: str, field_: str | None = None, value: object = None) -> InvalidInput:
    """The error for a file that is not what it should be."""
    return InvalidInput([Fault(str(path), message, None, field_, value)])


def need(value: Any, kind: type, path: Path, where: str) -> Any:
    """A value of a kind, or the error that names where another one stands."""
    if not isinstance(value, kind):
        words: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
        raise wrong(path, f"{words.get(kind, kind.__name__)} expected", where, repr(value)[:60])
    return value


def host_of(address: str) -> str:
    """The machine in an address such as `http://10.0.0.7:9115/probe` or `db1:9100`."""
    bare = address.split("://")[-1].split("/")[0]
    if bare.startswith("["):
        return bare[1:].partition("]")[0]
    return bare.rpartition(":")[0] if bare.count(":") == 1 else bare


def names_by_address(folder: Path) -> dict[str, str]:
    """Ids of the nodes that were imported into a folder before, by their addresses."""
    file = folder / "nodes.csv"
    if not file.exists():
        return {}
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(file, "nodes"), newline="")))
    except csv.Error as error:
        raise wrong(file, f"not CSV: {error}") from None
    return {row["address"]: row["id"] for row in rows if row.get("address") and row.get("id")}


def latency_rows(measured: Mapping[tuple[str, str], Sequence[float]]) -> list[Row]:
    """One row per direction of a pair, with the median of its measurements in ms."""
    return [
        {"from": a, "to": b, "rtt_ms": float(f"{median(values):.6g}")} for (a, b), values in measured.items() if a != b
    ]


def write_tables(found: Imported, folder: Path) -> list[Path]:
    """The tables as CSV files in a folder; those that are there already under these names are replaced."""
    faults = [
        Fault(f"{name}.csv", REFUSED, number, key, value)
        for name, rows in found.tables.items()
        for number, row in enumerate(rows, 1)
        for key, value in row.items()
        if isinstance(value, str) and has_control(value)
    ]
    if faults:
        raise InvalidInput(faults)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in found.tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            target = folder / f"{re.sub('(?!^)%2E', '.', name_of(name))}.csv"  # Kafka's topics have inner dots
            with appearing(target) as draft, draft.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, restval="")
                writer.writeheader()
                writer.writerows(rows)
            written.append(target)
    except OSError as error:
        raise NovaError(f"cannot write into {folder}: {error.strerror}") from error
    return written
