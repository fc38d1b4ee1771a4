"""Ways along trees and through cluster heads, against networkx and by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.baselines.routes import HeadRoutes, Tree, relay_load
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


def random_tree(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, nx.Graph, CostSpace]:
    rng = np.random.default_rng(seed)
    second = np.arange(1, n)
    first = np.array([rng.integers(max(0, i - 3), i) for i in second], dtype=np.int64)
    label = rng.permutation(n)
    space = CostSpace(rng.normal(size=(n, 2)) * 10, rng.random(n))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    for a, b in zip(label[first], label[second], strict=True):
        graph.add_edge(int(a), int(b), weight=float(space.between(a, b)))
    return label[first], label[second], graph, space


@given(st.integers(2, 40), st.integers(0, 10_000))
def test_tree_routes_agree_with_networkx(n: int, seed: int) -> None:
    first, second, graph, space = random_tree(n, seed)
    rng = np.random.default_rng(seed + 1)
    tree = Tree.spanning(n, first, second, root=int(rng.integers(n)))
    routes = tree.over(space)
    a, b, c = (rng.integers(n, size=12) for _ in range(3))
    rate = rng.integers(1, 9, size=12).astype(float)
    meeting, hop, length = tree.meeting(a, b, c), tree.next_hop(a, b), routes.between(a, b)
    passed = np.zeros(n)
    for i in range(12):
        ways = [nx.shortest_path(graph, int(x), int(y)) for x, y in ((a[i], b[i]), (a[i], c[i]), (b[i], c[i]))]
        assert set.intersection(*map(set, ways)) == {meeting[i]}
        assert hop[i] == (ways[0][1] if len(ways[0]) > 1 else a[i])
        assert length[i] == pytest.approx(nx.shortest_path_length(graph, int(a[i]), int(b[i]), weight="weight"))
        for node in ways[0][1:-1]:
            passed[node] += rate[i]
    assert routes.through(a, b, rate) == pytest.approx(passed)


def test_a_forest_is_refused() -> None:
    with pytest.raises(ValueError, match="reach 2 of 4 nodes"):
        Tree.spanning(4, np.array([0, 2]), np.array([1, 3]))


def test_heads_pass_on_what_members_send() -> None:
    # 0, 1 members of head 2; 3 member of head 4; 5 the sink
    points = np.array([[0.0], [2.0], [1.0], [10.0], [11.0], [20.0]])
    space = CostSpace(points, np.zeros(6))
    routes = HeadRoutes(np.array([2, 2, 2, 4, 4, 5], np.int32), space)
    sources, sink = np.array([0, 1, 2, 3, 5]), np.full(5, 5)
    assert routes.between(sources, sink).tolist() == [20.0, 20.0, 19.0, 10.0, 0.0]
    assert routes.between(np.array([0]), np.array([1])).tolist() == [2.0]
    assert routes.through(sources, sink, np.array([1.0, 2.0, 4.0, 8.0, 16.0])).tolist() == [0, 0, 3, 0, 8, 0]
    assert routes.through(np.array([0]), np.array([3]), np.array([1.0])).tolist() == [0, 0, 1, 0, 1, 0]


def test_relays_carry_inputs_and_known_results() -> None:
    # a line 0 – 1 – 2 – 3 – 4: sources at 0 and 1, host 2, sink 4
    line = np.arange(5)
    tree = Tree.spanning(5, line[:-1], line[1:], root=4)
    routes = tree.over(CostSpace(line[:, None] * 1.0, np.zeros(5)))
    one = np.zeros(1, np.int32)
    joins = SubJoins(one, one, one, one, one + 1, one + 4, np.array([10.0]), np.array([20.0]), np.array([3.0]))
    assert relay_load(routes, joins, np.array([2], np.int32)).tolist() == [0, 10, 0, 3, 0]
