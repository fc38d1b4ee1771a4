"""The host index: what its searches find, also while hosts come and go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.placement.index import build, cheapest, nearest

WEIGHTS = np.array([1.0, 1.0, 2.0])


@pytest.mark.parametrize("d", [2, 3])
def test_inserts_and_deletes_are_seen_by_the_search(d):
    rng = np.random.default_rng(d)
    at = rng.normal(size=(300, d)) * 50
    free = rng.uniform(1, 100, 300)
    begin = 200
    index = build(np.arange(begin, dtype=np.int32), at[:begin], np.zeros(begin), free[:begin], slack=0.3)
    slot_of = np.full(300, -1, np.int32)
    slot_of[index.node[index.node >= 0]] = np.flatnonzero(index.node >= 0)
    alive = set(range(begin))
    for row in range(begin, 300):
        index.add(row, at[row], 0.0, float(free[row]), slot_of)
        alive.add(row)
        gone = int(rng.choice(sorted(alive)))
        index.drop(int(slot_of[gone]))
        alive.discard(gone)
        left, right, sink = rng.normal(size=(3, d)) * 50
        slot, cost = cheapest(left, right, sink, WEIGHTS, 20.0, np.inf, index.tree)
        rows = np.array([r for r in sorted(alive) if free[r] >= 20.0])
        legs = [np.linalg.norm(at[rows] - end, axis=1) for end in (left, right, sink)]
        expected = WEIGHTS @ np.array(legs)
        assert cost == pytest.approx(expected.min())
        assert index.node[slot] == rows[expected.argmin()]


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(0, 12))
@settings(deadline=None, max_examples=50)
def test_nearest_are_the_cheapest_of_all_hosts_with_room(seed, wanted, need):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 300))
    points, heights = rng.integers(0, 6, (n, 2)).astype(float), rng.integers(0, 3, n).astype(float)  # many ties
    index = build(np.arange(n, dtype=np.int32), points, heights, rng.uniform(0, 10, n))
    left, right, sink = rng.integers(0, 6, (3, 2)).astype(float)
    weights = WEIGHTS
    slots, costs = np.full(wanted, -1), np.empty(wanted)
    found = nearest(left, right, sink, weights, need, np.inf, index.tree, slots, costs)
    ways = [np.linalg.norm(index.points - end, axis=1) for end in (left, right, sink)]
    cost = weights @ np.array(ways) + weights.sum() * index.heights
    fit = np.flatnonzero(index.free >= need)
    expected = fit[np.lexsort((fit, np.round(cost[fit], 9)))][:wanted]
    assert found == len(expected)
    np.testing.assert_allclose(costs[:found], cost[expected])
    assert (index.free[slots[:found]] >= need).all()
    assert len(set(slots[:found].tolist())) == found
