"""Chains of joins: where the input of a sub-join is born that other sub-joins make, and where their results go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nova.model.problem import Ints, Problem
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins


def linked(problem: Problem, joins: SubJoins, replicas: Replicas) -> SubJoins:
    """Sub-joins with their ends where the replicas of those before and after them are.

    What a sub-join makes is born on the host that has most of it, and goes to the host that has most of what is made of
    it. Ends whose sub-join has no replica yet stay where they were; joins of streams as they are born do not change.
    """
    made = np.flatnonzero(joins.makes >= 0)
    if not len(made):
        return joins
    host = _main_hosts(joins, replicas)
    node = problem.sources.node.copy()
    placed = made[host[made] >= 0]
    node[joins.makes[placed]] = host[placed]
    node = node[bases(problem)]
    sink = joins.sink.copy()
    reads = main_readers(problem, joins, np.flatnonzero(host >= 0))
    followed = made[reads[joins.makes[made]] >= 0]
    sink[followed] = host[reads[joins.makes[followed]]]
    return replace(joins, left_node=node[joins.left], right_node=node[joins.right], sink=sink)


def main_readers(problem: Problem, joins: SubJoins, rows: npt.NDArray[np.integer]) -> Ints:
    """Which of some sub-joins reads most of each source, as it is born or filtered or copied; −1: none of them."""
    base = bases(problem)
    reads = np.full(len(problem.sources), -1, np.int32)
    for rate, source in ((joins.left_rate, joins.left), (joins.right_rate, joins.right)):
        order = rows[np.argsort(rate[rows], kind="stable")]  # the last one that is written has most
        reads[base[source[order]]] = order
    return reads


def readers(problem: Problem, joins: SubJoins, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Sub-joins that read what these make, directly or through others."""
    base = bases(problem)
    found = np.zeros(len(joins), np.bool_)
    made = np.zeros(len(problem.sources), np.bool_)
    new = np.asarray(rows)
    while len(new := new[joins.makes[new] >= 0]):
        made[:] = False
        made[joins.makes[new]] = True
        new = np.flatnonzero((made[base[joins.left]] | made[base[joins.right]]) & ~found)
        found[new] = True
    return np.flatnonzero(found)


def bases(problem: Problem) -> Ints:
    """For each source the one it is made of by filtering or copying; itself where it is as it was born."""
    base = np.arange(len(problem.sources), dtype=np.int32)
    for row, derived in sorted(problem.derived.items()):
        base[problem.sources_of(row)] = base[problem.sources_of(derived.base)]
    return base


def _main_hosts(joins: SubJoins, replicas: Replicas) -> Ints:
    """The node that has most of each sub-join; −1 where it has no replica."""
    host = np.full(len(joins), -1, np.int32)
    order = np.argsort(replicas.volume, kind="stable")
    host[replicas.join[order]] = replicas.node[order]
    return host
