"""Drawn problems look like those of the paper's experiments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nova.placement.resolve import resolve
from nova.synthetic import LEVELS, capacities, draw, rates


@pytest.mark.parametrize("seed", range(3))
def test_heterogeneity_rises_while_the_sum_stays(seed):
    drawn = [capacities(600, 400, level, seed) for level in range(LEVELS)]
    variation = [c.std() / c.mean() for c in drawn]
    assert variation[0] == pytest.approx(0.95, abs=0.06)
    assert variation[5] == pytest.approx(1.4, abs=0.12)
    assert all(a < b for a, b in pairwise(variation[1:]))
    assert all(c.sum() == pytest.approx(drawn[0].sum(), rel=0.01) for c in drawn)
    assert all(c.min() >= 1 for c in drawn)


@pytest.mark.parametrize("n", [1, 2, 7, 600])
def test_rates_have_the_papers_mean(n):
    rate = rates(n, seed=1)
    assert rate.mean() == 38
    assert rate.min() >= 1
    assert rate.max() <= 75


def test_roles_are_disjoint_and_every_source_joins_once():
    problem = draw(1001, 5, seed=2)
    joins = resolve(problem)
    sink = problem.queries[0].sink
    assert len(joins) == 300
    assert len(np.unique(np.concatenate([joins.left_node, joins.right_node, [sink]]))) == 601
    assert not problem.nodes.hosts[sink]
    assert 0.38 < joins.demand.sum() / problem.nodes.room.sum() < 0.46
    assert problem.nodes.capacity[sink] == pytest.approx(1.2 * joins.output_rate.sum())


def test_unlimited_and_given_coordinates():
    places = np.random.default_rng(0).normal(size=(50, 3))
    problem = draw(level=None, coordinates=places)
    assert np.isinf(problem.nodes.room[problem.nodes.hosts]).all()
    assert np.array_equal(problem.nodes.coordinates, places)
