"""Share: what one node of a plan has to do, and all it must know for that.

A node *sends* the tuples of its sources to the hosts that need them, it *joins* what reaches the replicas it hosts, it
*merges* partial aggregates of other hosts, and it *collects* results where it is the sink. Its share names only the
replicas, sources and nodes that it deals with; numbers of sources, nodes and meetings are those of the whole plan, so
that sites understand each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from nova.model.chain import bases
from nova.model.errors import Fault, InvalidInput
from nova.model.merges import Merges
from nova.model.operators import NOTHING_AROUND, Grouping, Pipeline, Side
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.reading import read_json
from nova.model.replicas import SHARES, Replicas, with_keys
from nova.model.skew import PLAIN, KeyAxis
from nova.model.tables import read_parquet
from nova.routing import Routes
from nova.routing.flow import Flow
from nova.routing.packets import Names
from nova.routing.routes import SideName, meetings, routes_between
from nova.scenario.model import StreamInput
from nova.spark.sources.inputs import Feed

FORMAT = 2
FILE = "site.json"
SIDES: tuple[SideName, SideName] = ("left", "right")
SMALL_SPARK = {"spark.master": "local[1]", "spark.driver.memory": "512m"}
"""What a site's Spark gets unless its configuration says otherwise: edge nodes are small."""
LATENESS_MS = 10_000
COLUMNS = {
    "sources": {"row": "int32", "stream": "string", "id": "string", "node": "string", "rate": "double"},
    "nodes": {"row": "int32", "id": "string"},
    "replicas": {
        **dict.fromkeys(("query", "left_source", "right_source", "node"), "string"),
        **dict.fromkeys(SHARES[:6], "double"),
    },
}
"""Columns of a site's tables, with their types."""
RUNS: Mapping[str, TypeAdapter[Any]] = {
    **dict.fromkeys(("left", "right"), TypeAdapter(Side)),
    "single": TypeAdapter(bool),
    **dict.fromkeys(("on", "keeps"), TypeAdapter(tuple[str, ...])),
    **dict.fromkeys(("match", "where"), TypeAdapter(str | None)),
    "waits_us": TypeAdapter(int),
    "first_us": TypeAdapter(int | None),
    "select": TypeAdapter(tuple[tuple[str, str], ...]),
    "group": TypeAdapter(Grouping | None),
    **dict.fromkeys(("layers", "sql"), TypeAdapter(str)),
    "lateness_ms": TypeAdapter(float),
}
"""What of a query's pipeline a site runs by; the rest is for those who plan."""
TOLD: Mapping[str, TypeAdapter[Any]] = {
    "born": TypeAdapter(tuple[str, str]),
    "merges": TypeAdapter(dict[str, str]),
    "keepers": TypeAdapter(tuple[tuple[SideName, str], ...]),
    "made": TypeAdapter(tuple[SideName, ...]),
    "makes": TypeAdapter(str | None),
}
"""What else a site is told of a query's place among the sites and among other joins."""


@dataclass(frozen=True)
class Settled:
    """What all sites must agree on: made once per deployment."""

    exchange: str
    """Folder or broker through which sites exchange tuples."""
    lateness_ms: int = LATENESS_MS
    """Tuples up to this far behind the latest event time of their site's stream are never dropped."""
    spark: Mapping[str, str] = field(default_factory=lambda: dict(SMALL_SPARK))
    """Spark's settings at the site."""


@dataclass(frozen=True)
class QueryShare:
    """One query as a site sees it."""

    flow: Flow
    streams: tuple[str, str]
    """Left and right stream, as the query reads them."""
    born: tuple[str, str]
    """The same as their tuples are born."""
    sink: str
    hosts: tuple[str, ...]
    """At the sink: the sites that join. Empty elsewhere."""
    clocked: bool
    """Whether event times are times of now, so that there is a latency to tell."""
    pipeline: Pipeline = NOTHING_AROUND
    """What happens to tuples before and after the join."""
    merges: Mapping[str, str] = field(default_factory=dict)
    """By site, the one to which its partial aggregates go first, instead of to the sink."""
    keepers: tuple[tuple[SideName, str], ...] = ()
    """At the sink of an outer join: sides that are kept, and the sites where their tuples are born."""
    made: tuple[SideName, ...] = ()
    """Sides whose tuples are the results of another join: born where that has its replicas."""
    makes: str | None = None
    """The stream that its results are, where another join reads them; None: they go to the sink."""
    axis: KeyAxis = PLAIN
    """What the replicas' key ranges are measured on."""

    @property
    def sides(self) -> tuple[SideName, ...]:
        """Those that bring tuples."""
        return SIDES[:1] if self.pipeline.single else SIDES

    @property
    def waits(self) -> bool:
        """Whether results wait for the end of their windows."""
        return self.pipeline.group is not None or bool(self.pipeline.keeps)

    def around(self, side: SideName) -> Side:
        """What happens to the tuples of a side where they are born."""
        return self.pipeline.left if side == "left" else self.pipeline.right

    def stream(self, side: SideName) -> str:
        """The stream of a side as its tuples are born."""
        return self.born[SIDES.index(side)]

    def senders(self, site: str) -> tuple[str, ...]:
        """Sites that send their partial aggregates to this one first."""
        return tuple(sorted(sender for sender, to in self.merges.items() if to == site))

    def last(self) -> tuple[str, ...]:
        """At the sink: the sites that send to it."""
        return tuple(sorted({*self.hosts, *self.merges.values()} - set(self.merges)))


@dataclass(frozen=True)
class Share:
    """What one site does."""

    site: str
    digest: str
    """Of the scenario."""
    settled: Settled
    queries: tuple[QueryShare, ...]
    inputs: Mapping[str, StreamInput]
    """Where the tuples of its own sources come from, by stream."""
    sources: pa.Table
    """Columns row (in the whole plan), stream, id, node, rate: its own sources and those whose tuples reach it."""
    nodes: pa.Table
    """Columns row, id: nodes that it deals with."""
    replicas: pa.Table
    """The plan's replicas that it hosts or sends to, with the number of the `meeting` that each belongs to."""
    place: str = "site"
    """Where it was read from, for messages."""

    def replicas_of(self, query: QueryShare) -> pa.Table:
        """The replicas of one query."""
        return self.replicas.filter(pc.equal(self.replicas["query"], query.flow.query))

    def own(self, query: QueryShare, side: SideName) -> pa.Table:
        """Its own sources that a side of a query joins, or all of them where the side is kept."""
        sent = pc.and_(pc.equal(self.sources["node"], self.site), self._of(query, side))
        if side in query.pipeline.keeps:
            return self.sources.filter(sent)
        used = self.replicas_of(query)[f"{side}_source"].unique()
        return self.sources.filter(pc.and_(sent, pc.is_in(self.sources["id"], value_set=used)))

    def lateness_ms(self, query: QueryShare) -> int:
        """How far the join stays behind the latest event time of a sender: copies lie beside their tuples' times."""
        return self.settled.lateness_ms + math.ceil(query.pipeline.lateness_ms)

    def joins(self, query: QueryShare) -> bool:
        """Whether it hosts a replica."""
        return bool(pc.any(pc.equal(self.replicas_of(query)["node"], self.site)).as_py())

    def senders(self, query: QueryShare, side: SideName) -> tuple[str, ...]:
        """Sites whose tuples reach the replicas it hosts."""
        replicas = self.replicas_of(query)
        here = replicas.filter(pc.equal(replicas["node"], self.site))[f"{side}_source"].unique()
        found = self.sources.filter(pc.and_(self._of(query, side), pc.is_in(self.sources["id"], value_set=here)))
        return tuple(sorted(set(found["node"].to_pylist())))

    def _of(self, query: QueryShare, side: SideName) -> pa.ChunkedArray:
        return pc.equal(self.sources["stream"], query.streams[SIDES.index(side)])

    def feeds(self) -> dict[str, Feed]:
        """The inputs of its own sources."""
        mine = self.sources.filter(pc.equal(self.sources["node"], self.site))
        feeds = {}
        for stream, given in self.inputs.items():
            sources = mine.filter(pc.equal(mine["stream"], stream))
            feeds[stream] = Feed(
                given,
                tuple(sources["id"].to_pylist()),
                tuple(sources["rate"].to_pylist()),
                Path(self.place).parent,
                f"{self.place}: streams.{stream}",
            )
        return feeds

    def row(self, site: str) -> int:
        """The number of a node that it deals with."""
        return int(self.nodes["row"][pc.index(self.nodes["id"], site).as_py()].as_py())

    def names(self) -> Names:
        """Ids by number; those that the site has nothing to do with are missing."""
        return Names(_by_row(self.sources), _by_row(self.nodes))

    def routes(self, query: QueryShare) -> Routes:
        """Where the query's tuples go, as far as the site has to do with them."""
        table = with_keys(self.replicas_of(query))
        rows = {}
        for side in SIDES:
            known = self.sources.filter(self._of(query, side))
            at = pc.index_in(table[f"{side}_source"].combine_chunks(), value_set=known["id"].combine_chunks())
            rows[side] = known["row"].combine_chunks().take(at).to_numpy().astype(np.int32)
        host = pc.index_in(table["node"].combine_chunks(), value_set=self.nodes["id"].combine_chunks())
        node = self.nodes["row"].combine_chunks().take(host).to_numpy().astype(np.int32)
        boxes = {name: table[name].to_numpy() for name in SHARES}
        replicas = Replicas(np.zeros(len(table), np.int32), node, **boxes)
        sources = int(pc.max(self.sources["row"]).as_py() or 0) + 1
        sink = pc.index(self.nodes["id"], query.sink).as_py()
        return routes_between(
            replicas,
            rows["left"],
            rows["right"],
            table["meeting"].to_numpy().astype(np.intp),
            sources,
            self.nodes["row"][sink].as_py(),
            query.axis,
        )

    def write(self, folder: Path) -> Path:
        """Write the share into a folder of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("sources", "nodes", "replicas"):
            pq.write_table(getattr(self, name), folder / f"{name}.parquet")
        document = {
            "nova": FORMAT,
            "site": self.site,
            "scenario_digest": self.digest,
            "exchange": self.settled.exchange,
            "lateness_ms": self.settled.lateness_ms,
            "spark": dict(self.settled.spark),
            "streams": {name: given.model_dump(exclude_defaults=True) for name, given in self.inputs.items()},
            "queries": [_query_to_json(query) for query in self.queries],
        }
        (folder / FILE).touch(mode=0o600)  # addresses may hold passwords
        (folder / FILE).write_text(json.dumps(document, indent=2) + "\n")
        return folder


def read(folder: Path) -> Share:
    """Read what `write` wrote."""
    file = folder / FILE
    try:
        told = read_json(file, "a site")
        if told.get("nova") != FORMAT:
            raise InvalidInput(
                [Fault(str(file), f"site format {FORMAT} expected", field="nova", value=told.get("nova"))]
            )
        tables = {name: _table(folder / f"{name}.parquet", COLUMNS[name]) for name in COLUMNS}
        return Share(
            told["site"],
            told["scenario_digest"],
            Settled(told["exchange"], told["lateness_ms"], told["spark"]),
            tuple(_query_from_json(query) for query in told["queries"]),
            {name: StreamInput.model_validate(given) for name, given in told["streams"].items()},
            place=str(file),
            **tables,
        )
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, OverflowError, pa.ArrowException) as error:
        raise InvalidInput([Fault(str(folder), f"not a site that nova deploy wrote: {error}")]) from None


def _table(file: Path, kinds: Mapping[str, str]) -> pa.Table:
    """A table of a site, its columns of the kinds that they were written with."""
    table = read_parquet(file, "a site")
    faults = [
        Fault(str(file), f"{kind} expected", field=name, value=str(table.schema.field(name).type) if has else None)
        for name, kind in kinds.items()
        if not (has := table.column_names.count(name) == 1)
        or str(table.schema.field(name).type) != kind
        or table[name].null_count
    ]
    if faults:
        raise InvalidInput(faults)
    return table


def cut(
    problem: Problem,
    plan: Plan,
    flows: Sequence[Flow],
    feeds: Mapping[str, Feed],
    settled: Settled,
    clocked: Sequence[bool],
    only: int | None = None,
) -> Iterator[Share]:
    """The shares of all nodes that have something to do, or of one node (row `only`)."""
    joins, merges = plan.joins, _used(plan)
    whole = plan.table(problem)
    meeting = np.full(len(plan.replicas), -1, np.int64)
    for query in range(len(problem.queries)):
        some = np.arange(len(plan.replicas))
        if problem.queries[query].pipeline.single:  # as `routes_of` has it
            some = np.flatnonzero(plan.replicas.right_from == 0.0)
        rows, numbers = meetings(joins, plan.replicas.take(some), query)
        meeting[some[rows]] = numbers
    kept = np.flatnonzero(meeting >= 0)
    whole = whole.append_column("meeting", pa.array(meeting))
    of = joins.query[plan.replicas.join]
    left, right = joins.left[plan.replicas.join], joins.right[plan.replicas.join]
    sinks = np.array([query.sink for query in problem.queries])
    homes = _homes(problem, plan, kept)
    (at_left, left_home), (at_right, right_home) = homes.of(left[kept]), homes.of(right[kept])
    site = np.concatenate([plan.replicas.node[kept], left_home, right_home])
    rows_of = _Groups(site, np.concatenate([kept, kept[at_left], kept[at_right]]), len(problem.nodes))
    kept_rows, kept_query = _kept_sources(problem)
    at, lone_home = homes.of(kept_rows)
    kept_rows, kept_query = kept_rows[at], kept_query[at]
    at_work = np.unique(np.concatenate([site, sinks, merges.to, lone_home]))
    base = bases(problem)
    for node in at_work if only is None else at_work[at_work == only]:
        rows = rows_of[int(node)]
        known = np.unique(np.concatenate([left[rows], right[rows]]))
        lone = lone_home == node
        known = np.unique(np.concatenate([known, kept_rows[lone]]))
        at, home = homes.of(np.unique(np.concatenate([known, base[known]])))
        known = np.unique(np.concatenate([known, base[known]]))[at]
        own = home == node
        also = [merges.query[merges.to == node], np.flatnonzero(sinks == node), kept_query[lone]]
        mine = sorted({*of[rows].tolist(), *np.concatenate(also).tolist()})
        hosts = plan.replicas.node[kept[np.isin(of[kept], [q for q in mine if sinks[q] == node])]]
        others = [merges.to[np.isin(merges.query, mine)], merges.node[np.isin(merges.query, mine)]]
        streams = {problem.streams[int(s)] for s in np.unique(problem.sources.stream[known[own]])}
        yield Share(
            problem.nodes.ids[int(node)].as_py(),
            problem.digest,
            settled,
            tuple(_query(problem, plan, q, flows[q], clocked[q], int(node), kept, merges, homes) for q in mine),
            {name: _located(feed) for name, feed in feeds.items() if name in streams},
            pa.table(
                {
                    "row": pa.array(known, pa.int32()),
                    "stream": pa.array(problem.streams).take(pa.array(problem.sources.stream[known])),
                    "id": problem.sources.ids.take(pa.array(known)),
                    "node": problem.nodes.ids.take(pa.array(home)),
                    "rate": problem.sources.rate[known],
                }
            ),
            _nodes(problem, np.concatenate([plan.replicas.node[rows], home, sinks[mine], [node], hosts, *others])),
            whole.take(pa.array(rows)),
        )


def node_row(problem: Problem, site: str, place: str) -> int:
    """Row of a node by its id."""
    row = pc.index(problem.nodes.ids, site).as_py()
    if row < 0:
        raise InvalidInput([Fault(place, "no such node", field="--site", value=site)])
    return int(row)


@dataclass(frozen=True)
class _Homes:
    """Sites at which the tuples of each source are born, in the order of sources."""

    start: npt.NDArray[np.int64]
    """Sites of source s are those from start[s] to start[s + 1] − 1."""
    node: npt.NDArray[np.integer]

    def of(self, sources: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.integer]]:
        """Places in `sources`, repeated as needed, and a site for each."""
        first, count = self.start[sources], self.start[np.asarray(sources) + 1] - self.start[sources]
        at = np.repeat(np.arange(len(sources)), count)
        return at, self.node[np.arange(len(at)) + np.repeat(first - (np.cumsum(count) - count), count)]


def _homes(problem: Problem, plan: Plan, kept: npt.NDArray[np.intp]) -> _Homes:
    """Where sources are; what a join makes is born at every host that has a part of it."""
    nodes = len(problem.nodes)
    makes = plan.joins.makes[plan.replicas.join[kept]]
    made = makes >= 0
    pairs = np.unique(makes[made].astype(np.int64) * nodes + plan.replicas.node[kept][made])
    base, source = bases(problem), np.arange(len(problem.sources))
    own = np.flatnonzero(~np.isin(base, plan.joins.makes[plan.joins.makes >= 0]))
    derived = np.flatnonzero(np.isin(base, pairs // nodes))
    first = np.searchsorted(pairs // nodes, base[derived], "left")
    count = np.searchsorted(pairs // nodes, base[derived], "right") - first
    rows = np.concatenate([own, np.repeat(derived, count)])
    hosts = pairs[np.arange(int(count.sum())) + np.repeat(first - (np.cumsum(count) - count), count)] % nodes
    node = np.concatenate([problem.sources.node[own], hosts])
    order = np.argsort(rows, kind="stable")
    return _Homes(np.searchsorted(rows[order], np.append(source, len(source))).astype(np.int64), node[order])


def _kept_sources(problem: Problem) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Sources of sides that outer joins keep, and their queries."""
    rows: list[npt.NDArray[np.integer]] = [np.empty(0, np.int32)]
    queries: list[npt.NDArray[np.integer]] = [np.empty(0, np.int32)]
    for number, query in enumerate(problem.queries):
        for side in query.pipeline.keeps:
            rows.append(problem.sources_of(query.left if side == "left" else query.right))
            queries.append(np.full(len(rows[-1]), number))
    return np.concatenate(rows), np.concatenate(queries)


def _used(plan: Plan) -> Merges:
    """The merges of a plan at hosts that have something to merge."""
    if not len(plan.merges):
        return plan.merges
    rows = zip(plan.merges.query.tolist(), plan.merges.node.tolist(), plan.merges.to.tolist(), strict=True)
    then, used = {(query, node): to for query, node, to in rows}, set()
    for query, node in set(
        zip(plan.joins.query[plan.replicas.join].tolist(), plan.replicas.node.tolist(), strict=True)
    ):
        at = node
        while (query, at) in then and (query, at) not in used:
            used.add((query, at))
            at = then[query, at]
    return Merges.of([(query, node, then[query, node]) for query, node in used])


def _query(
    problem: Problem,
    plan: Plan,
    number: int,
    flow: Flow,
    clocked: bool,
    node: int,
    kept: npt.NDArray[np.intp],
    merges: Merges,
    homes: _Homes,
) -> QueryShare:
    query, ids = problem.queries[number], problem.nodes.ids
    hosts: tuple[str, ...] = ()
    if query.sink == node:
        mine = kept[plan.joins.query[plan.replicas.join[kept]] == number]
        hosts = tuple(ids.take(pa.array(np.unique(plan.replicas.node[mine]))).to_pylist())
    streams = problem.streams[query.left], problem.streams[query.right]
    born = problem.streams[problem.born(query.left)], problem.streams[problem.born(query.right)]
    ways = zip(merges.node[merges.query == number], merges.to[merges.query == number], strict=True)
    to = {ids[int(one)].as_py(): ids[int(other)].as_py() for one, other in ways}
    keepers: list[tuple[SideName, str]] = []
    for side in query.pipeline.keeps if query.sink == node else ():
        rows = problem.sources_of(query.left if side == "left" else query.right)
        at = ids.take(pa.array(np.unique(homes.of(rows)[1])))
        keepers += [(side, site) for site in at.to_pylist()]
    sink = ids[query.sink].as_py()
    made = {one.makes: problem.streams[one.makes] for one in problem.queries if one.makes is not None}
    from_joins = tuple(side for side, name in zip(SIDES, born, strict=True) if name in made.values())
    makes = None if query.makes is None else made[query.makes]
    return QueryShare(
        flow,
        streams,
        born,
        sink,
        hosts,
        clocked,
        query.pipeline,
        to,
        tuple(keepers),
        from_joins,
        makes,
        KeyAxis.of(query),
    )


def _nodes(problem: Problem, rows: npt.NDArray[np.integer]) -> pa.Table:
    rows = np.unique(rows)
    return pa.table({"row": pa.array(rows, pa.int32()), "id": problem.nodes.ids.take(pa.array(rows))})


def _located(feed: Feed) -> StreamInput:
    """The input with a path that means the same wherever the share lies."""
    location = feed.input.location(feed.folder.resolve())
    return feed.input.model_copy(update={"path": location})


class _Groups:
    """Distinct rows by group."""

    def __init__(self, group: npt.NDArray[np.integer], row: npt.NDArray[np.integer], groups: int) -> None:
        pairs = np.unique(group.astype(np.int64) * (int(row.max(initial=0)) + 1) + row)
        self.row = pairs % (int(row.max(initial=0)) + 1)
        self.start = np.searchsorted(pairs // (int(row.max(initial=0)) + 1), np.arange(groups + 1))

    def __getitem__(self, group: int) -> npt.NDArray[np.int64]:
        return self.row[self.start[group] : self.start[group + 1]]


def _by_row(table: pa.Table) -> pa.StringArray:
    rows = table["row"].to_numpy()
    at = np.full(int(rows.max(initial=-1)) + 1, -1)
    at[rows] = np.arange(len(rows))
    return table["id"].combine_chunks().take(pa.array(at, mask=at < 0))


def _query_to_json(query: QueryShare) -> dict[str, Any]:
    from pyspark.sql.pandas.types import from_arrow_schema

    flow = query.flow
    return {
        "id": flow.query,
        "left": query.streams[0],
        "right": query.streams[1],
        "window_us": flow.window_us,
        "on": list(flow.on),
        "cells": flow.cells,
        "sink": query.sink,
        "hosts": list(query.hosts),
        "clocked": query.clocked,
        "keeps": list(flow.keeps),
        **{name: kind.dump_python(getattr(query, name), mode="json") for name, kind in TOLD.items()},
        "pipeline": {name: value for name, value in asdict(query.pipeline).items() if name in RUNS},
        **({"heavy": dict(zip(query.axis.values, query.axis.edges[1:], strict=True))} if query.axis else {}),
        **{f"{side}_columns": from_arrow_schema(flow.carried(side)).jsonValue()["fields"] for side in SIDES},
    }


def _query_from_json(told: Mapping[str, Any]) -> QueryShare:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    left, right = (
        to_arrow_schema(StructType.fromJson({"fields": told[f"{side}_columns"]}), timezone="UTC") for side in SIDES
    )
    flow = Flow(told["id"], told["window_us"], tuple(told["on"]), left, right, told["cells"], tuple(told["keeps"]))
    pipeline = Pipeline(**{name: kind.validate_python(told["pipeline"][name]) for name, kind in RUNS.items()})
    heavy = told.get("heavy", {})
    return QueryShare(
        flow,
        (told["left"], told["right"]),
        sink=told["sink"],
        hosts=tuple(told["hosts"]),
        clocked=told["clocked"],
        pipeline=pipeline,
        axis=KeyAxis(tuple(heavy), (0.0, *heavy.values())),
        **{name: kind.validate_python(told[name]) for name, kind in TOLD.items()},
    )
