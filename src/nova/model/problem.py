"""Problem: what the core plans for. Frozen columns, already validated, in tuples/s and milliseconds.

Indices, not ids, connect the tables: a source names its node by row, a query its streams and sink by row. Ids are
kept only to be written out again. `nova.scenario` builds a Problem from files; `nova.synthetic` draws one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.links import Link
from nova.model.metrics import Metric
from nova.model.operators import NOTHING_AROUND, Output, Pipeline
from nova.model.requires import Requirement, allowed

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Nodes:
    """Machines, one row each."""

    ids: pa.StringArray
    capacity: Floats
    """Tuples/s the node can process; may be infinite."""
    bandwidth: Floats
    """Tuples/s the node's link can carry in; infinite where not stated."""
    hosts: Bools
    """Whether joins may run here."""
    coordinates: Floats | None = None
    """n × d, in ms; None where Phase I has to find them."""
    heights: Floats | None = None
    """Access-link part of each node's latency in ms; None means zero everywhere."""
    busy: Floats | None = None
    """Tuples/s of other work that each node does besides joins; None means none."""
    labels: Mapping[str, pa.Array] = field(default_factory=dict)
    """What else is known of the nodes (zone, arch, memory, …), one value per node: what queries may require."""
    allowance: Floats | None = None
    """Most join input in tuples/s that each node may take in for a reason besides its limit; None: no such reason."""

    def __len__(self) -> int:
        return len(self.capacity)

    @property
    def memory(self) -> Floats:
        """Bytes for windows on each node, from its label `memory` in MB; infinite where it does not say."""
        if "memory" not in self.labels:
            return np.full(len(self), np.inf)
        told = pc.cast(self.labels["memory"], pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(told), np.inf, told * 1e6)

    @property
    def limit(self) -> Floats:
        """Tuples/s each node can take in: capacity and bandwidth are charged alike."""
        return np.minimum(self.capacity, self.bandwidth)

    @property
    def other_load(self) -> Floats:
        """`busy`, zeros where nobody said."""
        return np.zeros(len(self)) if self.busy is None else np.asarray(self.busy, np.float64)

    @property
    def room(self) -> Floats:
        """Tuples/s of join input each node can take besides its other work; non-hosts take none."""
        return self.usable(1.0)

    def usable(self, utilisation: float) -> Floats:
        """`room` where at most the share `utilisation` of each node may be used, its other work included."""
        spare = self.limit * utilisation - self.other_load
        return np.where(self.hosts, np.maximum(spare, 0.0), 0.0)


@dataclass(frozen=True)
class Sources:
    """Physical streams, one row each."""

    ids: pa.StringArray
    """Unique within a stream."""
    stream: Ints
    node: Ints
    rate: Floats
    """Tuples/s."""

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class Equal:
    """Join matrix by equal attribute: sources join where their codes are equal. A negative code joins nothing."""

    attribute: str
    left: Ints
    """One code per source of the left stream, in source order."""
    right: Ints
    values: tuple[pa.StringArray, ...] = ()
    """For each attribute its value by code, so that a source that comes later finds its code; empty where unknown."""


@dataclass(frozen=True)
class Pairs:
    """Join matrix by explicit entries, as rows of the source table."""

    left: Ints
    right: Ints
    output_rate: Floats
    """Result tuples/s of the pair; NaN where not stated."""


@dataclass(frozen=True)
class Dense:
    """Join matrix of ones: every left source may join every right one."""


JoinMatrix: TypeAlias = Equal | Pairs | Dense


@dataclass(frozen=True)
class Key:
    """What tuples must agree on to join, besides their sources: such a join can be divided by ranges of the key's hash
    space."""

    columns: tuple[str, ...]
    """Columns of the tuples of both sides."""
    cardinality: float = np.inf
    """Distinct keys; infinite where nobody said."""
    heavy: tuple[float, ...] = ()
    """Shares of the tuples that have one of the commonest keys, in [0, 1]; the largest first."""
    values: tuple[str, ...] = ()
    """These keys, as texts, in the same order; empty where nobody said."""


@dataclass(frozen=True)
class Query:
    """left ⋈ right in tumbling windows, results to a sink."""

    id: str
    left: int
    """Row of the left stream's name in `Problem.streams`."""
    right: int
    sink: int
    """Row of the sink's node."""
    matrix: JoinMatrix
    window_ms: float = 1000.0
    pipeline: Pipeline = NOTHING_AROUND
    """What happens to tuples before and after the join; nothing for `left`, `right`, `on`."""
    requires: tuple[Requirement, ...] = ()
    """What a node must be or have to run replicas of this query."""
    key: Key | None = None
    """By what the join can be divided, where tuples must agree on columns."""
    output: Output | None = None
    """How much comes out of it, where that is stated or estimated for all sub-joins alike."""
    tuple_bytes: float = 0.0
    """Memory that a tuple takes while its window is open; 0: no memory is charged."""
    apart: str | None = None
    """Label (or `id`) of which no two replicas of one sub-join may share a value; None: they may run anywhere."""
    makes: int | None = None
    """Row of the stream that its results are, where another join of the same text reads them: it has one source per
    sub-join, in the order of `resolve`. None: results go to the sink."""


@dataclass(frozen=True)
class Derived:
    """A stream that a query makes of another one where its tuples are born: filtered, or copied into windows. It has
    the same sources, in the same order."""

    base: int
    """Row of the stream it is made of."""
    factor: float
    """Tuples that travel for each that is born."""


@dataclass(frozen=True)
class Latency:
    """Measured round-trip times of unordered pairs: `first[i] < second[i]`, each pair at most once, ms > 0."""

    first: Ints
    second: Ints
    rtt_ms: Floats

    def __len__(self) -> int:
        return len(self.rtt_ms)

    def matrix(self, n: int) -> npt.NDArray[np.float32]:
        """The full symmetric matrix over n nodes: NaN where nothing was measured, 0 on the diagonal."""
        full = np.full((n, n), np.nan, dtype=np.float32)
        full[self.first, self.second] = self.rtt_ms
        full[self.second, self.first] = self.rtt_ms
        np.fill_diagonal(full, 0.0)
        return full


@dataclass(frozen=True)
class Problem:
    """Everything a plan depends on but the options.

    >>> problem = nova.load(scenario).problem
    >>> len(problem.nodes) > len(problem.queries) == 1
    True
    """

    nodes: Nodes
    streams: tuple[str, ...]
    sources: Sources
    queries: tuple[Query, ...]
    latency: Latency | None = None
    links: tuple[Link, ...] = ()
    """Links with budgets."""
    metrics: tuple[Metric, ...] = ()
    """What is counted beside latency."""
    derived: Mapping[int, Derived] = field(default_factory=dict)
    """Streams that queries make of others, by their row."""
    digest: str = ""
    """Checksum of the scenario it came from; written into plans so that a stale plan is noticed."""
    warnings: tuple[str, ...] = field(default=())
    """What was repaired on reading (say, two directions of an RTT averaged), in words."""

    def allowed(self, query: int) -> Bools | None:
        """Nodes that meet what a query requires; None where it requires nothing."""
        requires = self.queries[query].requires
        return allowed(requires, self.nodes.labels, len(self.nodes)) if requires else None

    @property
    def bound(self) -> bool:
        """Whether anything but latency and the room of hosts says where joins run."""
        return (
            bool(self.links)
            or any(query.requires or query.tuple_bytes or query.apart for query in self.queries)
            or any(metric.weight > 0 for metric in self.metrics)
        )

    def born(self, stream: int) -> int:
        """The stream whose tuples enter the system, for a stream that a query makes of it; itself otherwise."""
        return self.derived[stream].base if stream in self.derived else stream

    def levels(self) -> Ints:
        """How many joins lie before each query, at most: 0 for those that read streams as they are born."""
        made = {query.makes: number for number, query in enumerate(self.queries) if query.makes is not None}
        levels = np.zeros(len(self.queries), dtype=np.int32)
        for number, query in enumerate(self.queries):  # those who make a stream stand before those who read it
            before = [made[row] for row in map(self.born, (query.left, query.right)) if row in made]
            levels[number] = max((levels[one] + 1 for one in before), default=0)
        return levels

    def sources_of(self, stream: int) -> Ints:
        """Rows of the source table that belong to a stream."""
        return np.flatnonzero(self.sources.stream == stream).astype(np.int32)


def numbered_ids(n: int, prefix: str = "") -> pa.StringArray:
    """Ids `prefix0`, `prefix1`, … for tables whose rows have no names of their own."""
    numbers = pa.array(np.arange(n)).cast(pa.string())
    if not prefix:
        return numbers
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")
