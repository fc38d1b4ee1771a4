"""Events of queries: what is joined, and where results go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from nova.controller.events.event import Event, Finding, event_kind
from nova.controller.events.sources import RateChanged
from nova.model.operators import Estimate, Origin, Output, join_name
from nova.model.requires import parse

if TYPE_CHECKING:
    from nova.controller.impact import Impact
    from nova.controller.join_rules import Rule
    from nova.controller.names import Names, NamesAhead
    from nova.controller.state import State

__all__ = ["PairAllowed", "PairWithdrawn", "QueryAdded", "QueryRemoved", "SelectivityMeasured", "SinkMoved"]


@event_kind
class PairAllowed(Event):
    """The join matrix now allows a pair of sources. Nothing happens where it did already."""

    kind: ClassVar[str] = "pair_allowed"
    query: str
    left: str
    right: str
    output_rate: float | None = None

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_pair(self, ahead)

    def apply(self, state: State, impact: Impact) -> None:
        query, rule, left, right = _pair(self, state.names)
        if state.find_join(query, left, right) < 0:
            output = math.nan if self.output_rate is None else self.output_rate
            impact.add_join(state, query, left, right, output, f"{self.left} ⋈ {self.right} allowed")
            rule.exceptional = rule.exceptional or rule.kind != "pairs"


@event_kind
class PairWithdrawn(Event):
    """The join matrix no longer allows a pair of sources. Nothing happens where it did not."""

    kind: ClassVar[str] = "pair_withdrawn"
    query: str
    left: str
    right: str

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_pair(self, ahead)

    def apply(self, state: State, impact: Impact) -> None:
        query, rule, left, right = _pair(self, state.names)
        join = state.find_join(query, left, right)
        if join >= 0:
            impact.end_join(state, join, f"{self.left} ⋈ {self.right} withdrawn")
            rule.exceptional = rule.exceptional or rule.kind != "pairs"


@event_kind
class QueryAdded(Event):
    """A query over streams: joined on an attribute that another running query joins these streams on, by a list of
    pairs, or (with neither) every left source with every right one."""

    kind: ClassVar[str] = "query_added"
    new_ids: ClassVar[tuple[str, ...]] = ("query",)
    query: str
    left: str
    right: str
    sink: str
    window_ms: float = 1000.0
    on: tuple[str, ...] | None = None
    pairs: tuple[tuple[str, str], ...] | None = None
    requires: str | None = None
    """Conditions on the labels of its hosts, as in a scenario."""

    def own_faults(self) -> Iterator[Finding]:
        if not (0 < self.window_ms < math.inf):
            yield "window_ms", "a positive, finite number of ms expected", self.window_ms
        if self.on is not None and self.pairs is not None:
            yield "pairs", "a query joins `on` an attribute or by `pairs`, not both", None
        if self.requires is not None:
            try:
                parse(self.requires)
            except ValueError as error:
                yield "requires", str(error), self.requires
        if self.left == self.right:
            yield "right", "a stream is not joined with itself", self.right

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        names = ahead.names
        if ahead.streams_of(self.query) is not None:
            yield "query", "there is a query of this id already", self.query
        yield from ahead.missing_node("sink", self.sink)
        known = True
        for field, stream in (("left", self.left), ("right", self.right)):
            if names.stream_rows.get(stream, -1) in names.makers():
                known = False
                yield field, "this is what one join makes for another: name streams as they are born", stream
            elif not ahead.has_stream(stream):
                known = False
                yield from ahead.missing_stream(field, stream)
        for left, right in (self.pairs or ()) if known else ():
            yield from ahead.missing_source("pairs", self.left, left)
            yield from ahead.missing_source("pairs", self.right, right)
        for label in dict.fromkeys(_labels(self.requires)):
            yield from ahead.missing_label("requires", label)
        if self.on is not None and known and names.query_like(self.left, self.right, self.on) is None:
            yield "on", "no running query joins these two streams on this; list the `pairs`", list(self.on)

    def note(self, ahead: NamesAhead) -> None:
        ahead.queries[self.query] = (self.left, self.right)

    def apply(self, state: State, impact: Impact) -> None:
        names = state.names
        streams = (names.stream_rows[self.left], names.stream_rows[self.right])
        left_side, right_side = (state.sources_in(stream) for stream in streams)
        rule = names.new_rule(self.query, streams, self.window_ms)
        pairs: Iterable[tuple[int, int]]
        if self.pairs is not None:
            pairs = dict.fromkeys(
                (names.source_of(streams[0], left), names.source_of(streams[1], right)) for left, right in self.pairs
            )
        elif self.on is None:
            rule.kind = "dense"
            pairs = ((left, right) for left in left_side for right in right_side)
        else:
            model = names.query_like(self.left, self.right, self.on)
            assert model is not None
            rule = names.rule(model).copy(self.query, streams, self.window_ms)
            rule.remember(state.sources["stream"])
            pairs = ((left, right) for left in left_side for right in rule.others(left, 0))
        rule.requires = () if self.requires is None else parse(self.requires)
        query = state.add_query(names.node(self.sink), self.window_ms, rule.key)
        names.name_query(query, rule)
        for left, right in pairs:
            impact.add_join(state, query, left, right, math.nan, f"query {self.query} added")


@event_kind
class QueryRemoved(Event):
    """Nobody wants a query's results any more."""

    kind: ClassVar[str] = "query_removed"
    query: str

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_whole(self, ahead)

    def note(self, ahead: NamesAhead) -> None:
        ahead.queries[self.query] = None

    def parts(self, names: Names) -> Iterator[Event]:
        for query in names.with_parts(self.query):
            yield replace(self, query=query)

    def apply(self, state: State, impact: Impact) -> None:
        query = state.names.query_rows.pop(self.query)
        for join in state.joins_in(query).tolist():
            impact.end_join(state, join, f"query {self.query} removed")
        impact.ended_queries.append(query)


@event_kind
class SinkMoved(Event):
    """A query's results go to another node."""

    kind: ClassVar[str] = "sink_moved"
    query: str
    sink: str

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_whole(self, ahead)
        yield from ahead.missing_node("sink", self.sink)

    def parts(self, names: Names) -> Iterator[Event]:
        for query in names.with_parts(self.query):
            yield replace(self, query=query)

    def apply(self, state: State, impact: Impact) -> None:
        query = state.names.query_rows[self.query]
        state.queries["sink"][query] = state.names.node(self.sink)
        joins = state.joins_in(query)
        state.refresh_ideals(joins)
        reason = f"sink of {self.query} moved to {self.sink}"
        for join in joins.tolist():
            if join in state.backlog:
                state.backlog.remove(join)
                impact.unplaced[join] = reason
            else:
                impact.repriced.setdefault(join, reason)


@event_kind
class SelectivityMeasured(Event):
    """A run has counted what a query lets through: by name in its text the share of a stream's tuples that pass its
    filters, `join` the share of the pairs in a window that join (of several joins `join.1`, …, in the order they are
    made), `group` the groups per window."""

    kind: ClassVar[str] = "selectivity_measured"
    query: str
    selectivity: Mapping[str, float]

    def own_faults(self) -> Iterator[Finding]:
        if not self.selectivity:
            yield "selectivity", "one value at least expected", {}
        for name, share in self.selectivity.items():
            if not 0 <= share < math.inf or (share > 1 and name != "group"):
                yield f"selectivity.{name}", "a share in 0…1 expected, or a number of groups", share

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_whole(self, ahead)
        if self.query in ahead.queries or self.query not in ahead.names.query_rows:
            return
        known = planned_shares(ahead.names, self.query)
        for name in self.selectivity:
            if name not in known:
                message = f"nothing that the plan of this query goes by; there are {', '.join(known) or 'none'}"
                yield f"selectivity.{name}", message, name

    def factors(self, names: Names) -> dict[int, float]:
        """Tuples that travel for each that is born, by row of the filtered stream. Copies into windows stay as many."""
        query = names.query_rows.get(self.query)
        before = {} if query is None else dict(names.rule(query).pipeline.shares)
        found: dict[int, float] = {}
        for alias, share in self.selectivity.items():
            row = names.filtered_stream(self.query, alias)
            if row >= 0 and before.get(alias, 0.0) > 0:
                found[row] = names.derived[row].factor / before[alias] * share
        return found

    def apply(self, state: State, impact: Impact) -> None:
        """Filtered streams change their rates; how much comes out of the join, and of groups, counts where results
        do."""
        names = state.names
        for row, factor in self.factors(names).items():
            names.derived[row] = replace(names.derived[row], factor=factor)
            base, stream = names.derived[row].base, names.streams[row]
            for source in names.source_rows[row]:
                rate = float(state.sources["rate"][names.source_of(base, source)]) * factor
                RateChanged(stream=stream, source=source, rate=rate).apply(state, impact)
        query = names.query_rows[self.query]
        rule = names.rule(query)
        told = dict(rule.pipeline.shares)
        for name, part in _joins_of(names, query).items():
            if name not in self.selectivity:
                continue
            new, one = self.selectivity[name], names.rule(part)
            if part == query:
                output = rule.output or Output(Estimate(1.0, "estimated"))
                old = told.get(name, output.share.value)
                value = output.share.value * new / old if old > 0 else new
                why = f"{new:g} of the pairs in a window join"
                rule.output = replace(output, share=Estimate(value, "measured", why))
            else:  # what it makes for other joins follows
                one.yields *= new / told[name]
        if rule.output is not None and rule.pipeline.group is not None and "group" in self.selectivity:
            most = self.selectivity["group"] * 1e6 / rule.pipeline.group.slide_us
            rule.output = replace(rule.output, most=most if rule.pipeline.group.merge else math.inf)
        measured: Origin = "measured"
        for part in (query, *names.parts_of(query)):
            one = names.rule(part)
            if one.pipeline.sql:
                shares = {**dict(one.pipeline.shares), **self.selectivity}
                origins = {**dict(one.pipeline.origins), **dict.fromkeys(self.selectivity, measured)}
                one.pipeline = replace(one.pipeline, shares=tuple(shares.items()), origins=tuple(origins.items()))


def planned_shares(names: Names, query: str) -> dict[str, float]:
    """What the plan of a query goes by, by name as in `selectivity`; NaN where it goes by a guess that has no such
    value."""
    row = names.query_rows[query]
    rule = names.rule(row)
    told, group = dict(rule.pipeline.shares), rule.pipeline.group
    planned = {name: share for name, share in told.items() if share > 0 and names.filtered_stream(query, name) >= 0}
    for name, part in _joins_of(names, row).items():
        guess = math.nan if part != row or rule.output is None else rule.output.share.value
        if part == row or told.get(name, 0.0) > 0:  # what makes nothing by the plan is not scaled
            planned[name] = told.get(name, guess)
    if group is not None:
        most = math.inf if rule.output is None else rule.output.most
        planned["group"] = told.get("group", math.nan if math.isinf(most) else most * group.slide_us / 1e6)
    return planned


def _joins_of(names: Names, query: int) -> dict[str, int]:
    """The rows of the joins of a query, by name as in `selectivity`; nothing where it joins nothing."""
    parts = sorted(names.parts_of(query))  # those who make a stream stand before those who read it
    if names.rule(query).pipeline.single:
        return {}
    return {join_name(number): part for number, part in enumerate((*parts, query), 1)} if parts else {"join": query}


def _check_pair(event: PairAllowed | PairWithdrawn, ahead: NamesAhead) -> Iterator[Finding]:
    streams = ahead.streams_of(event.query)
    if streams is None:
        yield from ahead.missing_query("query", event.query)
    elif (whole := ahead.chain_of(event.query)) is not None:
        yield "query", f"{whole} joins more than two streams: events do not change its pairs", event.query
    else:
        yield from ahead.missing_source("left", streams[0], event.left)
        yield from ahead.missing_source("right", streams[1], event.right)


def _check_whole(event: QueryRemoved | SinkMoved | SelectivityMeasured, ahead: NamesAhead) -> Iterator[Finding]:
    """Events on queries of several joins name the query, not one of its joins."""
    yield from ahead.missing_query("query", event.query)
    whole = ahead.chain_of(event.query)
    if whole not in (None, event.query):
        yield "query", f"this is one of the joins of query {whole!r}: name that", event.query


def _pair(event: PairAllowed | PairWithdrawn, names: Names) -> tuple[int, Rule, int, int]:
    query = names.query_rows[event.query]
    rule = names.rule(query)
    left, right = names.source_of(rule.streams[0], event.left), names.source_of(rule.streams[1], event.right)
    return query, rule, left, right


def _labels(requires: str | None) -> list[str]:
    """Labels that conditions name; none where they are not understood, which `own_faults` says."""
    try:
        return [] if requires is None else [one.label for one in parse(requires)]
    except ValueError:
        return []
