"""Metrics beside latency: columns of the nodes table, and tables of what ways cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from nova.model.metrics import Metric
from nova.model.problem import Nodes
from nova.model.units import NUMBER
from nova.scenario import model
from nova.scenario.faults import Faults, suggestion
from nova.scenario.reader import read_table

GB = 1e9


def build_metrics(written: dict[str, model.Metric], nodes: Nodes, path: Path, faults: Faults) -> tuple[Metric, ...]:
    """The metrics of a scenario; faults for columns, labels and values that no node has."""
    found = []
    for name, one in written.items():
        scale = 1.0 if one.per_gb_of_tuples is None else one.per_gb_of_tuples / GB
        host = None if one.node is None else _column(name, one.node, nodes, path, faults) * scale
        group, between = (None, None) if one.links is None else _ways(name, one, nodes, path, faults, scale)
        found.append(Metric(name, one.weight, host, group, between))
    return tuple(found)


def _column(name: str, column: str, nodes: Nodes, path: Path, faults: Faults) -> np.typing.NDArray[np.float64]:
    nothing = np.zeros(len(nodes))
    field = f"metrics.{name}.node"
    if column not in nodes.labels:
        near = suggestion(column, nodes.labels)
        faults.add(str(path), f"the nodes table has no such column{near}", field=field, value=column)
        return nothing
    try:
        amounts = nodes.labels[column].cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        faults.add(str(path), f"{column} is no number on every node", field=field, value=column)
        return nothing
    if not (amounts >= 0).all() or not np.isfinite(amounts).all():
        faults.add(str(path), "numbers ≥ 0 expected in this column", field=field, value=column)
        return nothing
    return np.asarray(amounts, np.float64)


def _ways(
    name: str, one: model.Metric, nodes: Nodes, path: Path, faults: Faults, scale: float
) -> tuple[np.typing.NDArray[np.int32], np.typing.NDArray[np.float64]]:
    """The group of each node by its label (or id), and the units per tuple from group to group."""
    none = np.full(len(nodes), -1, np.int32), np.zeros((0, 0))
    field = f"metrics.{name}"
    if one.label != "id" and one.label not in nodes.labels:
        near = suggestion(one.label, nodes.labels)
        faults.add(str(path), f"the nodes have no such label{near}", field=f"{field}.label", value=one.label)
        return none
    texts = (nodes.ids if one.label == "id" else nodes.labels[one.label]).cast(pa.string()).to_pylist()
    values = sorted({text for text in texts if text is not None})
    code = {text: k for k, text in enumerate(values)}
    table = read_table(one.links, path, f"{field}.links", faults)
    if table is None or not table.require("from", "to", "amount"):
        return none
    amount = table.numbers("amount", NUMBER)
    between = np.zeros((len(values), len(values)))
    ends = {side: table.text(side) for side in ("from", "to")}
    for side, column in ends.items():
        table.note(np.array([text not in code for text in column.to_pylist()]), side, "no node has this value", column)
    for a, b, units in zip(ends["from"].to_pylist(), ends["to"].to_pylist(), amount.tolist(), strict=True):
        if a in code and b in code:
            between[code[a], code[b]] = units * scale
    return np.array([-1 if text is None else code[text] for text in texts], np.int32), between
