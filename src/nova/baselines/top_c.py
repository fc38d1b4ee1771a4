"""Top-c: join by join at the node that has most capacity left, wherever that is."""

from __future__ import annotations

import heapq

import numpy as np

from nova.baselines.placement import Placement, straight, whole
from nova.model.errors import Infeasible
from nova.model.options import Options
from nova.model.problem import Floats, Ints, Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Each sub-join, in the order of the join matrix, at the host with the highest capacity left.

    Joins are not split, so one that is larger than any node's capacity still overloads the node it gets.
    """
    hosts = most_room_first(problem.nodes.room, problem.nodes.hosts, joins.demand)
    return straight(whole(problem, joins, space, options, "top-c", hosts))


def most_room_first(room: Floats, may_host: np.typing.NDArray[np.bool_], demand: Floats) -> Ints:
    """Host of each demand, given in turn to the node with most room left; ties go to the lower row, among unlimited
    nodes to the one with least load."""
    nodes = np.flatnonzero(may_host)
    if not len(nodes) and len(demand):
        raise Infeasible("no node may host joins")
    # a node can only be chosen after all nodes with more room were: as many nodes as joins are enough
    nodes = np.sort(nodes[np.argsort(-room[nodes], kind="stable")[: len(demand)]])
    heap = [(-float(room[node]), 0.0, int(node)) for node in nodes]
    heapq.heapify(heap)
    hosts = np.empty(len(demand), np.int32)
    for i, need in enumerate(demand.tolist()):
        free, load, node = heap[0]
        hosts[i] = node
        # unlimited room does not shrink, so load decides; otherwise room alone does
        heapq.heapreplace(heap, (free + need, load + need if np.isinf(free) else 0.0, node))
    return hosts
