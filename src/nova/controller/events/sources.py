"""Events of sources: physical streams that come, go, or send more or less."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from nova.controller.events.event import Event, Finding, event_kind

if TYPE_CHECKING:
    from nova.controller.impact import Impact
    from nova.controller.join_rules import Rule
    from nova.controller.names import Names, NamesAhead
    from nova.controller.state import State

__all__ = ["SourceAdded", "SourceRemoved", "RateChanged"]


@event_kind
class SourceAdded(Event):
    """A physical stream appears. It joins the sources that the queries' rules say (equal `attributes`, or all of a
    dense query), and the `partners` listed by query, which also serve queries that list their pairs one by one."""

    kind: ClassVar[str] = "source_added"
    new_ids: ClassVar[tuple[str, ...]] = ("stream", "source")
    stream: str
    source: str
    node: str
    rate: float
    attributes: Mapping[str, str] | None = None
    partners: Mapping[str, tuple[str, ...]] | None = None

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_born(self, ahead)
        yield from self._check_chains(ahead)
        yield from ahead.missing_node("node", self.node)
        if ahead.has_source(self.stream, self.source):
            yield "source", f"stream {self.stream!r} has a source of this id already", self.source
        for query, partners in (self.partners or {}).items():
            yield from self._check_partners(ahead, query, partners)

    def _check_chains(self, ahead: NamesAhead) -> Iterator[Finding]:
        """Where joins read each other's results, it must be known whom it joins further on, too."""
        names, stream = ahead.names, ahead.names.stream_rows.get(self.stream, -1)
        for rule in map(names.rule, names.readers_of(stream) if stream >= 0 else ()):
            whole = ahead.chain_of(rule.id)
            if whole is not None and rule.id in (self.partners or {}):
                message = f"{whole} joins more than two streams: partners cannot be listed"
                yield f"partners.{rule.id}", message, rule.id
            elif rule.kind != "dense" and stream not in map(names.born, rule.streams):
                message = f"{whole} joins what it makes of this stream by attributes of sources: plan again"
                yield "stream", message, self.stream

    def _check_partners(self, ahead: NamesAhead, query: str, partners: Iterable[str]) -> Iterator[Finding]:
        field, streams = f"partners.{query}", ahead.streams_of(query)
        if streams is None:
            yield from ahead.missing_query(field, query)
        elif self.stream not in streams:
            yield field, f"this query joins {streams[0]!r} and {streams[1]!r}, not {self.stream!r}", query
        else:
            for partner in partners:
                yield from ahead.missing_source(field, streams[1 - streams.index(self.stream)], partner)

    def note(self, ahead: NamesAhead) -> None:
        ahead.sources[self.stream, self.source] = self.node
        ahead.streams.add(self.stream)

    def apply(self, state: State, impact: Impact) -> None:
        names = state.names
        stream, node = names.add_stream(self.stream), names.node(self.node)
        row = state.add_source(stream, node, self.rate)
        names.name_source(row, stream, self.source)
        for query, rule in enumerate(names.queries):
            side = -1 if rule is None else rule.side_of(stream)
            if rule is None or side < 0:
                continue
            ruled = self._partners(state, rule, side, row)
            listed = [
                names.source_of(rule.streams[1 - side], partner) for partner in (self.partners or {}).get(rule.id, ())
            ]
            known = set(ruled)
            extra = [partner for partner in dict.fromkeys(listed) if partner not in known]
            if extra and rule.kind != "pairs":
                rule.exceptional = True
            for partner in (*ruled, *extra):
                left, right = (row, partner) if side == 0 else (partner, row)
                impact.add_join(state, query, left, right, math.nan, f"source {self.source} added")

    def _partners(self, state: State, rule: Rule, side: int, source: int) -> list[int]:
        """Whom the rule alone lets it join."""
        if rule.kind == "dense":
            return state.sources_in(rule.streams[1 - side])
        if rule.kind == "equal":
            if not rule.remembers:
                rule.remember(state.sources["stream"])
            return rule.enter(source, side, rule.code_for({**(self.attributes or {}), "id": self.source}))
        return []


@event_kind
class SourceRemoved(Event):
    """A physical stream ends."""

    kind: ClassVar[str] = "source_removed"
    stream: str
    source: str

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_born(self, ahead)
        yield from ahead.missing_source("source", self.stream, self.source)

    def note(self, ahead: NamesAhead) -> None:
        ahead.sources[self.stream, self.source] = None

    def apply(self, state: State, impact: Impact) -> None:
        impact.end_source(state, state.names.source(self.stream, self.source), f"source {self.source} removed")


@event_kind
class RateChanged(Event):
    """A source sends more or less."""

    kind: ClassVar[str] = "rate_changed"
    stream: str
    source: str
    rate: float

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        yield from _check_born(self, ahead)
        yield from ahead.missing_source("source", self.stream, self.source)

    def apply(self, state: State, impact: Impact) -> None:
        source = state.names.source(self.stream, self.source)
        before = float(state.sources["rate"][source])
        state.sources["rate"][source] = self.rate
        reason = f"rate of {self.source}: {before:g} → {self.rate:g} tuples/s"
        joins = state.joins_of(source)
        opened, lost = state.recharge(joins)
        for node in opened:
            impact.opened.setdefault(node, reason)
        impact.lose(lost, reason)
        if self.rate > before:
            for join in joins.tolist():
                for node in state.hosts_of(join)[:1]:
                    impact.crowded.setdefault(node, reason)
        impact.retry = impact.retry or any(state.waits(join) for join in joins.tolist())


SourceEvent = RateChanged | SourceAdded | SourceRemoved


def _check_born(event: SourceEvent, ahead: NamesAhead) -> Iterator[Finding]:
    """Streams between joins follow those that are joined: no event is about them."""
    names, makers = ahead.names, ahead.names.makers()
    stream = names.born(names.stream_rows.get(event.stream, -1))
    if stream in makers:
        maker = names.rule(makers[stream]).id
        yield "stream", f"this is what {maker} makes: it follows the streams that are joined", event.stream


def with_derived(events: Iterable[Event], names: Names) -> Iterator[Event]:
    """The events, each on a source followed by what it means for the streams that queries make of the source's stream:
    filtered streams get their share of a rate."""
    factors: dict[int, float] = {}
    for event in events:
        factors |= event.factors(names)
        if not isinstance(event, RateChanged | SourceAdded | SourceRemoved):
            yield event
            continue
        base = names.stream_rows.get(event.stream, -1)
        made = {row: derived for row, derived in names.derived.items() if derived.base == base}
        if not made:
            yield event
            continue
        readers = {
            row: {rule.id for rule in names.queries if rule is not None and rule.side_of(row) >= 0} for row in made
        }
        taken = frozenset[str]().union(*readers.values())
        yield _with_partners(event, taken, inside=False)
        for row, derived in made.items():
            own = _with_partners(replace(event, stream=names.streams[row]), readers[row], inside=True)
            factor = factors.get(row, derived.factor)
            yield own if isinstance(own, SourceRemoved) else replace(own, rate=own.rate * factor)


def _with_partners(event: SourceEvent, queries: Set[str], *, inside: bool) -> SourceEvent:
    """The event with the partners in these queries only, or in all others."""
    if not isinstance(event, SourceAdded) or event.partners is None:
        return event
    return replace(
        event, partners={query: listed for query, listed in event.partners.items() if (query in queries) == inside}
    )
