"""Accuracy figures against figures worked out by hand, and the published share of violated triangles."""

from __future__ import annotations

import math

import numpy as np
import pytest

import latencies
from nova.costspace import CostSpace, measure, phantom, tiv
from nova.model.problem import Latency


def test_errors_by_hand() -> None:
    space = CostSpace(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 10.0]]), np.array([1.0, 2.0, 0.0]))
    # distances: 0-1: 5+3 = 8, 0-2: 10+1 = 11, 1-2: √45+2
    told = measure(space, np.array([0, 0], np.int32), np.array([1, 2], np.int32), np.array([10.0, 10.0]), "unused")
    assert told.heldout_pairs == 2
    assert told.median_relative_error == pytest.approx(0.15)
    assert told.p90_relative_error == pytest.approx(0.19)
    assert told.mae_ms == pytest.approx(1.5)


def test_no_pairs_no_figures() -> None:
    none = np.zeros(0, np.int32)
    told = measure(phantom.grid(2), none, none, np.zeros(0), "none")
    assert told.heldout_pairs == 0
    assert math.isnan(told.median_relative_error)


def by_hand(n: int, latency: Latency) -> float:
    """All triples, as the definition reads."""
    d = latency.matrix(n).astype(float)
    seen = broken = 0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if len({i, j, k}) == 3 and np.isfinite([d[i, j], d[i, k], d[k, j]]).all():
                    seen += 1
                    broken += d[i, j] > d[i, k] + d[k, j]
    return broken / seen


def test_broken_triangles_are_counted_exactly() -> None:
    assert tiv(3, *triangle(10, 10, 30)) == pytest.approx(1 / 3)
    assert tiv(3, *triangle(10, 10, 15)) == 0.0
    rng = np.random.default_rng(0)
    matrix = np.triu(np.round(10 ** rng.uniform(0, 2, size=(14, 14)), 1), 1)
    matrix[rng.random((14, 14)) < 0.3] = 0
    latency = latencies.shuffled(latencies.of_matrix(matrix + matrix.T), 1)
    share = tiv(14, latency.first, latency.second, latency.rtt_ms)
    assert share == pytest.approx(by_hand(14, latency))
    assert 0.05 < share < 0.95


def triangle(a: float, b: float, c: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    latency = latencies.of_pairs([(0, 1, a), (0, 2, b), (1, 2, c)])
    return latency.first, latency.second, latency.rtt_ms


def test_a_draw_comes_close_to_the_whole_even_where_degrees_differ() -> None:
    rng = np.random.default_rng(3)
    matrix = np.triu(10 ** rng.uniform(0, 2, size=(60, 60)), 1)
    matrix[rng.random((60, 60)) < np.linspace(0.05, 0.9, 60)[:, None]] = 0
    matrix[30:] *= 5  # the sparse part is another network, so that drawing it too often would show
    latency = latencies.of_matrix(matrix + matrix.T)
    pairs = latency.first, latency.second, latency.rtt_ms
    exact = tiv(60, *pairs, triples=10**9)
    assert tiv(60, *pairs, triples=20_000, seed=5) == pytest.approx(exact, abs=0.015)
    assert tiv(60, *pairs, triples=20_000, seed=5) == tiv(60, *pairs, triples=20_000, seed=5)


def test_without_measured_triples_the_share_is_unknown() -> None:
    latency = latencies.of_pairs([(0, 1, 5.0), (1, 2, 5.0)])
    assert math.isnan(tiv(3, latency.first, latency.second, latency.rtt_ms))
    sparse = phantom.measured(phantom.scattered(30_000), 10)
    assert math.isnan(tiv(30_000, sparse.first, sparse.second, sparse.rtt_ms))


@pytest.mark.shared
@pytest.mark.parametrize(("data", "share"), [(latencies.ripe_atlas, 0.0724), (latencies.planetlab, 0.0584)])
def test_published_shares(shared, data, share: float) -> None:  # type: ignore[no-untyped-def]
    n, latency = data(shared)
    assert tiv(n, latency.first, latency.second, latency.rtt_ms) == pytest.approx(share, abs=0.002)
