"""Scenario: what a user wrote, checked, and the Problem it describes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from nova.model.limits import available_bytes, size_text
from nova.model.links import Link
from nova.model.operators import HANDED_ON, Estimate, OperatorGraph, Output, Pipeline, join_name, origin_of
from nova.model.options import Options
from nova.model.problem import Dense, Derived, Ints, JoinMatrix, Key, Latency, Nodes, Pairs, Problem, Query, Sources
from nova.model.requires import Requirement, allowed, came_nearest
from nova.placement.resolve import pairs_of
from nova.query import (
    Ground,
    Schema,
    SqlFault,
    Statement,
    Tree,
    analyse,
    attribute_keys,
    best_order,
    build_graph,
    copies,
    flows_along,
    key_of,
    lower,
    matching,
    output_of,
    passing,
    refuse_unplanned,
    shares_along,
    short_sql,
    stages_of,
    window_us,
    wrong_order,
)
from nova.scenario import document, model
from nova.scenario.columns import schema_of
from nova.scenario.digest import digest
from nova.scenario.faults import Faults, listed, suggestion
from nova.scenario.latency import build_latency, check_reachable, is_matrix, ways
from nova.scenario.links import build_links
from nova.scenario.metrics import build_metrics
from nova.scenario.nodes import build_nodes
from nova.scenario.queries import (
    BYTES_PER_PAIR,
    MOST_PAIRS,
    StreamSources,
    build_sources,
    count_pairs,
    equal_matrix,
    joined_sources,
    pairs_matrix,
    values_in,
    values_of,
)
from nova.scenario.reader import read_table

SAMPLED = 64
"""Sources of a stream that the order of joins is weighed with, at most."""
CANDIDATES = 32
"""Hosts that it is weighed with, at most."""
SHADOW = "shadow"
"""What the side that sends nothing is called in a query of one stream: each source goes with its own shadow."""


@dataclass(frozen=True)
class Scenario:
    """A scenario that is in order: what was written, and what it means.

    >>> sorted(nova.load(scenario).streams)
    ['humidity', 'pressure']
    """

    path: Path
    document: model.Document
    """What the file says, validated: tables by name, queries with their attributes."""
    problem: Problem
    options: Options
    """The file's options with the overrides on top."""
    graphs: tuple[OperatorGraph, ...] = ()
    """The operators of each query, with the rates between them."""

    @property
    def streams(self) -> Mapping[str, model.Stream]:
        """The streams as written, in order; `.input` says where tuples come from when the plan runs."""
        return self.document.streams

    @property
    def digest(self) -> str:
        """Checksum of the problem."""
        return self.problem.digest

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was repaired on reading, in words."""
        return self.problem.warnings


def load(scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario with its tables. Raises InvalidInput with everything that is wrong.

    `scenario` is a file, or what a file would say as a mapping, in which tables may also be pandas, polars or Arrow
    tables and paths hold from the current folder. `overrides` are options that win over those of the scenario; None
    values are left out.

    >>> nova.load(scenario, {"seed": 7}).options.seed
    7
    """
    faults = Faults()
    path, content, options = _content(scenario, overrides or {}, faults)
    builder = _Builder(path, content, faults)
    problem = builder.build()
    faults.check()
    assert problem is not None
    return Scenario(path, content, replace(problem, digest=digest(problem)), options, tuple(builder.graphs))


@dataclass(frozen=True)
class Explained:
    """The queries of a scenario, also those that cannot be planned."""

    graphs: tuple[OperatorGraph, ...]
    sinks: tuple[int, ...]
    """Row of each query's sink."""
    unplanned: tuple[str, ...]
    """Why a query cannot be planned; empty where it can."""
    problem: Problem
    """Nodes, sources and the queries that can be planned."""
    options: Options


def load_queries(scenario: str | Path | Mapping[str, Any]) -> Explained:
    """Read a scenario for the sake of its queries. Raises InvalidInput with everything that is wrong."""
    faults = Faults()
    path, content, options = _content(scenario, {}, faults)
    builder = _Builder(path, content, faults, plans=False)
    problem = builder.build()
    faults.check()
    assert problem is not None
    return Explained(tuple(builder.graphs), tuple(builder.sinks), tuple(builder.unplanned), problem, options)


def _content(
    scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any], faults: Faults
) -> tuple[Path, model.Document, Options]:
    """What the file says, and the options."""
    if isinstance(scenario, Mapping):
        path, written = Path("scenario"), dict(scenario)
    else:
        path = Path(scenario)
        written = document.read(path)
    options = _options(path, written.get("options"), overrides, faults)
    try:
        return path, model.Document.model_validate(written), options
    except ValidationError as error:
        model.note(error, model.Document, path, faults)
        faults.check()
        raise  # not reached: the error has at least one fault


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, as `Options` has them. Raises InvalidInput with everything that is wrong."""
    faults = Faults()
    try:
        return model.OptionsModel.model_validate(dict(given)).model_dump(exclude_unset=True)
    except ValidationError as error:
        model.note(error, model.OptionsModel, Path("options"), faults)
        faults.check()
        raise  # not reached: the error has at least one fault


def _options(path: Path, written: Any, overrides: Mapping[str, Any], faults: Faults) -> Options:
    """The file's options and, over them, the caller's; faults say which of the two is wrong."""
    merged: dict[str, Any] = {}
    given = {name: value for name, value in overrides.items() if value is not None}
    for values, source in ((written, path), (given, Path("overrides"))):
        if not isinstance(values, dict):
            continue  # the document's own check says what is wrong with it
        try:
            merged |= model.OptionsModel.model_validate(values).model_dump(exclude_unset=True)
        except ValidationError as error:
            model.note(error, model.OptionsModel, source, faults, ("options",) if source is path else ())
    return Options(**merged)


@dataclass(frozen=True)
class _Bound:
    """A join in the one form that all have: two streams, joined in tumbling windows, and what is around that."""

    id: str
    left: str
    right: str
    on: tuple[tuple[str, str], ...]
    """Attributes of the sources that must be equal, as the left and the right ones call them."""
    window_ms: float
    pipeline: Pipeline
    factors: tuple[float, float] = (1.0, 1.0)
    """Tuples of each side that travel for each that is born."""
    aliases: tuple[str, str] = ("", "")
    """Names of the streams in the text; empty for one that another join makes."""
    key: Key | None = None
    """By what the join divides, as its text says."""
    output: Output | None = None
    results: float | None = None
    """Tuples/s that it makes for another join; None: its results are the query's."""


class _Builder:
    """Turns the tables of a document into a Problem, and goes on after faults to find them all."""

    def __init__(self, path: Path, content: model.Document, faults: Faults, *, plans: bool = True) -> None:
        """Without `plans`, queries that cannot be planned are no faults."""
        self.path = path
        self.content = content
        self.faults = faults
        self.plans = plans
        self.warnings: list[str] = []
        self.graphs: list[OperatorGraph] = []
        self.sinks: list[int] = []
        self.unplanned: list[str] = []
        self.names: list[str] = []
        """Streams, then those that queries make of them."""
        self.parts: list[StreamSources] = []
        self.derived: dict[int, Derived] = {}
        self.used: set[str] = set()
        """Streams that a query reads."""
        self.pairs = 0
        """Sub-joins of the queries so far."""
        self._rtt: Latency | None = None
        self._read = False

    def build(self) -> Problem | None:
        """The problem; None where there are faults."""
        content = self.content
        table = read_table(content.nodes, self.path, "nodes", self.faults)
        nodes = build_nodes(table, self.warnings) if table is not None else None
        ids = nodes.ids if nodes is not None else None
        streams = {name: self._stream(name, ids) for name in content.streams}
        self.names = list(streams)
        whole = [part for part in streams.values() if part is not None]
        self.parts = whole if len(whole) == len(streams) else []
        queries = self._queries(streams, nodes)
        for name in streams:
            if name not in self.used:
                self.warnings.append(f"{self.path}: no query joins stream {name!r}")
        latency = self._latency(nodes)
        links: tuple[Link, ...] = ()
        if content.links is not None and nodes is not None:
            found = read_table(content.links, self.path, "links", self.faults)
            links = build_links(found, nodes) if found is not None else ()
        metrics = () if nodes is None else build_metrics(content.metrics, nodes, self.path, self.faults)
        if nodes is not None and content.latency is None and nodes.coordinates is None:
            message = "no latencies: give the nodes coordinates (x, y, …), or a `latency` table"
            self.faults.add(str(self.path), message, field="latency")
        if len(self.faults) or nodes is None:
            return None
        parts = self.parts
        stream = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        node = np.concatenate([part.node for part in parts])
        if nodes.coordinates is None:
            used = nodes.hosts.copy()
            used[node] = True
            used[self.sinks] = True
            check_reachable(latency, nodes, used, str(self.path), self.faults)
        sources = Sources(
            pa.concat_arrays([part.ids for part in parts]), stream, node, np.concatenate([part.rate for part in parts])
        )
        return Problem(
            nodes,
            tuple(self.names),
            sources,
            tuple(queries),
            latency,
            links=links,
            metrics=metrics,
            derived=self.derived,
            warnings=tuple(self.warnings),
        )

    def _latency(self, nodes: Nodes | None) -> Latency | None:
        """The latencies of the scenario, read once."""
        given = self.content.latency
        if not self._read and given is not None and nodes is not None:
            ids = nodes.ids
            found = read_table(given, self.path, "latency", self.faults, matrix=lambda columns: is_matrix(columns, ids))
            if found is not None:
                self._rtt = build_latency(found, ids, self.warnings, self.content.latency_unit)
            self._read = True
        return self._rtt

    def _stream(self, name: str, nodes: pa.StringArray | None) -> StreamSources | None:
        table = read_table(self.content.streams[name].sources, self.path, f"streams.{name}.sources", self.faults)
        return build_sources(table, nodes) if table is not None else None

    def _queries(self, streams: Mapping[str, StreamSources | None], nodes: Nodes | None) -> list[Query]:
        queries: list[Query] = []
        ids = nodes.ids if nodes is not None else None
        seen: dict[str, int] = {}
        for i, query in enumerate(self.content.queries):
            if query.id in seen:
                self._wrong(i, "id", f"duplicate: query {seen[query.id] + 1} has this id too", query.id)
            seen.setdefault(query.id, i)
            sink = self._sink(i, query.sink, ids)
            if nodes is not None:
                self._requirements(i, query.requires, nodes)
                self._hosts_apart(i, query, nodes)
            self.sinks.append(sink)
            self.unplanned.append("")
            bounds = (
                self._short(i, query, streams)
                if query.sql is None
                else self._sql(i, query, query.sql, streams, nodes, sink)
            )
            known = dict(streams)
            for bound in bounds:
                left, right = known.get(bound.left), known.get(bound.right)
                if left is None or right is None:
                    break
                matrix = self._matrix(i, query, bound, left, right)
                if matrix is None or sink < 0 or not self.parts:
                    break
                made, part = self._join(i, query, bound, matrix, sink)
                queries.append(made)
                if part is not None:
                    known[bound.id] = part
        return queries

    def _join(
        self, i: int, query: model.Query, bound: _Bound, matrix: JoinMatrix, sink: int
    ) -> tuple[Query, StreamSources | None]:
        """A join of the problem, and the stream that it makes for another one."""
        bases = [self.names.index(name) for name in (bound.left, bound.right)]
        rows = [
            self._row(i, f"{bound.id}.{alias or name}", name, factor, own=side == 1 and bound.left == bound.right)
            for side, (alias, name, factor) in enumerate(
                zip(bound.aliases, (bound.left, bound.right), bound.factors, strict=True)
            )
        ]
        if isinstance(matrix, Pairs):
            starts = np.cumsum([0, *(len(part) for part in self.parts)])
            shift = [np.int32(starts[row]) for row in rows]
            matrix = Pairs(matrix.left + shift[0], matrix.right + shift[1], matrix.output_rate)
        part, makes = None, None
        if bound.results is not None:
            left, right = (self.parts[row] for row in bases)
            pairs = pairs_of(matrix, *(np.arange(len(side), dtype=np.int32) for side in (left, right)))
            joined = pairs.left, pairs.right
            part = joined_sources((left, right), bound.aliases, joined, sink, bound.results)
            makes = len(self.names)
            if bound.id in self.names or any(bound.id == one.id for one in self.content.queries):
                self._wrong(i, "id", f"something is called {bound.id!r}, as this query calls a part of it: rename one")
            self.names.append(bound.id)
            self.parts.append(part)
        key = bound.key
        if query.key is not None:
            count = math.inf if query.key.cardinality is None else float(query.key.cardinality)
            heavy = sorted(query.key.heavy.items(), key=lambda one: (-one[1], one[0]))
            shares, values = tuple(share for _, share in heavy), tuple(value for value, _ in heavy)
            key = Key(query.key.column, count, shares, values)
        around, needs = bound.pipeline, query.requires
        made = Query(bound.id, rows[0], rows[1], sink, matrix, bound.window_ms, around, needs, key, bound.output)
        return replace(made, tuple_bytes=query.tuple_bytes or 0.0, apart=query.apart, makes=makes), part

    def _row(self, i: int, derived: str, name: str, factor: float, *, own: bool) -> int:
        """Row of a stream as a query reads it: of a new one where it is not read as it is born, or read twice
        (`own`)."""
        base = self.names.index(name)
        if factor == 1.0 and not own:
            return base
        if derived in self.names:
            self._wrong(i, "id", f"a stream is called {derived!r}, as this query calls its own: rename one", derived)
        part = self.parts[base]
        self.names.append(derived)
        self.parts.append(replace(part, rate=part.rate * factor))
        self.derived[len(self.names) - 1] = Derived(base, factor)
        return len(self.names) - 1

    def _short(self, i: int, query: model.Query, streams: Mapping[str, StreamSources | None]) -> list[_Bound]:
        """`left`, `right`, `on` and `window`."""
        assert query.left is not None
        assert query.right is not None
        for side, name in (("left", query.left), ("right", query.right)):
            self.used.add(name)
            if name not in streams:
                self._wrong(i, side, f"no such stream{suggestion(name, streams)}", name)
        if query.left == query.right:
            self._wrong(i, "right", "a stream is not joined with itself", query.right)
        known = {name: streams.get(name) for name in (query.left, query.right)}
        if any(part is None for part in known.values()):
            return []
        on = tuple(query.on or ())
        if len(known) == 2:
            attributes = {name: float(len(values_in(part, name))) for part in known.values() if part for name in on}
            schemas = {name: Schema({}, attributes, known=False) for name in known}
            statement = analyse(short_sql(query.left, query.right, on, query.window.tumbling), schemas)
            self._graph(query, statement, streams)
        same = tuple((name, name) for name in on)
        around = Pipeline(on=query.tuple_columns)
        match = query.known.get("join")
        output = None if match is None else Output(Estimate(match, origin_of(query.known, "join")))
        return [_Bound(query.id, query.left, query.right, same, query.window.tumbling, around, output=output)]

    def _sql(
        self,
        i: int,
        query: model.Query,
        sql: str,
        streams: Mapping[str, StreamSources | None],
        nodes: Nodes | None,
        sink: int,
    ) -> list[_Bound]:
        """The joins of a query's text, those that others read first; faults name line, column and token."""
        parts = {name: part for name, part in streams.items() if part is not None}
        try:
            schemas = {
                name: schema_of(self.content.streams[name], part, self.path.parent) for name, part in parts.items()
            }
            statement = analyse(sql, schemas)
            self.used |= set(statement.streams.values())
            one_by_one = [join_name(k) for k in range(1, len(statement.joins) + 1)] if len(statement.joins) > 1 else []
            known = [*statement.streams, "join", *one_by_one, "group"]
            for name in sorted(set(query.selectivity) - set(known)):
                self._wrong(i, "selectivity", f"no such part of the query{suggestion(name, known)}", name)
            for name in [one for one in one_by_one if one in query.selectivity and query.order is None]:
                self._wrong(i, "selectivity", "joins are numbered as they are made: state the `order` as well", name)
            passed = {alias: passing(statement, alias, query.known) for alias in statement.streams}
            shares = {alias: share.value for alias, share in passed.items()}
            born = {alias: share * float(parts[statement.streams[alias]].rate.sum()) for alias, share in shares.items()}
            tree = None
            if len(statement.joins) > 1 and all(join.kind == "inner" for join in statement.joins[:-1]):
                ground = self._ground(statement, parts, nodes, sink)
                tree = query.order or best_order(statement, born, query.known, ground)
                if why := wrong_order(statement, tree):
                    self._wrong(i, "order", why, str(query.order))
                    return []
                for name in ("pairs", "key"):
                    if getattr(query, name) is not None:
                        self._wrong(i, name, "says which of two streams join, and this query joins more", None)
            elif query.order is not None:
                self._wrong(i, "order", "says in which order three and more streams meet in inner joins", None)
            self._graph(query, statement, streams, tree)
            refuse_unplanned(statement)
            stages = stages_of(statement, tree or "")
            pipelines = lower(stages)
        except SqlFault as error:
            if self.plans or not error.unplanned:
                self._wrong(i, "sql", str(error))
            self.unplanned[-1] = str(error)
            return []
        results = {} if tree is None else flows_along(statement, tree, born, query.known)
        columns = tuple(
            (name, tuple(schemas[name].columns.items())) for name in statement.streams.values() if schemas[name].known
        )
        planned = {
            alias: share for alias, share in passed.items() if statement.filters[alias] or alias in query.selectivity
        }
        if len(statement.joins) == 1:
            planned["join"] = matching(statement, statement.joins[0], query.known)
        elif tree is not None:
            each = shares_along(statement, tree, query.known).values()
            planned |= dict(zip(one_by_one, each, strict=True))
        for name in [one for one in ("join", "group") if one in query.selectivity]:
            planned[name] = Estimate(query.selectivity[name], origin_of(query.known, name))
        told = {name: one.value for name, one in planned.items()}
        origins = tuple((name, one.origin) for name, one in planned.items() if one.origin != "stated")
        found = []
        for number, (stage, pipeline) in enumerate(zip(stages, pipelines, strict=True), 1):
            own, copied = stage.statement, copies(stage.statement)
            names = [f"{query.id}.{one[1:]}" if own.schemas[one].made else own.streams[one] for one in own.streams]
            factors = [shares.get(one, 1.0) * copied[one] for one in own.streams]
            if pipeline.single:
                names, factors = [*names, *names], [*factors, 0.0]
            last = number == len(stages)
            pipeline = replace(pipeline, shares=tuple(told.items()), origins=origins, columns=columns, order=tree)
            found.append(
                _Bound(
                    query.id if last else f"{query.id}.{number}",
                    names[0],
                    names[1],
                    attribute_keys(own) if query.pairs is None else (),
                    window_us(own) / 1000,
                    pipeline,
                    (factors[0], factors[1]),
                    _aliases(own),
                    key_of(own, pipeline),
                    output_of(own, pipeline, query.known, 0 if tree is None else number) if last else HANDED_ON,
                    None if last else results[stage.streams],
                )
            )
        return found

    def _ground(
        self, statement: Statement, parts: Mapping[str, StreamSources], nodes: Nodes | None, sink: int
    ) -> Ground:
        """Some hosts, the sink first, with the ways between them and from the streams' sources."""
        homes = {
            alias: _spread(np.flatnonzero(parts[stream].node >= 0), SAMPLED)
            for alias, stream in statement.streams.items()
        }
        nodes_of = {alias: parts[statement.streams[alias]].node[rows] for alias, rows in homes.items()}
        latency = self._latency(nodes)
        if nodes is None or sink < 0 or (nodes.coordinates is None and latency is None):
            return Ground(np.zeros((1, 1)), {})
        every = np.unique(np.concatenate(list(nodes_of.values())))
        hosts = np.append(sink, _spread(every[nodes.hosts[every]], CANDIDATES))
        reach = {}
        for alias, at in nodes_of.items():
            rate = parts[statement.streams[alias]].rate[homes[alias]]
            share = rate / rate.sum() if rate.sum() > 0 else np.full(len(rate), 1 / max(len(rate), 1))
            reach[alias] = share @ ways(nodes, latency, at, hosts)
        return Ground(ways(nodes, latency, hosts, hosts), reach)

    def _graph(
        self,
        query: model.Query,
        statement: Statement,
        streams: Mapping[str, StreamSources | None],
        tree: Tree | None = None,
    ) -> None:
        """Keep the graph of a query."""
        given = {name: float(part.rate.sum()) for name, part in streams.items() if part is not None}
        self.graphs.append(build_graph(query.id, statement, given, query.known, tree))

    def _requirements(self, i: int, requires: tuple[Requirement, ...], nodes: Nodes) -> None:
        """Labels exist, numbers are numbers, and some host meets it all."""
        for one in requires:
            if one.label not in nodes.labels:
                near = suggestion(one.label, nodes.labels)
                message = f"the nodes have no such label{near}; they have {listed(nodes.labels) or 'none'}"
                self._wrong(i, "requires", message, str(one))
                return
            try:
                one.met(nodes.labels)
            except pa.ArrowInvalid:
                self._wrong(i, "requires", f"{one.label} is no number on every node", str(one))
                return
        if requires and not (allowed(requires, nodes.labels, len(nodes)) & nodes.hosts).any():
            nearest = came_nearest(requires, nodes.labels, nodes.ids, nodes.hosts)
            self._wrong(i, "requires", f"no host meets this; nearest came {nearest}", " and ".join(map(str, requires)))

    def _hosts_apart(self, i: int, query: model.Query, nodes: Nodes) -> None:
        """The label that replicas are kept apart by exists, and memory is a number."""
        if query.apart not in (None, "id", *nodes.labels):
            near = f"{suggestion(query.apart or '', nodes.labels)}; they have {listed(nodes.labels)}"
            self._wrong(i, "apart", f"the nodes have no such label{near}", query.apart)
        if query.tuple_bytes is not None:
            try:
                known = np.isfinite(nodes.memory).any()
            except pa.ArrowInvalid:
                self._wrong(i, "tuple_bytes", "the column memory of the nodes table is no number of MB on every node")
            else:
                if not known:
                    self._wrong(i, "tuple_bytes", "the nodes table has no column memory (MB) to charge windows against")

    def _sink(self, i: int, name: str, nodes: pa.StringArray | None) -> int:
        if nodes is None:
            return -1
        row = pc.index(nodes, pa.scalar(name.strip(), pa.string())).as_py()
        if row < 0:
            self._wrong(i, "sink", f"no such node{suggestion(name, nodes.to_pylist())}", name)
        return int(row)

    def _matrix(
        self, i: int, query: model.Query, bound: _Bound, left: StreamSources, right: StreamSources
    ) -> JoinMatrix | None:
        matrix: JoinMatrix | None = Dense()
        why = ""
        if bound.on:
            matrix = equal_matrix(bound.on, left, right)
            if matrix is not None:
                mine, theirs = zip(*bound.on, strict=True)
                why = f": {bound.left} has {values_of(left, mine)}, {bound.right} has {values_of(right, theirs)}"
                for name, codes in ((bound.left, matrix.left), (bound.right, matrix.right)):
                    if missing := int(np.count_nonzero(codes < 0)):
                        text = f"{missing:,} sources of stream {name!r} have no {matrix.attribute}: they join nothing"
                        self.warnings.append(f"{self.path}: query {query.id!r}: {text}")
        elif query.pairs is not None:
            table = read_table(query.pairs, self.path, f"queries.{query.id}.pairs", self.faults)
            matrix = pairs_matrix(table, left, right, (bound.left, bound.right)) if table is not None else None
        if matrix is None:
            return None
        count = count_pairs(matrix, len(left), len(right))
        field = "on" if query.sql is None else "sql"
        if count == 0:
            self._wrong(i, field, f"no two sources join{why}")
        if count > MOST_PAIRS:
            message = f"{count:,} pairs of sources join, more than {MOST_PAIRS:,}: say which, with `on` or `pairs`"
            self._wrong(i, field, message)
        self.pairs += count
        needed, free = self.pairs * BYTES_PER_PAIR, available_bytes()
        if needed > free:
            message = f"{self.pairs:,} pairs of sources join, which takes {size_text(needed)} of memory, and"
            self._wrong(i, field, f"{message} {size_text(free)} are free: say which, with `on` or `pairs`")
        return matrix

    def _wrong(self, i: int, field: str, message: str, value: object = None) -> None:
        """A fault in a query, with its line in the scenario file."""
        line = document.line_of(self.path, ("queries", i, field))
        self.faults.add(str(self.path), message, line, f"queries.{i}.{field}", value)


def _spread(rows: np.ndarray, most: int) -> Ints:
    """At most so many of some rows, at equal distances."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def _aliases(statement: Statement) -> tuple[str, str]:
    """Names of a join's streams in the text; empty for one that another join makes."""
    left, *others = ("" if statement.schemas[name].made else name for name in statement.streams)
    return left, others[0] if others else SHADOW
