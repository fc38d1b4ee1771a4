"""The public topologies that the experiments run on, from the folder that `NOVA_DATA` names.

Every set is cleaned of what its source is known to have wrong: zeros that mean missing, one-way sums, dead nodes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.csv as pc

from nova.costspace import embed_latency
from nova.costspace.space import CostSpace
from nova.options import Options
from nova.problem import Floats, Latency

FILES = {
    "fit-433-filled": "latency/fit-433-filled.csv.gz",
    "planetlab-490": "latency/planetlab-490-18slots.npz",
    "ripe-atlas-723": "latency/ripe-atlas-723.csv.gz",
    "ripe-atlas-419": "latency/ripe-atlas-723.csv.gz",
    "ripe-atlas-631-hourly": "latency/ripe-atlas-631-hourly-00-11.npz",
    "king-1740": "coordinates/king-1740.csv",
}
ATLAS_NODES = "nodes/ripe-atlas-723.csv"
DEAD = 0.5
"""Nodes with measurements to fewer of the others than this share are left out."""
CHANGED_MS = 10.0
"""What the paper counts as a changed entry."""


def missing_data(dataset: str) -> str | None:
    """Why a data set cannot be used, in words; None where it can."""
    folder = os.environ.get("NOVA_DATA")
    if not folder:
        return "needs `NOVA_DATA`, the folder of the public data sets"
    needed = [FILES[dataset], *([ATLAS_NODES] if dataset == "ripe-atlas-419" else [])]
    gone = [name for name in needed if not os.access(Path(folder) / name, os.R_OK)]
    return f"`NOVA_DATA` holds no readable {' and '.join(gone)}" if gone else None


def _file(name: str) -> Path:
    return Path(os.environ["NOVA_DATA"]) / name


@cache
def round_trips(dataset: str) -> tuple[int, Latency]:
    """(nodes, measured round-trip times) of a set. Several slots become their median; zeros are missing."""
    file = _file(FILES[dataset])
    if file.suffix == ".npz":
        matrix = np.median(np.load(file)["rtt_ms"].astype(np.float64), axis=0)
    else:
        table = pc.read_csv(file)
        matrix = np.column_stack([table[name].to_numpy() for name in table.column_names[1:]]).astype(np.float64)
    alive = np.flatnonzero((matrix > 0).sum(axis=1) >= DEAD * (len(matrix) - 1))
    rows = _rows_of_419() if dataset == "ripe-atlas-419" else alive
    return len(rows), latency_of(matrix[np.ix_(rows, rows)])


def _rows_of_419() -> np.typing.NDArray[np.int64]:
    """Rows of the 723 matrix that make up the paper's subset, in the subset's order."""
    place = pc.read_csv(_file(ATLAS_NODES))["row_in_419"].to_numpy().astype(np.float64)
    inside = np.flatnonzero(~np.isnan(place))
    return inside[np.argsort(place[inside])]


def latency_of(matrix: Floats) -> Latency:
    """The unordered pairs of a matrix: the mean of both directions where both are known; zeros and NaN are missing."""
    i, j = np.triu_indices(len(matrix), 1)
    both = np.stack([matrix[i, j], matrix[j, i]])
    known = both > 0
    count = known.sum(axis=0)
    rtt = np.where(known, both, 0.0).sum(axis=0) / np.maximum(count, 1)
    there = count > 0
    return Latency(i[there].astype(np.int32), j[there].astype(np.int32), rtt[there])


@cache
def space_from(dataset: str, neighbours: int) -> CostSpace:
    """The cost space of a set: embedded from its round-trip times, or its coordinates where no times are public."""
    file = _file(FILES[dataset])
    if file.parent.name == "coordinates":
        table = pc.read_csv(file)
        at = np.column_stack([table["x"].to_numpy(), table["y"].to_numpy()]).astype(np.float64)
        return CostSpace(at, np.zeros(len(at)))
    n, latency = round_trips(dataset)
    return embed_latency(n, latency, Options(neighbours=neighbours))


@dataclass(frozen=True)
class Hourly:
    """A topology measured again and again."""

    nodes: int
    at: tuple[Latency, ...]
    """Round-trip times of each hour."""
    changed: tuple[int, ...]
    """Entries that changed by more than `CHANGED_MS` since the hour before; 0 for the first."""


@cache
def hourly(dataset: str) -> Hourly:
    """The hours of a set that holds the sum of both directions: halved; 1 and 0 mean that nothing was measured."""
    sums = np.load(_file(FILES[dataset]))["rtt_sum_ms"].astype(np.float64)
    matrices = np.where(sums > 1, sums / 2, np.nan)
    changed = [int((np.abs(after - before) > CHANGED_MS).sum()) for before, after in pairwise(matrices)]
    return Hourly(sums.shape[1], tuple(latency_of(np.nan_to_num(m)) for m in matrices), (0, *changed))
