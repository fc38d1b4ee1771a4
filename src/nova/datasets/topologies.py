"""Topologies: measured latencies, series of them, and given coordinates, each with its node table, cleaned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from nova.datasets.catalog import Dataset, find
from nova.datasets.clean import Cleaning, clean
from nova.datasets.content import Content, read_stored
from nova.datasets.folder import locate, require
from nova.model.errors import InvalidInput
from nova.model.problem import Floats, Latency

KEYS = ("node", "ip", "region")
"""Columns of node tables that hold the label of a matrix."""


@dataclass(frozen=True)
class Topology:
    """Nodes with measured round-trip times, cleaned."""

    name: str
    nodes: pa.Table
    """One row per node, in the order of `latency`: `id` and whatever the node table knows."""
    latencies: tuple[Latency, ...]
    """One for a single matrix, one per slot for a series."""
    cleaning: Cleaning

    def __len__(self) -> int:
        return int(self.nodes.num_rows)

    @property
    def latency(self) -> Latency:
        """The measurements; for a series the median of each pair over its slots."""
        if len(self.latencies) == 1:
            return self.latencies[0]
        n = np.int64(len(self))
        keys = [part.first * n + part.second for part in self.latencies]
        every = np.unique(np.concatenate(keys))
        table = np.full((len(self.latencies), len(every)), np.nan)
        for row, key, part in zip(table, keys, self.latencies, strict=True):
            row[np.searchsorted(every, key)] = part.rtt_ms
        rtt: Floats = np.nanmedian(table, axis=0)
        return Latency((every // n).astype(np.int32), (every % n).astype(np.int32), rtt)


@dataclass(frozen=True)
class Points:
    """Nodes whose coordinates are given."""

    name: str
    nodes: pa.Table
    coordinates: Floats
    """n × d, in ms."""


def topology(name: str) -> Topology:
    """A measured topology by name. A series keeps all its slots."""
    dataset = find(name)
    if dataset.kind not in ("latency", "series"):
        raise InvalidInput(f"data set {name} holds no latency matrix, but {dataset.kind}")
    content = read_stored(require(dataset), square=True)
    if name == "ripe-atlas-419":
        content = _subset_419(dataset, content)
    cleaned = clean(content.labels, content.values, dataset.rules)
    labels = tuple(content.labels[i] for i in cleaned.rows)
    return Topology(name, node_table(dataset, labels), cleaned.latencies, cleaned.cleaning)


def points(name: str) -> Points:
    """Given coordinates by name."""
    dataset = find(name)
    if dataset.kind != "coordinates":
        raise InvalidInput(f"data set {name} holds no coordinates, but {dataset.kind}")
    content = read_stored(require(dataset), square=False)
    return Points(name, node_table(dataset, content.labels), content.values)


def node_table(dataset: Dataset, labels: tuple[str, ...]) -> pa.Table:
    """`id` per label, with the columns of the set's node table where that is at hand."""
    ids = pa.array(labels, pa.string())
    path = locate(dataset.nodes) if dataset.nodes else None
    if path is None:
        return pa.table({"id": ids})
    known = pa_csv.read_csv(path)
    if "set" in known.column_names:  # one table for several sets: fit-433 and fit-a8-283
        mine = [value for value in pc.unique(known["set"]).to_pylist() if dataset.name.startswith(value)]
        known = known.filter(pc.is_in(known["set"], pa.array(mine, pa.string()))).drop_columns(["set"])
    key = next((name for name in KEYS if name in known.column_names), None)
    if key is None:
        return pa.table({"id": ids})
    rows = pc.index_in(ids, value_set=known[key].cast(pa.string()).combine_chunks())
    return known.take(rows).drop_columns([key]).add_column(0, "id", ids)


def _subset_419(dataset: Dataset, content: Content) -> Content:
    """The rows that the node table marks as the paper's subset, in the subset's order."""
    table = pa_csv.read_csv(require(dataset, dataset.nodes))
    place = table["row_in_419"].to_numpy(zero_copy_only=False).astype(np.float64)
    inside = np.flatnonzero(~np.isnan(place))
    rows = inside[np.argsort(place[inside])]
    return Content(tuple(content.labels[i] for i in rows), content.values[np.ix_(rows, rows)])
