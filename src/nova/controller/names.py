"""Names: which row an id has. Ids live at the edge; everything inside counts in rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy.typing as npt
import pyarrow as pa

from nova.controller.events.event import Finding
from nova.controller.join_rules import Rule
from nova.model.links import Link
from nova.model.metrics import Metric
from nova.model.policy import alone
from nova.model.problem import Derived, Problem
from nova.query import MADE_OF
from nova.scenario.faults import suggestion

T = TypeVar("T")


class Names:
    """Ids of nodes, streams, sources and queries, both ways."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.node_rows: dict[str, int] = {}
        self.streams: list[str] = []
        self.stream_rows: dict[str, int] = {}
        self.sources: list[str] = []
        self.source_rows: list[dict[str, int]] = []
        """Per stream."""
        self.queries: list[Rule | None] = []
        self.query_rows: dict[str, int] = {}
        self.derived: dict[int, Derived] = {}
        """Streams that queries make of others, by row."""
        self.labels: dict[str, list[str | None]] = {}
        """What else is known of nodes, by label and row."""
        self.links: tuple[Link, ...] = ()
        self.metrics: tuple[Metric, ...] = ()
        """By row of nodes; those that events add count nothing."""
        self.bound = False
        """Whether anything but latency and the room of hosts says, or ever said, where joins run: other joins, too, and
        heavy keys that may have hosts of their own."""

    @staticmethod
    def of(problem: Problem) -> Names:
        """The ids of a problem, whose rows are as there."""
        names = Names()
        names.derived = dict(problem.derived)
        names.links, names.metrics = problem.links, problem.metrics
        names.bound = problem.bound or any(query.makes is not None or alone(query) for query in problem.queries)
        names.labels = {name: column.cast(pa.string()).to_pylist() for name, column in problem.nodes.labels.items()}
        names.nodes = problem.nodes.ids.to_pylist()
        names.node_rows = {name: row for row, name in enumerate(names.nodes)}
        names.sources = problem.sources.ids.to_pylist()
        for stream in problem.streams:
            number = names.add_stream(stream)
            names.source_rows[number] = {names.sources[row]: row for row in problem.sources_of(number).tolist()}
        for row, query in enumerate(problem.queries):
            sides = problem.sources_of(query.left), problem.sources_of(query.right)
            names.name_query(row, Rule.of(query, len(problem.sources), sides))
        return names

    def node(self, name: str) -> int:
        """Row of a node; −1 where there is none."""
        return self.node_rows.get(name, -1)

    def source(self, stream: str, name: str) -> int:
        """Row of a source; −1 where there is none."""
        row = self.stream_rows.get(stream, -1)
        return self.source_rows[row].get(name, -1) if row >= 0 else -1

    def source_of(self, stream: int, name: str) -> int:
        """Row of a source of the stream in a row; −1 where there is none."""
        return self.source_rows[stream].get(name, -1)

    def rule(self, query: int) -> Rule:
        """The query in a row."""
        rule = self.queries[query]
        if rule is None:
            raise KeyError(query)
        return rule

    def made_of(self, left: int, right: int) -> str:
        """Id of the source that the sub-join of two sources makes for another join."""
        return f"{self.sources[left]}{MADE_OF}{self.sources[right]}"

    def makers(self) -> dict[int, int]:
        """Row of the query that makes each stream between joins."""
        return {
            rule.makes: row
            for row, rule in enumerate(self.queries)
            if rule is not None and rule.makes is not None and self.query_rows.get(rule.id) == row
        }

    def born(self, stream: int) -> int:
        """The stream that another one is made of by filtering or copying; itself where it is as it was born."""
        return self.derived[stream].base if stream in self.derived else stream

    def parts_of(self, query: int) -> list[int]:
        """Rows of the queries whose results a query reads, directly or through others."""
        makers = self.makers()
        found: list[int] = []
        ahead = [query]
        while ahead:
            for stream in self.rule(ahead.pop()).streams:
                part = makers.get(self.born(stream), -1)
                if part >= 0:
                    found.append(part)
                    ahead.append(part)
        return found

    def filtered_stream(self, query: str, alias: str) -> int:
        """Row of what the filters of a query leave of one of its streams; −1 where it has none on it."""
        row = self.stream_rows.get(f"{query}.{alias}", -1)
        return row if row in self.derived else -1

    def with_parts(self, query: str) -> list[str]:
        """Id of a query, followed by those of the joins whose results it reads."""
        return [query, *(self.rule(part).id for part in self.parts_of(self.query_rows[query]))]

    def readers_of(self, stream: int) -> list[int]:
        """Rows of the queries that read a stream, as it is born or made something of, directly or through others."""
        found: list[int] = []
        ahead = [stream]
        while ahead:
            read = ahead.pop()
            for row, rule in enumerate(self.queries):
                if rule is not None and read in map(self.born, rule.streams) and row not in found:
                    found.append(row)
                    if rule.makes is not None:
                        ahead.append(rule.makes)
        return found

    def add_stream(self, name: str) -> int:
        """Row of a stream, new where it is."""
        if name not in self.stream_rows:
            self.stream_rows[name] = len(self.streams)
            self.streams.append(name)
            self.source_rows.append({})
        return self.stream_rows[name]

    def name_node(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """A node's row has this id and these labels from now on."""
        for label in labels:
            self.labels.setdefault(label, [None] * len(self.nodes))
        for label, values in self.labels.items():
            _put(values, row, labels.get(label))
        _put(self.nodes, row, name)
        self.node_rows[name] = row

    def name_query(self, row: int, rule: Rule) -> None:
        """A query's row has this rule from now on."""
        _put(self.queries, row, rule)
        self.bound = self.bound or bool(rule.requires)
        self.query_rows[rule.id] = row

    def name_source(self, row: int, stream: int, name: str) -> None:
        """A source's row has this id from now on."""
        _put(self.sources, row, name)
        self.source_rows[stream][name] = row

    def query_like(self, left: str, right: str, on: tuple[str, ...] | None) -> int | None:
        """Row of a running query that joins the same streams on the same attributes, and so knows their values."""
        for row, rule in enumerate(self.queries):
            if rule is None or rule.attributes != on:
                continue
            if {self.streams[stream] for stream in rule.streams} == {left, right}:
                return row
        return None

    def new_rule(self, query: str, streams: tuple[int, int], window_ms: float) -> Rule:
        """A rule that joins the pairs it is told, and nothing else."""
        return Rule(query, streams, window_ms, "pairs")


class NamesAhead:
    """The names as they will be after the events of a batch looked at so far, for checking the next one."""

    def __init__(self, names: Names, node_of: npt.NDArray[Any], dimensions: int) -> None:
        self.names, self.node_of, self.dimensions = names, node_of, dimensions
        self.nodes: dict[str, bool] = {}
        """Nodes added or removed so far: whether they exist."""
        self.gone: set[str] = set()
        """Nodes removed so far, even if added again: their sources are gone."""
        self.sources: dict[tuple[str, str], str | None] = {}
        """Sources added (their node) or removed (None) so far."""
        self.queries: dict[str, tuple[str, str] | None] = {}
        """Queries added (their streams) or removed so far."""
        self.streams: set[str] = set()

    def has_node(self, name: str) -> bool:
        """Whether there is a node of this id."""
        return self.nodes.get(name, name in self.names.node_rows)

    def has_source(self, stream: str, name: str) -> bool:
        """Whether a stream has a source of this id."""
        key = (stream, name)
        if key in self.sources:
            return self.sources[key] is not None
        row = self.names.source(stream, name)
        return row >= 0 and not (self.gone and self.names.nodes[int(self.node_of[row])] in self.gone)

    def has_stream(self, name: str) -> bool:
        """Whether there is, or was, a stream of this id."""
        return name in self.streams or name in self.names.stream_rows

    def streams_of(self, query: str) -> tuple[str, str] | None:
        """The two streams that a query joins; None where there is no such query."""
        if query in self.queries:
            return self.queries[query]
        row = self.names.query_rows.get(query, -1)
        if row < 0:
            return None
        left, right = self.names.rule(row).streams
        return self.names.streams[left], self.names.streams[right]

    def chain_of(self, query: str) -> str | None:
        """The query of several joins that a query is, or is a part of; None where it is a join of two streams."""
        row = -1 if query in self.queries else self.names.query_rows.get(query, -1)
        if row < 0:
            return None
        makes = self.names.rule(row).makes
        if makes is not None:
            return self.names.rule(self.names.readers_of(makes)[-1]).id
        return query if self.names.parts_of(row) else None

    def missing_node(self, field: str, name: str) -> Iterator[Finding]:
        """What is wrong where there is no such node."""
        if not self.has_node(name):
            yield field, f"no such node{suggestion(name, self.names.node_rows)}", name

    def missing_query(self, field: str, name: str) -> Iterator[Finding]:
        """What is wrong where there is no such query."""
        if self.streams_of(name) is None:
            yield field, f"no such query{suggestion(name, self.names.query_rows)}", name

    def missing_stream(self, field: str, name: str) -> Iterator[Finding]:
        """What is wrong where there is no such stream."""
        if not self.has_stream(name):
            yield field, f"no such stream{suggestion(name, self.names.streams)}", name

    def missing_source(self, field: str, stream: str, name: str) -> Iterator[Finding]:
        """What is wrong where there is no such stream, or it has no such source."""
        if not self.has_stream(stream):
            yield from self.missing_stream("stream", stream)
        elif not self.has_source(stream, name):
            row = self.names.stream_rows.get(stream, -1)
            known = self.names.source_rows[row] if row >= 0 else {}
            yield field, f"stream {stream!r} has no such source{suggestion(name, known)}", name

    def missing_label(self, field: str, name: str) -> Iterator[Finding]:
        """What is wrong where nodes have no such label."""
        if name not in self.names.labels:
            yield field, f"the nodes have no such label{suggestion(name, self.names.labels)}", name


def _put(names: list[T], row: int, name: T) -> None:
    if row == len(names):
        names.append(name)
    else:
        names[row] = name
