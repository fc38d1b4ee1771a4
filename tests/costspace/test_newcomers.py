"""Newcomers: exact where the space is, robust, quick, and without moving anybody."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latencies
from nova.costspace import CostSpace, embed_latency, embed_new, phantom
from nova.model.options import Options
from nova.model.problem import Latency


@given(seed=st.integers(0, 10_000), dimensions=st.integers(1, 4), count=st.integers(10, 24), high=st.booleans())
def test_a_newcomer_finds_its_own_place(seed: int, dimensions: int, count: int, high: bool) -> None:
    """Measurements that are exact lead to a spot with the same distances."""
    truth = phantom.scattered(60, dimensions, height=10.0 if high else 0.0, seed=seed)
    space = CostSpace(truth.coordinates[:-1], truth.heights[:-1])
    to = np.random.default_rng(seed).choice(59, count, replace=False)
    rtts = truth.between(np.full(count, 59), to)
    coordinate, height = embed_new(space, to, rtts)
    found = np.linalg.norm(space.coordinates[to] - coordinate, axis=1) + space.heights[to] + height
    assert float(np.median(np.abs(found - rtts) / rtts)) < 0.02
    assert height >= 0


def test_a_batch_gives_what_one_by_one_gives() -> None:
    space = phantom.scattered(200)
    rng = np.random.default_rng(0)
    to = rng.integers(0, 200, size=(100, 12))
    rtts = rng.uniform(5, 150, size=(100, 12))
    rtts[3, 8:], to[3, 8:] = math.nan, -1
    coordinates, heights = embed_new(space, to, rtts)
    assert coordinates.shape == (100, 3)
    for k in (0, 7, 99):
        one, height = embed_new(space, to[k], rtts[k])
        assert np.allclose(one, coordinates[k])
        assert height == pytest.approx(heights[k])
    short, _ = embed_new(space, to[3, :8], rtts[3, :8])
    assert np.allclose(short, coordinates[3])


def test_the_space_stays_and_flat_spaces_stay_flat() -> None:
    space = phantom.grid(5)
    before = space.coordinates.copy()
    _, height = embed_new(space, [0, 4, 20, 24], [30.0, 30.0, 30.0, 30.0])
    assert height == 0.0
    assert np.array_equal(space.coordinates, before)
    _, lifted = embed_new(space, [0, 4, 20, 24], [45.0, 45.0, 45.0, 45.0], heights=True)
    assert lifted == pytest.approx(45 - math.hypot(20, 20), abs=1.0)


def test_one_wrong_measurement_does_not_carry_the_newcomer_away() -> None:
    space = phantom.grid(8)
    to = np.array([0, 7, 56, 63, 20, 43])
    rtts = np.linalg.norm(space.coordinates[to] - [33.0, 41.0], axis=1)
    rtts[0] *= 4
    coordinate, _ = embed_new(space, to, rtts)
    assert coordinate == pytest.approx([33.0, 41.0], abs=2.0)  # least squares: 50 ms off


@given(seed=st.integers(0, 10_000), count=st.integers(1, 6), same=st.booleans())
def test_few_or_coincident_neighbours_stay_finite(seed: int, count: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    space = CostSpace(np.zeros((6, 3)) if same else rng.normal(size=(6, 3)), np.zeros(6))
    coordinate, height = embed_new(space, rng.integers(0, 6, count), 10 ** rng.uniform(-3, 4, count), heights=True)
    assert np.isfinite(coordinate).all()
    assert np.isfinite(height)


def test_a_single_measurement_is_met() -> None:
    space = phantom.grid(3)
    coordinate, _ = embed_new(space, [4], [25.0])
    assert float(np.linalg.norm(coordinate - space.coordinates[4])) == pytest.approx(25.0, rel=1e-3)


@pytest.mark.parametrize(
    ("to", "rtts", "message"),
    [
        ([0, 1], [1.0], "one shape"),
        ([0, 99], [1.0, 1.0], "below 9"),
        ([0, 1], [1.0, 0.0], "positive"),
        ([0, 1], [1.0, math.nan], "positive"),
        ([-1, -1], [1.0, 1.0], "no measurement"),
    ],
)
def test_wrong_measurements_are_refused(to: list[int], rtts: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed_new(phantom.grid(3), to, rtts)


def test_a_newcomer_takes_microseconds() -> None:
    """The controller's budget is 100 µs of computing; CPU time, as the machine may be shared."""
    space = phantom.scattered(5000)
    rng = np.random.default_rng(0)
    to = rng.integers(0, 5000, size=(50, 20))
    rtts = space.between(np.arange(50)[:, None] + 100, to) * np.exp(rng.normal(scale=0.1, size=(50, 20)))
    rtts = np.maximum(rtts, 0.1)
    embed_new(space, to[:1], rtts[:1])
    best = math.inf
    for _ in range(5):
        began = time.process_time()
        embed_new(space, to, rtts)
        best = min(best, time.process_time() - began)
    assert best / 50 < 100e-6


@pytest.mark.shared
@pytest.mark.parametrize(("data", "m", "budget"), [(latencies.ripe_atlas, 20, 0.105), (latencies.planetlab, 32, 0.085)])
def test_newcomers_are_nearly_as_accurate_as_the_batch(shared, data, m: int, budget: float) -> None:  # type: ignore[no-untyped-def]
    """A tenth of the nodes comes later, with m measurements each; the error is told on all their other pairs."""
    n, latency = data(shared)
    known = n - n // 10
    old = latency.second < known
    part = Latency(latency.first[old], latency.second[old], latency.rtt_ms[old])
    space = embed_latency(known, part, Options(neighbours=m))
    matrix = latency.matrix(n).astype(np.float64)[known:, :known]
    rng = np.random.default_rng(0)
    errors = []
    for row in matrix:
        measured = rng.permutation(np.flatnonzero(np.isfinite(row)))
        to, rest = measured[:m], measured[m:]
        coordinate, height = embed_new(space, to, row[to])
        found = np.linalg.norm(space.coordinates[rest] - coordinate, axis=1) + space.heights[rest] + height
        errors.append(np.abs(found - row[rest]) / row[rest])
    assert float(np.median(np.concatenate(errors))) <= budget
