"""State: all a controller knows. Nodes, sources, sub-joins, queries and replicas in rows (`schema`), with lists
threaded through them; the host index; ids; what is measured; what waits."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nova.controller import ledger
from nova.controller.measurements import Measurements
from nova.controller.names import Names
from nova.controller.schema import (
    COUPLED,
    CREATED,
    GONE,
    JOIN,
    KEYS,
    NODE,
    NONE,
    QUERY,
    REMOVED,
    REPLICA,
    RUNNING,
    SOURCE,
    SPARE_TOP,
    STEP,
    WAITING,
    WINDOWS,
    Handle,
    Records,
    pack,
)
from nova.costspace import CostSpace, embed_new, vivaldi
from nova.model.load import fullest, node_loads
from nova.model.options import LEG_WEIGHTS, Options, Stability
from nova.model.plan import Plan
from nova.model.policy import DENSE, OVERLOAD, SQUARE, UNLIMITED, may_slice, rooms_down_to, sliced, usable, usable_room
from nova.model.problem import Floats, Key, Problem
from nova.model.replicas import SHARES, Replicas
from nova.placement.index import SLACK, HostIndex, build

Rows = npt.NDArray[np.int64]
WHOLE = np.array([0.0, 1.0] * (len(SHARES) // 2))
"""The box of an unsplit sub-join."""


class Backlog:
    """Sub-joins that wait for room or for a sink (or, if allowed, overload their hosts)."""

    def __init__(self) -> None:
        self.demand: dict[int, float] = {}
        """Tuples/s by sub-join; infinite without a sink."""
        self.queue: list[tuple[float, int]] = []
        """The same as a heap, smallest demand first; entries that disagree with `demand` are out of date."""

    def __contains__(self, join: int) -> bool:
        return join in self.demand

    def __len__(self) -> int:
        return len(self.demand)

    def add(self, join: int, demand: float) -> None:
        """A sub-join waits for room or, with infinite demand, for a sink."""
        self.demand[join] = demand
        if demand < math.inf:
            heapq.heappush(self.queue, (demand, join))
            if len(self.queue) > 2 * len(self.demand) + 64:  # mostly out of date
                self.queue = sorted((demand, join) for join, demand in self.demand.items() if demand < math.inf)

    def remove(self, join: int) -> None:
        """A sub-join waits no more."""
        self.demand.pop(join, None)

    def smallest_first(self) -> Iterator[tuple[int, float]]:
        """Take those that wait for room out of the queue, one by one: (sub-join, demand when it was added)."""
        while self.queue:
            demand, join = heapq.heappop(self.queue)
            if self.demand.get(join) == demand:
                del self.demand[join]
                yield join, demand


class State:
    """The rows, the index, ids and measurements of a running plan."""

    def __init__(
        self, dimensions: int, options: Options, stability: Stability, names: Names, measurements: Measurements
    ) -> None:
        self.options, self.stability = options, stability
        self.kept = options
        """The same, but for the share of every node that steps keep to: `auto` may need more than `utilisation`."""
        self.names, self.measurements = names, measurements
        # beside the nodes: where each is, and where it was (with its height) when its sub-joins were last considered
        self.nodes = Records(NODE, {"at": dimensions, "anchor": dimensions + 1})
        self.sources, self.joins = Records(SOURCE), Records(JOIN)
        self.queries, self.replicas = Records(QUERY), Records(REPLICA)
        self.spare = self.created = self.removed = np.empty(0, np.int64)
        self.counts = np.zeros(4, np.int64)
        self.backlog = Backlog()
        self.evicted: dict[int, set[int]] = {}
        """Replicas that had to leave a node for another sub-join, by that node."""
        self.replan_gain_ms: float | None = None
        """Cost that a fresh plan would save after the last step, in ms; None where that was not looked at."""
        self.standing = np.inf
        """Cost of what runs, as a multiple of a bound, when a whole plan was last made afresh; see `replan`."""
        self.settled_cost = 0.0
        """Cost of what runs, in ms, when a step was last compared with a whole plan."""
        self.lifted = False
        """Whether nodes have heights, so that newcomers get one."""
        self.weights = np.array(LEG_WEIGHTS[options.objective])
        self.limits = np.array(
            [
                np.inf if options.bandwidth_budget is None else options.bandwidth_budget,
                options.c_min,
                np.inf if options.max_replicas is None else options.max_replicas,
                stability.migration_ms * float(self.weights[0] + self.weights[1]),
                stability.hysteresis,
                options.at_host,
                options.arrival_scv,
                0.0 if options.percentile is None else options.percentile / 100.0,
            ]
        )
        self.rtts: Floats = np.empty((0, 0))
        self.index: HostIndex = build(np.empty(0, np.int32), np.empty((0, dimensions)), np.empty(0), np.empty(0), SLACK)
        self._handle: Handle | None = None

    @classmethod
    def of(cls, problem: Problem, plan: Plan, stability: Stability) -> State:
        """The state of a plan that runs."""
        measurements = Measurements(problem.latency, len(problem.nodes))
        state = cls(plan.space.dimensions, plan.options, stability, Names.of(problem), measurements)
        state.lifted = bool(np.any(plan.space.heights > 0))
        nodes, sources, joins, queries = problem.nodes, problem.sources, plan.joins, problem.queries
        state.nodes.fill(
            len(nodes),
            {
                "at": plan.space.coordinates,
                "height": plan.space.heights,
                "capacity": nodes.capacity,
                "bandwidth": nodes.bandwidth,
                "busy": nodes.other_load,
                "limit": np.minimum(nodes.limit, UNLIMITED),
                "hosts": nodes.hosts,
                "anchor": np.column_stack([plan.space.coordinates, plan.space.heights]),
            },
        )
        full = fullest(problem, joins, plan.replicas)
        while full > state.kept.utilisation * (1 + OVERLOAD) and state._keep_less():
            pass
        state.nodes["room"][: len(nodes)] = usable(nodes, state.kept)
        state.sources.fill(
            len(sources),
            {
                "stream": sources.stream,
                "node": sources.node,
                "rate": sources.rate,
            },
        )
        state.joins.fill(
            len(joins),
            {
                "query": joins.query,
                "left": joins.left,
                "right": joins.right,
                "output": joins.output_rate,
                "state": np.full(len(joins), RUNNING),
            },
        )
        state.queries.fill(
            len(queries),
            {
                "sink": np.array([query.sink for query in queries], np.int64),
                "window_ms": np.array([query.window_ms for query in queries]),
                "sliced": np.array([sliced(query.window_ms, plan.options) for query in queries], np.bool_),
                "may_slice": np.array(
                    [by_key(query.key, plan.options) or may_slice(query.window_ms, plan.options) for query in queries],
                    np.bool_,
                ),
                "axis": np.array([KEYS if by_key(query.key, plan.options) else WINDOWS for query in queries], np.int64),
            },
        )
        state._take_replicas(plan)
        ledger.thread(state.handle, len(sources), len(joins), len(plan.replicas))
        state._fill_rtts(problem)
        state._index_hosts()
        state.refresh_ideals(np.arange(len(joins)))
        return state

    def _index_hosts(self) -> None:
        """Build the index of all hosts and their free room."""
        nodes = self.nodes
        rows = np.flatnonzero(nodes["room"][: nodes.end] > 0).astype(np.int32)
        free = np.maximum(nodes["room"][rows] - nodes["used"][rows], 0.0)
        self.index = build(rows, nodes["at"][rows], nodes["height"][rows], free, SLACK)
        taken = np.flatnonzero(self.index.node >= 0)
        nodes["slot"][: nodes.end] = -1
        nodes["slot"][self.index.node[taken]] = taken
        self.stale()

    def _keep_less(self) -> bool:
        """Let `kept` have the next larger share of a node; False where that is all of it, and where no more than
        `utilisation` may be used."""
        larger = rooms_down_to(self.kept.utilisation)[:-1]
        if not larger or self.options.partition != "auto" or self.options.waiting == 0:
            return False
        self.kept = replace(self.kept, utilisation=larger[-1])
        return True

    def widen(self) -> bool:
        """Let steps use more of every node than they kept to so far, from now on; False where they may not."""
        if not self._keep_less():
            return False
        nodes, rows = self.nodes, np.flatnonzero(self.nodes["alive"][: self.nodes.end])
        capacity, bandwidth, busy, hosts = (nodes[name][rows] for name in ("capacity", "bandwidth", "busy", "hosts"))
        nodes["room"][rows] = usable_room(capacity, bandwidth, busy, hosts, self.kept)
        self._index_hosts()
        return True

    def fullest(self) -> float:
        """Highest share of a node that replicas and its other work keep busy, of the nodes that run any."""
        nodes = self.nodes.rows[: self.nodes.end]
        used = nodes[nodes["used"] > 0]
        return float(((used["used"] + used["busy"]) / used["limit"]).max(initial=0.0))

    def _take_replicas(self, plan: Plan) -> None:
        replicas = plan.replicas
        n = len(replicas)
        boxes = np.column_stack([getattr(replicas, name) for name in SHARES])
        left, right = replicas.rates(plan.joins)
        self.replicas.reserve(n + max(256, n // 4))
        self.replicas.fill(
            n,
            {
                "join": replicas.join,
                "node": replicas.node,
                "box": boxes,
                "charge": left + right,
                "step": np.zeros(n),
            },
        )
        self._size_logs()
        top = self.replicas.capacity - n
        self.spare[:top] = np.arange(self.replicas.capacity - 1, n - 1, -1)
        self.counts[SPARE_TOP] = top
        self.counts[STEP] = 1
        self._mark_coupled(plan)

    def _mark_coupled(self, plan: Plan) -> None:
        """Boxes of one sub-join on one host share input where they are not slices. Their sub-join is marked, and they
        are charged equal parts of what they really take together."""
        replicas = plan.replicas
        key = replicas.join.astype(np.int64) * self.nodes.end + replicas.node
        _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
        apart = cut_freely(self.replicas["box"][: len(replicas)])
        self.names.bound = self.names.bound or mixed(replicas)
        several = count[inverse] > 1
        coupled = np.unique(replicas.join[several & ~apart])
        self.joins["state"][coupled] = COUPLED
        for join in coupled:
            rows = np.flatnonzero(replicas.join == join)
            loads = node_loads(plan.joins, replicas.take(rows), self.nodes.end)
            for node in np.unique(replicas.node[rows]):
                here = rows[replicas.node[rows] == node]
                self.replicas["charge"][here] = loads[node] / len(here)

    def _fill_rtts(self, problem: Problem) -> None:
        """Measured RTTs as a matrix, where the problem is small enough that fresh plans use them too."""
        n = len(problem.nodes)
        hosts = int(np.count_nonzero(self.nodes["room"][:n] > 0))
        if problem.latency is None or n > SQUARE or self.joins.end * hosts > DENSE:
            return
        self.rtts = np.full((self.nodes.capacity, self.nodes.capacity), np.nan)
        known = problem.latency
        self.rtts[known.first, known.second] = known.rtt_ms
        self.rtts[known.second, known.first] = known.rtt_ms

    def _size_logs(self) -> None:
        """A row is made at most once and dropped at most once in a step."""
        size = self.replicas.capacity
        for name in ("spare", "created", "removed"):
            old = getattr(self, name)
            log = np.zeros(size, np.int64)
            log[: len(old)] = old
            setattr(self, name, log)
        self._handle = None

    def grow_replicas(self) -> None:
        """More spare replica rows."""
        before = self.replicas.capacity
        self.replicas.grow()
        self.replicas.end = self.replicas.capacity
        self._size_logs()
        top, more = int(self.counts[SPARE_TOP]), self.replicas.capacity - before
        self.spare[top : top + more] = np.arange(self.replicas.capacity - 1, before - 1, -1)
        self.counts[SPARE_TOP] = top + more

    @property
    def bound(self) -> bool:
        """Whether more than distances and the room of hosts says where joins run, so that steps are the optimizer's."""
        return self.names.bound or self.options.objective == "network"

    @property
    def handle(self) -> Handle:
        """What kernels take. Made again after any column was replaced."""
        if self._handle is None:
            self._handle = pack(self)
        return self._handle

    def stale(self) -> None:
        """Some array was replaced."""
        self._handle = None

    # nodes

    def add_node(self, at: Floats, height: float, capacity: float, bandwidth: float, hosts: bool) -> int:
        """A new node, open for replicas."""
        row, grown = self.nodes.take()
        if grown:
            self.stale()
            if len(self.rtts):
                more = self.nodes.capacity
                rtts = np.full((more, more), np.nan)
                rtts[: len(self.rtts), : len(self.rtts)] = self.rtts
                self.rtts = rtts
        nodes = self.nodes
        nodes["at"][row], nodes["height"][row] = at, height
        nodes["anchor"][row, :-1], nodes["anchor"][row, -1] = at, height
        nodes["capacity"][row], nodes["bandwidth"][row], nodes["hosts"][row] = capacity, bandwidth, hosts
        self.open_node(row)
        return row

    def open_node(self, row: int) -> None:
        """Work out a node's room anew, and put it into the index or take it out accordingly."""
        nodes = self.nodes
        one = slice(row, row + 1)
        room = float(
            usable_room(
                nodes["capacity"][one], nodes["bandwidth"][one], nodes["busy"][one], nodes["hosts"][one], self.kept
            )[0]
        )
        nodes["room"][row] = room
        nodes["limit"][row] = min(float(nodes["capacity"][row]), float(nodes["bandwidth"][row]), UNLIMITED)
        slot = int(nodes["slot"][row])
        if room > 0 and slot < 0:
            free = max(room - float(nodes["used"][row]), 0.0)
            if self.index.add(row, nodes["at"][row], float(nodes["height"][row]), free, nodes["slot"]):
                self.stale()
        elif room <= 0 and slot >= 0:
            self.close_node(row)
        elif slot >= 0:
            ledger.show_room(self.handle, row)

    def close_node(self, row: int) -> None:
        """Take a node out of the index."""
        slot = int(self.nodes["slot"][row])
        if slot >= 0:
            self.index.drop(slot)
            self.nodes["slot"][row] = -1

    def locate(
        self, coordinates: Sequence[float] | None, height: float, rtts: Mapping[str, float] | None
    ) -> tuple[Floats, float]:
        """Where a node is: coordinates as given, or from RTTs to nodes that stay where they are (Phase I for one)."""
        if coordinates is not None:
            return np.array(coordinates, dtype=np.float64), height
        assert rtts is not None
        nodes = self.nodes
        rows = np.array([self.names.node(name) for name in rtts], np.int32)
        space = CostSpace(nodes["at"][: nodes.end], nodes["height"][: nodes.end])
        at, found = embed_new(space, rows, np.array(list(rtts.values())), heights=self.lifted)
        return at, float(found)

    def vivaldi_step(self, here: int, there: int, rtt_ms: float) -> tuple[Floats, float]:
        """Where a node belongs that measured a round trip to another one, which stays."""
        at, height = self.nodes["at"], self.nodes["height"]
        mine = vivaldi.Peer(at[here], float(height[here]), vivaldi.FIRST_ERROR)
        other = vivaldi.Peer(at[there], float(height[there]), 0.0)
        moved = vivaldi.update(mine, other, rtt_ms, heights=self.lifted)
        return moved.coordinate, moved.height

    def move_node(self, row: int, at: Floats, height: float) -> list[int]:
        """A node has other coordinates. Returns the sub-joins with a source or their sink there."""
        nodes = self.nodes
        nodes["at"][row], nodes["height"][row] = at, height
        if nodes["slot"][row] >= 0:
            self.close_node(row)
            self.open_node(row)
        pinned = self.joins_pinned_at(row)
        if len(pinned):
            self.refresh_ideals(pinned)
        return [int(join) for join in pinned]

    def drifted(self, row: int) -> float:
        """How far a node is, in ms, from where it was when its sub-joins were last considered."""
        anchor, at = self.nodes["anchor"][row], self.nodes["at"][row]
        return float(np.linalg.norm(anchor[:-1] - at)) + abs(float(anchor[-1]) - float(self.nodes["height"][row]))

    def anchor(self, row: int) -> None:
        """A node's sub-joins are considered where it is now."""
        anchor = self.nodes["anchor"][row]
        anchor[:-1], anchor[-1] = self.nodes["at"][row], self.nodes["height"][row]

    def latency(self, here: int, there: int) -> float:
        """ms between two nodes: as measured, or by the cost space."""
        return float(ledger.latency(self.handle, here, there))

    def queries_to(self, node: int) -> list[int]:
        """Rows of the queries whose sink is a node."""
        return [int(row) for row in np.flatnonzero(self.queries["sink"] == node)]

    # replicas

    def joins_on(self, node: int) -> list[int]:
        """Rows of the sub-joins that run on a node."""
        return [int(join) for join in ledger.joins_on(self.handle, node)]

    def hosts_of(self, join: int) -> list[int]:
        """Rows of the nodes that a sub-join runs on, one for each replica."""
        found = []
        row = int(self.joins["first"][join])
        while row >= 0:
            found.append(int(self.replicas["node"][row]))
            row = int(self.replicas["next"][row])
        return found

    def recharge(self, joins: Rows) -> tuple[list[int], list[int]]:
        """Charge hosts anew after rates of sub-joins changed. Returns the nodes that have more room now, and the
        sub-joins of replicas that were dropped because their hosts cannot take them any more."""
        before = int(self.counts[REMOVED])
        opened = ledger.recharge(self.handle, joins)
        return [int(node) for node in opened], self._dropped_since(before)

    def shed(self, node: int) -> list[int]:
        """Drop what a node cannot keep. Returns the sub-joins whose replicas these were."""
        before = int(self.counts[REMOVED])
        ledger.shed(self.handle, node)
        return self._dropped_since(before)

    def _dropped_since(self, count: int) -> list[int]:
        return [int(join) for join in self.replicas["join"][self.rows_removed(count)]]

    # sources and sub-joins

    def add_source(self, stream: int, node: int, rate: float) -> int:
        """A new source on a node."""
        row, grown = self.sources.take()
        if grown:
            self.stale()
        sources = self.sources
        sources["stream"][row], sources["node"][row], sources["rate"][row] = stream, node, rate
        sources["next"][row] = self.nodes["source"][node]
        self.nodes["source"][node] = row
        return row

    def sources_on(self, node: int) -> list[int]:
        """Rows of the sources born on a node."""
        found = []
        row = int(self.nodes["source"][node])
        while row >= 0:
            found.append(row)
            row = int(self.sources["next"][row])
        return found

    def unlink_source(self, row: int) -> None:
        """Take a source off its node's list."""
        node, follow = int(self.sources["node"][row]), self.sources["next"]
        if self.nodes["source"][node] == row:
            self.nodes["source"][node] = follow[row]
            return
        at = int(self.nodes["source"][node])
        while follow[at] != row:
            at = int(follow[at])
        follow[at] = follow[row]

    def move_source(self, row: int, node: int) -> None:
        """A source is on another node."""
        if self.sources["node"][row] != node:
            self.unlink_source(row)
            self.sources["node"][row] = node
            self.sources["next"][row] = self.nodes["source"][node]
            self.nodes["source"][node] = row

    def add_query(self, sink: int, window_ms: float, key: Key | None) -> int:
        """A new query."""
        row, grown = self.queries.take()
        if grown:
            self.stale()
        queries, keyed = self.queries, by_key(key, self.options)
        queries["sink"][row], queries["window_ms"][row] = sink, window_ms
        queries["axis"][row] = KEYS if keyed else WINDOWS
        queries["sliced"][row] = sliced(window_ms, self.options)
        queries["may_slice"][row] = keyed or may_slice(window_ms, self.options)
        return row

    def add_join(self, query: int, left: int, right: int, output: float) -> int:
        """A new sub-join, without replicas."""
        row, grown = self.joins.take()
        if grown:
            self.stale()
        joins = self.joins
        joins["query"][row], joins["left"][row], joins["right"][row], joins["output"][row] = query, left, right, output
        joins["state"][row] = RUNNING
        for side, source in ((0, left), (1, right)):
            first = int(self.sources["join"][source])
            joins["next"][row, side] = first
            if first >= 0:
                joins["before"][first, 0 if joins["left"][first] == source else 1] = row
            self.sources["join"][source] = row
        return row

    def unlink_join(self, row: int) -> None:
        """Take a sub-join off its sources' lists."""
        joins = self.joins
        for side, end in ((0, "left"), (1, "right")):
            source = int(joins[end][row])
            after, before = int(joins["next"][row, side]), int(joins["before"][row, side])
            if before >= 0:
                joins["next"][before, 0 if joins["left"][before] == source else 1] = after
            else:
                self.sources["join"][source] = after
            if after >= 0:
                joins["before"][after, 0 if joins["left"][after] == source else 1] = before

    def stop_join(self, join: int) -> None:
        """A sub-join has no replicas any more, and waits."""
        ledger.drop_all(self.handle, join)
        self.joins["state"][join] = WAITING

    def end_join(self, join: int) -> None:
        """A sub-join is gone."""
        ledger.drop_all(self.handle, join)
        self.unlink_join(join)
        self.joins["state"][join] = NONE
        self.backlog.remove(join)

    def waits(self, join: int) -> bool:
        """Whether a sub-join waits for room or for a sink."""
        return bool(self.joins["state"][join] == WAITING)

    def refresh_ideals(self, joins: Rows | Sequence[int]) -> None:
        """Work out anew what sub-joins would cost at best, after their ends moved."""
        ledger.refresh_ideals(self.handle, np.asarray(joins))

    def joins_of(self, source: int) -> Rows:
        """Rows of the sub-joins that read a source."""
        rows: Rows = ledger.joins_of(self.handle, source)
        return rows

    def joins_in(self, query: int) -> Rows:
        """Rows of the sub-joins of a query."""
        joins = self.joins
        return np.flatnonzero((joins["query"][: joins.end] == query) & (joins["state"][: joins.end] != NONE))

    def joins_pinned_at(self, node: int) -> Rows:
        """Rows of the sub-joins with a source or their sink on a node."""
        parts = [self.joins_of(source) for source in self.sources_on(node)]
        parts += [self.joins_in(query) for query in self.queries_to(node)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def sources_in(self, stream: int) -> list[int]:
        """Rows of the sources of a stream."""
        sources = self.sources
        there = (sources["stream"][: sources.end] == stream) & sources["alive"][: sources.end]
        return [int(row) for row in np.flatnonzero(there)]

    def demand(self, joins: Rows) -> Floats:
        """Tuples/s that sub-joins take in."""
        rate, table = self.sources["rate"], self.joins
        demand: Floats = rate[table["left"][joins]] + rate[table["right"][joins]]
        return demand

    def divided(self, joins: Rows) -> npt.NDArray[np.bool_]:
        """Which sub-joins run divided by windows or keys, so that lost parts can be placed alone."""
        first = self.joins["first"][joins]
        return (first >= 0) & cut_freely(self.replicas["box"][np.maximum(first, 0)])

    def have_spare(self, rows: int, reserve: int) -> None:
        """See that there are so many replica rows to work with, and some in reserve."""
        while self.counts[SPARE_TOP] < rows + reserve:
            self.grow_replicas()

    def find_join(self, query: int, left: int, right: int) -> int:
        """The sub-join of a pair in a query; −1 where there is none."""
        joins = self.joins
        row = int(self.sources["join"][left])
        while row >= 0:
            if joins["query"][row] == query and joins["left"][row] == left and joins["right"][row] == right:
                return row
            row = int(joins["next"][row, 0 if joins["left"][row] == left else 1])
        return -1

    # steps

    @property
    def step(self) -> int:
        """How many steps were handled so far, plus one."""
        return int(self.counts[STEP])

    def rows_removed(self, since: int = 0) -> Rows:
        """Replica rows dropped in this step, from the given place in the log on."""
        rows: Rows = self.removed[since : self.counts[REMOVED]]
        return rows

    def rows_created(self) -> Rows:
        """Replica rows made in this step; some may be dropped again."""
        rows: Rows = self.created[: self.counts[CREATED]]
        return rows

    def end_step(self, nodes: list[int], sources: list[int], joins: list[int], queries: list[int]) -> None:
        """Give back the rows of all that ended in this step, and note which replicas had to leave their node."""
        replicas = self.replicas
        for row in self.rows_removed().tolist():
            node = int(replicas["evicted_from"][row])
            if node >= 0 and node in self.evicted:
                self.evicted[node].discard(row)
                if not self.evicted[node]:
                    del self.evicted[node]
        for row in self.rows_created().tolist():
            node = int(replicas["evicted_from"][row])
            if node >= 0 and replicas["next"][row] != GONE:
                self.evicted.setdefault(node, set()).add(row)
        for node in nodes:
            for row in self.evicted.pop(node, ()):
                replicas["evicted_from"][row] = -1
        ledger.end_step(self.handle)
        self.nodes.free += nodes
        self.sources.free += sources
        self.joins.free += joins
        self.queries.free += queries
        for query in queries:
            self.names.queries[query] = None
            self.queries["sink"][query] = -1


def by_key(key: Key | None, options: Options) -> bool:
    """Whether sub-joins with such a key are divided by ranges of it."""
    return key is not None and options.partition in ("auto", "key")


def mixed(replicas: Replicas) -> bool:
    """Whether some sub-join has boxes of several kinds, such as ranges of keys beside a grid, of which one does not
    tell what the others are. Steps that look at single boxes cannot place these again."""
    boxes = np.column_stack([getattr(replicas, name) for name in SHARES])
    narrow = [(boxes[:, axis : axis + 2] != WHOLE[axis : axis + 2]).any(axis=1) for axis in (WINDOWS, KEYS)]
    kind = np.where(cut_freely(boxes), narrow[0] + 2 * narrow[1], 4)
    kinds = np.zeros(int(replicas.join.max(initial=-1)) + 1, np.int64)
    np.bitwise_or.at(kinds, replicas.join, kind)
    return bool(((kinds & (kinds - 1)) > 0).any())


def cut_freely(boxes: Floats) -> npt.NDArray[np.bool_]:
    """Which boxes take both streams whole, and are cut by windows or by keys at most."""
    whole = boxes == WHOLE
    return np.asarray(
        whole[:, :4].all(axis=1) & (whole[:, WINDOWS : WINDOWS + 2] | whole[:, KEYS : KEYS + 2]).all(axis=1)
    )
