"""State: nodes, sources, sub-joins, queries and replicas in tables, with lists threaded through them, and the index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.controller.costs import refresh_ideals
from nova.controller.layout import (
    GONE,
    JOIN,
    NODE,
    NONE,
    QUERY,
    REPLICA,
    RUNNING,
    SOURCE,
    SPARE_TOP,
    STEP,
    TANGLED,
    Columns,
    Handle,
    pack,
)
from nova.controller.ledger import show_room
from nova.controller.lists import joins_of, thread
from nova.controller.stability import Stability
from nova.controller.table import Table
from nova.model.load import node_loads
from nova.model.options import LEGS, Options
from nova.model.plan import Plan
from nova.model.policy import DENSE, SQUARE, may_slice, sliced, usable, usable_room
from nova.model.problem import Floats, Problem
from nova.model.replicas import SHARES
from nova.placement.index import SLACK, HostIndex, build

Rows = npt.NDArray[np.int64]


class State:
    """The tables, the host index, and what is measured."""

    def __init__(self, dimensions: int, options: Options, stability: Stability) -> None:
        self.options = options
        self.nodes = Table(
            NODE,
            {"bandwidth": np.inf, "hosts": True, "slot": -1, "first": -1, "source": -1, "alive": True},
            # where the node is, and where it was (with its height) when its sub-joins were last considered
            {"at": dimensions, "anchor": dimensions + 1},
        )
        self.sources = Table(SOURCE, {"stream": -1, "node": -1, "join": -1, "next": -1, "alive": True})
        self.joins = Table(
            JOIN,
            {
                "query": -1,
                "left": -1,
                "right": -1,
                "output": np.nan,
                "first": -1,
                "state": NONE,
                "ideal": np.inf,
                "next": -1,
                "before": -1,
            },
        )
        self.queries = Table(QUERY, {"sink": -1})
        self.replicas = Table(
            REPLICA,
            {
                "join": -1,
                "node": -1,
                "next": GONE,
                "before": -1,
                "after": -1,
                "home": -1,
                "step": -1,
            },
        )
        self.spare = self.created = self.removed = np.empty(0, np.int64)
        self.counts = np.zeros(4, np.int64)
        self.weights = np.array(LEGS[options.objective])
        self.limits = np.array(
            [
                np.inf if options.bandwidth_budget is None else options.bandwidth_budget,
                options.c_min,
                np.inf if options.max_replicas is None else options.max_replicas,
                stability.migration_ms * float(self.weights[0] + self.weights[1]),
                stability.hysteresis,
            ]
        )
        self.legs: Floats = np.empty((0, 0))
        self.index: HostIndex = build(np.empty(0, np.int32), np.empty((0, dimensions)), np.empty(0), np.empty(0), SLACK)
        self._handle: Handle | None = None

    @classmethod
    def of(cls, problem: Problem, plan: Plan, stability: Stability) -> State:
        """The state of a plan that runs."""
        state = cls(plan.space.dimensions, plan.options, stability)
        nodes, sources, joins, queries = problem.nodes, problem.sources, plan.joins, problem.queries
        state.nodes.fill(
            len(nodes),
            {
                "at": plan.space.coordinates,
                "height": plan.space.heights,
                "capacity": nodes.capacity,
                "bandwidth": nodes.bandwidth,
                "busy": nodes.other_load,
                "hosts": nodes.hosts,
                "anchor": np.column_stack([plan.space.coordinates, plan.space.heights]),
            },
        )
        room = usable(nodes, plan.options)
        state.nodes["room"][: len(nodes)] = room
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
                "sliced": np.array([sliced(query.window_ms, plan.options) for query in queries], np.bool_),
                "may_slice": np.array([may_slice(query.window_ms, plan.options) for query in queries], np.bool_),
            },
        )
        state._take_replicas(plan)
        thread(state.handle, len(sources), len(joins), len(plan.replicas))
        state._measure(problem)
        used = state.nodes["used"][: len(nodes)]
        rows = np.flatnonzero(room > 0).astype(np.int32)
        state.index = build(
            rows, state.nodes["at"][rows], state.nodes["height"][rows], np.maximum(room - used, 0.0)[rows], SLACK
        )
        taken = np.flatnonzero(state.index.node >= 0)
        state.nodes["slot"][state.index.node[taken]] = taken
        state.stale()
        refresh_ideals(state.handle, np.arange(len(joins)))
        return state

    def _take_replicas(self, plan: Plan) -> None:
        replicas = plan.replicas
        n = len(replicas)
        boxes = np.column_stack([getattr(replicas, name) for name in SHARES[:6]]) if n else np.empty((0, 6))
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
        self._untangle(plan)

    def _untangle(self, plan: Plan) -> None:
        """Boxes of one sub-join on one host share input where they are not slices. Their sub-join is marked, and they
        are charged equal parts of what they really take together."""
        replicas = plan.replicas
        key = replicas.join.astype(np.int64) * self.nodes.end + replicas.node
        _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
        full = (self.replicas["box"][: len(replicas), :4] == np.array([0.0, 1.0, 0.0, 1.0])).all(axis=1)
        several = count[inverse] > 1
        tangled = np.unique(replicas.join[several & ~full])
        self.joins["state"][tangled] = TANGLED
        for join in tangled:
            rows = np.flatnonzero(replicas.join == join)
            loads = node_loads(plan.joins, replicas.take(rows), self.nodes.end)
            for node in np.unique(replicas.node[rows]):
                here = rows[replicas.node[rows] == node]
                self.replicas["charge"][here] = loads[node] / len(here)

    def _measure(self, problem: Problem) -> None:
        """Measured RTTs as a matrix, where the problem is small enough that fresh plans use them too."""
        n = len(problem.nodes)
        hosts = int(np.count_nonzero(self.nodes["room"][:n] > 0))
        if problem.latency is None or n > SQUARE or self.joins.end * hosts > DENSE:
            return
        self.legs = np.full((self.nodes.capacity, self.nodes.capacity), np.nan)
        known = problem.latency
        self.legs[known.first, known.second] = known.rtt_ms
        self.legs[known.second, known.first] = known.rtt_ms

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
    def handle(self) -> Handle:
        """What kernels take. Made again after any column was replaced."""
        if self._handle is None:
            index = self.index
            self._handle = pack(
                Columns(
                    self.nodes.rows,
                    self.nodes["at"],
                    self.sources.rows,
                    self.joins.rows,
                    self.queries.rows,
                    self.replicas.rows,
                    self.spare,
                    self.created,
                    self.removed,
                    self.counts,
                    index.node,
                    index.points,
                    index.heights,
                    index.free,
                    index.low,
                    index.high,
                    index.most_free,
                    index.least_height,
                    index.offsets,
                    index.held,
                    self.legs,
                    self.weights,
                    self.limits,
                )
            )
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
            if len(self.legs):
                more = self.nodes.capacity
                legs = np.full((more, more), np.nan)
                legs[: len(self.legs), : len(self.legs)] = self.legs
                self.legs = legs
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
                nodes["capacity"][one], nodes["bandwidth"][one], nodes["busy"][one], nodes["hosts"][one], self.options
            )[0]
        )
        nodes["room"][row] = room
        slot = int(nodes["slot"][row])
        if room > 0 and slot < 0:
            free = max(room - float(nodes["used"][row]), 0.0)
            if self.index.add(row, nodes["at"][row], float(nodes["height"][row]), free, nodes["slot"]):
                self.stale()
        elif room <= 0 and slot >= 0:
            self.close_node(row)
        elif slot >= 0:
            show_room(self.handle, row)

    def close_node(self, row: int) -> None:
        """Take a node out of the index."""
        slot = int(self.nodes["slot"][row])
        if slot >= 0:
            self.index.drop(slot)
            self.nodes["slot"][row] = -1

    def place_node(self, row: int, at: Floats, height: float) -> None:
        """A node has other coordinates."""
        nodes = self.nodes
        nodes["at"][row], nodes["height"][row] = at, height
        if nodes["slot"][row] >= 0:
            self.close_node(row)
            self.open_node(row)

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

    def add_query(self, sink: int, window_ms: float) -> int:
        """A new query."""
        row, grown = self.queries.take()
        if grown:
            self.stale()
        self.queries.rows[row] = sink, sliced(window_ms, self.options), may_slice(window_ms, self.options)
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

    def joins_of(self, source: int) -> Rows:
        """Rows of the sub-joins that read a source."""
        rows: Rows = joins_of(self.handle, source)
        return rows

    def find_join(self, query: int, left: int, right: int) -> int:
        """The sub-join of a pair in a query; −1 where there is none."""
        joins = self.joins
        row = int(self.sources["join"][left])
        while row >= 0:
            if joins["query"][row] == query and joins["left"][row] == left and joins["right"][row] == right:
                return row
            row = int(joins["next"][row, 0 if joins["left"][row] == left else 1])
        return -1
