"""Placing queries that may not run everywhere: on hosts that meet their requirements and have memory for their windows,
with replicas apart from each other, over links that are not overfull.

All sub-joins are placed, or some of them beside others that stay where they run: plans and the controller hold the same
bounds in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nova.model.load import memory_limits, memory_loads, node_loads, window_bytes
from nova.model.options import Options
from nova.model.policy import DENSE, OVERLOAD, usable
from nova.model.problem import Bools, Floats, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.apart import not_apart, places
from nova.placement.assign import Assignment, Start, assign
from nova.placement.links import crossing, ends_of, hosts_off, made_by, over_budget, sent_from

ROUNDS = 20
"""How often sub-joins are sent around overfull links before some are left out."""
Rows = npt.NDArray[np.intp]


def assign_within(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    start: Start | None = None,
    rows: Rows | None = None,
    kept: Replicas | None = None,
) -> Assignment:
    """Place sub-joins (all, or `rows` beside the replicas `kept` of others), each on hosts that its query may use, and
    none of the links above its budget.

    Where a link carries too much, the sub-joins that send most over it are kept to hosts where they send least, and all
    is placed again; what still does not fit is left out, and `why` says so. Where no query requires anything, no link
    has a budget and nothing is kept, this is `assign`.
    """
    if rows is None and not problem.bound and options.objective != "network":
        return assign(problem, joins, space, options, start)
    return _Within(problem, joins, space, options, start, kept).place(np.arange(len(joins)) if rows is None else rows)


def breaks_bounds(problem: Problem, joins: SubJoins, replicas: Replicas) -> Rows:
    """Sub-joins to take away, the largest first, so that what is left of some replicas is where it may be and sends no
    more over links than their budgets."""
    found = [np.empty(0, np.intp)]
    query = joins.query[replicas.join]
    for number in range(len(problem.queries)):
        mask = problem.allowed(number)
        if mask is not None:
            found.append(np.unique(replicas.join[(query == number) & ~mask[replicas.node]]).astype(np.intp))
    found.append(not_apart(problem, joins, replicas))
    gone = np.unique(np.concatenate(found))
    left = replicas.take(np.flatnonzero(~np.isin(replicas.join, gone)))
    gone = np.concatenate([gone, _too_heavy(problem, joins, left, memory_limits(problem))])
    if problem.links:
        left = replicas.take(np.flatnonzero(~np.isin(replicas.join, gone)))
        budgets = np.array([link.budget for link in problem.links])
        made = made_by(problem, joins)
        gone = np.concatenate([gone, _too_many(problem, joins, left, made, budgets)])
    return gone


def _too_heavy(problem: Problem, joins: SubJoins, replicas: Replicas, memory: Floats) -> Rows:
    """Sub-joins without which no node holds more of open windows than its memory: the largest on the fullest first."""
    gone: list[int] = []
    if not any(query.tuple_bytes for query in problem.queries):
        return np.empty(0, np.intp)
    size = window_bytes(problem, joins) * joins.demand
    while len(replicas):
        excess = memory_loads(problem, joins, replicas) - memory * (1 + OVERLOAD)
        node = int(np.argmax(excess))
        if not excess[node] > 0:
            break
        here = np.unique(replicas.join[replicas.node == node])
        gone.append(int(here[np.argmax(size[here])]))
        replicas = replicas.take(np.flatnonzero(replicas.join != gone[-1]))
    return np.array(gone, np.intp)


def _too_many(problem: Problem, joins: SubJoins, replicas: Replicas, made: Floats, budgets: Floats) -> Rows:
    """Sub-joins without which no link is above its budget: of the fullest link, the one that sends most over it, and so
    on."""
    sent = crossing(problem, joins, replicas, ends_of(problem), made)
    rates = np.zeros((len(budgets), len(joins)))
    np.add.at(rates, (sent.link, sent.join), sent.rate)
    gone: list[int] = []
    while len(budgets):
        excess = rates.sum(axis=1) - budgets * (1 + OVERLOAD)
        link = int(np.argmax(excess))
        if excess[link] <= 0:
            break
        gone.append(int(np.argmax(rates[link])))
        rates[:, gone[-1]] = 0.0
    return np.array(gone, np.intp)


def _with(rest: Replicas, more: Replicas) -> Replicas:
    both = Replicas.concat([rest, more])
    return both.take(np.argsort(both.join, kind="stable"))


class _Within:
    """What placing within bounds needs again and again."""

    def __init__(
        self,
        problem: Problem,
        joins: SubJoins,
        space: CostSpace,
        options: Options,
        start: Start | None,
        kept: Replicas | None,
    ) -> None:
        self.problem, self.joins, self.space, self.options, self.start = problem, joins, space, options, start
        everywhere = np.ones(len(problem.nodes), dtype=np.bool_)
        masks = [problem.allowed(row) for row in range(len(problem.queries))]
        self.may = [everywhere if mask is None else mask for mask in masks]
        self.room = usable(problem.nodes, options)
        self.ends, self.made = ends_of(problem), made_by(problem, joins)
        self.budgets = np.array([link.budget for link in problem.links])
        self.bytes, self.memory = window_bytes(problem, joins), memory_limits(problem)
        self.others, self.taken = np.zeros(len(problem.nodes)), np.zeros(len(self.budgets))
        if kept is not None and len(kept):
            self.others = node_loads(joins, kept, len(problem.nodes))
            self.memory = self.memory - memory_loads(problem, joins, kept)
            if problem.links:
                self.taken = crossing(problem, joins, kept, self.ends, self.made).totals(len(self.budgets))

    def place(self, rows: Rows) -> Assignment:
        spared: list[frozenset[int]] = [frozenset()] * len(self.joins)
        found = self._within_memory(self._apart(self._by_mask(rows, spared)))
        if not self.problem.links:
            return found
        for _ in range(ROUNDS):
            totals, rates = self._sent(found)
            if not over_budget(self.problem, totals):
                return self._beside_links(found)
            moved = False
            for number, budget in enumerate(self.budgets):
                excess = totals[number] - budget * (1 + OVERLOAD)
                for row in np.argsort(-rates[number], kind="stable").tolist():
                    if excess <= 0 or rates[number, row] <= 0:
                        break
                    if number in spared[row]:
                        continue
                    wanted = spared[row] | {number}
                    sent = sent_from(self.joins, row, self.ends, self.made)[number]
                    least = sent[self._hosts(row, wanted)].min(initial=np.inf)
                    if least < rates[number, row] * (1 - OVERLOAD):
                        spared[row], moved = wanted, True
                        excess -= rates[number, row] - least
            if not moved:
                break
            found = self._within_memory(self._apart(self._by_mask(rows, spared)))
        return self._within_budgets(found)

    def _without(self, found: Assignment, gone: Rows, why: tuple[str, ...]) -> Assignment:
        """What was found but for some sub-joins, and why these found no place."""
        new = np.setdiff1d(gone, found.unplaced)
        return Assignment(
            found.replicas.take(np.flatnonzero(~np.isin(found.replicas.join, gone))),
            np.concatenate([found.unplaced, new]).astype(np.int32),
            np.concatenate([found.missing, self.joins.demand[new]]),
            (*found.why, *why),
        )

    def _within_memory(self, found: Assignment) -> Assignment:
        """Without the sub-joins whose windows are more than a node's memory: windows that are dealt out stay whole."""
        gone = _too_heavy(self.problem, self.joins, found.replicas, self.memory)
        if not len(gone):
            return found
        need = float((self.bytes * self.joins.demand)[gone].sum()) / 1e6
        line = f"the memory of hosts cannot take open windows of {len(gone)} sub-joins: {need:.6g} MB too many"
        return self._without(found, gone, (line,))

    def _apart(self, found: Assignment) -> Assignment:
        """Sub-joins whose replicas are not apart as their query asks are placed again, beside all others: on one host
        of each value, the one with most room."""
        broken = not_apart(self.problem, self.joins, found.replicas)
        for row in np.setdiff1d(broken, found.unplaced).tolist():
            query = self.problem.queries[self.joins.query[row]]
            assert query.apart is not None
            rest = found.replicas.take(np.flatnonzero(found.replicas.join != row))
            loads = self.others + node_loads(self.joins, rest, len(self.problem.nodes))
            free = np.where(self.may[self.joins.query[row]], np.maximum(self.room - loads, 0.0), 0.0)
            value = places(self.problem, query.apart)
            order = np.lexsort((-free, value))
            order = order[(value[order] >= 0) & (free[order] > 0)]
            one = np.zeros(len(free), np.bool_)
            one[order[np.unique(value[order], return_index=True)[1]]] = True
            again = self._placed_beside(row, rest, one)
            ids, label = self.problem.sources.ids, f"{query.id} keeps replicas of a sub-join apart by {query.apart}"
            pair = f"{ids[int(self.joins.left[row])]} ⋈ {ids[int(self.joins.right[row])]}"
            if len(again.unplaced):
                line = f"query {label}: {pair} does not fit on one host of each"
                found = self._without(found, np.array([row]), (line,))
                continue
            found = replace(found, replicas=_with(rest, again.replicas))
        return found

    def _beside_links(self, found: Assignment) -> Assignment:
        """Sub-joins that found no host as they were kept off links, one by one on any host that links have room for."""
        for row in found.unplaced.tolist():
            rest = found.replicas.take(np.flatnonzero(found.replicas.join != row))
            totals = self.taken + crossing(self.problem, self.joins, rest, self.ends, self.made).totals(
                len(self.budgets)
            )
            sent = sent_from(self.joins, row, self.ends, self.made)
            fits = np.all(totals[:, None] + sent <= self.budgets[:, None] * (1 + OVERLOAD), axis=0)
            again = self._placed_beside(row, rest, fits & self.may[self.joins.query[row]])
            if not len(again.unplaced):
                left = found.unplaced != row
                replicas = _with(rest, again.replicas)
                found = Assignment(replicas, found.unplaced[left], found.missing[left], found.why)
        return found

    def _placed_beside(self, row: int, rest: Replicas, hosts: Bools) -> Assignment:
        """One sub-join, placed on some hosts beside the replicas of others."""
        inner = _Within(self.problem, self.joins, self.space, self.options, None, None)
        inner.others = self.others + node_loads(self.joins, rest, len(self.problem.nodes))
        inner.memory = self.memory - memory_loads(self.problem, self.joins, rest)
        inner.may = [hosts] * len(self.problem.queries)
        return inner._by_mask(np.array([row]), [frozenset()] * len(self.joins))

    def _sent(self, found: Assignment) -> tuple[Floats, Floats]:
        """Tuples/s over each link: in all, with what is kept, and by sub-join that was placed."""
        sent = crossing(self.problem, self.joins, found.replicas, self.ends, self.made)
        rates = np.zeros((len(self.budgets), len(self.joins)))
        np.add.at(rates, (sent.link, sent.join), sent.rate)
        return self.taken + rates.sum(axis=1), rates

    def _within_budgets(self, found: Assignment) -> Assignment:
        """What was found without the sub-joins that make links carry too much."""
        told = over_budget(self.problem, self._sent(found)[0])
        if not told:
            return found
        gone = _too_many(
            self.problem, self.joins, found.replicas, self.made, np.maximum(self.budgets - self.taken, 0.0)
        )
        return self._without(found, gone, ("the links cannot take the load:", *(f"  {line}" for line in told)))

    def _hosts(self, row: int, spared: frozenset[int]) -> Bools:
        """Nodes that a sub-join may use."""
        mine = self.may[self.joins.query[row]]
        return hosts_off(self.joins, row, spared, self.ends, self.made, mine & (self.room > 0)) if spared else mine

    def _blocks(self, classes: Iterable[tuple[Bools, list[int]]]) -> Iterator[tuple[Bools, Rows]]:
        """Classes of sub-joins; in parts of which every pair can be priced, where the cost space does not tell all."""
        priced = any(metric.weight > 0 for metric in self.problem.metrics) or self.options.objective == "network"
        for mask, members in classes:
            most = max(1, DENSE // max(1, int((mask & (self.room > 0)).sum()))) if priced else len(members)
            for begin in range(0, len(members), most):
                yield mask, np.array(members[begin : begin + most])

    def _by_mask(self, rows: Rows, spared: list[frozenset[int]]) -> Assignment:
        """Sub-joins that may use the same hosts are placed together; those whose hosts have the least room go first,
        and what they take is other work to those that come after."""
        problem, joins, nodes = self.problem, self.joins, self.problem.nodes
        classes: dict[tuple[bytes, float], tuple[Bools, list[int]]] = {}
        for row in rows.tolist():
            mine = self._hosts(row, spared[row])
            classes.setdefault((mine.tobytes(), float(self.bytes[row])), (mine, []))[1].append(row)
        loads, memory = self.others.copy(), self.memory.copy()
        parts: list[Assignment] = []
        for mask, some in self._blocks(sorted(classes.values(), key=lambda one: float(self.room[one[0]].sum()))):
            left = replace(nodes, hosts=nodes.hosts & mask, busy=nodes.other_load + loads)
            these, options = joins.take(some), self.options
            if size := float(self.bytes[some[0]]):
                left = replace(left, allowance=np.maximum(memory, 0.0) / size)
                if options.partition == "auto":  # who gets some windows holds them whole: that divides no memory
                    options = replace(options, partition="key")
            running = None if self.start is None else self.start.of(some, len(joins))
            placed = assign(replace(problem, nodes=left), these, self.space, options, running)
            loads += node_loads(these, placed.replicas, len(nodes))
            memory -= memory_loads(problem, these, placed.replicas)
            numbered = replace(placed.replicas, join=some[placed.replicas.join].astype(np.int32))
            parts.append(Assignment(numbered, some[placed.unplaced].astype(np.int32), placed.missing))
        if not parts:
            return Assignment.nothing()
        replicas = Replicas.concat([part.replicas for part in parts])
        return Assignment(
            replicas.take(np.argsort(replicas.join, kind="stable")),
            np.concatenate([part.unplaced for part in parts]),
            np.concatenate([part.missing for part in parts]),
        )
