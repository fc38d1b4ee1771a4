"""Sink-based: every join runs at its sink, whatever that does to the sink."""

from __future__ import annotations

from nova.baselines.placement import Placement, straight, whole
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Every sub-join at its sink, even one that is not meant to host: this is the line that others are measured by."""
    return straight(whole(problem, joins, space, options, "sink", joins.sink))
