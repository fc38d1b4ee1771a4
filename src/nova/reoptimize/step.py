"""Step: one batch of events, applied and settled. First every event changes the tables and names what lost its host;
then what lost its host gets another; then what could be better near the change is looked at, within bounds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from nova.costspace import CostSpace, embed_new
from nova.physical import partition
from nova.physical.assign import LONG_WINDOW_MS
from nova.physical.fill import PART
from nova.problem import Floats, Ints
from nova.reoptimize import events as e
from nova.reoptimize import kernels
from nova.reoptimize.admission import like
from nova.reoptimize.kernels import NONE, RUNNING, SPARE_TOP, WAITING
from nova.reoptimize.rules import Rule

if TYPE_CHECKING:
    from nova.reoptimize.controller import Controller

VIVALDI = 0.25
"""Share of a measured error by which a node moves (Vivaldi's c)."""
GRID_CANDIDATES = 64
"""Hosts that a join which no host takes whole may be cut over."""
GRID_TRIES = 4
"""Waiting grid joins that are tried again although a smaller one did not fit."""
DEPTH = 1
"""How many times room that a move left behind is looked at in turn."""
PULLS = 2
"""Nodes per event whose new room is offered to others."""
MOVES = 2
"""Replicas that one such node may take over."""
TRIES = 4
"""Replicas per event that may try to oust another."""


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

    def _recharge(self, joins: Ints, reason: str) -> None:
        """Rates of these sub-joins changed."""
        state = self.state
        parts = kernels.count_of(state.handle, joins)
        dirty, opened = np.empty(len(joins), np.int32), np.empty(parts, np.int32)
        n, m = kernels.recharge(state.handle, joins, dirty, opened)
        for join in dirty[:n].tolist():
            self.dirty.setdefault(join, reason)
        for node in opened[:m].tolist():
            self.opened.setdefault(node, reason)
        self.retry = self.retry or bool((state.joins["state"][joins] == WAITING).any())

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
        self._evict(row, reason, everything=room <= 0)

    def _evict(self, node: int, reason: str, *, everything: bool) -> None:
        """Drop what a node cannot keep."""
        state = self.state
        joins = np.empty(int(kernels.count_on(state.handle, node)), np.int32)
        if len(joins):
            n = (kernels.drop_on if everything else kernels.relieve)(state.handle, node, joins)
            for join in joins[:n].tolist():
                self.dirty.setdefault(join, reason)

    def _node_added(self, event: e.NodeAdded) -> None:
        state = self.state
        at, height = self._where(event.coordinates, event.height, event.rtts)
        row = state.add_node(at, height, event.capacity, event.bandwidth, event.hosts)
        self.names.name_node(row, event.node)
        self._measured(row, event.rtts)
        self.opened[row] = f"{event.node} added"

    def _where(
        self, coordinates: tuple[float, ...] | None, height: float, rtts: object
    ) -> tuple[Floats, float]:
        """Coordinates as given, or from RTTs to nodes that stay where they are (Phase I for one node)."""
        if coordinates is not None:
            return np.array(coordinates, dtype=np.float64), height
        assert isinstance(rtts, dict)
        nodes = self.state.nodes
        rows = np.array([self.names.node(name) for name in rtts], np.int32)
        high = nodes["height"][: nodes.end]
        space = CostSpace(nodes["at"][: nodes.end], high)
        at, found = embed_new(space, rows, np.array(list(rtts.values())), heights=self.controller.lifted)
        return at, float(found)

    def _measured(self, row: int, rtts: object) -> None:
        for other, rtt in rtts.items() if isinstance(rtts, dict) else ():
            self.controller.measure(row, self.names.node(other), rtt)

    def _node_removed(self, event: e.NodeRemoved) -> None:
        state, row = self.state, self.names.node(event.node)
        reason = f"{event.node} removed"
        for source in state.sources_on(row):
            self._remove_source(source, reason)
        for query in np.flatnonzero(state.q_sink == row).tolist():
            if self.names.queries[query] is not None:
                state.q_sink[query] = -1
                for join in self._joins_in(query).tolist():
                    self._park(join, f"sink {event.node} removed")
        state.close_node(row)
        self._evict(row, reason, everything=True)
        state.forget_legs(row)
        self.controller.forget(row)
        state.nodes["alive"][row] = False
        state.nodes["room"][row] = 0.0
        self.opened.pop(row, None)
        del self.names.node_rows[event.node]
        self.dead_nodes.append(row)

    def _park(self, join: int, reason: str) -> None:
        """A sub-join whose results nobody can get waits for a sink."""
        kernels.take_off(self.state.handle, join)
        self.state.joins["state"][join] = WAITING
        self.dirty.pop(join, None)
        self.shaken.pop(join, None)
        self.reasons[join] = reason
        self.controller.wait(join, math.inf)

    def _node_moved(self, event: e.NodeMoved) -> None:
        nodes, row = self.state.nodes, self.names.node(event.node)
        height = float(nodes["height"][row]) if event.height is None else event.height
        at, height = self._where(event.coordinates, height, event.rtts)
        self.state.forget_legs(row)
        self.controller.forget(row)
        self._measured(row, event.rtts)
        self._shift(row, at, height, f"{event.node} moved")

    def _shift(self, row: int, at: Floats, height: float, reason: str) -> None:
        """A node has other coordinates. Whoever depends on it looks again, if it moved far enough since last time."""
        state = self.state
        nodes = state.nodes
        state.place_node(row, at, height)
        pinned = self._pinned_at(row)
        if len(pinned):
            kernels.refresh_ideals(state.handle, pinned)
        anchor = nodes["anchor"][row]
        far = float(np.linalg.norm(anchor[:-1] - at)) + abs(float(anchor[-1]) - height)
        if far < self.controller.stability.jitter_ms:
            return
        anchor[:-1], anchor[-1] = at, height
        hosted = np.empty(int(kernels.count_on(state.handle, row)), np.int32)
        kernels.joins_on(state.handle, row, hosted)
        for join in (*hosted.tolist(), *pinned.tolist()):
            self.shaken.setdefault(join, reason)
        self.opened.setdefault(row, reason)

    def _pinned_at(self, node: int) -> Ints:
        """Sub-joins with a source or their sink on a node."""
        state = self.state
        parts = [state.joins_of(source) for source in state.sources_on(node)]
        parts += [
            self._joins_in(query) for query in np.flatnonzero(state.q_sink == node).tolist()
            if self.names.queries[query] is not None
        ]
        return np.unique(np.concatenate(parts)).astype(np.int32) if parts else np.empty(0, np.int32)

    def _joins_in(self, query: int) -> Ints:
        """Sub-joins of a query."""
        joins = self.state.joins
        mine = (joins["query"][: joins.end] == query) & (joins["state"][: joins.end] != NONE)
        return np.flatnonzero(mine).astype(np.int32)

    def _latency_measured(self, event: e.LatencyMeasured) -> None:
        """Small problems: the measurement counts from now on, between these two. Large ones: the node that measured
        takes a Vivaldi step towards the place that explains it."""
        state = self.state
        here, there = self.names.node(event.from_node), self.names.node(event.to_node)
        reason = f"{event.from_node} – {event.to_node}: {event.rtt_ms:g} ms"
        if len(state.legs):
            before = float(kernels.latency(state.handle, here, there))
            self.controller.measure(here, there, event.rtt_ms)
            if abs(before - event.rtt_ms) < self.controller.stability.jitter_ms:
                return
            for host, pin in ((here, there), (there, here)):
                hosted = np.empty(int(kernels.count_on(state.handle, host)), np.int32)
                kernels.joins_on(state.handle, host, hosted)
                for join in np.intersect1d(hosted, self._pinned_at(pin)).tolist():
                    self.shaken.setdefault(join, reason)
                if event.rtt_ms < before:
                    for join in self._pinned_at(pin).tolist():
                        self.shaken.setdefault(join, reason)
            return
        self.controller.measure(here, there, event.rtt_ms)
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
                names.source_of(rule.streams[1 - side], partner)
                for partner in (event.partners or {}).get(rule.id, ())
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
        if self.state.q_sink[query] < 0:
            self._park(row, reason)
        else:
            kernels.refresh_ideals(self.state.handle, np.array([row], np.int32))
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
        kernels.take_off(state.handle, row)
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
        query = self.controller.take_query(rule)
        state.q_sink[query] = names.node(event.sink)
        state.q_sliced[query] = sliceable(event.window_ms, state.options.partition)
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
        state.q_sink[query] = self.names.node(event.sink)
        joins = self._joins_in(query)
        kernels.refresh_ideals(state.handle, joins)
        reason = f"sink of {event.query} moved to {event.sink}"
        for join in joins.tolist():
            if join in self.controller.waiting:
                del self.controller.waiting[join]
                self.dirty[join] = reason
            else:
                self.shaken.setdefault(join, reason)

    # placing

    def settle(self, events: int) -> None:
        """Give hosts to what has none, and look for better ones near what changed."""
        stability = self.controller.stability
        placed = self._place(self.dirty)
        if placed and stability.effort:
            self._oust(placed, TRIES * events)
        if self.shaken:
            self._reconsider()
        if (self.opened or self.retry) and self.controller.waiting:
            self._retry_waiting()
        if self.opened:
            self._welcome(events)

    def _place(self, dirty: dict[int, str]) -> list[int]:
        """Hosts for sub-joins of which some share has none: grids first, since they need hosts with more room, the
        largest first; then slices, the smallest first. Returns those that run now."""
        state = self.state
        rows = np.array([join for join in dirty if state.joins["state"][join] != NONE], np.int32)
        if not len(rows):
            return []
        for row in rows.tolist():
            self.reasons.setdefault(row, dirty[row])
        demand = self._demand(rows)
        sliced = state.q_sliced[state.joins["query"][rows]]
        grids = rows[~sliced][np.argsort(-demand[~sliced], kind="stable")]
        slices = rows[sliced][np.argsort(demand[sliced], kind="stable")]
        failed = [row for row in grids.tolist() if not self._place_grid(row)]
        failed += self._place_slices(slices)
        for row in failed:
            if not (state.options.allow_overload and self._overload(row)):
                self.reasons[row] = f"does not fit: {self.reasons[row]}"
            self.controller.wait(row, float(self._demand(np.array([row], np.int32))[0]))
        lost = set(failed)
        return [row for row in (*grids.tolist(), *slices.tolist()) if row not in lost]

    def _demand(self, joins: Ints) -> Floats:
        rate, table = self.state.sources["rate"], self.state.joins
        demand: Floats = rate[table["left"][joins]] + rate[table["right"][joins]]
        return demand

    def _place_slices(self, rows: Ints) -> list[int]:
        state, options = self.state, self.state.options
        failed = np.empty(len(rows), np.int32)
        lost: list[int] = []
        done = 0
        while done < len(rows):
            self._spare()
            done, n = kernels.settle(
                state.handle, rows, done, failed, self.controller.largest, options.c_min,
                -1 if options.max_replicas is None else options.max_replicas, PART, self.controller.worth,
            )
            lost += failed[:n].tolist()
            if done < len(rows):
                state.grow_replicas()
        return lost

    def _spare(self) -> None:
        """See that small steps have rows to work with."""
        while self.state.counts[SPARE_TOP] < 4 * kernels.RESERVE:
            self.state.grow_replicas()

    def _place_grid(self, row: int) -> bool:
        """A sub-join whose windows are not dealt out: whole on one host, or cut into boxes. Replaces all it has."""
        state, options = self.state, self.state.options
        self._spare()
        kernels.take_off(state.handle, row)
        demand = float(self._demand(np.array([row], np.int32))[0])
        if demand <= self.controller.largest:
            host = int(kernels.place_whole(state.handle, row, options.c_min))
            if host >= 0:
                kernels.put(state.handle, row, host, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0)
                state.joins["state"][row] = RUNNING
                return True
        boxes, hosts = self._cut(row)
        if boxes is None:
            state.joins["state"][row] = WAITING
            return False
        while state.counts[SPARE_TOP] < len(boxes.host) + kernels.RESERVE:
            state.grow_replicas()
        cuts = zip(
            boxes.host.tolist(), boxes.left_from.tolist(), boxes.left_to.tolist(), boxes.right_from.tolist(),
            boxes.right_to.tolist(), strict=True,
        )
        for place, *box in cuts:
            kernels.put(state.handle, row, int(hosts[place]), *box, 0.0, 1.0)
        state.joins["state"][row] = RUNNING
        return True

    def _cut(self, row: int) -> tuple[partition.Boxes | None, Ints]:
        state, options = self.state, self.state.options
        hosts, costs = np.empty(GRID_CANDIDATES, np.int32), np.empty(GRID_CANDIDATES)
        n = int(kernels.candidates(
            state.handle, row, GRID_CANDIDATES, max(options.c_min, kernels.TINY), hosts, costs
        ))
        hosts, costs = hosts[:n], costs[:n]
        if not n:
            return None, hosts
        joins, sources, nodes = state.joins, state.sources, state.nodes
        left, right = int(joins["left"][row]), int(joins["right"][row])
        ends = int(sources["node"][left]), int(sources["node"][right]), int(state.q_sink[joins["query"][row]])
        legs = np.array([[kernels.latency(state.handle, end, int(host)) for host in hosts] for end in ends])
        room = np.minimum(state.index.free[nodes["slot"][hosts]], self.controller.largest)
        # a stream that is silent now still has to be cut somehow
        rates = max(float(sources["rate"][left]), 1e-9), max(float(sources["rate"][right]), 1e-9)
        part = None if options.sigma is None else partition.p_max(options.sigma, *rates)
        boxes = partition.split(*rates, room, legs, state.weights, part, options.max_replicas)
        return boxes, hosts

    def _overload(self, row: int) -> bool:
        """What fits nowhere goes evenly to the nearest hosts, as many as it would need if they were free."""
        state = self.state
        self._spare()
        hosts, costs = np.empty(16, np.int32), np.empty(16)
        n = int(kernels.nearest(state.handle, row, 16, hosts, costs))
        if not n:
            return False
        median = float(np.median(state.nodes["room"][hosts[:n]]))
        k = int(np.clip(np.ceil(float(self._demand(np.array([row], np.int32))[0]) / max(median, 1e-9)), 1, n))
        cuts = np.append(np.arange(k) / k, 1.0)
        sliced = bool(state.q_sliced[state.joins["query"][row]])
        for host, low, high in zip(hosts[:k].tolist(), cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            box = (0.0, 1.0, 0.0, 1.0, low, high) if sliced else (low, high, 0.0, 1.0, 0.0, 1.0)
            kernels.put(state.handle, row, host, *box)
        state.joins["state"][row] = RUNNING
        return True

    def _oust(self, joins: list[int], tries: int) -> None:
        """Sub-joins that had to go far may make room for themselves where it hurts less."""
        stability, rows = self.controller.stability, np.array(joins, np.int32)
        self._spare()
        done = 0
        while done < len(rows):
            done = int(kernels.oust_for(
                self.state.handle, rows, done, tries, stability.effort, self.controller.worth, stability.hysteresis
            ))
            if done < len(rows):
                self.state.grow_replicas()

    def _reconsider(self) -> None:
        state, stability = self.state, self.controller.stability
        rows = np.array([join for join in self.shaken if state.joins["state"][join] == RUNNING], np.int32)
        rows = rows[np.argsort(self._demand(rows), kind="stable")]
        for row in rows.tolist():
            self.reasons.setdefault(row, self.shaken[row])
        left = np.empty(4096, np.int32)
        done = 0
        while done < len(rows):
            self._spare()
            done, n = kernels.reconsider(
                state.handle, rows, done, stability.effort, self.controller.worth, stability.hysteresis,
                self.controller.largest, left,
            )
            for node in left[:n].tolist():
                self.opened.setdefault(node, "left by a better placed replica")
            if done < len(rows):
                state.grow_replicas()

    def _retry_waiting(self) -> None:
        """Waiting sub-joins, the smallest first, until one does not fit."""
        controller, state = self.controller, self.state
        misses = 0
        again: list[tuple[float, int]] = []
        while controller.queue and misses <= GRID_TRIES:
            demand, row = heapq.heappop(controller.queue)
            if controller.waiting.get(row) != demand:
                continue  # gone, or waiting under another demand
            now = float(self._demand(np.array([row], np.int32))[0])
            if now != demand:
                controller.wait(row, now)
                continue
            del controller.waiting[row]
            had = bool(state.joins["first"][row] >= 0)
            if had:  # it runs on overloaded hosts
                kernels.take_off(state.handle, row)
            if self._place({row: "there is room again"}):
                continue
            again.append((demand, row))
            misses += 1 if not state.q_sliced[state.joins["query"][row]] else GRID_TRIES + 1
        for entry in again:
            heapq.heappush(controller.queue, entry)

    def _welcome(self, events: int) -> None:
        """Fill new room: first those return that were ousted from there, then who gains most."""
        controller, state, stability = self.controller, self.state, self.controller.stability
        self._spare()
        for node, reason in self.opened.items():
            rows = controller.homes.get(node)
            if rows and state.nodes["slot"][node] >= 0:
                self.reasons.update({
                    int(state.replicas["join"][row]): f"back on {self.names.nodes[node]}: {reason}" for row in rows
                } | self.reasons)
                kernels.go_home(state.handle, np.array(sorted(rows), np.int32), node, controller.largest)
        if not stability.effort:
            return
        queue = [(node, 0) for node in self.opened if state.nodes["slot"][node] >= 0]
        budget = PULLS * events
        left = np.empty(8, np.int32)
        at = 0
        while at < len(queue) and budget > 0:
            node, depth = queue[at]
            at += 1
            budget -= 1
            self._spare()
            n = int(kernels.pull(
                state.handle, node, stability.effort, MOVES, controller.worth, stability.hysteresis,
                controller.largest, PART, left,
            ))
            if depth < DEPTH:
                queue += [(other, depth + 1) for other in left[:n].tolist()]


def sliceable(window_ms: float, how: str) -> bool:
    """Whether a query's windows are dealt out; as a fresh plan decides."""
    return window_ms <= LONG_WINDOW_MS if how == "auto" else how == "window"
