"""Tree: tuples travel along the minimum spanning tree of the cost space and join where their routes meet."""

from __future__ import annotations

import numpy as np

from nova.baselines.placement import Placement, whole
from nova.baselines.routes import Tree, relay_load
from nova.baselines.spanning import spanning_tree
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Every sub-join where the routes of its sources to the sink meet.

    Sources only send: where one source lies on the other's route, the join moves one hop on towards the sink, as in
    the published scripts.
    """
    root = int(joins.sink[0]) if len(joins) else 0
    tree = Tree.spanning(len(space), *spanning_tree(space), root=root)
    meet = tree.meeting(joins.left_node, joins.right_node, joins.sink)
    at_source = (meet == joins.left_node) | (meet == joins.right_node)
    hosts = np.where(at_source, tree.next_hop(meet, joins.sink), meet).astype(np.int32)
    routes = tree.over(space)
    plan = whole(problem, joins, space, options, "tree", hosts)
    return Placement(plan, routes, relay_load(routes, joins, hosts))
