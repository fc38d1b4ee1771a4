"""The batch solver: budgets on layouts whose truth is known, exactness on tiny ones, robustness, repeatability."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latencies
from nova.costspace import CostSpace, phantom, stress
from nova.costspace.neighbours import choose
from nova.model.problem import Latency


def solved(n: int, latency: Latency, **options: object) -> CostSpace:
    return CostSpace(*stress.solve(n, latency.first, latency.second, latency.rtt_ms, **options))  # type: ignore[arg-type]


def relative_error(space: CostSpace, truth: CostSpace) -> np.ndarray:
    """Error of every pair, relative to the layout's own distance."""
    first, second = np.triu_indices(len(truth), 1)
    real = truth.between(first, second)
    return np.abs(space.between(first, second) - real)[real > 0] / real[real > 0]


LAYOUTS = {
    "line": (phantom.line(60), 2, False),
    "grid": (phantom.grid(9), 2, False),
    "clusters": (phantom.clusters(80), 2, False),
    "scattered": (phantom.scattered(120), 3, True),
}


@pytest.mark.parametrize(
    ("name", "m", "noise", "median", "p90"),
    [
        ("line", None, 0.0, 1e-4, 1e-3),
        ("grid", None, 0.0, 1e-9, 1e-9),
        ("clusters", None, 0.0, 1e-9, 1e-9),
        ("scattered", None, 0.0, 1e-5, 1e-4),
        ("line", 12, 0.0, 0.001, 0.005),
        ("grid", 12, 0.0, 1e-9, 1e-9),
        ("clusters", 12, 0.0, 1e-9, 1e-9),
        ("scattered", 16, 0.0, 0.003, 0.015),
        ("grid", 12, 0.05, 0.02, 0.07),
        ("scattered", 16, 0.05, 0.03, 0.08),
    ],
)
def test_known_layouts_are_found_within_budget(
    name: str, m: int | None, noise: float, median: float, p90: float
) -> None:
    truth, dimensions, heights = LAYOUTS[name]
    errors = []
    for seed in range(3):
        latency = phantom.measured(truth, m, noise, seed)
        space = solved(len(truth), latency, dimensions=dimensions, heights=heights, seed=seed)
        errors.append(relative_error(space, truth))
    assert max(float(np.median(e)) for e in errors) <= median
    assert max(float(np.percentile(e, 90)) for e in errors) <= p90


def test_chains_of_near_measurements_find_the_far_shape() -> None:
    """Only neighbours in the grid are measured (8 per node): no pair knows how far the corners are."""
    truth = phantom.grid(15)
    full = phantom.measured(truth)
    near = full.rtt_ms < 14.2
    latency = Latency(full.first[near], full.second[near], full.rtt_ms[near])
    space = solved(len(truth), latency, dimensions=2, heights=False)
    assert float(np.median(relative_error(space, truth))) < 0.01  # 0.8 from a random start


@pytest.mark.parametrize("n", range(2, 11))
def test_few_nodes_are_exact(n: int) -> None:
    rng = np.random.default_rng(n)
    truth = CostSpace(rng.uniform(0, 100, size=(n, 2)), np.zeros(n))
    space = solved(n, phantom.measured(truth), dimensions=2, heights=False)
    assert float(relative_error(space, truth).max()) < 1e-6
    roomy = solved(n, phantom.measured(truth))  # more dimensions than the layout has, and heights it has not
    assert float(relative_error(roomy, truth).max()) < 5e-3


def test_a_star_of_access_links_needs_heights() -> None:
    """Four nodes, each 20 ms from each other: no plane can, heights of 10 ms can."""
    latency = latencies.of_pairs([(i, j, 20.0) for i in range(4) for j in range(i + 1, 4)])
    flat = solved(4, latency, dimensions=1, heights=False)
    high = solved(4, latency, dimensions=1, heights=True)
    assert np.abs(high.between(latency.first, latency.second) - 20).max() < 0.5
    assert np.abs(flat.between(latency.first, latency.second) - 20).max() > 5


def test_spikes_do_not_bend_their_neighbourhood() -> None:
    """One measurement in twenty is three times too long; the layout underneath is still found."""
    truth = phantom.grid(9)
    latency = phantom.measured(truth, 16)
    rtt = latency.rtt_ms.copy()
    rtt[::20] *= 3
    space = solved(81, Latency(latency.first, latency.second, rtt), dimensions=2, heights=False)
    assert float(np.median(relative_error(space, truth))) < 0.01


def test_the_same_seed_gives_the_same_space_and_another_one_another() -> None:
    latency = phantom.measured(phantom.scattered(60), 10, 0.05)
    first, again, other = (solved(60, latency, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.coordinates, again.coordinates)
    assert np.array_equal(first.heights, again.heights)
    assert not np.array_equal(first.coordinates, other.coordinates)


def test_cells_give_the_same_result_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stress, "MANY", 100)
    truth = phantom.scattered(400)
    latency = phantom.measured(truth, 16)
    spaces = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(stress.os, "cpu_count", lambda threads=threads: threads)
        spaces.append(solved(400, latency))
    assert all(np.array_equal(spaces[0].coordinates, space.coordinates) for space in spaces[1:])
    assert float(np.median(relative_error(spaces[0], truth))) < 0.03


@pytest.mark.parametrize("blocks", [2, 3, 7, 8])
def test_a_round_never_holds_a_node_twice_and_all_cells_are_played(blocks: int) -> None:
    played = []
    for cells in stress.tournament(blocks):
        ends = [{int(cell) // blocks, int(cell) % blocks} for cell in cells]
        assert sum(map(len, ends)) == len(set().union(*ends))
        played += [int(cell) for cell in cells]
    assert sorted(played) == sorted(i * blocks + j for i in range(blocks) for j in range(i, blocks))


def test_every_pair_pulls_once_per_epoch() -> None:
    """With the second node of every pair kept apart, one epoch of whole steps satisfies every pair."""
    for count in (1, 2, 97, stress.LONG + 33):
        first = np.arange(count, dtype=np.int32)
        state = np.zeros((2 * count, 2))
        state[count:, 0] = 3.0
        rtt = np.full(count, 10.0)
        stress.descend(state, first, first + np.int32(count), rtt, 0, count, 5, 10.0, 1e6, False)
        assert np.allclose(state[count:, 0] - state[:count, 0], 10.0)


def test_nodes_without_measurements_and_none_at_all() -> None:
    nothing = latencies.of_matrix(np.zeros((3, 3)))
    assert solved(3, nothing).coordinates.shape == (3, 3)
    assert np.isfinite(solved(4, latencies.of_pairs([(0, 1, 10.0)])).coordinates).all()


@given(
    n=st.integers(2, 12),
    dimensions=st.integers(1, 4),
    heights=st.booleans(),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_no_measurements_lead_out_of_finite_numbers(
    n: int, dimensions: int, heights: bool, seed: int, scale: float
) -> None:
    """RTTs over six orders of magnitude, equal ones among them, missing pairs: finite, and no height below 0."""
    rng = np.random.default_rng(seed)
    matrix = scale * 10 ** rng.integers(-3, 4, size=(n, n)).astype(float)
    matrix[rng.random((n, n)) < 0.4] = 0.0
    np.fill_diagonal(matrix, 0.0)
    latency = latencies.of_matrix(matrix)
    schedule = stress.Schedule(8, 8)
    space = solved(n, latency, dimensions=dimensions, heights=heights, seed=seed, schedule=schedule)
    assert np.isfinite(space.coordinates).all()
    assert np.isfinite(space.heights).all()
    assert (space.heights >= 0).all()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("data", "m", "near", "budget"),
    [
        (latencies.ripe_atlas, 20, 0.0, 0.085),
        (latencies.ripe_atlas, 20, 0.25, 0.09),
        (latencies.planetlab, 32, 0.0, 0.07),
        (latencies.planetlab, 32, 0.25, 0.075),
    ],
)
def test_heldout_error_on_real_latencies(shared, data, m: int, near: float, budget: float) -> None:  # type: ignore[no-untyped-def]
    """The budgets of the issue are .09 and .08; what the solver reaches today is kept."""
    n, latency = data(shared)
    for seed in (0, 1):
        used = choose(n, latency.first, latency.second, latency.rtt_ms, m, seed, near)
        fit = Latency(latency.first[used], latency.second[used], latency.rtt_ms[used])
        space = solved(n, fit, seed=seed)
        rtt = latency.rtt_ms[~used]
        error = np.abs(space.between(latency.first[~used], latency.second[~used]) - rtt) / rtt
        assert float(np.median(error)) <= budget


@pytest.mark.shared
def test_two_dimensions_without_heights_on_real_latencies(shared) -> None:  # type: ignore[no-untyped-def]
    """Plain 2-D Vivaldi gives .165 and .112."""
    for data, m, budget in ((latencies.ripe_atlas, 20, 0.112), (latencies.planetlab, 32, 0.086)):
        n, latency = data(shared)
        used = choose(n, latency.first, latency.second, latency.rtt_ms, m, 0, 0.0)
        fit = Latency(latency.first[used], latency.second[used], latency.rtt_ms[used])
        space = solved(n, fit, dimensions=2, heights=False)
        rtt = latency.rtt_ms[~used]
        error = np.abs(space.between(latency.first[~used], latency.second[~used]) - rtt) / rtt
        assert float(np.median(error)) <= budget
