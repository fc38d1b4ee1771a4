"""Merge trees: on which hosts partial aggregates of other hosts are put together on their way to the sink.

After NEMO, but built by cost: at first every host sends its partials straight to the sink. Then, again and again, the
host is found at which it pays most to merge what some of those send that reach the sink now, as many as it has room
for; level by level, what was merged is merged again. It pays in ways and metrics (objective `network`), in waiting
at a sink that is busy, and above all where the sink or a link would get more than it can take. Without any of these a
merge only adds a hop, and none is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.distances import LegLengths
from nova.model.load import node_loads
from nova.model.merges import NO_MERGES, Merges, groups_per_s, mergeable_queries, partials
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.policy import DENSE, MERGE_LEVELS, MOST_SENDERS, OVERFULL_MS, OVERLOAD, PER_MERGE, UNLIMITED, usable
from nova.model.problem import Bools, Floats, Problem
from nova.model.rates import replica_counts, result_rates
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.model.waiting import sojourn_ms, waiting_quantile
from nova.placement.links import ends_of, link_totals

Rows = npt.NDArray[np.intp]
ALIKE = 0.9
"""Merges that save at least this share of what the best one does may be made beside it, before all look again."""


def merge_trees(
    problem: Problem, joins: SubJoins, replicas: Replicas, space: CostSpace, options: Options = Options()
) -> Merges:
    """Merges for all queries whose partials can be merged, within the room that the replicas leave."""
    able = np.flatnonzero(mergeable_queries(problem))
    if not len(able) or not len(replicas):
        return NO_MERGES
    shared = _Shared(problem, joins, replicas, space, options)
    rows: list[tuple[int, int, int]] = []
    for query in able.tolist():
        rows += _Tree(shared, query).grown()
    return Merges.of(rows) if rows else NO_MERGES


class _Shared:
    """What the trees of all queries share: rooms, loads, sinks, links."""

    def __init__(
        self, problem: Problem, joins: SubJoins, replicas: Replicas, space: CostSpace, options: Options
    ) -> None:
        self.problem, self.options = problem, options
        self.between = LegLengths(space, problem.latency).between
        nodes, n = problem.nodes, len(problem.nodes)
        self.limit = np.minimum(nodes.limit, UNLIMITED)
        self.busy = nodes.other_load
        self.room = usable(nodes, options)
        self.load = node_loads(joins, replicas, n)
        """Tuples/s of joins and merges on each node."""
        self.by_rate = options.objective == "network"
        weighs = replica_counts(problem, joins, replicas, options)
        self.present: Floats = np.bincount(replicas.node, weighs, n).astype(np.float64)
        """Sub-joins on each node, as often as they count."""
        self.query, self.weight = joins.query[replicas.join], LEG_WEIGHTS[options.objective][2] * weighs
        self.node = replicas.node
        able = mergeable_queries(problem)
        self.partials = partials(problem, joins, replicas)
        plain = np.flatnonzero(~able[joins.query] & (joins.makes < 0))
        sinks = np.array([query.sink for query in problem.queries])
        last = joins.makes[replicas.join] < 0
        self.arrivals = np.bincount(joins.sink[plain], result_rates(problem, joins)[plain], n).astype(np.float64)
        self.arrivals += np.bincount(sinks[self.partials.query], self.partials.sent, n)
        """Results and partials/s that reach each sink."""
        self.awaited: Floats = np.bincount(joins.sink[replicas.join[last]], self.weight[last], n).astype(np.float64)
        """Weight of the latency of all that reaches each sink."""
        self.metrics = tuple(metric for metric in problem.metrics if metric.weight > 0)
        self.ends = ends_of(problem)
        self.budgets = np.array([link.budget * (1 + OVERLOAD) for link in problem.links])
        self.carried = link_totals(problem, joins, replicas, NO_MERGES, able) if problem.links else np.empty(0)
        """Tuples/s over each link."""

    def stay(self, load: Floats, limit: Floats) -> Floats:
        """Time in ms that a tuple stays at nodes; 0 where plans do not count it."""
        options = self.options
        if options.waiting <= 0:
            return np.zeros(np.shape(load))
        full = np.minimum(load, limit)  # beyond, `OVERFULL_MS` counts
        with np.errstate(divide="ignore", invalid="ignore"):
            if options.percentile is None:
                told = sojourn_ms(full, limit, options.arrival_scv)
            else:
                told = 1000.0 / limit + waiting_quantile(options.percentile / 100, full, limit, options.arrival_scv)
        return np.where(limit > 0, told, 0.0)

    def felt(self, weight: Floats | float, nodes: Rows | int) -> Floats:
        """What a ms at nodes counts, where so much of what is merged and all sub-joins there stay."""
        return np.asarray(self.options.waiting * weight + self.options.at_host * self.present[nodes])

    def price(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """What metrics count for each tuple/s from nodes to others, which broadcast."""
        total = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)))
        for metric in self.metrics:
            total = total + metric.weight * metric.way(a, b)
        return total

    def price_at(self, nodes: Rows) -> Floats:
        """What metrics count for each tuple/s that nodes take in."""
        total = np.zeros(len(nodes))
        for metric in self.metrics:
            total = total + metric.weight * metric.at(nodes)
        return total

    def crosses(self, link: int, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Bools:
        """Whether what goes from nodes to others, which broadcast, crosses a link."""
        leaves, reaches = self.ends[link]
        return np.asarray(leaves[a] & reaches[b] & (a != b))


@dataclass
class _Inner:
    """A host whose partials another one merges."""

    to: int
    raw: float
    """Partials/s that it has before groups become one."""
    within: float
    """Weight of the latency of what others send here."""


@dataclass
class _Move:
    """To merge what some hosts send to the sink."""

    at: int
    """Row of the host."""
    some: Rows
    """Rows of those heads."""
    spares: float
    """Partials/s that the sink gets less."""


class _Tree:
    """The tree of one query while it grows. Its heads are those that send to the sink now."""

    def __init__(self, shared: _Shared, query: int) -> None:
        self.shared, self.query = shared, query
        one, made = shared.problem.queries[query], shared.partials
        self.sink, self.most = one.sink, groups_per_s(one)
        rows = np.flatnonzero((made.query == query) & (made.node != self.sink) & (made.sent > 0))
        self.heads: Rows = made.node[rows].astype(np.intp)
        self.raw = made.born[rows].copy()
        """Partials/s that each head has before groups become one."""
        mine = shared.query == query
        weight: Floats = np.bincount(shared.node[mine], shared.weight[mine], len(shared.load)).astype(np.float64)
        self.weight = np.zeros(len(rows)) if shared.by_rate else weight[self.heads]
        """Weight of the latency of what each head sends."""
        self.within = np.zeros(len(rows))
        """That part of it that comes from others and stays at the head to be merged."""
        self.inner: dict[int, _Inner] = {}
        """Those that send to another host."""
        self.height = np.zeros(len(rows), np.int64)
        """Most merges that lie behind a head, itself included."""
        allowed = shared.problem.allowed(query)
        free = shared.room - shared.load > 0
        free[self.sink] = False
        self.hosts: Rows = np.flatnonzero(free if allowed is None else free & allowed)
        if len(rows) * len(self.hosts) > DENSE:  # those that send something of the query, too, will do
            self.hosts = np.intersect1d(self.hosts, self.heads)

    @property
    def sent(self) -> Floats:
        """Partials/s of each head."""
        return np.minimum(self.raw, self.most)

    def grown(self) -> list[tuple[int, int, int]]:
        """The rows of the tree that pays most, one merge after the other."""
        rows: list[tuple[int, int, int]] = []
        for level in range(1, MERGE_LEVELS + 1):  # what is merged at one level is merged again at the next
            while self._may_pay() and (moves := self._best(level)):
                for move in moves:
                    rows += [(self.query, child, move.at) for child in move.some.tolist()]
                    self._make(move)
        return rows

    def _may_pay(self) -> bool:
        """Whether any merge could be worth it: a quick look at what is to be had at most."""
        if not 2 <= len(self.heads) <= MOST_SENDERS or not len(self.hosts):
            return False
        if self.sent.sum() <= self.most * (1 + OVERLOAD):
            return False
        shared = self.shared
        if shared.by_rate or shared.metrics or (shared.carried > shared.budgets).any():
            return True
        least = shared.arrivals[self.sink] - self.sent.sum() + self.most
        relief = self._at_sink(shared.arrivals[self.sink]) - self._at_sink(least)
        return bool(relief > PER_MERGE * self._ways().min())

    def _ways(self) -> Floats:
        """What the ways of the heads cost now."""
        shared, sent = self.shared, self.sent
        ms, price = shared.between(self.heads, np.array(self.sink)), shared.price(self.heads, np.array(self.sink))
        return self._worth(sent, self.weight) * ms + sent * price

    def _worth(self, rate: Floats, weight: Floats) -> Floats:
        """What a ms of the way counts."""
        return rate if self.shared.by_rate else weight

    def _at_sink(self, arrivals: Floats | float) -> Floats:
        """What it costs that so many results and partials/s reach the sink: all of them wait there, and those beyond
        what it can take are worse."""
        shared, sink = self.shared, self.sink
        load = np.asarray(arrivals) + shared.load[sink] + shared.busy[sink]
        limit = shared.limit[sink]
        stay = shared.felt(shared.awaited[sink], sink) * shared.stay(load, np.broadcast_to(limit, load.shape))
        return np.asarray(stay + OVERFULL_MS * np.maximum(load - limit, 0.0))

    def _best(self, level: int) -> list[_Move]:
        """The merge that saves most, and those after it that save as much beside it; none where none is worth it.

        At every host, heads are taken in the order of what each costs more by way of it, for each partial that it
        spares the sink; as many of the first as are best and fit."""
        shared, heads, sent = self.shared, self.heads, self.sent
        sink, h = np.array(self.sink), heads[:, None]
        hosts, onward, raw, within, root, depth = self._candidates()
        m, on_price = hosts[None, :], shared.price(hosts, sink)
        direct, price = shared.between(heads, sink), shared.price(heads, sink)
        worth = self._worth(sent, self.weight)
        more = worth[:, None] * (shared.between(h, m) - direct[:, None])
        more += sent[:, None] * (shared.price(h, m) - price[:, None])
        more[(h == root[None, :]) | (self.height[:, None] + 1 + depth[None, :] > level)] = np.inf
        order = np.argsort(more / sent[:, None], axis=0, kind="stable")
        taken, weight = np.cumsum(sent[order], axis=0), np.cumsum(self.weight[order], axis=0)
        total = np.cumsum(np.take_along_axis(more, order, axis=0), axis=0)
        extra = np.minimum(raw + taken, self.most) - np.minimum(raw, self.most)
        total += self._worth(extra, weight) * onward + extra * on_price
        load = shared.load[hosts] + shared.busy[hosts]
        limit = np.broadcast_to(shared.limit[hosts], taken.shape)
        before, after = shared.stay(load, shared.limit[hosts]), shared.stay(load + taken, limit)
        total += shared.felt(within + weight, hosts) * after - shared.felt(within, hosts) * before
        total += taken * shared.price_at(hosts)
        spared = shared.arrivals[self.sink]
        total += self._at_sink(spared - taken + extra) - self._at_sink(spared)
        self._over_links(total, order, extra, hosts)
        total[taken > (shared.room - shared.load)[hosts]] = np.inf
        total[np.isnan(total)] = np.inf
        last, every = total.argmin(axis=0), np.arange(len(hosts))
        gain, spares = -total[last, every], (taken - extra)[last, every]
        ways = self._ways()
        moves: list[_Move] = []
        used: set[int] = set()
        for at in np.argsort(-gain, kind="stable").tolist():
            if not gain[at] > max(ALIKE * gain.max(), 0.0) or not self._beside(moves):
                break
            which = order[: last[at] + 1, at]
            some = heads[which]
            touched = {int(hosts[at]), int(root[at]), *some.tolist()}
            if gain[at] > PER_MERGE * ways[which].sum() and touched.isdisjoint(used):
                moves.append(_Move(int(hosts[at]), np.sort(some), float(spares[at])))
                used |= touched
        return moves

    def _beside(self, moves: list[_Move]) -> bool:
        """Whether what others save does not depend on some merges: none yet, or a sink that has too much even so, or
        one where nothing waits."""
        if not moves:
            return True
        shared, sink = self.shared, self.sink
        too_many = shared.arrivals[sink] + shared.load[sink] + shared.busy[sink] - shared.limit[sink]
        if len(shared.budgets) or (too_many <= 0 and not shared.by_rate):
            return False
        return bool(too_many <= 0 or sum(move.spares for move in moves) < too_many)

    def _candidates(self) -> tuple[Rows, Floats, Floats, Floats, Rows, Rows]:
        """Hosts that may merge more: ms from each to the sink, partials/s it has, weight of what stays there to be
        merged, the head it sends to in the end, and hosts between it and the sink. Of those that send to others, only
        those will do that send all groups already: what they send does not grow."""
        shared, sink = self.shared, np.array(self.sink)
        full = {host for host, one in self.inner.items() if one.raw >= self.most}
        may = np.array([host not in self.inner or host in full for host in self.hosts.tolist()], np.bool_)
        hosts = self.hosts[may & (shared.room[self.hosts] > shared.load[self.hosts])]
        if len(hosts) * len(self.heads) > DENSE:
            order = np.argsort(-(shared.room - shared.load)[hosts], kind="stable")
            hosts = np.sort(hosts[order[: max(DENSE // len(self.heads), 1)]])
        onward, root, depth = shared.between(hosts, sink), hosts.copy(), np.zeros(len(hosts), np.intp)
        head = np.isin(hosts, self.heads)
        at = np.searchsorted(self.heads, hosts[head])
        raw, within = np.zeros(len(hosts)), np.zeros(len(hosts))
        raw[head], within[head] = self.raw[at], self.within[at]
        for place in np.flatnonzero(np.isin(hosts, list(full))).tolist():
            host = int(hosts[place])
            raw[place], within[place] = self.inner[host].raw, self.inner[host].within
            chain = self._chain(host)
            stops = np.array(chain[1:])
            onward[place] = shared.between(np.array(chain), np.append(stops, self.sink)).sum()
            stay = shared.stay(shared.load[stops] + shared.busy[stops], shared.limit[stops])
            onward[place] += shared.options.waiting * stay.sum()
            root[place], depth[place] = chain[-1], len(stops)
        return hosts, onward, raw, within, root, depth

    def _chain(self, host: int) -> list[int]:
        """A host and those that its partials pass before the sink."""
        chain = [host]
        while chain[-1] in self.inner:
            chain.append(self.inner[chain[-1]].to)
        return chain

    def _over_links(self, total: Floats, order: npt.NDArray[np.intp], extra: Floats, hosts: Rows) -> None:
        """Add what merges spare of links that are overfull; a merge that fills one is none."""
        shared, sink, sent = self.shared, np.array(self.sink), self.sent
        for link, (budget, carried) in enumerate(zip(shared.budgets, shared.carried, strict=True)):
            over = shared.crosses(link, self.heads[:, None], hosts[None, :]).astype(np.float64)
            over -= shared.crosses(link, self.heads, sink)[:, None]
            more = np.cumsum(np.take_along_axis(sent[:, None] * over, order, axis=0), axis=0)
            more += extra * shared.crosses(link, hosts, sink)
            excess = np.maximum(carried + more - budget, 0.0) - max(carried - budget, 0.0)
            total += np.where(excess > 0, np.inf, OVERFULL_MS * excess)

    def _make(self, move: _Move) -> None:
        """Take a merge in: those it hears are heads no more, and its host is one unless it sends to another."""
        shared, sent, sink = self.shared, self.sent, np.array(self.sink)
        some = np.searchsorted(self.heads, move.some)
        taken, weight, behind = float(sent[some].sum()), float(self.weight[some].sum()), int(self.height[some].max())
        for link in range(len(shared.budgets)):
            now, then = (shared.crosses(link, self.heads[some], end) for end in (sink, np.array(move.at)))
            shared.carried[link] += sent[some] @ (then.astype(np.float64) - now)
        chain, extra = self._chain(move.at), 0.0
        if move.at in self.inner:
            self.inner[move.at].raw += taken
            for host in chain[:-1]:
                self.inner[host].within += weight
        elif move.at not in self.heads:
            place = int(np.searchsorted(self.heads, move.at))
            self.heads = np.insert(self.heads, place, move.at)
            for name in ("raw", "weight", "within", "height"):
                setattr(self, name, np.insert(getattr(self, name), place, 0))
            some = some + (some >= place)
        at = int(np.searchsorted(self.heads, chain[-1]))
        if move.at not in self.inner:
            extra = min(self.raw[at] + taken, self.most) - min(self.raw[at], self.most)
            self.raw[at] += taken
        self.weight[at] += weight
        self.within[at] += weight
        self.height[at] = max(self.height[at], len(chain) + behind)
        for link in range(len(shared.budgets)):
            shared.carried[link] += extra * float(shared.crosses(link, np.array(move.at), sink))
        shared.load[move.at] += taken
        shared.arrivals[self.sink] += extra - taken
        for child in some.tolist():
            self.inner[int(self.heads[child])] = _Inner(move.at, float(self.raw[child]), float(self.within[child]))
        stays = np.ones(len(self.heads), np.bool_)
        stays[some] = False
        for name in ("heads", "raw", "weight", "within", "height"):
            setattr(self, name, getattr(self, name)[stays])
