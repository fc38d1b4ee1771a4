"""The spanning tree and the joins on it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import FIRST, POINTS, SECOND, problem
from nova import synthetic
from nova.baselines import place
from nova.baselines.spanning import by_delaunay, by_pairs, spanning_tree
from nova.evaluation.metrics import source_latency
from nova.model.space import CostSpace
from nova.placement.resolve import resolve


def pairs_of(edges: tuple[np.ndarray, np.ndarray]) -> set[tuple[int, int]]:
    return {(int(min(a, b)), int(max(a, b))) for a, b in zip(*edges, strict=True)}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30), st.booleans())
def test_trees_by_pairs_and_by_delaunay_are_minimal_even_with_ties(cells: list[tuple[int, int]], tall: bool) -> None:
    points = np.array(cells, dtype=float)
    n = len(points)
    heights = np.arange(n) % 3 * 1.0 if tall else np.zeros(n)
    space = CostSpace(points, heights)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(
        (i, j, float(space.between(np.array(i), np.array(j)))) for i in range(n) for j in range(i + 1, n)
    )
    wanted = nx.minimum_spanning_tree(graph)  # Kruskal over edges in (length, i, j) order, like ours
    found = pairs_of(by_pairs(points, heights))
    assert found == {(min(e), max(e)) for e in wanted.edges}
    if not tall:
        length = sum(graph.edges[e]["weight"] for e in pairs_of(by_delaunay(points)))
        assert length == pytest.approx(wanted.size(weight="weight"))


def test_delaunay_finds_the_same_tree_where_lengths_differ() -> None:
    points = synthetic.blobs(3000, seed=2)
    assert pairs_of(by_pairs(points, np.zeros(3000))) == pairs_of(by_delaunay(points))


def test_spanning_tree_of_some_nodes_keeps_their_rows() -> None:
    space = CostSpace(np.array([[0.0], [5.0], [1.0], [2.0]]), np.zeros(4))
    assert pairs_of(spanning_tree(space, np.array([0, 2, 3]))) == {(0, 2), (2, 3)}


def test_joins_run_where_routes_meet_and_every_hop_counts() -> None:
    # the tree is s1–h1–s2, h1–h2–sink–s3 (4 ms from h1 to h2 and from h2 to the sink, 3 ms each to s1, s2 and s3)
    drawn = problem()
    joins = resolve(drawn)
    space = CostSpace(POINTS, np.zeros(len(POINTS)))
    placement = place("tree", drawn, joins, space)
    # a and x meet at h1; b (on s3) and x meet at the sink only
    assert placement.plan.replicas.node.tolist() == [FIRST, 5]
    latency = source_latency(drawn, placement.plan, placement.distances)
    assert latency.weighted.tolist() == pytest.approx([3 + 8, 3, 3 + 8])
    # h1 relays x towards the sink, h2 too; the results of a ⋈ x have no known rate
    assert placement.relay_load[FIRST] == 20.0
    assert placement.relay_load[SECOND] == 20.0


def test_a_source_on_the_route_of_the_other_does_not_host() -> None:
    drawn = problem()
    line = np.array([[1.0], [0.0], [9.0], [2.0], [3.0], [4.0]])  # x, a, h1, h2, sink in a row, b beyond
    joins = resolve(drawn)
    placement = place("tree", drawn, joins, CostSpace(line, np.zeros(6)))
    assert placement.plan.replicas.node[0] == FIRST  # the hop after source a
