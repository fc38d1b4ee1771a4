"""A problem and a plan small enough to work out by hand, for tests of what reads plans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nova import synthetic
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.placement.resolve import resolve

IDS = ["s1", "s2", "s3", "h1", "h2", "sink"]
POINTS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 8.0], [3.0, 0.0], [3.0, 4.0], [3.0, 8.0]])
LEFT, RIGHT, OTHER, FIRST, SECOND, SINK = range(6)


def problem(capacity: tuple[float, ...] = (10, 10, 10, 100, 30, 20)) -> Problem:
    """Three sources on three nodes, two hosts, one sink. Two sub-joins: a ⋈ x (10 and 20 tuples/s), b ⋈ x."""
    n = len(IDS)
    return Problem(
        nodes=Nodes(
            ids=pa.array(IDS),
            capacity=np.array(capacity, dtype=float),
            bandwidth=np.full(n, np.inf),
            hosts=np.array([True] * 5 + [False]),
            coordinates=POINTS,
        ),
        streams=("left", "right"),
        sources=Sources(
            ids=pa.array(["a", "b", "x"]),
            stream=np.array([0, 0, 1], np.int32),
            node=np.array([LEFT, OTHER, RIGHT], np.int32),
            rate=np.array([10.0, 5.0, 20.0]),
        ),
        queries=(
            Query(
                "q",
                0,
                1,
                SINK,
                Pairs(np.array([0, 1], np.int32), np.array([2, 2], np.int32), np.array([np.nan, np.nan])),
            ),
        ),
        digest="made by hand",
    )


def plan(problem: Problem, replicas: Replicas | None = None) -> Plan:
    """a ⋈ x in a 2 × 2 grid: three boxes on h1, one on h2; b ⋈ x whole on h2."""
    boxes = (
        replicas
        if replicas is not None
        else Replicas(
            join=np.array([0, 0, 0, 0, 1], np.int32),
            node=np.array([FIRST, FIRST, FIRST, SECOND, SECOND], np.int32),
            left_from=np.array([0.0, 0.0, 0.5, 0.5, 0.0]),
            left_to=np.array([0.5, 0.5, 1.0, 1.0, 1.0]),
            right_from=np.array([0.0, 0.25, 0.0, 0.25, 0.0]),
            right_to=np.array([0.25, 1.0, 0.25, 1.0, 1.0]),
            slice_from=np.zeros(5),
            slice_to=np.ones(5),
        )
    )
    return Plan(
        joins=resolve(problem),
        replicas=boxes,
        space=CostSpace(POINTS, np.zeros(len(POINTS))),
        options=Options(partition="grid"),
        digest=problem.digest,
    )


def crowd(n: int) -> tuple[Problem, Plan]:
    """A drawn problem of n nodes with each sub-join on a random host."""
    drawn = synthetic.draw(n, seed=3)
    joins = resolve(drawn)
    hosts = np.random.default_rng(0).choice(np.flatnonzero(drawn.nodes.hosts), len(joins))
    assert drawn.nodes.coordinates is not None
    space = CostSpace(drawn.nodes.coordinates, np.zeros(n))
    return drawn, Plan(joins, Replicas.whole(np.arange(len(joins)), hosts), space)
