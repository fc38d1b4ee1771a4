"""Filling: the exact search is exact, cells lose little, nothing is taken twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.placement import cells as filling
from nova.placement.cells import Demand, fill, fill_exactly, fill_whole
from nova.placement.index import build, cheapest

WEIGHTS = np.array([1.0, 1.0, 2.0])


def hosts(n, d, rng, heights=True):
    at = rng.normal(size=(n, d)) * 50
    tall = rng.uniform(0, 10, n) if heights else np.zeros(n)
    return build(np.arange(n, dtype=np.int32), at, tall, np.floor(rng.uniform(1, 100, n)))


def demands(n, d, rng, load):
    at = rng.normal(size=(3, n, d)) * 50
    return Demand(*at, np.floor(rng.uniform(2, 60, n)) * load)


@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(2, 5), st.floats(0, 120), st.integers(0, 2**32 - 1))
def test_search_finds_the_cheapest_host_with_room(n, d, need, seed):
    rng = np.random.default_rng(seed)
    index = hosts(n, d, rng)
    left, right, sink = rng.normal(size=(3, d)) * 50
    slot, cost = cheapest(left, right, sink, WEIGHTS, need, np.inf, index.tree)
    to = [np.linalg.norm(index.points - end, axis=1) for end in (left, right, sink)]
    all_costs = WEIGHTS @ np.array(to) + WEIGHTS.sum() * index.heights
    able = index.free >= need
    if not able.any():
        assert slot == -1
        return
    assert index.free[slot] >= need
    assert cost == pytest.approx(all_costs[able].min())


@settings(max_examples=30)
@given(st.integers(2, 400), st.integers(1, 100), st.integers(2, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_what_is_dealt_out_was_there(n, joins, d, whole, seed):
    rng = np.random.default_rng(seed)
    index, demand = hosts(n, d, rng), demands(joins, d, rng, 1.0)
    room = index.free.copy()
    order = np.argsort(demand.amount, kind="stable").astype(np.int32)
    placed = fill_whole(index, demand, WEIGHTS, order[::-1]) if whole else fill(index, demand, WEIGHTS, order)
    taken = np.bincount(placed.slot, weights=placed.amount, minlength=n)
    assert (taken <= room * (1 + 1e-9)).all()
    assert index.free == pytest.approx(room - taken)
    given_out = np.bincount(placed.join, weights=placed.amount, minlength=joins)
    assert (given_out <= demand.amount * (1 + 1e-9)).all()
    if whole:
        assert given_out[np.unique(placed.join)] == pytest.approx(demand.amount[np.unique(placed.join)])
    elif demand.amount.sum() <= room.sum():
        assert given_out == pytest.approx(demand.amount)


def test_cells_cost_little_more_than_exact_search(monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.setattr(filling, "TOP", 256)
    costs = []
    for way in ("cells", "exact"):
        rng = np.random.default_rng(5)
        index, demand = hosts(6000, 2, rng, heights=False), demands(2000, 2, rng, 3.0)
        order = np.argsort(demand.amount, kind="stable").astype(np.int32)
        if way == "cells":
            placed = fill(index, demand, WEIGHTS, order)
        else:
            placed = fill_exactly(index, demand, WEIGHTS, order, demand.amount[order])
        assert placed.amount.sum() == pytest.approx(demand.amount.sum())
        at = index.points[placed.slot]
        legs = [np.linalg.norm(at - end[placed.join], axis=1) for end in (demand.left, demand.right, demand.sink)]
        costs.append(float((placed.amount / demand.amount[placed.join]) @ (WEIGHTS @ np.array(legs))))
    assert costs[0] <= 1.02 * costs[1]


def test_cells_count_room_that_hosts_can_use(monkeypatch):
    """A cell of crumbs beside a cell of whole hosts: the crumbs have more room in all, and nobody goes there."""
    monkeypatch.setattr(filling, "TOP", 2)
    crumbs, able = 60, 40
    points = np.concatenate([np.zeros((crumbs, 2)), np.ones((able, 2)), np.full((20, 2), 9.0)])
    points += np.random.default_rng(1).uniform(0, 0.1, points.shape)
    free = np.concatenate([np.full(crumbs, 6.0), np.full(able, 10.0), np.full(20, 1000.0)])
    index = build(np.arange(120, dtype=np.int32), points, np.zeros(120), free)
    amount = np.full(able, 9.0)
    demand = Demand(*(np.zeros((able, 2)) for _ in range(3)), amount)
    placed = fill_whole(index, demand, WEIGHTS, np.arange(able, dtype=np.int32))
    assert len(placed.join) == able
    assert (free[index.node[placed.slot]] == 10.0).sum() >= able - 2  # near ones, as many as they can take


def test_limits_of_the_exact_search():
    rng = np.random.default_rng(1)
    index, demand = hosts(50, 2, rng), demands(10, 2, rng, 1.0)
    order = np.arange(10, dtype=np.int32)
    placed = fill_exactly(index, demand, WEIGHTS, order, demand.amount[order], largest=7.0)
    assert placed.amount.max() <= 7.0
    index, demand = hosts(50, 2, np.random.default_rng(2)), demands(10, 2, rng, 4.0)
    placed = fill_exactly(index, demand, WEIGHTS, order, demand.amount[order], max_parts=3)
    assert np.bincount(placed.join).max() <= 3
