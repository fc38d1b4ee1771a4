"""Cl-Tree-SF: sources send to the head of their cluster, heads along their minimum spanning tree; joins run where
routes meet."""

from __future__ import annotations

import numpy as np

from nova.baselines.cl_sf import heads
from nova.baselines.placement import Placement, whole
from nova.baselines.routes import Tree, relay_load
from nova.baselines.spanning import spanning_tree
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options, weakness: float = 0.0) -> Placement:
    """Every sub-join at the head (or sink) where the routes of its two cluster heads to the sink meet."""
    head = heads(problem, joins, space, options, weakness)
    inner = np.unique(head)
    members = np.flatnonzero(head != np.arange(len(head)))
    first, second = spanning_tree(space, inner)
    root = int(joins.sink[0]) if len(joins) else int(inner[0])
    tree = Tree.spanning(
        len(space), np.concatenate([first, members]), np.concatenate([second, head[members]]), root=root
    )
    hosts = tree.meeting(head[joins.left_node], head[joins.right_node], joins.sink)
    routes = tree.over(space)
    plan = whole(problem, joins, space, options, "cl-tree-sf", hosts)
    return Placement(plan, routes, relay_load(routes, joins, hosts))
