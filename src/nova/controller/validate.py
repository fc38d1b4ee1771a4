"""Validate: is a batch of events possible? Asked of the whole batch before anything changes, so that a refused batch
leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nova.controller import events as e
from nova.controller.names import Names, query_like
from nova.controller.state import State
from nova.model.errors import Fault, InvalidInput
from nova.model.requires import parse
from nova.scenario.faults import suggestion

Finding = tuple[str, str, Any]
"""Field, message, value."""


def validate(state: State, events: Sequence[e.Event], file: str, line: int | None) -> None:
    """Raise `InvalidInput` with everything that is wrong with a batch: `file` and `line` (without one: the number of
    the event), field and value."""
    view = _View(state.names, state.sources["node"], state.nodes["at"].shape[1])
    faults = []
    for number, event in enumerate(events, 1):
        for field, message, value in (*e.faults_in(event), *view.check(event)):
            faults.append(Fault(file, message, number if line is None else line, field, value))
        view.note(event)
    if faults:
        raise InvalidInput(faults)


class _View:
    """The names as they will be after the events looked at so far."""

    def __init__(self, names: Names, node_of: Any, dimensions: int) -> None:
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
        return self.nodes.get(name, name in self.names.node_rows)

    def has_source(self, stream: str, name: str) -> bool:
        key = (stream, name)
        if key in self.sources:
            return self.sources[key] is not None
        row = self.names.source(stream, name)
        return row >= 0 and not (self.gone and self.names.nodes[int(self.node_of[row])] in self.gone)

    def has_stream(self, name: str) -> bool:
        return name in self.streams or name in self.names.stream_rows

    def streams_of(self, query: str) -> tuple[str, str] | None:
        if query in self.queries:
            return self.queries[query]
        row = self.names.query_rows.get(query, -1)
        if row < 0:
            return None
        rule = self.names.rule(row)
        return self.names.streams[rule.streams[0]], self.names.streams[rule.streams[1]]

    def note(self, event: e.Event) -> None:
        """Take an event as done."""
        match event:
            case e.NodeAdded():
                self.nodes[event.node] = True
            case e.NodeRemoved():
                self.nodes[event.node] = False
                self.gone.add(event.node)
                for key, node in self.sources.items():
                    if node == event.node:
                        self.sources[key] = None
            case e.SourceAdded():
                self.sources[event.stream, event.source] = event.node
                self.streams.add(event.stream)
            case e.SourceRemoved():
                self.sources[event.stream, event.source] = None
            case e.QueryAdded():
                self.queries[event.query] = (event.left, event.right)
            case e.QueryRemoved():
                self.queries[event.query] = None
            case _:
                pass

    def check(self, event: e.Event) -> Iterator[Finding]:
        match event:
            case e.NodeAdded():
                if self.has_node(event.node):
                    yield "node", "there is a node of this id already", event.node
                yield from self._where(event)
            case e.NodeMoved():
                yield from self._node("node", event.node)
                yield from self._where(event)
            case e.NodeRemoved() | e.CapacityChanged():
                yield from self._node("node", event.node)
            case e.LatencyMeasured():
                yield from self._node("from", event.from_node)
                yield from self._node("to", event.to_node)
            case e.SourceAdded():
                yield from self._between(event)
                yield from self._node("node", event.node)
                if self.has_source(event.stream, event.source):
                    yield "source", f"stream {event.stream!r} has a source of this id already", event.source
                for query, partners in (event.partners or {}).items():
                    yield from self._partners(event.stream, query, partners)
            case e.SourceRemoved() | e.RateChanged():
                yield from self._between(event)
                yield from self._source("source", event.stream, event.source)
            case e.PairAllowed() | e.PairWithdrawn():
                streams = self.streams_of(event.query)
                if streams is None:
                    yield from self._query(event.query)
                elif (whole := self._chain_of(event.query)) is not None:
                    yield "query", f"{whole} joins more than two streams: events do not change its pairs", event.query
                else:
                    yield from self._source("left", streams[0], event.left)
                    yield from self._source("right", streams[1], event.right)
            case e.QueryAdded():
                yield from self._new_query(event)
            case e.QueryRemoved():
                yield from self._query(event.query)
                yield from self._whole(event.query)
            case e.SinkMoved():
                yield from self._query(event.query)
                yield from self._whole(event.query)
                yield from self._node("sink", event.sink)

    def _chain_of(self, query: str) -> str | None:
        """The query of several joins that a query is, or is a part of; None where it is a join of two streams."""
        row = -1 if query in self.queries else self.names.query_rows.get(query, -1)
        if row < 0:
            return None
        makes = self.names.rule(row).makes
        if makes is not None:
            return self.names.rule(self.names.readers_of(makes)[-1]).id
        return query if self.names.parts_of(row) else None

    def _whole(self, query: str) -> Iterator[Finding]:
        """Events on queries of several joins name the query, not one of its joins."""
        if self._chain_of(query) not in (None, query):
            yield "query", f"this is one of the joins of query {self._chain_of(query)!r}: name that", query

    def _between(self, event: e.SourceAdded | e.SourceRemoved | e.RateChanged) -> Iterator[Finding]:
        """Streams between joins follow those that are joined; a source that joins must tell whom, further on, too."""
        stream, names = self.names.stream_rows.get(event.stream, -1), self.names
        makers = names.makers()
        if names.born(stream) in makers:
            maker = names.rule(makers[names.born(stream)]).id
            yield "stream", f"this is what {maker} makes: it follows the streams that are joined", event.stream
        if not isinstance(event, e.SourceAdded):
            return
        for one in map(names.rule, names.readers_of(stream) if stream >= 0 else ()):
            whole = self._chain_of(one.id)
            if whole is not None and one.id in (event.partners or {}):
                message = f"{whole} joins more than two streams: partners cannot be listed"
                yield f"partners.{one.id}", message, one.id
            elif one.kind != "dense" and stream not in map(names.born, one.streams):
                message = f"{whole} joins what it makes of this stream by attributes of sources: plan again"
                yield "stream", message, event.stream

    def _node(self, field: str, name: str) -> Iterator[Finding]:
        if not self.has_node(name):
            yield field, f"no such node{suggestion(name, self.names.node_rows)}", name

    def _query(self, name: str) -> Iterator[Finding]:
        if self.streams_of(name) is None:
            yield "query", f"no such query{suggestion(name, self.names.query_rows)}", name

    def _source(self, field: str, stream: str, name: str) -> Iterator[Finding]:
        if not self.has_stream(stream):
            yield "stream", f"no such stream{suggestion(stream, self.names.streams)}", stream
        elif not self.has_source(stream, name):
            row = self.names.stream_rows.get(stream, -1)
            known = self.names.source_rows[row] if row >= 0 else {}
            yield field, f"stream {stream!r} has no such source{suggestion(name, known)}", name

    def _where(self, event: e.NodeAdded | e.NodeMoved) -> Iterator[Finding]:
        if event.coordinates is not None and len(event.coordinates) != self.dimensions:
            yield "coordinates", f"{self.dimensions} numbers expected", list(event.coordinates)
        for other in event.rtts or {}:
            if other == event.node:
                yield f"rtts.{other}", "a node is not measured against itself", other
            else:
                yield from self._node(f"rtts.{other}", other)

    def _partners(self, stream: str, query: str, partners: Sequence[str]) -> Iterator[Finding]:
        field = f"partners.{query}"
        streams = self.streams_of(query)
        if streams is None:
            yield field, f"no such query{suggestion(query, self.names.query_rows)}", query
        elif stream not in streams:
            yield field, f"this query joins {streams[0]!r} and {streams[1]!r}, not {stream!r}", query
        else:
            other = streams[1 - streams.index(stream)]
            for partner in partners:
                yield from self._source(field, other, partner)

    def _new_query(self, event: e.QueryAdded) -> Iterator[Finding]:
        if self.streams_of(event.query) is not None:
            yield "query", "there is a query of this id already", event.query
        yield from self._node("sink", event.sink)
        known = True
        for field, stream in (("left", event.left), ("right", event.right)):
            if self.names.stream_rows.get(stream, -1) in self.names.makers():
                known = False
                yield field, "this is what one join makes for another: name streams as they are born", stream
            elif not self.has_stream(stream):
                known = False
                yield field, f"no such stream{suggestion(stream, self.names.streams)}", stream
        for left, right in (event.pairs or ()) if known else ():
            yield from self._source("pairs", event.left, left)
            yield from self._source("pairs", event.right, right)
        for label in {} if event.requires is None else dict.fromkeys(_labels(event.requires)):
            if label not in self.names.labels:
                yield "requires", f"the nodes have no such label{suggestion(label, self.names.labels)}", label
        if event.on is not None and known and query_like(self.names, event.left, event.right, event.on) is None:
            yield "on", "no running query joins these two streams on this; list the `pairs`", list(event.on)


def _labels(requires: str) -> list[str]:
    """Labels that conditions name; none where they are not understood, which the event's own check says."""
    try:
        return [one.label for one in parse(requires)]
    except ValueError:
        return []
