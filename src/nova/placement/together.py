"""Joins of joins, moved two at a time: level by level, none sees what its place costs those that are placed later.

A join and one that reads its results look for the two hosts that are cheapest for both, all others staying where they
are: every pair of some candidates is weighed, the same host twice included. For three streams that is the whole query,
so what is found is the best there is beside all other queries.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nova.model.chain import linked
from nova.model.distances import LegLengths
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.policy import DENSE, UNLIMITED, usable
from nova.model.problem import Floats, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.model.waiting import sojourn_ms, waiting_quantile
from nova.model.ways import Chained
from nova.placement.within import breaks_bounds

CANDIDATES = 48
"""Hosts that are looked at for each of two joins: the cheapest for it alone, and the cheapest for both."""
SWEEPS = 8
"""How often all pairs look again, at most."""
WORTH = 1e-9
"""Relative gain below which nothing moves."""


def together(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, replicas: Replicas
) -> tuple[SubJoins, Replicas]:
    """The same sub-joins with joins of joins on cheaper hosts, where no part of them is cut and every host can be
    weighed; replicas of all others stay."""
    chained = Chained.of(problem, joins, options)
    room = usable(problem.nodes, options)
    hosts = np.flatnonzero(room > 0)
    if not len(chained.ways) or len(joins) * len(hosts) > DENSE:
        return joins, replicas
    moved = _Pairs(problem, space, options, chained, hosts, replicas).improved()
    return linked(problem, joins, moved), moved


class _Pairs:
    """Where sub-joins run, and what that costs."""

    def __init__(
        self,
        problem: Problem,
        space: CostSpace,
        options: Options,
        chained: Chained,
        hosts: npt.NDArray[np.intp],
        replicas: Replicas,
    ) -> None:
        self.problem, self.options, self.chained, self.hosts, self.replicas = problem, options, chained, hosts, replicas
        joins, nodes = chained.joins, problem.nodes
        self.between = LegLengths(space, problem.latency).between
        self.own = chained.own_costs(self.between, hosts)
        for query in range(len(problem.queries)):
            allowed = problem.allowed(query)
            if allowed is not None:
                self.own[np.ix_(joins.query == query, ~allowed[hosts])] = np.inf
        self.limit = np.minimum(nodes.limit, UNLIMITED)
        self.room = usable(nodes, options)
        self.load = node_loads(joins, replicas, len(nodes))
        self.present: Floats = np.bincount(replicas.node, weights=replicas.volume, minlength=len(nodes)).astype(
            np.float64
        )
        """Sub-joins on each node, by their shares."""
        self.whole = np.bincount(replicas.join, minlength=len(joins)) == 1
        self.host = np.full(len(joins), -1, np.intp)
        order = np.argsort(replicas.volume, kind="stable")
        self.host[replicas.join[order]] = replicas.node[order]
        self.ways_of: list[list[int]] = [[] for _ in range(len(joins))]
        for number, ends in enumerate(zip(chained.ways.maker.tolist(), chained.ways.reader.tolist(), strict=True)):
            for one in ends:
                self.ways_of[one].append(number)

    def improved(self) -> Replicas:
        """Replicas after all pairs have looked, until none finds better."""
        ways = self.chained.ways
        able = self.whole[ways.maker] & self.whole[ways.reader]
        for _ in range(SWEEPS):
            if not sum(self._look(number) for number in np.flatnonzero(able).tolist()):
                break
        return self.replicas

    def _look(self, number: int) -> bool:
        """Move the two joins of a way to the best two hosts; whether that helped."""
        pair = int(self.chained.ways.maker[number]), int(self.chained.ways.reader[number])
        demand = self.chained.joins.demand[list(pair)]
        for one in pair:
            self._charge(one, -1.0)
        alone = [self._alone(one, number) for one in pair]
        here = self._candidates(alone, pair)
        nodes = self.hosts[here]
        free, load, present = self.room[nodes] - self.load[nodes], self.load[nodes], self.present[nodes]
        at = [self._stay(nodes, load, present, amount, 1.0) for amount in demand]
        a, b = (cost[here] + stay for cost, stay in zip(alone, at, strict=True))
        apart = self.between(nodes[:, None], nodes[None, :])
        total = a[:, None] + b[None, :] + self.chained.ways.cost(number, nodes[:, None], nodes[None, :], apart)
        same = np.arange(len(nodes))
        total[same, same] += self._stay(nodes, load, present, demand.sum(), 2.0) - at[0] - at[1]
        full = (free < demand[0])[:, None] | (free < demand[1])[None, :]
        full[same, same] |= free < demand.sum()
        was = tuple(int(np.flatnonzero(nodes == self.host[one])[0]) for one in pair)
        before = total[was]
        total[full] = np.inf
        best = np.unravel_index(int(total.argmin()), total.shape)
        old = [int(self.host[one]) for one in pair]
        better = bool(total[best] < before - WORTH * abs(before))
        if better:
            self._put(pair, nodes[list(best)].tolist())
            if self.problem.bound and self._breaks():
                self._put(pair, old)
                better = False
        for one in pair:
            self._charge(one, 1.0)
        return better

    def _alone(self, row: int, without: int) -> Floats:
        """What a sub-join costs on each host beside one of its ways, time at hosts left out."""
        ways = self.chained.ways
        cost: Floats = self.own[row].copy()
        for number in self.ways_of[row]:
            if number == without:
                continue
            maker, reader = int(ways.maker[number]), int(ways.reader[number])
            other = self.host[reader if row == maker else maker]
            if other < 0:
                continue
            a, b = (self.hosts, np.array(other)) if row == maker else (np.array(other), self.hosts)
            cost += ways.cost(number, a, b, self.between(a, b))
        return cost

    def _candidates(self, alone: list[Floats], pair: tuple[int, int]) -> npt.NDArray[np.intp]:
        """Rows of hosts that are weighed: cheap for one or for both, and where the pair is now."""
        most = min(CANDIDATES, len(self.hosts))
        found = [np.argpartition(cost, most - 1)[:most] for cost in (*alone, alone[0] + alone[1])]
        found.append(np.searchsorted(self.hosts, self.host[list(pair)]))
        return np.unique(np.concatenate(found))

    def _stay(self, nodes: npt.NDArray[np.intp], load: Floats, present: Floats, more: float, count: float) -> Floats:
        """What `count` whole sub-joins of `more` tuples/s in all add to the time at hosts."""
        if self.options.waiting <= 0:
            return np.zeros(len(nodes))
        limit, busy = self.limit[nodes], self.problem.nodes.other_load[nodes]
        before = np.where(present > 0, present * self._time(load + busy, limit), 0.0)
        after = (present + count) * self._time(load + busy + more, limit)
        return self.options.at_host * np.asarray(after - before)

    def _time(self, load: Floats, limit: Floats) -> Floats:
        """Time in ms that a tuple stays at hosts."""
        options = self.options
        if options.percentile is None:
            return np.asarray(sojourn_ms(load, limit, options.arrival_scv))
        return np.asarray(1000.0 / limit + waiting_quantile(options.percentile / 100, load, limit, options.arrival_scv))

    def _charge(self, row: int, sign: float) -> None:
        node = self.host[row]
        self.load[node] += sign * self.chained.joins.demand[row]
        self.present[node] += sign

    def _put(self, pair: tuple[int, int], nodes: list[int]) -> None:
        column = self.replicas.node.copy()
        for one, node in zip(pair, nodes, strict=True):
            column[self.replicas.join == one] = node
            self.host[one] = node
        self.replicas = replace(self.replicas, node=column)

    def _breaks(self) -> bool:
        joins = linked(self.problem, self.chained.joins, self.replicas)
        return bool(len(breaks_bounds(self.problem, joins, self.replicas)))
