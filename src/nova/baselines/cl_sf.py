"""Cl-SF: sources send through the head of their cluster; joins run at the common head, else at the sink."""

from __future__ import annotations

import numpy as np

from nova.baselines.clusters import clusters
from nova.baselines.placement import Placement, whole
from nova.baselines.routes import HeadRoutes, relay_load
from nova.model.options import Options
from nova.model.problem import Ints, Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options, weakness: float = 0.0) -> Placement:
    """Every sub-join at the head that its sources share, else at its sink. `weakness`: see `clusters`."""
    head = heads(problem, joins, space, options, weakness)
    together = head[joins.left_node] == head[joins.right_node]
    hosts = np.where(together, head[joins.left_node], joins.sink).astype(np.int32)
    routes = HeadRoutes(head, space)
    plan = whole(problem, joins, space, options, "cl-sf", hosts)
    return Placement(plan, routes, relay_load(routes, joins, hosts))


def heads(problem: Problem, joins: SubJoins, space: CostSpace, options: Options, weakness: float) -> Ints:
    """The head of each node's cluster. Sinks never head a cluster and speak for themselves."""
    may_head = np.ones(len(space), dtype=bool)
    may_head[joins.sink] = False
    head = clusters(space.coordinates, problem.nodes.capacity, may_head, options.seed, weakness).head
    sinks = np.unique(joins.sink)
    head[sinks] = sinks
    return head
