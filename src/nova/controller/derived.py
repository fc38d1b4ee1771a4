"""Derived streams: what an event on a stream means for the streams that queries make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace

from nova.controller.events import Event, RateChanged, SourceAdded, SourceRemoved
from nova.controller.names import Names


def with_derived(events: Iterable[Event], names: Names) -> Iterator[Event]:
    """The events, each on a source followed by what it means for the streams that are made of the source's stream:
    filtered streams get their share of a rate."""
    for event in events:
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
            yield own if isinstance(own, SourceRemoved) else replace(own, rate=own.rate * derived.factor)


SourceEvent = RateChanged | SourceAdded | SourceRemoved


def _with_partners(event: SourceEvent, queries: Set[str], *, inside: bool) -> SourceEvent:
    """The event with the partners in these queries only, or in all others."""
    if not isinstance(event, SourceAdded) or event.partners is None:
        return event
    return replace(
        event, partners={query: listed for query, listed in event.partners.items() if (query in queries) == inside}
    )
