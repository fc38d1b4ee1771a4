"""The nodes table: machines with capacities, and coordinates where they are known."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

import numpy as np
import pyarrow as pa

from nova.model.plausible import MOST_MS, MOST_RATE
from nova.model.problem import Floats, Nodes
from nova.model.units import RATE, RTT
from nova.scenario.table import Table

OPTIONAL = ("height", "hosts", "bandwidth", "busy")


def build_nodes(table: Table, warnings: list[str]) -> Nodes | None:
    """Nodes of a table with id and capacity; None where these columns are missing.

    Columns of other names are labels, which queries may require; one that is close to a known name is pointed out.
    """
    n = len(table)
    ids = table.ids() if "id" in table.columns else None
    capacity = (
        table.numbers("capacity", RATE, infinite=True, most=MOST_RATE)
        if "capacity" in table.columns
        else np.full(n, math.nan)
    )
    if not table.require("id", "capacity"):
        return None if ids is None else _bare(ids)
    assert ids is not None
    bandwidth = (
        table.numbers("bandwidth", RATE, empty=math.inf, infinite=True, most=MOST_RATE)
        if "bandwidth" in table.columns
        else np.full(n, math.inf)
    )
    hosts = table.booleans("hosts", empty=True) if "hosts" in table.columns else np.ones(n, dtype=np.bool_)
    busy = table.numbers("busy", RATE, empty=0.0) if "busy" in table.columns else None
    axes = coordinate_axes(table)
    coordinates: Floats | None = None
    if axes:
        coordinates = np.column_stack([table.numbers(axis, RTT, signed=True, most=MOST_MS) for axis in axes])
    heights: Floats | None = None
    if "height" in table.columns:
        if coordinates is None:
            warnings.append(f"{table.place}: heights are only used with coordinates, and there are none: ignored")
        else:
            heights = table.numbers("height", RTT, empty=0.0, most=MOST_MS)
    for label in [name for name in table.columns if name not in ("id", "capacity", *OPTIONAL, *axes)]:
        close = get_close_matches(label.lower(), [name for name in OPTIONAL if name not in table.columns], cutoff=0.75)
        if close:
            warnings.append(f"{table.place}: column {label!r} is taken as a label; did you mean {close[0]!r}?")
    labels = {
        name: column for name, column in table.columns.items() if name not in ("id", "capacity", *OPTIONAL, *axes)
    }
    return Nodes(ids, capacity, bandwidth, hosts, coordinates, heights, busy, labels)


def _bare(ids: pa.StringArray) -> Nodes:
    """Names alone, so that the other tables can be checked against them although this one is wrong."""
    n = len(ids)
    return Nodes(ids, np.full(n, math.nan), np.full(n, math.nan), np.ones(n, dtype=np.bool_))


def coordinate_axes(table: Table) -> list[str]:
    """The coordinate columns in order: x, y, z or x0, x1, …; none where the nodes carry no coordinates."""
    numbered = [name for name in table.columns if re.fullmatch(r"x(0|[1-9][0-9]*)", name)]
    numbered.sort(key=lambda name: int(name[1:]))
    lettered = [name for name in "xyz" if name in table.columns]
    if "x" in lettered:
        if numbered:
            both = ", ".join(lettered + numbered)
            table.faults.add(table.place, f"coordinates are x, y, z or x0, x1, …, not both: found {both}")
        elif lettered == ["x", "z"]:
            table.faults.add(table.place, "coordinate z without y", field="y")
        return lettered
    if numbered != [f"x{k}" for k in range(len(numbered))]:
        table.faults.add(table.place, f"coordinates are numbered x0, x1, … without gaps: found {', '.join(numbered)}")
    return numbered
