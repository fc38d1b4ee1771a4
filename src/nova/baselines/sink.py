"""Sink-based: every join runs at its sink, whatever that does to the sink."""

from __future__ import annotations

from nova.baselines.placement import Placement, straight, whole
from nova.costspace.space import CostSpace
from nova.options import Options
from nova.problem import Problem
from nova.virtual.resolve import SubJoins


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """Every sub-join at its sink, even one that is not meant to host: this is the line that others are measured by."""
    return straight(whole(problem, joins, space, options, "sink", joins.sink))
