"""Ideal: where the operators of a query would sit if nodes were everywhere, by the spring model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nova.model.operators import OperatorGraph
from nova.model.problem import Floats, Problem
from nova.model.space import CostSpace
from nova.placement.springs import springs


@dataclass(frozen=True)
class Ideal:
    """Ideal places of the free operators of one query, taken as a whole."""

    node: Mapping[int, int]
    """By row of the operator: the host (row) nearest to its ideal position."""
    cost: float
    """Σ rate × ms over all edges at the ideal positions; heights left out, as they are the same anywhere."""


def ideal_places(graph: OperatorGraph, problem: Problem, space: CostSpace, sink: int) -> Ideal:
    """Where filters and sources are pinned to their nodes, results to the sink, and all else is free."""
    operators, at = graph.operators, space.coordinates
    points: list[Floats] = [at[sink]]
    first = {row: number for number, row in enumerate(graph.free)}
    edges: list[tuple[int, int]] = []
    weights: list[float] = []
    leaves: list[tuple[int, float, Floats]] = []
    for source, row in graph.edges:
        if row not in first and source not in first:
            continue  # between pinned operators
        rate = operators[source].rate.value
        if source in first:
            edges.append((first[source], first.get(row, -1)))
            weights.append(rate)
            continue
        root = source
        while operators[root].inputs:
            root = operators[root].inputs[0]
        born = problem.sources_of(problem.streams.index(operators[root].stream))
        rates = problem.sources.rate[born]
        share = rates / rates.sum() if rates.sum() > 0 else np.full(len(born), 1 / len(born))
        places = zip(share.tolist(), at[problem.sources.node[born]], strict=True)
        leaves += [(first[row], rate * part, place) for part, place in places]
    for free, rate, place in leaves:
        edges.append((free, -2 - len(points)))
        points.append(place)
        weights.append(rate)
    pinned = len(points)
    numbered = [(pinned + a, 0 if b == -1 else pinned + b if b >= 0 else -2 - b) for a, b in edges]
    if not first:
        return Ideal({}, 0.0)
    found = springs(np.array(points)[None], len(first), numbered, np.array([weights]))
    hosts = np.flatnonzero(problem.nodes.room > 0)
    nearest = (
        {
            row: int(hosts[np.linalg.norm(at[hosts] - found.positions[0, number], axis=1).argmin()])
            for row, number in first.items()
        }
        if len(hosts)
        else {}
    )
    return Ideal(nearest, float(found.cost[0]))
