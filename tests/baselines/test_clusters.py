"""Clusters, their heads, and the joins there."""

from __future__ import annotations

import numpy as np
import pytest

from nova import synthetic
from nova.baselines import cl_sf, place
from nova.baselines.clusters import clusters, fuzzy_centres
from nova.model.options import Options
from nova.model.space import CostSpace
from nova.placement.resolve import resolve

FAR = np.concatenate([np.arange(5) * 0.1, 100 + np.arange(5) * 0.1])[:, None] * np.ones(2)


def test_two_clouds_have_two_centres() -> None:
    centres = fuzzy_centres(FAR, 2, np.random.default_rng(1))
    assert np.allclose(np.sort(centres[:, 0]), [0.2, 100.2], atol=0.05)


def test_blocks_do_not_change_the_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fuzzy_centres(FAR, 2, np.random.default_rng(4))
    monkeypatch.setattr("nova.baselines.clusters.BLOCK", 6)
    assert np.allclose(fuzzy_centres(FAR, 2, np.random.default_rng(4)), whole)


def test_the_node_nearest_the_middle_heads_and_weakness_prefers_little_capacity() -> None:
    capacity = np.array([9.0, 9, 9, 1, 9, 9, 9, 9, 9, 1])
    every = np.ones(10, bool)
    middle = clusters(FAR, capacity, every, seed=1, count=2)
    assert sorted(set(middle.head.tolist())) == [2, 7]
    weak = clusters(FAR, capacity, every, seed=1, weakness=2.0, count=2)
    assert sorted(set(weak.head.tolist())) == [3, 9]


def test_clusters_without_a_possible_head_join_the_nearest() -> None:
    may = np.zeros(10, bool)
    may[1] = True
    assert set(clusters(FAR, np.ones(10), may, seed=1, count=2).head.tolist()) == {1}


def test_pairs_of_one_cluster_join_at_its_head_others_at_the_sink() -> None:
    drawn = synthetic.draw(300, seed=5)
    assert drawn.nodes.coordinates is not None
    space = CostSpace(drawn.nodes.coordinates, np.zeros(300))
    joins, options = resolve(drawn), Options(seed=3)
    head = cl_sf.heads(drawn, joins, space, options, 0.0)
    together = head[joins.left_node] == head[joins.right_node]
    placement = place("cl-sf", drawn, joins, space, options)
    expected = np.where(together, head[joins.left_node], joins.sink)
    assert together.any()
    assert not together.all()
    assert np.array_equal(placement.plan.replicas.node, expected)
    away = np.flatnonzero(~together)[0]
    source, sink = joins.left_node[away], joins.sink[away]
    hops = space.between(source, head[source]) + space.between(head[source], sink)
    assert placement.distances.between(source, sink) == hops


def test_seeds_change_the_clusters() -> None:
    drawn = synthetic.draw(300, seed=5)
    assert drawn.nodes.coordinates is not None
    space, joins = CostSpace(drawn.nodes.coordinates, np.zeros(300)), resolve(drawn)
    runs = [place("cl-tree-sf", drawn, joins, space, Options(seed=seed)).plan.replicas.node for seed in (0, 0, 1)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
