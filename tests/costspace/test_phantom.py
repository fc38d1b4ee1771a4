"""The synthetic layouts are what they say: other tests lean on them."""

from __future__ import annotations

import numpy as np
import pytest

from nova.costspace import phantom


def test_distances_of_regular_layouts() -> None:
    line, grid = phantom.line(4, 5.0), phantom.grid(3, 10.0)
    assert line.between(np.array([0, 1]), np.array([3, 2])).tolist() == [15.0, 5.0]
    assert grid.between(np.array([0]), np.array([8]))[0] == pytest.approx(np.hypot(20, 20))


def test_sites_are_apart_and_their_nodes_together() -> None:
    space = phantom.clusters(400, count=4, radius=100, spread=2)
    assert float(space.between(np.arange(0, 396, 4), np.arange(4, 400, 4)).mean()) < 10
    assert float(space.between(np.arange(0, 400, 4), np.arange(2, 400, 4)).mean()) == pytest.approx(200, rel=0.05)


def test_measurements_are_unique_ordered_and_noisy_as_asked() -> None:
    truth = phantom.scattered(300, seed=2)
    latency = phantom.measured(truth, 10, noise=0.1, seed=2)
    assert (latency.first < latency.second).all()
    assert len(np.unique(latency.first.astype(np.int64) * 300 + latency.second)) == len(latency)
    assert np.std(np.log(latency.rtt_ms / truth.between(latency.first, latency.second))) == pytest.approx(0.1, rel=0.1)
    assert len(phantom.measured(truth)) == 300 * 299 // 2
