"""Chains: joins that read each other's results. Which sources the streams between them have after events, at which
rates, and where those are born."""

from __future__ import annotations

import numpy as np

from nova.controller.events.event import Event
from nova.controller.events.sources import RateChanged, SourceAdded, SourceRemoved, with_derived
from nova.controller.impact import Impact
from nova.controller.schema import NONE
from nova.controller.state import State

SAME = 1e-12
"""Rates that differ by less, relative to their size, are the same."""


def follow(state: State, impact: Impact) -> None:
    """After the events of a batch: the streams between joins have a source for each sub-join that makes it, with a rate
    by the rates that the sub-join reads."""
    names, sources = state.names, state.sources
    for query, rule in enumerate(list(names.queries)):  # those who make a stream stand before those who read it
        if rule is None or rule.makes is None:
            continue
        joins = state.joins_in(query)
        left, right = state.joins["left"][joins], state.joins["right"][joins]
        rates = (rule.yields * sources["rate"][left] * sources["rate"][right]).tolist()
        wanted = {
            names.made_of(a, b): (rate, a) for a, b, rate in zip(left.tolist(), right.tolist(), rates, strict=True)
        }
        present, stream = names.source_rows[rule.makes], names.streams[rule.makes]
        found: list[Event] = [SourceRemoved(stream=stream, source=name) for name in present if name not in wanted]
        for name, (rate, beside) in wanted.items():
            if name not in present:
                node = names.nodes[int(sources["node"][beside])]
                found.append(SourceAdded(stream=stream, source=name, node=node, rate=rate))
            elif abs(float(sources["rate"][present[name]]) - rate) > SAME * rate:
                found.append(RateChanged(stream=stream, source=name, rate=rate))
        for event in with_derived(found, names):
            impact.events += 1
            event.apply(state, impact)


def relink(state: State) -> None:
    """What a sub-join makes is born on the host that has most of it; where it has no host, at its query's sink."""
    names, replicas = state.names, state.replicas
    for query, rule in enumerate(names.queries):
        if rule is None or rule.makes is None:
            continue
        streams = [rule.makes, *(row for row, derived in names.derived.items() if derived.base == rule.makes)]
        for join in state.joins_in(query).tolist():
            volume: dict[int, float] = {}
            row = int(state.joins["first"][join])
            while row >= 0:
                node = int(replicas["node"][row])
                volume[node] = volume.get(node, 0.0) + float(np.prod(np.diff(replicas["box"][row].reshape(-1, 2))))
                row = int(replicas["next"][row])
            host = max(volume, key=lambda node: volume[node]) if volume else int(state.queries["sink"][query])
            name = names.made_of(int(state.joins["left"][join]), int(state.joins["right"][join]))
            if host >= 0:
                for stream in streams:
                    state.move_source(names.source_of(stream, name), host)


def note_yields(state: State) -> None:
    """Work out what each join makes of the rates that it reads, from a plan's own rates."""
    rate, joins, names = state.sources["rate"], state.joins, state.names
    for query, rule in enumerate(names.queries):
        if rule is not None and rule.makes is not None:
            mine = np.flatnonzero((joins["query"][: joins.end] == query) & (joins["state"][: joins.end] != NONE))
            product = float((rate[joins["left"][mine]] * rate[joins["right"][mine]]).sum())
            made = float(rate[state.sources_in(rule.makes)].sum())
            rule.yields = made / product if product > 0 else 0.0
