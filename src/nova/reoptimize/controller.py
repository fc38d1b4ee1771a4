"""Controller: a plan that runs, and what becomes of it. Pure: events in, changes out, no clock, no files.

The same plan and the same events always give the same plan, bit by bit, so a journal of events is all that has to
survive a crash (`nova.reoptimize.journal`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.costspace.space import CostSpace
from nova.errors import InvalidInput
from nova.options import Options
from nova.plan import SHARES, Plan, Replicas
from nova.problem import Floats, Ints, Latency, Nodes, Pairs, Problem, Query, Sources
from nova.reoptimize import admission, kernels
from nova.reoptimize.changes import Change, Deploy, Move, Part, Repartition, Shares, Undeploy
from nova.reoptimize.events import Event
from nova.reoptimize.kernels import CREATED, GONE, NONE, REMOVED, STEP, WAITING
from nova.reoptimize.names import Names
from nova.reoptimize.rules import Rule
from nova.reoptimize.stability import Stability
from nova.reoptimize.state import Array, State
from nova.reoptimize.step import Step, sliceable
from nova.virtual.resolve import SubJoins, resolve


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sub-join that does not run: no room for it, or no sink."""

    query: str
    left: str
    right: str
    tuples_per_s: float
    """Input for which there is no room; 0 where the sink is missing instead."""
    reason: str


class Controller:
    """Follows a running plan through events. Make one with `from_plan`."""

    def __init__(self, state: State, names: Names, stability: Stability) -> None:
        self.state, self.names, self.stability = state, names, stability
        options = state.options
        self.largest = math.inf if options.bandwidth_budget is None else options.bandwidth_budget
        self.worth = stability.migration_ms * float(state.weights[0] + state.weights[1])
        self.waiting: dict[int, float] = {}
        """Sub-joins that do not run (or, if allowed, overload their hosts): their demand, infinite without a sink."""
        self.queue: list[tuple[float, int]] = []
        """The same as a heap, smallest demand first; entries that disagree with `waiting` are out of date."""
        self.homes: dict[int, set[int]] = {}
        """Replicas that were ousted, by the node they were ousted from."""
        self.lifted = bool(np.any(state.nodes["height"][: state.nodes.end] > 0))
        """Whether nodes have heights, so that newcomers get one."""
        self.latency: Latency | None = None
        """Measurements the problem came with; rows of nodes that are still the same."""
        self.original = np.empty(0, np.bool_)
        self.measured: dict[int, dict[int, float]] = {}
        """Measured since, both ways round; only where the problem is too large for a matrix."""
        self._free_queries: list[int] = []

    @classmethod
    def from_plan(cls, problem: Problem, plan: Plan, stability: Stability = Stability()) -> Controller:
        """A controller over a plan of a problem."""
        sliced = np.array([sliceable(q.window_ms, plan.options.partition) for q in problem.queries], np.bool_)
        state = State.of(problem, plan, sliced)
        names = Names()
        names.nodes = problem.nodes.ids.to_pylist()
        names.node_rows = {name: row for row, name in enumerate(names.nodes)}
        names.sources = problem.sources.ids.to_pylist()
        for stream in problem.streams:
            number = names.add_stream(stream)
            rows = problem.sources_of(number).tolist()
            names.source_rows[number] = {names.sources[row]: row for row in rows}
        for row, query in enumerate(problem.queries):
            sides = problem.sources_of(query.left), problem.sources_of(query.right)
            names.queries.append(Rule.of(query, len(problem.sources), sides))
            names.query_rows[query.id] = row
        controller = cls(state, names, stability)
        controller.latency = problem.latency
        controller.original = np.ones(len(problem.nodes), np.bool_)
        return controller

    @property
    def options(self) -> Options:
        """The options the plan was made with."""
        return self.state.options

    @property
    def step(self) -> int:
        """How many steps were handled so far, plus one."""
        return int(self.state.counts[STEP])

    # events in, changes out

    def handle(self, events: Event | Sequence[Event], file: str = "event", line: int | None = None) -> list[Change]:
        """Take in one event, or a batch as one step, and say what changes. A batch in which anything is wrong is
        refused as a whole with `InvalidInput`, which names `file` and `line` (without one: the number of the event),
        field and value; nothing changes."""
        events = tuple(events) if isinstance(events, Sequence) else (events,)
        faults = admission.faults(
            events, self.names, self.state.sources["node"], self.state.nodes["at"].shape[1], file, line
        )
        if faults:
            raise InvalidInput(faults)
        step = Step(self)
        for event in events:
            step.apply(event)
        step.settle(len(events))
        times = [event.time for event in events if event.time is not None]
        changes = self._changes(step, max(times) if times else None)
        self._end(step)
        return changes

    def _changes(self, step: Step, time: float | None) -> list[Change]:
        """What the rows made and dropped in this step come to, sub-join by sub-join."""
        state, replicas = self.state, self.state.replicas
        number = state.counts[STEP]
        made = state.created[: state.counts[CREATED]]
        gone = state.removed[: state.counts[REMOVED]]
        made = made[replicas["next"][made] != GONE]
        gone = gone[replicas["step"][gone] != number]
        before: dict[int, list[int]] = {}
        after: dict[int, list[int]] = {}
        for rows, parts in ((gone, before), (made, after)):
            for row, join in zip(rows.tolist(), replicas["join"][rows].tolist(), strict=True):
                parts.setdefault(join, []).append(row)
        changes: list[Change] = []
        for join in dict.fromkeys((*before, *after)):
            changes += self._change(step, join, before.get(join, []), after.get(join, []), time)
        return changes

    def _change(
        self, step: Step, join: int, before: list[int], after: list[int], time: float | None
    ) -> list[Change]:
        joins, names = self.state.joins, self.names
        rule = names.rule(int(joins["query"][join]))
        old, new = self._parts(before), self._parts(after)
        same = set(old) & set(new)
        if same:
            old, new = [part for part in old if part not in same], [part for part in new if part not in same]
        if not old and not new:
            return []
        window = None if time is None else math.ceil(time / rule.window_ms)
        common: dict[str, Any] = {
            "query": rule.id,
            "left": names.sources[int(joins["left"][join])],
            "right": names.sources[int(joins["right"][join])],
            "from_window": window,
            "from_ms": None if window is None else window * rule.window_ms,
            "reason": step.reasons.get(join) or self._why(step, after),
        }
        if not old:
            return [Deploy(node=part.node, shares=part.shares, **common) for part in new]
        if not new:
            return [Undeploy(node=part.node, shares=part.shares, **common) for part in old]
        where = {part.shares: part.node for part in old}
        if len(where) == len(old) == len(new) and all(part.shares in where for part in new):
            return [
                Move(node=part.node, from_node=where[part.shares], shares=part.shares, **common) for part in new
            ]
        return [Repartition(before=tuple(old), after=tuple(new), **common)]

    def _parts(self, rows: list[int]) -> list[Part]:
        replicas, names = self.state.replicas, self.names.nodes
        parts = []
        for row in rows:
            shares: Shares = tuple(replicas["box"][row].tolist())
            parts.append(Part(names[int(replicas["node"][row])], shares))
        parts.sort(key=lambda part: (part.shares[4], part.shares))
        return parts

    def _why(self, step: Step, after: list[int]) -> str:
        """Why a sub-join was touched that no event names."""
        replicas, names = self.state.replicas, self.names.nodes
        for row in after:
            if replicas["home"][row] >= 0:
                return f"gives way on {names[int(replicas['home'][row])]} to a sub-join that would lose more"
        for row in after:
            node = int(replicas["node"][row])
            return f"room on {names[node]}" + (f": {step.opened[node]}" if node in step.opened else "")
        return "another share of it moved"

    def _end(self, step: Step) -> None:
        """Give rows back, and keep the books of ousted replicas."""
        state, replicas = self.state, self.state.replicas
        for row in state.removed[: state.counts[REMOVED]].tolist():
            home = int(replicas["home"][row])
            if home >= 0 and home in self.homes:
                self.homes[home].discard(row)
                if not self.homes[home]:
                    del self.homes[home]
        for row in state.created[: state.counts[CREATED]].tolist():
            home = int(replicas["home"][row])
            if home >= 0 and replicas["next"][row] != GONE:
                self.homes.setdefault(home, set()).add(row)
        for node in step.dead_nodes:
            for row in self.homes.pop(node, ()):
                replicas["home"][row] = -1
        kernels.end_step(state.handle)
        state.nodes.free += step.dead_nodes
        state.sources.free += step.dead_sources
        state.joins.free += step.dead_joins
        for query in step.dead_queries:
            self.names.queries[query] = None
            state.q_sink[query] = -1
            self._free_queries.append(query)

    # what steps need

    def wait(self, join: int, demand: float) -> None:
        """A sub-join does not run until there is room (or, with infinite demand, a sink)."""
        self.waiting[join] = demand
        if demand < math.inf:
            heapq.heappush(self.queue, (demand, join))

    def measure(self, a: int, b: int, rtt_ms: float) -> None:
        """A round trip between two nodes was measured."""
        if len(self.state.legs):
            self.state.legs[a, b] = self.state.legs[b, a] = rtt_ms
        else:
            self.measured.setdefault(a, {})[b] = rtt_ms
            self.measured.setdefault(b, {})[a] = rtt_ms

    def forget(self, node: int) -> None:
        """What was measured from and to a node no longer holds."""
        for other in self.measured.pop(node, ()):
            self.measured[other].pop(node, None)
        if node < len(self.original):
            self.original[node] = False

    def take_query(self, rule: Rule) -> int:
        """A row for a new query."""
        state, names = self.state, self.names
        if self._free_queries:
            row = self._free_queries.pop()
            names.queries[row] = rule
        else:
            row = len(names.queries)
            names.queries.append(rule)
            state.q_sink = np.append(state.q_sink, np.int32(-1))
            state.q_sliced = np.append(state.q_sliced, np.False_)
            state.stale()
        names.query_rows[rule.id] = row
        return row

    # what there is now

    def cost(self) -> float:
        """Share-weighted cost of all that runs, in ms, under the plan's objective."""
        return float(kernels.total_cost(self.state.handle, self.state.joins.end))

    def waiting_list(self) -> list[Waiting]:
        """What does not run, and why."""
        joins, names, rate = self.state.joins, self.names, self.state.sources["rate"]
        found = []
        for row, demand in sorted(self.waiting.items()):
            if joins["first"][row] >= 0:
                continue  # it runs, on hosts that are overloaded knowingly
            left, right = int(joins["left"][row]), int(joins["right"][row])
            found.append(Waiting(
                names.rule(int(joins["query"][row])).id, names.sources[left], names.sources[right],
                0.0 if math.isinf(demand) else float(rate[left] + rate[right]),
                "its query has no sink" if math.isinf(demand) else "no room",
            ))
        return found

    def problem(self) -> Problem:
        """The problem as events have left it, without the sub-joins that wait. Nodes carry the coordinates of the
        running cost space."""
        return self._written()[0]

    def plan(self) -> Plan:
        """The plan that runs now, for `problem()`."""
        problem, node_row, source_row, query_row = self._written()
        state = self.state
        joins = resolve(problem)
        rows = np.flatnonzero(_runs(state))
        table = state.joins
        there = _find(joins, query_row[table["query"][rows]], source_row[table["left"][rows]],
                      source_row[table["right"][rows]], len(problem.sources))
        number = np.full(state.joins.end, -1, np.int32)
        number[rows] = there
        replicas = state.replicas
        alive = np.flatnonzero(replicas["next"] != GONE)
        boxes = replicas["box"][alive]
        made = Replicas(
            number[replicas["join"][alive]], node_row[replicas["node"][alive]],
            **{name: boxes[:, k].copy() for k, name in enumerate(SHARES)},
        )
        order = np.lexsort((made.right_from, made.left_from, made.slice_from, made.join))
        nodes = problem.nodes
        assert nodes.coordinates is not None
        assert nodes.heights is not None
        alive_nodes = np.flatnonzero(state.nodes["alive"][: state.nodes.end])
        used = state.nodes["used"][alive_nodes]
        over = np.flatnonzero(used > np.minimum(nodes.capacity, nodes.bandwidth) * (1 + kernels.OVER))
        return Plan(
            joins, made.take(order), CostSpace(nodes.coordinates, nodes.heights), state.options,
            overloaded=over.astype(np.int32), digest=problem.digest,
            summary={
                "nodes": len(nodes), "sub_joins": len(joins), "replicas": len(alive), "steps": self.step - 1,
                "waiting_sub_joins": len(self.waiting_list()),
            },
        )

    def _written(self) -> tuple[Problem, Ints, Ints, Ints]:
        """The problem, and the new row of each of our nodes, sources and queries."""
        from nova.scenario.digest import digest

        state, names = self.state, self.names
        nodes, sources, joins = state.nodes, state.sources, state.joins
        kept_nodes, node_row = _renumber(nodes["alive"][: nodes.end])
        kept_sources, source_row = _renumber(sources["alive"][: sources.end])
        runs = _runs(state)
        queries: list[Query] = []
        query_row = np.full(len(names.queries), -1, np.int32)
        for row, rule in enumerate(names.queries):
            if rule is None or state.q_sink[row] < 0:
                continue
            query_row[row] = len(queries)
            every = (joins["query"][: joins.end] == row) & (joins["state"][: joins.end] != NONE)
            mine = np.flatnonzero(every & runs)
            left, right = source_row[joins["left"][mine]], source_row[joins["right"][mine]]
            order = np.lexsort((right, left))
            pairs = Pairs(left[order], right[order], joins["output"][mine][order])
            rows = (
                kept_sources[sources["stream"][kept_sources] == rule.streams[0]],
                kept_sources[sources["stream"][kept_sources] == rule.streams[1]],
            )
            if rule.kind == "equal":
                rule.reach(sources.end)
            queries.append(Query(
                rule.id, *rule.streams, int(node_row[state.q_sink[row]]),
                rule.matrix(rows, pairs, complete=len(mine) == np.count_nonzero(every)), rule.window_ms,
            ))
        problem = Problem(
            nodes=Nodes(
                pa.array([names.nodes[row] for row in kept_nodes.tolist()], pa.string()),
                nodes["capacity"][kept_nodes], nodes["bandwidth"][kept_nodes], nodes["hosts"][kept_nodes],
                nodes["at"][kept_nodes], nodes["height"][kept_nodes],
            ),
            streams=tuple(names.streams),
            sources=Sources(
                pa.array([names.sources[row] for row in kept_sources.tolist()], pa.string()),
                sources["stream"][kept_sources], node_row[sources["node"][kept_sources]],
                sources["rate"][kept_sources],
            ),
            queries=tuple(queries),
            latency=self._latency(kept_nodes, node_row),
        )
        return replace(problem, digest=digest(problem)), node_row, source_row, query_row

    def _latency(self, kept: npt.NDArray[np.int64], node_row: Ints) -> Latency | None:
        """What is measured between the nodes that there are now."""
        if len(self.state.legs):
            known = self.state.legs[np.ix_(kept, kept)]
            at = np.nonzero(np.triu(~np.isnan(known), 1))
            return Latency(at[0].astype(np.int32), at[1].astype(np.int32), known[at]) if len(at[0]) else None
        first: Array = np.empty(0, np.int32)
        second: Array = np.empty(0, np.int32)
        rtt: Floats = np.empty(0)
        if self.latency is not None:
            old = self.latency
            stays = self.original[old.first] & self.original[old.second]
            first, second, rtt = node_row[old.first[stays]], node_row[old.second[stays]], old.rtt_ms[stays]
        if self.measured:
            new = [(a, b, rtt_ms) for a, others in self.measured.items() for b, rtt_ms in others.items() if a < b]
            a, b = (node_row[np.array([entry[k] for entry in new], np.int64)] for k in (0, 1))
            n = np.int64(len(kept))
            low, high = np.minimum(a, b), np.maximum(a, b)
            again = np.isin(np.minimum(first, second) * n + np.maximum(first, second), low * n + high)
            first, second = np.append(first[~again], low), np.append(second[~again], high)
            rtt = np.append(rtt[~again], [entry[2] for entry in new])
        if not len(first):
            return None
        low, high = np.minimum(first, second).astype(np.int32), np.maximum(first, second).astype(np.int32)
        order = np.lexsort((high, low))
        return Latency(low[order], high[order], rtt[order])


def _runs(state: State) -> npt.NDArray[np.bool_]:
    """Which sub-joins run."""
    joins = state.joins
    now = joins["state"][: joins.end]
    return np.asarray((now != NONE) & (now != WAITING))


def _renumber(kept: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Ints]:
    """Rows that are kept, and the new number of each row (−1 where it is not kept)."""
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    return np.flatnonzero(kept), number


def _find(joins: SubJoins, query: Ints, left: Ints, right: Ints, sources: int) -> Ints:
    """Row in `joins` of each (query, left source, right source)."""
    n = np.int64(max(sources, 1))
    known = (joins.query.astype(np.int64) * n + joins.left) * n + joins.right
    order = np.argsort(known, kind="stable")
    wanted = (query.astype(np.int64) * n + left) * n + right
    return order[np.searchsorted(known[order], wanted)].astype(np.int32)
