"""Merges: hosts between the replicas of a query and its sink that put partial aggregates of other hosts together.

Partials of one group become one on the way, so a merge sends at most as many tuples/s as the query has groups, however
many hosts it hears. Merges of a query make a tree: every host sends to one other, and the last ones to the sink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.problem import Bools, Floats, Ints, Problem, Query
from nova.model.rates import result_rates, result_shares
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins
from nova.model.ways import Between

NOWHERE = -1
"""Stands for the sink where the next host is asked for."""


@dataclass(frozen=True)
class Merges:
    """One row per host whose partials of a query go to another host first. Hosts without a row send theirs straight to
    the sink; a host that others send to merges what it gets with its own."""

    query: Ints
    node: Ints
    to: Ints

    def __len__(self) -> int:
        return len(self.query)

    @staticmethod
    def of(rows: list[tuple[int, int, int]]) -> Merges:
        """From rows of (query, node, to)."""
        return Merges(*np.array(sorted(rows), np.int32).reshape(-1, 3).T)

    def next(self, query: npt.NDArray[np.integer], node: npt.NDArray[np.integer]) -> Ints:
        """Where hosts send their partials of queries to; `NOWHERE`: straight to the sink."""
        if not len(self):
            return np.full(len(node), NOWHERE, np.int32)
        width = 1 + max(int(self.node.max()), int(np.max(node, initial=0)))
        known = self.query.astype(np.int64) * width + self.node
        order = np.argsort(known, kind="stable")
        wanted = np.asarray(query, np.int64) * width + node
        at = order[np.minimum(np.searchsorted(known[order], wanted), len(self) - 1)]
        return np.where((known[at] == wanted) & (node >= 0), self.to[at], NOWHERE).astype(np.int32)

    def levels(self) -> Ints:
        """How many hosts lie between each row's host and the sink; −1 where it never comes there."""
        at, steps = self.to.copy(), np.zeros(len(self), np.int32)
        for _ in range(len(self) + 1):
            there = at != NOWHERE
            if not there.any():
                return steps
            steps[there] += 1
            at[there] = self.next(self.query[there], at[there])
        return np.where(at != NOWHERE, -1, steps).astype(np.int32)

    def hops(self, query: Ints, node: Ints, sink: Ints) -> list[tuple[npt.NDArray[np.intp], Ints, Ints]]:
        """The ways from hosts to their queries' sinks, hop by hop: which of the hosts take part, from where, to where.
        The first hop has all of them; the last one of each leads to the sink."""
        found: list[tuple[npt.NDArray[np.intp], Ints, Ints]] = []
        at, some = np.asarray(node), np.arange(len(node))
        while len(some) or not found:
            then = self.next(query[some], at)
            on = then != NOWHERE
            found.append((some, at, np.where(on, then, sink[some]).astype(np.int32)))
            some, at = some[on], then[on]
        return found

    def onward(self, between: Between, query: Ints, node: Ints, sink: Ints, stay: Floats | None = None) -> Floats:
        """ms from hosts to their queries' sinks by way of the merges, at which tuples `stay` so long (ms by node)."""
        if not len(self):
            return between(node, sink)
        way = np.zeros(len(node))
        for number, (some, start, end) in enumerate(self.hops(query, node, sink)):
            way[some] += between(start, end)
            if number and stay is not None:
                way[some] += stay[start]
        return way


NO_MERGES = Merges.of([])


@dataclass(frozen=True)
class Partials:
    """What hosts send of queries whose partials can be merged, one row per query and host that has any; tuples/s."""

    query: Ints
    node: Ints
    born: Floats
    """Made by the host's own replicas: at most one partial for each group of a window."""
    taken: Floats
    """Sent here by other hosts."""
    sent: Floats
    to: Ints
    """Next host, or the sink."""

    def loads(self, nodes: int) -> Floats:
        """Tuples/s that merging charges each node."""
        return np.bincount(self.node, self.taken, nodes).astype(np.float64)


def mergeable(query: Query) -> bool:
    """Whether partials of a query can be merged on the way, and how many groups there are is known."""
    group = query.pipeline.group
    known = query.output is not None and bool(np.isfinite(query.output.most))
    return group is not None and bool(group.merge) and known and query.makes is None


def mergeable_queries(problem: Problem) -> Bools:
    """`mergeable`, query by query."""
    return np.array([mergeable(query) for query in problem.queries], np.bool_)


def groups_per_s(query: Query) -> float:
    """Partials/s that a query sends at most from one host: one for each group of a window."""
    assert query.output is not None
    return query.output.most


def partials(problem: Problem, joins: SubJoins, replicas: Replicas, merges: Merges = NO_MERGES) -> Partials:
    """Partials of all queries that can be merged, along the trees that `merges` make."""
    able = mergeable_queries(problem)
    most = np.array([groups_per_s(query) if yes else 0.0 for query, yes in zip(problem.queries, able, strict=True)])
    sinks = np.array([query.sink for query in problem.queries], np.int32)
    nodes = np.int64(len(problem.nodes))
    rows = np.flatnonzero(able[joins.query[replicas.join]]) if able.any() else np.empty(0, np.intp)
    join = replicas.join[rows]
    made = np.empty(0)
    if len(rows):
        made = result_rates(problem, joins)[join] * result_shares(problem, joins, replicas.take(rows))
    key = joins.query[join] * nodes + replicas.node[rows]
    every, at = np.unique(np.concatenate([key, merges.query * nodes + merges.to]), return_inverse=True)
    query, node = (every // nodes).astype(np.int32), (every % nodes).astype(np.int32)
    born = np.minimum(np.bincount(at[: len(key)], made, len(every)), most[query])
    taken, sent = np.zeros(len(every)), born.copy()
    then = merges.next(query, node)
    levels = np.zeros(len(every), np.int32)
    here = then.copy()
    while (there := here != NOWHERE).any():
        levels[there] += 1
        here[there] = merges.next(query[there], here[there])
    for level in range(int(levels.max(initial=0)), 0, -1):
        some = np.flatnonzero(levels == level)
        sent[some] = np.minimum(born[some] + taken[some], most[query[some]])
        np.add.at(taken, np.searchsorted(every, query[some] * nodes + then[some]), sent[some])
    last = levels == 0
    sent[last] = np.minimum(born[last] + taken[last], most[query[last]])
    return Partials(query, node, born, taken, sent, np.where(then == NOWHERE, sinks[query], then).astype(np.int32))


def merge_loads(problem: Problem, joins: SubJoins, replicas: Replicas, merges: Merges) -> Floats:
    """Tuples/s that merging charges each node."""
    if not len(merges):
        return np.zeros(len(problem.nodes))
    return partials(problem, joins, replicas, merges).loads(len(problem.nodes))
