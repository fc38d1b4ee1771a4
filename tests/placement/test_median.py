"""Virtual positions: exact, in any dimension, at corners and inside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nova.placement.median import fermat, geometric_median

WEIGHTS = [(1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1.0, 2.0, 1.5), (3.0, 1.0, 1.0)]


def cost(y, points, weights):
    return sum(w * np.linalg.norm(p - y) for w, p in zip(weights, points, strict=True))


def test_equilateral_triangle_meets_in_its_centre():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    assert fermat(*points[:, None])[0] == pytest.approx(points.mean(axis=0))


def test_an_angle_of_120_degrees_or_more_wins():
    points = np.array([[-1.0, 0.0], [0.0, 0.1], [1.0, 0.0]])
    assert (fermat(*points[:, None])[0] == points[1]).all()


def test_the_latency_objective_pulls_joins_to_their_sink():
    """Weight 2 on the sink equals the two sources together: nowhere is nearer than the sink itself."""
    points = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 8.0]])
    assert (fermat(*points[:, None], (1.0, 1.0, 2.0))[0] == points[2]).all()


@pytest.mark.parametrize("weights", WEIGHTS)
@given(arrays(np.float64, st.tuples(st.just(3), st.integers(2, 5)), elements=st.floats(-100, 100, width=16)))
def test_no_point_near_the_median_is_better(weights, points):
    y = fermat(*points[:, None], weights)[0]
    best = cost(y, points, weights)
    for axis in range(points.shape[1]):
        for step in (-1e-3, 1e-3):
            moved = y.copy()
            moved[axis] += step
            assert best <= cost(moved, points, weights) + 1e-9
    for corner in points:
        assert best <= cost(corner, points, weights) * (1 + 1e-12) + 1e-9


@pytest.mark.parametrize("weights", [w for w in WEIGHTS if max(w) != sum(w) / 2])  # a tie makes the iteration crawl
@given(arrays(np.float64, (3, 3), elements=st.floats(-100, 100, width=16)))
def test_closed_form_and_iteration_agree(weights, points):
    closed = cost(fermat(*points[:, None], weights)[0], points, weights)
    iterated = cost(geometric_median(points, np.array(weights)), points, weights)
    assert closed <= iterated + 1e-6
    assert iterated <= closed * (1 + 1e-4) + 1e-4


def test_a_flat_and_tiny_triangle_has_an_exact_median():
    points = np.array([[7.4505806e-06, 0.0, 0.0], [0.0, 6.25e-2, 0.0], [0.0, 0.0, 0.0]])
    closed = cost(fermat(*points[:, None], (1.0, 2.0, 1.5))[0], points, (1.0, 2.0, 1.5))
    assert closed == pytest.approx(cost(geometric_median(points, np.array([1.0, 2.0, 1.5])), points, (1.0, 2.0, 1.5)))


def test_iteration_does_not_stick_to_a_data_point():
    """The start, the mean, is a data point here, where the plain iteration would stop."""
    points = np.array([[0.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, 3.0], [0.0, -3.0]])
    y = geometric_median(points, np.array([0.1, 1, 1, 1, 1, 1]))
    assert cost(y, points, [0.1, 1, 1, 1, 1, 1]) < cost(np.zeros(2), points, [0.1, 1, 1, 1, 1, 1]) - 1e-3
