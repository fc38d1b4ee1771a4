"""Cutting joins: the paper's examples to the digit, and what must hold for any cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.placement.grid import equal_parts, p_max, paper_parts, split

rates = st.floats(0.5, 500)


def test_paper_full_partitioning_of_25_by_25():
    left, right = paper_parts(25, p_max(0, 25, 25)), paper_parts(25, p_max(0, 25, 25))
    assert len(left) * len(right) == 625
    assert left[0] + right[0] == 2
    assert sum(a + b for a in left for b in right) == 1250


def test_paper_weighted_partitioning_of_2_by_10():
    largest = p_max(0.5, 2, 10)
    assert largest == 3
    left, right = paper_parts(2, largest), paper_parts(10, largest)
    assert left.tolist() == [2]
    assert right.tolist() == [3, 3, 3, 1]
    loads = [a + b for a in left for b in right]
    assert loads == [5, 5, 5, 3]
    assert sum(loads) == 18


def test_equal_parts_load_less_at_the_same_traffic():
    largest = p_max(0.5, 2, 10)
    loads = [2 + part for part in equal_parts(10, largest)]
    assert max(loads) == 4.5
    assert sum(loads) == 18


@pytest.mark.parametrize(("sigma", "traffic"), [(1, 14), (0.5, 18), (0.25, 34), (0, 40)])
def test_traffic_falls_with_sigma(sigma, traffic):
    """a = 2, b = 10: the paper's budget formula would rise with σ instead."""
    largest = p_max(sigma, 2, 10)
    m, n = len(paper_parts(2, largest)), len(paper_parts(10, largest))
    assert 2 * n + 10 * m == traffic  # each left part goes to n replicas, each right part to m


@given(rates, st.floats(0.3, 100))
def test_parts_sum_to_the_rate_and_stay_small(rate, largest):
    for parts in (paper_parts(rate, largest), equal_parts(rate, largest)):
        assert parts.sum() == pytest.approx(rate)
        assert parts.max() <= largest * (1 + 1e-6)


@given(
    rates,
    rates,
    st.lists(st.floats(1, 400), min_size=1, max_size=20),
    st.sampled_from([None, 0.0, 0.25, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_boxes_tile_and_fit(a, b, free, sigma, seed):
    free = np.array(free)
    legs = np.sort(np.random.default_rng(seed).uniform(1, 100, (3, len(free))), axis=1)
    part = None if sigma is None else p_max(sigma, a, b)
    boxes = split(a, b, free, legs, np.array([1.0, 1.0, 2.0]), part)
    if boxes is None:
        return
    left, right = boxes.left_to - boxes.left_from, boxes.right_to - boxes.right_from
    assert (left * right).sum() == pytest.approx(1)
    assert len(set(boxes.host.tolist())) == len(boxes.host)
    assert (a * left + b * right <= free[boxes.host] * (1 + 1e-9)).all()
    centres = np.array([boxes.left_from + boxes.left_to, boxes.right_from + boxes.right_to]) / 2
    for x, y in centres.T:  # no other box covers a box's centre
        inside = (boxes.left_from < x) & (x < boxes.left_to) & (boxes.right_from < y) & (y < boxes.right_to)
        assert inside.sum() == 1
    if part is not None:
        grain = len(equal_parts(a, part))
        assert boxes.left_to * grain == pytest.approx(np.round(boxes.left_to * grain))


def test_running_example_join_is_halved_by_broadcasting_one_stream():
    boxes = split(25, 25, np.array([40.0, 40.0]), np.ones((3, 2)), np.ones(3), p_max(0, 25, 25))
    assert boxes is not None
    assert len(boxes.host) == 2
    assert (25 * (boxes.left_to - boxes.left_from) + 25 * (boxes.right_to - boxes.right_from) <= 40).all()
