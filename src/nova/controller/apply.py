"""Apply: what each event does to the state. Changes rows, and notes what the rest of the step has to look at; finds no
hosts yet (`place`), and moves nothing that could stay (`improve`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nova.controller import events as e
from nova.controller.join_rules import Rule
from nova.controller.ledger import drop_all, joins_on, latency, recharge, refresh_ideals, shed
from nova.controller.names import query_like
from nova.controller.schema import NONE, REMOVED, WAITING
from nova.controller.state import Rows, State
from nova.costspace import CostSpace, embed_new, vivaldi
from nova.model.problem import Floats
from nova.model.requires import parse


@dataclass
class Impact:
    """What a batch of events affects. Reasons are words for people; they stand in the change list."""

    unplaced: dict[int, str] = field(default_factory=dict)
    """Sub-joins of which some share has no host, and why."""
    opened: dict[int, str] = field(default_factory=dict)
    """Nodes with more room than before, and why."""
    repriced: dict[int, str] = field(default_factory=dict)
    """Sub-joins whose costs changed, and why."""
    crowded: dict[int, str] = field(default_factory=dict)
    """Nodes on which everything waits longer than before, and why."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why each sub-join was touched."""
    placed: list[int] = field(default_factory=list)
    """Sub-joins that got a host in this step because they had to."""
    ended_nodes: list[int] = field(default_factory=list)
    ended_sources: list[int] = field(default_factory=list)
    ended_joins: list[int] = field(default_factory=list)
    ended_queries: list[int] = field(default_factory=list)
    retry: bool = False
    """Whether waiting sub-joins may fit now although no node has more room."""
    events: int = 0
    """How many events the batch has."""


def apply(state: State, event: e.Event, impact: Impact) -> None:
    """Let one event happen."""
    impact.events += 1
    _HANDLERS[type(event)](state, event, impact)


def _rate_changed(state: State, event: e.RateChanged, impact: Impact) -> None:
    source = state.names.source(event.stream, event.source)
    before = float(state.sources["rate"][source])
    state.sources["rate"][source] = event.rate
    reason = f"rate of {event.source}: {before:g} → {event.rate:g} tuples/s"
    joins, removed = state.joins_of(source), int(state.counts[REMOVED])
    for node in recharge(state.handle, joins).tolist():
        impact.opened.setdefault(node, reason)
    _note_lost(state, removed, reason, impact)
    if event.rate > before:
        for join in joins.tolist():
            r = int(state.joins["first"][join])
            if r >= 0:
                impact.crowded.setdefault(int(state.replicas["node"][r]), reason)
    impact.retry = impact.retry or bool((state.joins["state"][joins] == WAITING).any())


def _note_lost(state: State, removed: int, reason: str, impact: Impact) -> None:
    """Replicas were dropped since the log had so many entries: their sub-joins need hosts."""
    for join in state.replicas["join"][state.rows_removed(removed)].tolist():
        impact.unplaced.setdefault(join, reason)


def _capacity_changed(state: State, event: e.CapacityChanged, impact: Impact) -> None:
    nodes, row = state.nodes, state.names.node(event.node)
    for name in ("capacity", "bandwidth", "hosts"):
        value = getattr(event, name)
        if value is not None:
            nodes[name][row] = value
    before = float(nodes["room"][row])
    state.open_node(row)
    room = float(nodes["room"][row])
    reason = f"{event.node} can take {room:g} tuples/s"
    if room > before:
        impact.opened.setdefault(row, reason)
    elif room < before:
        impact.crowded.setdefault(row, reason)
    _shed(state, row, reason, impact)


def _shed(state: State, node: int, reason: str, impact: Impact) -> None:
    """Drop what a node cannot keep."""
    removed = int(state.counts[REMOVED])
    shed(state.handle, node)
    _note_lost(state, removed, reason, impact)


def _node_added(state: State, event: e.NodeAdded, impact: Impact) -> None:
    at, height = _where(state, event.coordinates, event.height, event.rtts)
    row = state.add_node(at, height, event.capacity, event.bandwidth, event.hosts)
    state.names.name_node(row, event.node, event.labels or {})
    _note_rtts(state, row, event.rtts)
    impact.opened[row] = f"{event.node} added"


def _where(
    state: State, coordinates: tuple[float, ...] | None, height: float, rtts: Mapping[str, float] | None
) -> tuple[Floats, float]:
    """Coordinates as given, or from RTTs to nodes that stay where they are (Phase I for one node)."""
    if coordinates is not None:
        return np.array(coordinates, dtype=np.float64), height
    assert rtts is not None
    nodes = state.nodes
    rows = np.array([state.names.node(name) for name in rtts], np.int32)
    space = CostSpace(nodes["at"][: nodes.end], nodes["height"][: nodes.end])
    at, found = embed_new(space, rows, np.array(list(rtts.values())), heights=state.lifted)
    return at, float(found)


def _note_rtts(state: State, row: int, rtts: Mapping[str, float] | None) -> None:
    for other, rtt in (rtts or {}).items():
        state.measurements.note(state, row, state.names.node(other), rtt)


def _node_removed(state: State, event: e.NodeRemoved, impact: Impact) -> None:
    row, reason = state.names.node(event.node), f"{event.node} removed"
    makers = state.names.makers()
    for source in state.sources_on(row):
        if state.names.born(int(state.sources["stream"][source])) not in makers:  # a join runs elsewhere from now on
            _end_source(state, source, reason, impact)
    for query in np.flatnonzero(state.queries["sink"] == row).tolist():
        state.queries["sink"][query] = -1
        for join in state.joins_in(query).tolist():
            _await_sink(state, join, f"sink {event.node} removed", impact)
    state.close_node(row)
    state.nodes["room"][row] = 0.0
    _shed(state, row, reason, impact)
    state.measurements.forget(state, row)
    state.nodes["alive"][row] = False
    impact.opened.pop(row, None)
    del state.names.node_rows[event.node]
    impact.ended_nodes.append(row)


def _await_sink(state: State, join: int, reason: str, impact: Impact) -> None:
    """A sub-join whose results nobody can get waits for a sink."""
    drop_all(state.handle, join)
    state.joins["state"][join] = WAITING
    impact.unplaced.pop(join, None)
    impact.repriced.pop(join, None)
    impact.reasons[join] = reason
    state.backlog.add(join, math.inf)


def _node_moved(state: State, event: e.NodeMoved, impact: Impact) -> None:
    row = state.names.node(event.node)
    height = float(state.nodes["height"][row]) if event.height is None else event.height
    at, height = _where(state, event.coordinates, height, event.rtts)
    state.measurements.forget(state, row)
    _note_rtts(state, row, event.rtts)
    _shift(state, row, at, height, f"{event.node} moved", impact)


def _shift(state: State, row: int, at: Floats, height: float, reason: str, impact: Impact) -> None:
    """A node has other coordinates. Whoever depends on it looks again, if it moved far enough since last time."""
    state.place_node(row, at, height)
    pinned = state.joins_pinned_at(row)
    if len(pinned):
        refresh_ideals(state.handle, pinned)
    anchor = state.nodes["anchor"][row]
    far = float(np.linalg.norm(anchor[:-1] - at)) + abs(float(anchor[-1]) - height)
    if far < state.stability.jitter_ms:
        return
    anchor[:-1], anchor[-1] = at, height
    for join in (*joins_on(state.handle, row).tolist(), *pinned.tolist()):
        impact.repriced.setdefault(join, reason)
    impact.opened.setdefault(row, reason)


def _latency_measured(state: State, event: e.LatencyMeasured, impact: Impact) -> None:
    """Small problems: the measurement counts from now on, between these two. Large ones: the node that measured takes a
    Vivaldi step towards the place that explains it."""
    here, there = state.names.node(event.from_node), state.names.node(event.to_node)
    reason = f"{event.from_node} – {event.to_node}: {event.rtt_ms:g} ms"
    before = float(latency(state.handle, here, there))
    state.measurements.note(state, here, there, event.rtt_ms)
    if not len(state.rtts):
        moved = vivaldi.update(_peer(state, here), _peer(state, there, 0.0), event.rtt_ms, heights=state.lifted)
        _shift(state, here, moved.coordinate, moved.height, reason, impact)
        return
    if abs(before - event.rtt_ms) < state.stability.jitter_ms:
        return
    for host, pin in ((here, there), (there, here)):
        pinned = state.joins_pinned_at(pin)
        if event.rtt_ms >= before:  # only who uses this leg has lost
            pinned = np.intersect1d(joins_on(state.handle, host), pinned)
        for join in pinned.tolist():
            impact.repriced.setdefault(join, reason)


def _peer(state: State, node: int, error: float = vivaldi.FIRST_ERROR) -> vivaldi.Peer:
    return vivaldi.Peer(state.nodes["at"][node], float(state.nodes["height"][node]), error)


def _source_added(state: State, event: e.SourceAdded, impact: Impact) -> None:
    names = state.names
    stream, node = names.add_stream(event.stream), names.node(event.node)
    row = state.add_source(stream, node, event.rate)
    names.name_source(row, stream, event.source)
    reason = f"source {event.source} added"
    for query, rule in enumerate(names.queries):
        side = -1 if rule is None else rule.side_of(stream)
        if rule is None or side < 0:
            continue
        ruled = _partners(state, rule, side, row, event)
        listed = [
            names.source_of(rule.streams[1 - side], partner) for partner in (event.partners or {}).get(rule.id, ())
        ]
        known = set(ruled)
        extra = [partner for partner in dict.fromkeys(listed) if partner not in known]
        if extra and rule.kind != "pairs":
            rule.exceptional = True
        for partner in (*ruled, *extra):
            left, right = (row, partner) if side == 0 else (partner, row)
            _add_join(state, query, left, right, math.nan, reason, impact)


def _partners(state: State, rule: Rule, side: int, source: int, event: e.SourceAdded) -> list[int]:
    """Whom the rule alone lets a new source join."""
    if rule.kind == "dense":
        return state.sources_in(rule.streams[1 - side])
    if rule.kind == "equal":
        if not rule.remembers:
            rule.remember(state.sources["stream"])
        return rule.enter(source, side, rule.code_for({**(event.attributes or {}), "id": event.source}))
    return []


def _add_join(state: State, query: int, left: int, right: int, output: float, reason: str, impact: Impact) -> None:
    row = state.add_join(query, left, right, output)
    if state.queries["sink"][query] < 0:
        _await_sink(state, row, reason, impact)
    else:
        refresh_ideals(state.handle, np.array([row]))
        impact.unplaced[row] = reason


def _source_removed(state: State, event: e.SourceRemoved, impact: Impact) -> None:
    _end_source(state, state.names.source(event.stream, event.source), f"source {event.source} removed", impact)


def _end_source(state: State, row: int, reason: str, impact: Impact) -> None:
    names, stream = state.names, int(state.sources["stream"][row])
    for join in state.joins_of(row).tolist():
        _end_join(state, join, reason, impact)
    state.unlink_source(row)
    for rule in names.queries:
        if rule is not None and rule.side_of(stream) >= 0:
            rule.leave(row, rule.side_of(stream))
    state.sources["alive"][row] = False
    del names.source_rows[stream][names.sources[row]]
    impact.ended_sources.append(row)


def _end_join(state: State, row: int, reason: str, impact: Impact) -> None:
    r = int(state.joins["first"][row])
    while r >= 0:
        impact.opened.setdefault(int(state.replicas["node"][r]), reason)
        r = int(state.replicas["next"][r])
    drop_all(state.handle, row)
    state.unlink_join(row)
    state.joins["state"][row] = NONE
    impact.unplaced.pop(row, None)
    impact.repriced.pop(row, None)
    state.backlog.remove(row)
    impact.reasons[row] = reason
    impact.ended_joins.append(row)


def _pair(state: State, event: e.PairAllowed | e.PairWithdrawn) -> tuple[int, Rule, int, int]:
    query = state.names.query_rows[event.query]
    rule = state.names.rule(query)
    left = state.names.source_of(rule.streams[0], event.left)
    right = state.names.source_of(rule.streams[1], event.right)
    return query, rule, left, right


def _pair_allowed(state: State, event: e.PairAllowed, impact: Impact) -> None:
    query, rule, left, right = _pair(state, event)
    if state.find_join(query, left, right) < 0:
        output = math.nan if event.output_rate is None else event.output_rate
        _add_join(state, query, left, right, output, f"{event.left} ⋈ {event.right} allowed", impact)
        rule.exceptional = rule.exceptional or rule.kind != "pairs"


def _pair_withdrawn(state: State, event: e.PairWithdrawn, impact: Impact) -> None:
    query, rule, left, right = _pair(state, event)
    join = state.find_join(query, left, right)
    if join >= 0:
        _end_join(state, join, f"{event.left} ⋈ {event.right} withdrawn", impact)
        rule.exceptional = rule.exceptional or rule.kind != "pairs"


def _query_added(state: State, event: e.QueryAdded, impact: Impact) -> None:
    names = state.names
    streams = (names.stream_rows[event.left], names.stream_rows[event.right])
    left_side, right_side = (state.sources_in(stream) for stream in streams)
    rule = Rule(event.query, streams, event.window_ms, "pairs")
    pairs: Iterable[tuple[int, int]]
    if event.pairs is not None:
        pairs = dict.fromkeys(
            (names.source_of(streams[0], left), names.source_of(streams[1], right)) for left, right in event.pairs
        )
    elif event.on is None:
        rule.kind = "dense"
        pairs = ((left, right) for left in left_side for right in right_side)
    else:
        model = query_like(names, event.left, event.right, event.on)
        assert model is not None
        rule = names.rule(model).copy(event.query, streams, event.window_ms)
        rule.remember(state.sources["stream"])
        pairs = ((left, right) for left in left_side for right in rule.others(left, 0))
    rule.requires = () if event.requires is None else parse(event.requires)
    query = state.add_query(names.node(event.sink), event.window_ms, rule.key)
    names.name_query(query, rule)
    for left, right in pairs:
        _add_join(state, query, left, right, math.nan, f"query {event.query} added", impact)


def _query_removed(state: State, event: e.QueryRemoved, impact: Impact) -> None:
    query = state.names.query_rows.pop(event.query)
    for join in state.joins_in(query).tolist():
        _end_join(state, join, f"query {event.query} removed", impact)
    impact.ended_queries.append(query)


def _sink_moved(state: State, event: e.SinkMoved, impact: Impact) -> None:
    query = state.names.query_rows[event.query]
    state.queries["sink"][query] = state.names.node(event.sink)
    joins: Rows = state.joins_in(query)
    refresh_ideals(state.handle, joins)
    reason = f"sink of {event.query} moved to {event.sink}"
    for join in joins.tolist():
        if join in state.backlog:
            state.backlog.remove(join)
            impact.unplaced[join] = reason
        else:
            impact.repriced.setdefault(join, reason)


_HANDLERS: dict[type[Any], Callable[[State, Any, Impact], None]] = {
    e.NodeAdded: _node_added,
    e.NodeRemoved: _node_removed,
    e.NodeMoved: _node_moved,
    e.CapacityChanged: _capacity_changed,
    e.LatencyMeasured: _latency_measured,
    e.SourceAdded: _source_added,
    e.SourceRemoved: _source_removed,
    e.RateChanged: _rate_changed,
    e.PairAllowed: _pair_allowed,
    e.PairWithdrawn: _pair_withdrawn,
    e.QueryAdded: _query_added,
    e.QueryRemoved: _query_removed,
    e.SinkMoved: _sink_moved,
}
"""What each kind of event does."""
