"""The host index while it changes: inserts, deletes, and what the search finds in between."""

from __future__ import annotations

import numpy as np
import pytest

from nova.physical.index import build, cheapest

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
