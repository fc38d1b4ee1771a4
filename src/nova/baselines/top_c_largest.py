"""Top-c with the largest join first: the usual greedy rule for balancing load, blind to latency."""

from __future__ import annotations

import numpy as np

from nova.baselines.placement import Placement, straight, whole
from nova.baselines.top_c import most_room_first
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Each sub-join, by falling demand, at the host with the highest capacity left; ties in order."""
    order = np.argsort(-joins.demand, kind="stable")
    hosts = np.empty(len(joins), np.int32)
    hosts[order] = most_room_first(problem.nodes.room, problem.nodes.hosts, joins.demand[order])
    return straight(whole(problem, joins, space, options, "top-c-largest", hosts))
