"""What a plan sends over links with budgets, and which hosts keep a sub-join off a link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.load import shared_inputs
from nova.model.merges import Merges, partials
from nova.model.policy import OVERLOAD
from nova.model.problem import Bools, Floats, Problem
from nova.model.rates import known_rates, result_shares
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins

Rows = npt.NDArray[np.intp]
MOST_TOLD = 1000
"""Sub-joins without a host that are looked at for links in their way."""


@dataclass(frozen=True)
class Crossing:
    """Tuples/s that each sub-join's flows send over each link: rows of (link, sub-join, tuples/s)."""

    link: npt.NDArray[np.intp]
    join: npt.NDArray[np.intp]
    rate: Floats

    def totals(self, links: int) -> Floats:
        """Tuples/s over each link."""
        return np.bincount(self.link, weights=self.rate, minlength=links).astype(np.float64)


def ends_of(problem: Problem) -> Bools:
    """Links × 2 × nodes: which nodes each link leaves and reaches."""
    nodes = problem.nodes
    found = [link.ends(nodes.ids, nodes.labels) for link in problem.links]
    return np.array(found, dtype=np.bool_).reshape(len(problem.links), 2, len(nodes))


def crossing(problem: Problem, joins: SubJoins, replicas: Replicas, ends: Bools, made: Floats) -> Crossing:
    """What crosses each link: the input of every sub-join on every host, counted as hosts are charged for it, and the
    results that it has `made`, in tuples/s by sub-join."""
    join, node, left, right, share = shared_inputs(joins, replicas, result_shares(problem, joins, replicas))
    results = made[join] * share
    flows = (
        (joins.left_node[join], node, left),
        (joins.right_node[join], node, right),
        (node, joins.sink[join], results),
    )
    parts: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]] = []
    for number, (leaves, reaches) in enumerate(ends):
        for origin, target, rate in flows:
            over = np.flatnonzero(leaves[origin] & reaches[target] & (origin != target) & (rate > 0))
            parts.append((np.full(len(over), number), join[over].astype(np.intp), rate[over]))
    return Crossing(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def link_totals(
    problem: Problem, joins: SubJoins, replicas: Replicas, merges: Merges, merged: Bools | None = None
) -> Floats:
    """Tuples/s over each link. Queries that are `merged` (None: those that merge anything on the way) send partials,
    each group of a host once, along their trees; all others what their sub-joins make, straight to the sink."""
    ends, made = ends_of(problem), made_by(problem, joins)
    if merged is None:
        merged = np.isin(np.arange(len(problem.queries)), merges.query)
    straight = np.where(merged[joins.query], 0.0, made)
    totals = crossing(problem, joins, replicas, ends, straight).totals(len(ends))
    if not merged.any():
        return totals
    sent = partials(problem, joins, replicas, merges)
    over = ends[:, 0, sent.node] & ends[:, 1, sent.to] & (sent.node != sent.to) & merged[sent.query]
    return np.asarray(totals + over @ sent.sent, np.float64)


def made_by(problem: Problem, joins: SubJoins) -> Floats:
    """Result tuples/s of each sub-join that count on links: those that are stated or estimated."""
    return np.nan_to_num(known_rates(problem, joins), nan=0.0)


def sent_from(joins: SubJoins, row: int, ends: Bools, made: Floats) -> Floats:
    """Links × nodes: tuples/s that a sub-join would send over each link if all of it ran on each node."""
    links, _, nodes = ends.shape
    here = np.arange(nodes)
    rates = np.zeros((links, nodes))
    for source, rate in ((joins.left_node[row], joins.left_rate[row]), (joins.right_node[row], joins.right_rate[row])):
        rates += rate * (ends[:, 0, source, None] & ends[:, 1] & (here != source))
    sink = joins.sink[row]
    rates += made[row] * (ends[:, 0] & ends[:, 1, sink, None] & (here != sink))
    return rates


def hosts_off(joins: SubJoins, row: int, spared: frozenset[int], ends: Bools, made: Floats, hosts: Bools) -> Bools:
    """Those of some hosts on which a sub-join sends least over the spared links, one link after the other."""
    left = hosts
    rates = sent_from(joins, row, ends, made) if spared else None
    for link in sorted(spared):
        assert rates is not None
        if left.any():
            left = left & (rates[link] <= rates[link, left].min() * (1 + OVERLOAD))
    return left


def in_the_way(
    problem: Problem, joins: SubJoins, replicas: Replicas, rows: Rows, missing: Floats, free: Floats
) -> list[str]:
    """Links over which sub-joins without a host would send too much if they ran where hosts have room, in words.
    `missing`: the tuples/s of each that found no host; `free`: those that each node can still take."""
    ends, made = ends_of(problem), made_by(problem, joins)
    totals = crossing(problem, joins, replicas, ends, made).totals(len(ends))
    wanted = np.zeros(len(ends))
    for row, part in zip(rows[:MOST_TOLD].tolist(), missing.tolist(), strict=False):
        mask = problem.allowed(int(joins.query[row]))
        hosts = np.flatnonzero((free >= part) & (True if mask is None else mask))
        if len(hosts):
            sent = sent_from(joins, row, ends, made)[:, hosts] * part / joins.demand[row]
            wanted += sent[:, np.argmin(sent.sum(axis=0))]
    return [
        f"link {link} carries {total:.6g} of at most {link.budget:.6g} tuples/s: where hosts have room, the rest would "
        f"send {more:.6g} over it, {total + more - link.budget:.6g} too many"
        for link, total, more in zip(problem.links, totals.tolist(), wanted.tolist(), strict=True)
        if more > 0 and total + more > link.budget * (1 + OVERLOAD)
    ]


def over_budget(problem: Problem, totals: Floats) -> list[str]:
    """Links that carry more than their budget, in words."""
    return [
        f"link {link} carries {total:.6g} tuples/s of at most {link.budget:.6g}: {total - link.budget:.6g} too many"
        for link, total in zip(problem.links, totals.tolist(), strict=True)
        if total > link.budget * (1 + OVERLOAD)
    ]
