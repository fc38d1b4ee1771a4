"""The table of known nodes: ids, and the other names by which results may call them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from nova.model.errors import Fault, InvalidInput
from nova.model.tables import read_numbers

IDS = ("id", "node", "ip", "region", "host", "name")
"""Column that holds the id: the first of these that is present."""
ALIASES = ("ip", "address", "fqdn", "hostname", "probe", "prb_id", "anchor_id")
"""Columns whose values mean the node as well."""


def known_nodes(spark: SparkSession, file: str) -> DataFrame:
    """Table `alias, id`: every name of every node once. A name that two nodes claim is a fault."""
    table = _read(file)
    key = next((name for name in IDS if name in table.column_names), None)
    if key is None:
        raise InvalidInput([Fault(file, f"no column of ids: none of {', '.join(IDS)} is there", row=1)])
    ids = pc.utf8_trim_whitespace(table[key].cast(pa.string())).to_pylist()
    names: dict[str, str] = {}
    faults: list[Fault] = []
    for column in (key, *(name for name in ALIASES if name in table.column_names and name != key)):
        values = table[column].cast(pa.string()).to_pylist()
        for row, (value, node) in enumerate(zip(values, ids, strict=True), start=2):
            alias = (value or "").strip()
            if not alias or not node:
                if column == key:
                    faults.append(Fault(file, "empty id", row, column, value))
                continue
            if column == key and alias in names:
                faults.append(Fault(file, "id occurs twice", row, column, value))
            elif names.setdefault(alias, node) != node:
                faults.append(Fault(file, f"means node {names[alias]!r} already", row, column, value))
    if faults:
        raise InvalidInput(faults)
    return spark.createDataFrame(pa.table({"alias": list(names), "id": list(names.values())}))


def _read(file: str) -> pa.Table:
    return read_numbers(Path(file), "nodes")
