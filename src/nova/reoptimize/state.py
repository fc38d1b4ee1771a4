"""State: everything a controller knows, in columns that grow, with lists threaded through them.

Rows of nodes, sources, sub-joins and replicas are used again once freed, so a long run does not grow. The columns that
kernels need are handed over as one tuple of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.options import LEGS, Options
from nova.physical.assign import MARGIN, UNLIMITED
from nova.physical.index import SLACK, HostIndex, build
from nova.plan import SHARES, Plan
from nova.problem import Floats, Problem
from nova.reoptimize import kernels
from nova.reoptimize.arrays import Arrays, Handle, pack
from nova.reoptimize.kernels import GONE, NONE, RUNNING, TANGLED

Array = npt.NDArray[Any]
MEASURED_NODES = 4096
"""Up to so many nodes measured RTTs are held as a matrix and override the cost space, as in a fresh plan."""


class Table:
    """Columns that grow together. Freed rows are used again, the last freed first."""

    def __init__(self, size: int, fills: dict[str, Array], capacity: int | None = None) -> None:
        """`fills` gives each column's value for a new row, and so its type and shape."""
        self.fills = fills
        self.end = size
        self.free: list[int] = []
        rows = size + max(16, size // 8) if capacity is None else capacity
        self.columns = {name: _filled(rows, fill) for name, fill in fills.items()}

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    @property
    def capacity(self) -> int:
        """Rows that the columns hold now."""
        return len(next(iter(self.columns.values())))

    def take(self) -> tuple[int, bool]:
        """A row for use, with the fill values, and whether the columns had to grow for it."""
        grown = False
        if self.free:
            row = self.free.pop()
        else:
            row = self.end
            self.end += 1
            if row == self.capacity:
                self.grow()
                grown = True
        for name, fill in self.fills.items():
            self.columns[name][row] = fill
        return row, grown

    def grow(self) -> None:
        """Half as many rows again."""
        more = max(16, self.capacity // 2)
        for name, fill in self.fills.items():
            self.columns[name] = np.concatenate([self.columns[name], _filled(more, fill)])


def _filled(rows: int, fill: Array) -> Array:
    column = np.empty((rows, *fill.shape), fill.dtype)
    column[:] = fill
    return column


def _fill(value: float, kind: type[np.generic] = np.float64, *shape: int) -> Array:
    return np.full(shape, value, kind)


class State:
    """The tables, the host index, and what is measured."""

    def __init__(self, dimensions: int, options: Options) -> None:
        integer, flag = np.int32, np.bool_
        self.options = options
        self.nodes = Table(0, {
            "at": _fill(0.0, np.float64, dimensions), "height": _fill(0.0), "capacity": _fill(0.0),
            "bandwidth": _fill(np.inf), "hosts": _fill(True, flag), "room": _fill(0.0), "used": _fill(0.0),
            "slot": _fill(-1, integer), "first": _fill(-1, integer), "source": _fill(-1, integer),
            "alive": _fill(True, flag),
            # where the node was when its sub-joins were last considered
            "anchor": _fill(0.0, np.float64, dimensions + 1),
        })
        self.sources = Table(0, {
            "stream": _fill(-1, integer), "node": _fill(-1, integer), "rate": _fill(0.0),
            "join": _fill(-1, integer), "next": _fill(-1, integer), "alive": _fill(True, flag),
        })
        self.joins = Table(0, {
            "query": _fill(-1, integer), "left": _fill(-1, integer), "right": _fill(-1, integer),
            "output": _fill(np.nan), "first": _fill(-1, integer), "state": _fill(NONE, np.int8),
            "ideal": _fill(np.inf), "next": _fill(-1, integer, 2), "before": _fill(-1, integer, 2),
        })
        self.replicas = Table(0, _REPLICA)
        self.spare = self.created = self.removed = np.empty(0, np.int32)
        self.counts = np.zeros(4, np.int64)
        self.random = np.zeros(1, np.uint64)
        self.q_sink = np.empty(0, np.int32)
        self.q_sliced = np.empty(0, np.bool_)
        self.weights = np.array(LEGS[options.objective])
        self.legs: Floats = np.empty((0, 0))
        self.index: HostIndex = build(
            np.empty(0, np.int32), np.empty((0, dimensions)), np.empty(0), np.empty(0), SLACK
        )
        self._handle: Handle | None = None

    @classmethod
    def of(cls, problem: Problem, plan: Plan, sliced: npt.NDArray[np.bool_]) -> State:
        """The state of a plan that runs. `sliced` says of each query whether its windows are dealt out."""
        state = cls(plan.space.dimensions, plan.options)
        nodes, sources, joins = problem.nodes, problem.sources, plan.joins
        state._fill_table("nodes", len(nodes), {
            "at": plan.space.coordinates, "height": plan.space.heights, "capacity": nodes.capacity,
            "bandwidth": nodes.bandwidth, "hosts": nodes.hosts,
            "anchor": np.column_stack([plan.space.coordinates, plan.space.heights]),
        })
        room = usable(nodes.capacity, nodes.bandwidth, nodes.hosts, plan.options)
        state.nodes["room"][: len(nodes)] = room
        state._fill_table("sources", len(sources), {
            "stream": sources.stream, "node": sources.node, "rate": sources.rate,
        })
        state._fill_table("joins", len(joins), {
            "query": joins.query, "left": joins.left, "right": joins.right, "output": joins.output_rate,
            "state": np.full(len(joins), RUNNING, np.int8),
        })
        state.q_sink = np.array([query.sink for query in problem.queries], np.int32)
        state.q_sliced = sliced.copy()
        _thread(state.nodes["source"], state.sources["next"], sources.node)
        _thread_joins(
            state.sources["join"], state.joins["next"], state.joins["before"], state.joins["left"],
            state.joins["right"], len(joins),
        )
        state._take_replicas(plan)
        state._measure(problem)
        used = state.nodes["used"][: len(nodes)]
        rows = np.flatnonzero(room > 0).astype(np.int32)
        state.index = build(
            rows, state.nodes["at"][rows], state.nodes["height"][rows], np.maximum(room - used, 0.0)[rows], SLACK
        )
        taken = np.flatnonzero(state.index.node >= 0)
        state.nodes["slot"][state.index.node[taken]] = taken
        state.stale()
        kernels.refresh_ideals(state.handle, np.arange(len(joins), dtype=np.int32))
        return state

    def _fill_table(self, name: str, size: int, columns: dict[str, Array]) -> None:
        table = Table(size, getattr(self, name).fills)
        for column, values in columns.items():
            table[column][:size] = values
        setattr(self, name, table)

    def _take_replicas(self, plan: Plan) -> None:
        replicas = plan.replicas
        n = len(replicas)
        boxes = np.column_stack([getattr(replicas, name) for name in SHARES]) if n else np.empty((0, 6))
        self.replicas = Table(n, _REPLICA, n + max(256, n // 4))
        left, right = replicas.rates(plan.joins)
        columns = {"join": replicas.join, "node": replicas.node, "box": boxes, "charge": left + right}
        for name, values in columns.items():
            self.replicas[name][:n] = values
        self._size_logs()
        top = self.replicas.capacity - n
        self.spare[:top] = np.arange(self.replicas.capacity - 1, n - 1, -1)
        self.counts[kernels.SPARE_TOP] = top
        self.replicas["step"][:n] = 0
        self.counts[kernels.STEP] = 1
        self._untangle(plan)
        kernels.link(self.handle, np.arange(n, dtype=np.int32))

    def _untangle(self, plan: Plan) -> None:
        """Boxes of one sub-join on one host share input where they are not slices. Their sub-join is marked, and they
        are charged equal parts of what they really take together."""
        from nova.physical.load import node_loads

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
        from nova.physical.assign import DENSE

        n = len(problem.nodes)
        hosts = int(np.count_nonzero(self.nodes["room"][:n] > 0))
        if problem.latency is None or n > MEASURED_NODES or self.joins.end * hosts > DENSE:
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
            log = np.zeros(size, np.int32)
            log[: len(old)] = old
            setattr(self, name, log)
        self._handle = None

    def grow_replicas(self) -> None:
        """More spare replica rows."""
        before = self.replicas.capacity
        self.replicas.grow()
        self.replicas.end = self.replicas.capacity
        self._size_logs()
        top, more = int(self.counts[kernels.SPARE_TOP]), self.replicas.capacity - before
        self.spare[top : top + more] = np.arange(self.replicas.capacity - 1, before - 1, -1)
        self.counts[kernels.SPARE_TOP] = top + more

    @property
    def handle(self) -> Handle:
        """What kernels take. Made again after any column was replaced."""
        if self._handle is None:
            nodes, sources, joins, replicas, index = self.nodes, self.sources, self.joins, self.replicas, self.index
            self._handle = pack(Arrays(
                nodes["at"], nodes["height"], nodes["room"], nodes["used"], nodes["slot"], nodes["first"],
                sources["node"], sources["rate"],
                joins["query"], joins["left"], joins["right"], joins["first"], joins["state"], joins["ideal"],
                self.q_sink, self.q_sliced,
                replicas["join"], replicas["node"], replicas["box"], replicas["charge"], replicas["next"],
                replicas["before"], replicas["after"], replicas["home"], replicas["step"],
                self.spare, self.created, self.removed, self.counts, self.random,
                index.node, index.points, index.heights, index.free, index.low, index.high, index.most_free,
                index.least_height, index.offsets, index.held,
                self.legs, self.weights,
            ))
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
        room = usable_one(nodes["capacity"][row], nodes["bandwidth"][row], bool(nodes["hosts"][row]), self.options)
        nodes["room"][row] = room
        slot = int(nodes["slot"][row])
        if room > 0 and slot < 0:
            free = max(room - float(nodes["used"][row]), 0.0)
            if self.index.add(row, nodes["at"][row], float(nodes["height"][row]), free, nodes["slot"]):
                self.stale()
        elif room <= 0 and slot >= 0:
            self.close_node(row)
        elif slot >= 0:
            kernels.recharge_node(self.handle, row)

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

    def forget_legs(self, row: int) -> None:
        """What was measured from and to a node no longer holds."""
        if len(self.legs):
            self.legs[row, :] = np.nan
            self.legs[:, row] = np.nan

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

    def joins_of(self, source: int) -> npt.NDArray[np.int32]:
        """Rows of the sub-joins that read a source."""
        return np.asarray(
            _joins_of(source, self.sources["join"], self.joins["next"], self.joins["left"]), dtype=np.int32
        )

    def find_join(self, query: int, left: int, right: int) -> int:
        """The sub-join of a pair in a query; −1 where there is none."""
        joins = self.joins
        row = int(self.sources["join"][left])
        while row >= 0:
            if joins["query"][row] == query and joins["left"][row] == left and joins["right"][row] == right:
                return row
            row = int(joins["next"][row, 0 if joins["left"][row] == left else 1])
        return -1


_REPLICA: dict[str, Array] = {
    "join": _fill(-1, np.int32), "node": _fill(-1, np.int32), "box": _fill(0.0, np.float64, 6),
    "charge": _fill(0.0), "next": _fill(GONE, np.int32), "before": _fill(-1, np.int32),
    "after": _fill(-1, np.int32), "home": _fill(-1, np.int32), "step": _fill(-1, np.int64),
}


def usable(capacity: Floats, bandwidth: Floats, hosts: npt.NDArray[np.bool_], options: Options) -> Floats:
    """Tuples/s that each node may take in: as a fresh plan counts them."""
    room: Floats = np.where(hosts, np.minimum(capacity, bandwidth), 0.0)
    room = np.minimum(room, UNLIMITED) * options.utilisation * (1 - MARGIN)
    return np.where(room >= options.c_min, room, 0.0)


def usable_one(capacity: float, bandwidth: float, hosts: bool, options: Options) -> float:
    """The same for one node."""
    if not hosts:
        return 0.0
    room = min(min(float(capacity), float(bandwidth)), UNLIMITED) * options.utilisation * (1 - MARGIN)
    return room if room >= options.c_min else 0.0


@kernel
def _thread(first, follow, owner):  # type: ignore[no-untyped-def]
    """Chain rows by their owner, so that each list reads in row order."""
    for row in range(len(owner) - 1, -1, -1):
        follow[row] = first[owner[row]]
        first[owner[row]] = row


@kernel
def _thread_joins(first, follow, before, left, right, count):  # type: ignore[no-untyped-def]
    """Chain sub-joins by both of their sources, so that each list reads in row order."""
    for row in range(count - 1, -1, -1):
        for side in range(2):
            source = left[row] if side == 0 else right[row]
            head = first[source]
            follow[row, side] = head
            if head >= 0:
                before[head, 0 if left[head] == source else 1] = row
            first[source] = row


@kernel
def _joins_of(source, first, follow, left):  # type: ignore[no-untyped-def]
    found = [np.int32(0)]
    row = first[source]
    while row >= 0:
        found.append(np.int32(row))
        row = follow[row, 0 if left[row] == source else 1]
    return np.array(found[1:], dtype=np.int32)
