"""The public topologies that the experiments run on: `nova.datasets` by name, embedded once per process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from nova.costspace import embed_latency
from nova.datasets.catalog import files_of, find
from nova.datasets.folder import require
from nova.datasets.topologies import points, topology
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Latency
from nova.model.space import CostSpace

SUBSET = "ripe-atlas-419"
"""The paper's subset of a larger matrix."""
CHANGED_MS = 10.0
"""What the paper counts as a changed entry."""


def missing_data(name: str) -> str | None:
    """Why a data set cannot be used, in words; None where it can."""
    dataset = find(name)
    marked = dataset.nodes if name == SUBSET else None  # the node table says which rows belong to it
    try:
        for file in (*files_of(dataset), *([marked] if marked else [])):
            require(dataset, file)
    except InvalidInput as error:
        return str(error)
    return None


@cache
def round_trips(name: str) -> tuple[int, Latency]:
    """(nodes, measured round-trip times) of a set; several slots become their median."""
    measured = topology(name)
    return len(measured), measured.latency


@cache
def space_from(name: str, neighbours: int) -> CostSpace:
    """The cost space of a set: embedded from its round-trip times, or its coordinates where no times are public."""
    if find(name).kind == "coordinates":
        at = points(name).coordinates
        return CostSpace(at, np.zeros(len(at)))
    n, latency = round_trips(name)
    return embed_latency(n, latency, Options(neighbours=neighbours))


@dataclass(frozen=True)
class Hourly:
    """A topology measured again and again."""

    nodes: int
    at: tuple[Latency, ...]
    """Round-trip times of each hour."""
    changed: tuple[int, ...]
    """Entries of the matrix that changed by more than `CHANGED_MS` since the hour before; 0 for the first."""


@cache
def hourly(name: str) -> Hourly:
    """The hours of a series."""
    measured = topology(name)
    n = len(measured)
    matrices = [latency.matrix(n) for latency in measured.latencies]
    changed = [int((np.abs(after - before) > CHANGED_MS).sum()) for before, after in pairwise(matrices)]
    return Hourly(n, measured.latencies, (0, *changed))
