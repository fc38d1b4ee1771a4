"""Picking neighbours: as many as asked, near and far, never torn apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nova.costspace import phantom
from nova.costspace.landmarks import pieces
from nova.costspace.neighbours import adjacency, choose, spanning


@given(n=st.integers(3, 40), m=st.integers(1, 12), near=st.sampled_from([0.0, 0.25, 0.5, 1.0]), seed=st.integers(0, 99))
def test_each_node_has_its_picks_and_all_stay_connected(n: int, m: int, near: float, seed: int) -> None:
    latency = phantom.measured(phantom.clusters(n, seed=seed))
    used = choose(n, latency.first, latency.second, latency.rtt_ms, m, seed, near)
    degree = np.bincount(np.concatenate([latency.first[used], latency.second[used]]), minlength=n)
    assert (degree >= min(m, n - 1)).all()
    assert used.sum() <= n * m + n
    assert pieces(n, latency.first[used], latency.second[used])[0] == 1


def test_the_nearest_are_among_the_picks() -> None:
    latency = phantom.measured(phantom.scattered(50))
    used = choose(50, latency.first, latency.second, latency.rtt_ms, 8, near=0.5)
    offsets, pairs = adjacency(50, latency.first, latency.second)
    for node in range(50):
        mine = pairs[offsets[node] : offsets[node + 1]]
        nearest = mine[np.argsort(latency.rtt_ms[mine])[:4]]
        assert used[nearest].all()


def test_near_picks_alone_would_fall_apart_and_are_bridged() -> None:
    latency = phantom.measured(phantom.clusters(40, count=4, spread=1.0))
    used = choose(40, latency.first, latency.second, latency.rtt_ms, 3, near=1.0)
    assert pieces(40, latency.first[used], latency.second[used])[0] == 1
    assert (latency.rtt_ms[used] > 50).sum() == 3


def test_picks_follow_the_seed() -> None:
    latency = phantom.measured(phantom.scattered(60))
    picks = [choose(60, latency.first, latency.second, latency.rtt_ms, 5, seed) for seed in (1, 1, 2)]
    assert np.array_equal(picks[0], picks[1])
    assert not np.array_equal(picks[0], picks[2])


def test_adjacency_lists_each_pair_at_both_ends() -> None:
    first, second = np.array([0, 0, 1], np.int32), np.array([1, 3, 3], np.int32)
    offsets, pairs = adjacency(4, first, second)
    assert [sorted(pairs[offsets[k] : offsets[k + 1]].tolist()) for k in range(4)] == [[0, 1], [0, 2], [], [1, 2]]


def test_a_spanning_forest_has_no_circle() -> None:
    first, second = np.array([0, 1, 0, 3], np.int32), np.array([1, 2, 2, 4], np.int32)
    assert sorted(spanning(5, first, second, np.array([2, 0, 1, 3])).tolist()) == [0, 2, 3]
