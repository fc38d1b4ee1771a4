"""Joins of several streams as problems, drawn at random, and their integer optimum by HiGHS."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.optimize import LinearConstraint, milp

from nova.model.operators import HANDED_ON, Estimate, Output, Tree
from nova.model.options import Options
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources, numbered_ids
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.model.ways import Chained

TREES: tuple[Tree, ...] = ((("a", "b"), "c"), ((("a", "b"), "c"), "d"), (("a", "b"), ("c", "d")))
"""Three streams, four left-deep, four bushy."""


def leaves(tree: Tree) -> int:
    return 1 if isinstance(tree, str) else leaves(tree[0]) + leaves(tree[1])


def drawn(seed: int, tree: Tree, instances: int = 2, workers: int = 7, spare: float = 4.0) -> Problem:
    """A query of so many instances, each with sources of its own, on workers with `spare` times the room they need."""
    rng = np.random.default_rng(seed)
    streams: list[tuple[np.ndarray, np.ndarray]] = []
    """Nodes and rates of the sources of each stream."""
    queries: list[Query] = []
    n = leaves(tree) * instances + workers + 1
    sink = n - 1
    rows = np.arange(instances, dtype=np.int32)

    def grown(part: Tree, *, last: bool) -> int:
        if isinstance(part, str):
            first = sum(len(node) for node, _ in streams if node[0] != sink)
            streams.append((np.arange(first, first + instances), rng.uniform(1, 30, instances)))
            return len(streams) - 1
        left, right = (grown(side, last=False) for side in part)
        pairs = Pairs(rows + np.int32(left * instances), rows + np.int32(right * instances), np.full(instances, np.nan))
        made = None
        if not last:
            made = len(streams)
            streams.append((np.full(instances, sink), rng.uniform(1, 30, instances)))
        output = Output(Estimate(0.01, "stated")) if last else HANDED_ON
        queries.append(Query(f"q{len(queries)}", left, right, sink, pairs, 1000.0, output=output, makes=made))
        return -1 if made is None else made

    grown(tree, last=True)
    node, rate = (np.concatenate(column) for column in zip(*streams, strict=True))
    need = sum(rate[np.concatenate([q.matrix.left, q.matrix.right])].sum() for q in queries)  # type: ignore[union-attr]
    capacity = np.zeros(n)
    capacity[-workers - 1 : -1] = rng.uniform(0.5, 1.5, workers)
    capacity *= spare * need / capacity.sum()
    at = rng.normal(size=(n, 2)) * 30
    return Problem(
        Nodes(numbered_ids(n), capacity, np.full(n, np.inf), capacity > 0, at, rng.uniform(0, 3, n)),
        tuple(f"s{k}" for k in range(len(streams))),
        Sources(
            pa.concat_arrays([numbered_ids(instances, f"s{k}-") for k in range(len(streams))]),
            np.repeat(np.arange(len(streams), dtype=np.int32), instances),
            node.astype(np.int32),
            rate,
        ),
        tuple(queries),
    )


def integer_optimum(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> float | None:
    """The least cost with every sub-join whole on one host within its room; None where there is none."""
    hosts = np.flatnonzero(problem.nodes.room > 0)
    chained = Chained.of(problem, joins, options)
    own, ways = chained.own_costs(space.between, hosts), chained.ways
    size, count = len(hosts), len(joins)
    pairs = hosts[:, None], hosts[None, :]
    between = [ways.cost(number, *pairs, space.between(*pairs)) for number in range(len(ways))]
    cost = np.concatenate([own.ravel(), *(one.ravel() for one in between)])
    rows, low, high = [], [], []

    def add(row: np.ndarray, least: float, most: float) -> None:
        rows.append(row)
        low.append(least)
        high.append(most)

    for j in range(count):
        row = np.zeros(len(cost))
        row[j * size : (j + 1) * size] = 1
        add(row, 1, 1)
    for h in range(size):
        row = np.zeros(len(cost))
        row[h : count * size : size] = joins.demand
        add(row, -np.inf, problem.nodes.room[hosts[h]] * (1 + 1e-9))
    for number in range(len(ways)):
        block = np.zeros((size, size))
        start = count * size + number * size * size
        for h in range(size):
            for one, index in ((ways.maker, np.s_[h, :]), (ways.reader, np.s_[:, h])):
                row = np.zeros(len(cost))
                block[:] = 0
                block[index] = 1
                row[start : start + size * size] = block.ravel()
                row[one[number] * size + h] = -1
                add(row, 0, 0)
    whole = np.concatenate([np.ones(count * size), np.zeros(len(cost) - count * size)])
    found = milp(cost, constraints=LinearConstraint(np.array(rows), low, high), integrality=whole, bounds=(0, 1))
    return float(found.fun) if found.success else None
