"""Springs: positions of all free operators at once are the convex optimum, whatever the tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from nova.placement.median import fermat
from nova.placement.springs import springs


def tree(rng: np.random.Generator, pinned: int, free: int) -> list[tuple[int, int]]:
    """A random tree in which pinned operators are leaves: sources and a sink, joins between them."""
    inner = [(pinned + int(rng.integers(0, k)), pinned + k) for k in range(1, free)]
    return inner + [(leaf, pinned + int(rng.integers(0, free))) for leaf in range(pinned)]


def convex_optimum(fixed: np.ndarray, free: int, edges: list[tuple[int, int]], weights: np.ndarray) -> float:
    """The same sum by a general solver: second-order cones as a smooth program, t_e ≥ |v_e|."""
    d = fixed.shape[1]
    ends = np.array(edges)

    def cost(flat: np.ndarray, epsilon: float = 0.0) -> float:
        points = np.concatenate([fixed, flat.reshape(free, d)])
        apart = points[ends[:, 0]] - points[ends[:, 1]]
        return float(weights @ np.sqrt((apart**2).sum(axis=1) + epsilon**2))

    best = fixed.mean(axis=0).repeat(free).reshape(d, free).T.ravel()
    for epsilon in 10.0 ** -np.arange(0, 11.0):
        best = minimize(cost, best, args=(epsilon,), method="BFGS", options={"gtol": 1e-13, "maxiter": 2000}).x
    return cost(best)


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 5), st.integers(1, 3))
def test_no_solver_finds_better_positions(seed: int, pinned: int, free: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)
    edges = tree(rng, pinned, free)
    fixed = rng.normal(size=(1, pinned, dimensions)) * 50
    weights = rng.lognormal(0, 1.5, (1, len(edges)))
    found = springs(fixed, free, edges, weights)
    best = convex_optimum(fixed[0], free, edges, weights[0])
    assert found.cost[0] <= best * (1 + 1e-6)
    assert found.bound[0] <= best * (1 + 1e-9)
    assert found.cost[0] - found.bound[0] <= 1e-6 * found.cost[0]


def joins_of(rng: np.random.Generator, streams: int) -> list[tuple[int, int]]:
    """A random order of two-way joins, left-deep or bushy: streams and the sink are pinned, every join is free."""
    heads, edges = list(range(streams)), []
    for number in range(streams - 1):
        a, b = (heads.pop(int(rng.integers(len(heads)))) for _ in range(2))
        made = streams + 1 + number
        edges += [(a, made), (b, made)]
        heads.append(made)
    return [*edges, (heads[0], streams)]


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(3, 6), st.sampled_from(["apart", "on a line", "in few places", "all but one"])
)
def test_joins_of_three_to_six_streams_wherever_they_are_born(seed: int, streams: int, places: str) -> None:
    """Also where positions coincide or lie on a line, and rates differ by six orders of magnitude."""
    rng = np.random.default_rng(seed)
    edges, fixed = joins_of(rng, streams), rng.normal(size=(1, streams + 1, 2)) * 50
    match places:
        case "on a line":
            fixed[..., 1] = 3 * fixed[..., 0] + 1
        case "in few places":
            fixed = fixed[:, rng.integers(0, 2, streams + 1)]
        case "all but one":
            fixed[:, 1:] = fixed[:, 1:2]
    weights = 10 ** rng.uniform(-3, 3, (1, len(edges)))
    found = springs(fixed, streams - 1, edges, weights)
    best = convex_optimum(fixed[0], streams - 1, edges, weights[0])
    assert found.cost[0] <= best * (1 + 1e-6)
    assert found.cost[0] - found.bound[0] <= 1e-6 * found.cost[0]


def test_many_instances_at_once_are_what_each_is_alone() -> None:
    rng = np.random.default_rng(1)
    edges = tree(rng, 4, 3)
    fixed, weights = rng.normal(size=(200, 4, 3)), rng.lognormal(0, 1, (200, len(edges)))
    together = springs(fixed, 3, edges, weights)
    assert np.all(together.cost - together.bound <= 1e-6 * together.cost)
    for row in (0, 17, 199):
        alone = springs(fixed[row : row + 1], 3, edges, weights[row : row + 1])
        np.testing.assert_allclose(together.cost[row], alone.cost[0], rtol=1e-8)


def test_one_operator_between_three_points_is_the_closed_form() -> None:
    points = np.random.default_rng(2).normal(size=(50, 3, 2))
    found = springs(points, 1, [(0, 3), (1, 3), (3, 2)], np.array([1.0, 1.0, 2.0]))
    a, b, c = points.transpose(1, 0, 2)
    np.testing.assert_array_equal(found.positions[:, 0], fermat(a, b, c, (1.0, 1.0, 2.0)))
    slow = springs(points, 1, [(0, 3), (1, 3), (3, 2)], np.array([[1.0, 1.0, 2.0]] * 49 + [[1.0, 1.0, 2.0 + 1e-9]]))
    np.testing.assert_allclose(found.cost, slow.cost, rtol=1e-7)


def test_operators_that_one_weight_holds_sit_on_its_node() -> None:
    fixed = np.array([[[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]])
    found = springs(fixed, 2, [(0, 3), (1, 3), (3, 4), (4, 2)], np.array([[100.0, 1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(found.positions[0, 0], [0, 0], atol=1e-4)
    np.testing.assert_allclose(found.cost, 10 + 10, rtol=1e-6)


def test_points_in_one_place_cost_nothing() -> None:
    found = springs(np.ones((3, 2, 2)) * 7, 1, [(0, 2), (1, 2)], np.array([1.0, 3.0]))
    np.testing.assert_allclose(found.positions, 7.0)
    np.testing.assert_allclose(found.cost, 0, atol=1e-9)
