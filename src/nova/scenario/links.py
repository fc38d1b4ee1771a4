"""The links table: budgets for what travels between nodes, or between groups of them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from nova.model.links import ANY, Link
from nova.model.problem import Nodes
from nova.model.units import NUMBER, RATE
from nova.scenario.faults import listed, suggestion
from nova.scenario.table import Table


def build_links(table: Table, nodes: Nodes) -> tuple[Link, ...]:
    """Links of a table with from, to and budget; faults for names that no node has."""
    if not table.require("from", "to"):
        return ()
    before = len(table.faults)
    if "budget" in table.columns:
        budget = table.numbers("budget", RATE)
    elif table.require("mbit_s", "tuple_bytes"):
        size = table.numbers("tuple_bytes", NUMBER)
        table.note(size <= 0, "tuple_bytes", "the size of a tuple is above 0")
        budget = table.numbers("mbit_s", NUMBER) * 1e6 / 8 / np.where(size > 0, size, math.nan)
    else:
        return ()
    rows = len(table)
    labels = table.text("label") if "label" in table.columns else pa.nulls(rows, pa.string())
    names = [label or "id" for label in labels.to_pylist()]
    known: dict[str, list[str]] = {}
    for label in dict.fromkeys(names):
        if label != "id" and label not in nodes.labels:
            at = np.array([name == label for name in names])
            message = f"the nodes have no such label{suggestion(label, nodes.labels)}; they have {listed(nodes.labels)}"
            table.note(at, "label", message, labels)
        else:
            column = nodes.ids if label == "id" else nodes.labels[label].cast(pa.string())
            known[label] = [ANY, *column.drop_null().unique().to_pylist()]
    ends = {side: table.text(side) for side in ("from", "to")}
    for side, texts in ends.items():
        wrong = [name in known and text not in known[name] for name, text in zip(names, texts.to_pylist(), strict=True)]
        table.note(np.array(wrong), side, "no node has this value", texts)
    same = np.array([a == b for a, b in zip(ends["from"].to_pylist(), ends["to"].to_pylist(), strict=True)])
    table.note(same, "to", "a link leads from some nodes to others", ends["to"])
    if len(table.faults) > before:
        return ()
    return tuple(
        Link(label, a, b, float(most))
        for label, a, b, most in zip(names, ends["from"].to_pylist(), ends["to"].to_pylist(), budget, strict=True)
    )
