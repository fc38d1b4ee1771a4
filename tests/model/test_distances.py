"""What a sub-join costs on a host: measured where known, estimated elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.model import distances as costs
from nova.model.distances import LegLengths, weighted
from nova.model.problem import Latency
from nova.model.space import CostSpace
from nova.placement.resolve import resolve
from nova.synthetic import draw


@pytest.mark.parametrize("square", [0, 4096])
@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_measured_where_known_in_both_directions(square, n, seed):
    rng = np.random.default_rng(seed)
    space = CostSpace(rng.normal(size=(n, 2)), rng.uniform(0, 1, n))
    first, second = np.triu_indices(n, 1)
    known = rng.random(len(first)) < 0.5
    rtt = rng.uniform(1, 100, known.sum())
    latency = Latency(first[known].astype(np.int32), second[known].astype(np.int32), rtt)
    a, b = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    matrix = latency.matrix(n).astype(float)
    expected = np.where(np.isnan(matrix), space.between(a, b), matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "SQUARE", square)
        assert np.allclose(LegLengths(space, latency).between(a, b), expected, rtol=1e-6)


def test_few_joins_on_many_nodes_need_no_matrix():
    """A hundred thousand nodes with a handful of measurements: a square matrix would take 40 GB."""
    problem = draw(100_000, seed=1)
    at = problem.nodes.coordinates
    space = CostSpace(at, np.zeros(len(at)))
    latency = Latency(np.array([3], np.int32), np.array([99_000], np.int32), np.array([7.0]))
    legs = LegLengths(space, latency)
    assert legs.between(np.array([99_000]), np.array([3]))[0] == 7.0
    joins = resolve(problem)
    priced = weighted(legs.of(joins, np.arange(2), np.arange(100, dtype=np.int32)), np.array([1.0, 1.0, 2.0]))
    assert priced.shape == (2, 100)
