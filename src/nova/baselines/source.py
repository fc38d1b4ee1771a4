"""Source-based: every join runs where its larger input is born, so that only the smaller one travels."""

from __future__ import annotations

import numpy as np

from nova.baselines.placement import Placement, straight, whole
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Every sub-join at the node of the source with the higher rate; the left one where rates are equal."""
    hosts = np.where(joins.left_rate >= joins.right_rate, joins.left_node, joins.right_node)
    return straight(whole(problem, joins, space, options, "source", hosts))
