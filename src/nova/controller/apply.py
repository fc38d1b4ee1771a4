"""Step: one batch of events. Every event changes the tables and names what lost its host, what has room now and whose
costs changed; `nova.controller.settle` then finds hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from nova.controller import events as e
from nova.controller.costs import latency, refresh_ideals
from nova.controller.join_rules import Rule
from nova.controller.layout import NONE, REMOVED, WAITING
from nova.controller.ledger import recharge, relieve, take_off
from nova.controller.lists import joins_on
from nova.controller.state import Rows
from nova.controller.validate import like
from nova.costspace import CostSpace, embed_new
from nova.model.problem import Floats

if TYPE_CHECKING:
    from nova.controller.controller import Controller

VIVALDI = 0.25
"""Share of a measured error by which a node moves (Vivaldi's c)."""


class Step:
    """One batch at work on a controller's state."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.state, self.names = controller.state, controller.names
        self.dirty: dict[int, str] = {}
        """Sub-joins of which some share has no host, and why."""
        self.opened: dict[int, str] = {}
        """Nodes with more room than before, and why."""
        self.shaken: dict[int, str] = {}
        """Sub-joins whose costs changed, and why."""
        self.reasons: dict[int, str] = {}
        """Why each sub-join was touched."""
        self.dead_nodes: list[int] = []
        self.dead_sources: list[int] = []
        self.dead_joins: list[int] = []
        self.dead_queries: list[int] = []
        self.retry = False
        """Whether waiting sub-joins may fit now although no node has more room."""

    # what each event does

    def apply(self, event: e.Event) -> None:
        """Change the tables; places nothing yet."""
        match event:
            case e.RateChanged():
                self._rate_changed(event)
            case e.CapacityChanged():
                self._capacity_changed(event)
            case e.NodeAdded():
                self._node_added(event)
            case e.NodeRemoved():
                self._node_removed(event)
            case e.NodeMoved():
                self._node_moved(event)
            case e.LatencyMeasured():
                self._latency_measured(event)
            case e.SourceAdded():
                self._source_added(event)
            case e.SourceRemoved():
                row = self.names.source(event.stream, event.source)
                self._remove_source(row, f"source {event.source} removed")
            case e.PairAllowed():
                self._pair_allowed(event)
            case e.PairWithdrawn():
                self._pair_withdrawn(event)
            case e.QueryAdded():
                self._query_added(event)
            case e.QueryRemoved():
                self._query_removed(event)
            case e.SinkMoved():
                self._sink_moved(event)

    def _rate_changed(self, event: e.RateChanged) -> None:
        state = self.state
        source = self.names.source(event.stream, event.source)
        before = float(state.sources["rate"][source])
        state.sources["rate"][source] = event.rate
        self._recharge(state.joins_of(source), f"rate of {event.source}: {before:g} → {event.rate:g} tuples/s")

    def _recharge(self, joins: Rows, reason: str) -> None:
        """Rates of these sub-joins changed."""
        state = self.state
        before = int(state.counts[REMOVED])
        for node in recharge(state.handle, joins).tolist():
            self.opened.setdefault(node, reason)
        self._lost(before, reason)
        self.retry = self.retry or bool((state.joins["state"][joins] == WAITING).any())

    def _lost(self, before: int, reason: str) -> None:
        """Replicas were dropped since the log had so many entries: their sub-joins need hosts."""
        state = self.state
        rows = state.removed[before : state.counts[REMOVED]]
        for join in state.replicas["join"][rows].tolist():
            self.dirty.setdefault(join, reason)

    def _capacity_changed(self, event: e.CapacityChanged) -> None:
        nodes, row = self.state.nodes, self.names.node(event.node)
        for name in ("capacity", "bandwidth", "hosts"):
            value = getattr(event, name)
            if value is not None:
                nodes[name][row] = value
        before = float(nodes["room"][row])
        self.state.open_node(row)
        room = float(nodes["room"][row])
        reason = f"{event.node} can take {room:g} tuples/s"
        if room > before:
            self.opened.setdefault(row, reason)
        self._relieve(row, reason)

    def _relieve(self, node: int, reason: str) -> None:
        """Drop what a node cannot keep."""
        before = int(self.state.counts[REMOVED])
        relieve(self.state.handle, node)
        self._lost(before, reason)

    def _node_added(self, event: e.NodeAdded) -> None:
        state = self.state
        at, height = self._where(event.coordinates, event.height, event.rtts)
        row = state.add_node(at, height, event.capacity, event.bandwidth, event.hosts)
        self.names.name_node(row, event.node)
        self._measured(row, event.rtts)
        self.opened[row] = f"{event.node} added"

    def _where(
        self, coordinates: tuple[float, ...] | None, height: float, rtts: Mapping[str, float] | None
    ) -> tuple[Floats, float]:
        """Coordinates as given, or from RTTs to nodes that stay where they are (Phase I for one node)."""
        if coordinates is not None:
            return np.array(coordinates, dtype=np.float64), height
        assert rtts is not None
        nodes = self.state.nodes
        rows = np.array([self.names.node(name) for name in rtts], np.int32)
        high = nodes["height"][: nodes.end]
        space = CostSpace(nodes["at"][: nodes.end], high)
        at, found = embed_new(space, rows, np.array(list(rtts.values())), heights=self.controller.lifted)
        return at, float(found)

    def _measured(self, row: int, rtts: Mapping[str, float] | None) -> None:
        for other, rtt in (rtts or {}).items():
            self.controller.measured.note(self.state, row, self.names.node(other), rtt)

    def _node_removed(self, event: e.NodeRemoved) -> None:
        state, row = self.state, self.names.node(event.node)
        reason = f"{event.node} removed"
        for source in state.sources_on(row):
            self._remove_source(source, reason)
        for query in np.flatnonzero(state.queries["sink"] == row).tolist():
            state.queries["sink"][query] = -1
            for join in self._joins_in(query).tolist():
                self._park(join, f"sink {event.node} removed")
        state.close_node(row)
        state.nodes["room"][row] = 0.0
        self._relieve(row, reason)
        self.controller.measured.forget(state, row)
        state.nodes["alive"][row] = False
        self.opened.pop(row, None)
        del self.names.node_rows[event.node]
        self.dead_nodes.append(row)

    def _park(self, join: int, reason: str) -> None:
        """A sub-join whose results nobody can get waits for a sink."""
        take_off(self.state.handle, join)
        self.state.joins["state"][join] = WAITING
        self.dirty.pop(join, None)
        self.shaken.pop(join, None)
        self.reasons[join] = reason
        self.controller.wait(join, math.inf)

    def _node_moved(self, event: e.NodeMoved) -> None:
        nodes, row = self.state.nodes, self.names.node(event.node)
        height = float(nodes["height"][row]) if event.height is None else event.height
        at, height = self._where(event.coordinates, height, event.rtts)
        self.controller.measured.forget(self.state, row)
        self._measured(row, event.rtts)
        self._shift(row, at, height, f"{event.node} moved")

    def _shift(self, row: int, at: Floats, height: float, reason: str) -> None:
        """A node has other coordinates. Whoever depends on it looks again, if it moved far enough since last time."""
        state = self.state
        nodes = state.nodes
        state.place_node(row, at, height)
        pinned = self._pinned_at(row)
        if len(pinned):
            refresh_ideals(state.handle, pinned)
        anchor = nodes["anchor"][row]
        far = float(np.linalg.norm(anchor[:-1] - at)) + abs(float(anchor[-1]) - height)
        if far < self.controller.stability.jitter_ms:
            return
        anchor[:-1], anchor[-1] = at, height
        for join in (*joins_on(state.handle, row).tolist(), *pinned.tolist()):
            self.shaken.setdefault(join, reason)
        self.opened.setdefault(row, reason)

    def _pinned_at(self, node: int) -> Rows:
        """Sub-joins with a source or their sink on a node."""
        state = self.state
        parts = [state.joins_of(source) for source in state.sources_on(node)]
        parts += [self._joins_in(query) for query in np.flatnonzero(state.queries["sink"] == node).tolist()]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def _joins_in(self, query: int) -> Rows:
        """Sub-joins of a query."""
        joins = self.state.joins
        mine = (joins["query"][: joins.end] == query) & (joins["state"][: joins.end] != NONE)
        return np.flatnonzero(mine)

    def _latency_measured(self, event: e.LatencyMeasured) -> None:
        """Small problems: the measurement counts from now on, between these two. Large ones: the node that measured
        takes a Vivaldi step towards the place that explains it."""
        state = self.state
        here, there = self.names.node(event.from_node), self.names.node(event.to_node)
        reason = f"{event.from_node} – {event.to_node}: {event.rtt_ms:g} ms"
        if len(state.legs):
            before = float(latency(state.handle, here, there))
            self.controller.measured.note(state, here, there, event.rtt_ms)
            if abs(before - event.rtt_ms) < self.controller.stability.jitter_ms:
                return
            for host, pin in ((here, there), (there, here)):
                for join in np.intersect1d(joins_on(state.handle, host), self._pinned_at(pin)).tolist():
                    self.shaken.setdefault(join, reason)
                if event.rtt_ms < before:
                    for join in self._pinned_at(pin).tolist():
                        self.shaken.setdefault(join, reason)
            return
        self.controller.measured.note(state, here, there, event.rtt_ms)
        nodes = state.nodes
        at, other = nodes["at"][here], nodes["at"][there]
        away = at - other
        straight = float(np.linalg.norm(away))
        lift = float(nodes["height"][here])
        error = event.rtt_ms - straight - lift - float(nodes["height"][there])
        direction = away / straight if straight > 0 else np.eye(len(at))[0]
        height = max(0.0, lift + VIVALDI * error * lift / max(straight + lift, 1e-9)) if lift > 0 else lift
        self._shift(here, at + VIVALDI * error * direction, height, reason)

    def _source_added(self, event: e.SourceAdded) -> None:
        state, names = self.state, self.names
        stream, node = names.add_stream(event.stream), names.node(event.node)
        row = state.add_source(stream, node, event.rate)
        names.name_source(row, stream, event.source)
        reason = f"source {event.source} added"
        for query, rule in enumerate(names.queries):
            side = -1 if rule is None else rule.side_of(stream)
            if rule is None or side < 0:
                continue
            ruled = self._partners(rule, side, row, event)
            listed = [
                names.source_of(rule.streams[1 - side], partner) for partner in (event.partners or {}).get(rule.id, ())
            ]
            known = set(ruled)
            extra = [partner for partner in dict.fromkeys(listed) if partner not in known]
            if extra and rule.kind != "pairs":
                rule.exceptional = True
            for partner in (*ruled, *extra):
                left, right = (row, partner) if side == 0 else (partner, row)
                self._add_join(query, left, right, math.nan, reason)

    def _partners(self, rule: Rule, side: int, source: int, event: e.SourceAdded) -> list[int]:
        """Whom the rule alone lets a new source join."""
        sources = self.state.sources
        if rule.kind == "dense":
            stream = rule.streams[1 - side]
            there = (sources["stream"][: sources.end] == stream) & sources["alive"][: sources.end]
            return [int(row) for row in np.flatnonzero(there)]
        if rule.kind == "equal":
            if not rule.remembers:
                rule.remember(sources["stream"])
            return rule.enter(source, side, rule.code_for(dict(event.attributes or {})))
        return []

    def _add_join(self, query: int, left: int, right: int, output: float, reason: str) -> None:
        row = self.state.add_join(query, left, right, output)
        if self.state.queries["sink"][query] < 0:
            self._park(row, reason)
        else:
            refresh_ideals(self.state.handle, np.array([row]))
            self.dirty[row] = reason

    def _remove_source(self, row: int, reason: str) -> None:
        state, names = self.state, self.names
        stream = int(state.sources["stream"][row])
        for join in state.joins_of(row).tolist():
            self._remove_join(join, reason)
        state.unlink_source(row)
        for rule in names.queries:
            if rule is not None and rule.side_of(stream) >= 0:
                rule.leave(row, rule.side_of(stream))
        state.sources["alive"][row] = False
        del names.source_rows[stream][names.sources[row]]
        self.dead_sources.append(row)

    def _remove_join(self, row: int, reason: str) -> None:
        state = self.state
        r = int(state.joins["first"][row])
        while r >= 0:
            self.opened.setdefault(int(state.replicas["node"][r]), reason)
            r = int(state.replicas["next"][r])
        take_off(state.handle, row)
        state.unlink_join(row)
        state.joins["state"][row] = NONE
        self.dirty.pop(row, None)
        self.shaken.pop(row, None)
        self.controller.waiting.pop(row, None)
        self.reasons[row] = reason
        self.dead_joins.append(row)

    def _pair(self, event: e.PairAllowed | e.PairWithdrawn) -> tuple[int, Rule, int, int]:
        query = self.names.query_rows[event.query]
        rule = self.names.rule(query)
        left = self.names.source_of(rule.streams[0], event.left)
        right = self.names.source_of(rule.streams[1], event.right)
        return query, rule, left, right

    def _pair_allowed(self, event: e.PairAllowed) -> None:
        query, rule, left, right = self._pair(event)
        if self.state.find_join(query, left, right) < 0:
            output = math.nan if event.output_rate is None else event.output_rate
            self._add_join(query, left, right, output, f"{event.left} ⋈ {event.right} allowed")
            rule.exceptional = rule.exceptional or rule.kind != "pairs"

    def _pair_withdrawn(self, event: e.PairWithdrawn) -> None:
        query, rule, left, right = self._pair(event)
        join = self.state.find_join(query, left, right)
        if join >= 0:
            self._remove_join(join, f"{event.left} ⋈ {event.right} withdrawn")
            rule.exceptional = rule.exceptional or rule.kind != "pairs"

    def _query_added(self, event: e.QueryAdded) -> None:
        state, names = self.state, self.names
        streams = (names.stream_rows[event.left], names.stream_rows[event.right])
        sides = [self._sources_in(stream) for stream in streams]
        rule = Rule(event.query, streams, event.window_ms, "pairs")
        pairs: Iterable[tuple[int, int]]
        if event.pairs is not None:
            pairs = dict.fromkeys(
                (names.source_of(streams[0], left), names.source_of(streams[1], right)) for left, right in event.pairs
            )
        elif event.on is None:
            rule.kind = "dense"
            pairs = ((left, right) for left in sides[0] for right in sides[1])
        else:
            model = like(names, event)
            assert model is not None
            rule = names.rule(model).copy(event.query, streams, event.window_ms)
            rule.remember(state.sources["stream"])
            pairs = ((left, right) for left in sides[0] for right in rule.others(left, 0))
        query = state.add_query(names.node(event.sink), event.window_ms)
        names.name_query(query, rule)
        for left, right in pairs:
            self._add_join(query, left, right, math.nan, f"query {event.query} added")

    def _sources_in(self, stream: int) -> list[int]:
        sources = self.state.sources
        there = (sources["stream"][: sources.end] == stream) & sources["alive"][: sources.end]
        return [int(row) for row in np.flatnonzero(there)]

    def _query_removed(self, event: e.QueryRemoved) -> None:
        query = self.names.query_rows.pop(event.query)
        for join in self._joins_in(query).tolist():
            self._remove_join(join, f"query {event.query} removed")
        self.dead_queries.append(query)

    def _sink_moved(self, event: e.SinkMoved) -> None:
        state, query = self.state, self.names.query_rows[event.query]
        state.queries["sink"][query] = self.names.node(event.sink)
        joins = self._joins_in(query)
        refresh_ideals(state.handle, joins)
        reason = f"sink of {event.query} moved to {event.sink}"
        for join in joins.tolist():
            if join in self.controller.waiting:
                del self.controller.waiting[join]
                self.dirty[join] = reason
            else:
                self.shaken.setdefault(join, reason)
