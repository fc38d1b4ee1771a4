"""Streams become sources, queries become one sub-join per joinable pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nova.model.problem import Dense, Equal, Nodes, Pairs, Problem, Query, Sources, numbered_ids
from nova.placement.resolve import resolve


def problem(lefts, rights, *matrices):
    n = lefts + rights
    nodes = Nodes(numbered_ids(n + 1), np.ones(n + 1), np.ones(n + 1), np.ones(n + 1, bool), np.zeros((n + 1, 2)))
    stream = np.repeat(np.array([0, 1], np.int32), [lefts, rights])
    sources = Sources(numbered_ids(n), stream, np.arange(n, dtype=np.int32), np.arange(1.0, n + 1))
    queries = tuple(Query(f"q{i}", 0, 1, n, m) for i, m in enumerate(matrices))
    return Problem(nodes, ("a", "b"), sources, queries)


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=8), st.lists(st.integers(-1, 4), min_size=1, max_size=8))
def test_equal_attribute_finds_just_the_equal_pairs(left, right):
    made = problem(len(left), len(right), Equal("region", np.array(left, np.int32), np.array(right, np.int32)))
    joins = resolve(made)
    wanted = {(i, len(left) + j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b >= 0}
    assert set(zip(joins.left.tolist(), joins.right.tolist(), strict=True)) == wanted
    assert len(joins) == len(wanted)


def test_dense_matrix_pairs_everyone():
    joins = resolve(problem(3, 4, Dense()))
    assert len(joins) == 12
    assert joins.demand.tolist() == [float(i + 1 + j + 1) for i in range(3) for j in range(3, 7)]


def test_a_source_serves_several_queries():
    explicit = Pairs(np.array([0], np.int32), np.array([2], np.int32), np.array([5.0]))
    joins = resolve(problem(2, 2, Dense(), explicit))
    assert joins.query.tolist() == [0, 0, 0, 0, 1]
    assert joins.output_rate[-1] == 5.0
    assert np.isnan(joins.output_rate[:-1]).all()
