"""Small problems on a line, and plans of them written box by box."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from nova.model.plan import Plan
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources, numbered_ids
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.placement.resolve import resolve


def problem(
    capacity: list[float],
    rates: tuple[float, float] = (40.0, 20.0),
    *,
    joins: int = 1,
    window_ms: float = 1000.0,
    output: float = float("nan"),
) -> Problem:
    """Node 0 is the sink, 1 and 2 carry the sources, the rest are workers, on a line 10 ms apart; `capacity` is that
    of the workers."""
    n = 3 + len(capacity)
    full = np.concatenate([[np.inf, np.inf, np.inf], capacity])
    at = np.column_stack([10.0 * np.arange(n), np.zeros(n)])
    rows = np.arange(joins, dtype=np.int32)
    return Problem(
        nodes=Nodes(numbered_ids(n, "n"), full, np.full(n, np.inf), np.ones(n, bool), at, np.zeros(n)),
        streams=("left", "right"),
        sources=Sources(
            numbered_ids(2 * joins, "s"),
            np.repeat(np.array([0, 1], np.int32), joins),
            np.repeat(np.array([1, 2], np.int32), joins),
            np.repeat(np.array(rates), joins),
        ),
        queries=(Query("q", 0, 1, 0, Pairs(rows, rows + np.int32(joins), np.full(joins, output)), window_ms),),
    )


Box = tuple[int, int, float, float, float, float, float, float]
"""Sub-join, node, and the shares: left from, to, right from, to, slice from, to."""


def plan_of(given: Problem, boxes: list[Box]) -> Plan:
    columns = list(zip(*boxes, strict=True))
    replicas = Replicas(
        np.array(columns[0], np.int32), np.array(columns[1], np.int32), *(np.array(c, float) for c in columns[2:])
    )
    assert given.nodes.coordinates is not None
    assert given.nodes.heights is not None
    return Plan(resolve(given), replicas, CostSpace(given.nodes.coordinates, given.nodes.heights))


def slices(nodes: list[int], cuts: list[float]) -> list[Box]:
    return [(0, v, 0, 1, 0, 1, *cut) for v, cut in zip(nodes, pairwise(cuts), strict=True)]


def grid(nodes: list[int], left: list[float], right: list[float]) -> list[Box]:
    cells = product(pairwise(left), pairwise(right))
    return [(0, v, *a, *b, 0.0, 1.0) for v, (a, b) in zip(nodes, cells, strict=True)]
