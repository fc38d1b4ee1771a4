"""Vivaldi: single updates, budgets on known layouts, and the published error of the plain method."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latencies
from nova.costspace import CostSpace, phantom, vivaldi
from nova.costspace.neighbours import choose
from nova.costspace.vivaldi import Peer, update


def median_error(space: CostSpace, truth: CostSpace) -> float:
    first, second = np.triu_indices(len(truth), 1)
    real = truth.between(first, second)
    return float(np.median(np.abs(space.between(first, second) - real) / real))


@pytest.mark.parametrize(
    ("truth", "m", "noise", "dimensions", "heights", "budget"),
    [
        (phantom.line(50), None, 0.0, 2, False, 0.02),
        (phantom.grid(8), 12, 0.0, 2, False, 0.02),
        (phantom.clusters(80), 16, 0.0, 2, False, 0.02),
        (phantom.scattered(100), 16, 0.05, 3, True, 0.06),
    ],
)
def test_known_layouts_are_found_within_budget(
    truth: CostSpace, m: int | None, noise: float, dimensions: int, heights: bool, budget: float
) -> None:
    for seed in range(3):
        latency = phantom.measured(truth, m, noise, seed)
        space = CostSpace(
            *vivaldi.solve(
                len(truth),
                latency.first,
                latency.second,
                latency.rtt_ms,
                dimensions=dimensions,
                heights=heights,
                seed=seed,
            )
        )
        assert median_error(space, truth) <= budget


def test_an_update_moves_along_the_line_by_the_adaptive_step() -> None:
    """Equal errors: weight 1/2, so the node moves c·1/2 of the residual, and its error follows the sample."""
    mine, peer = Peer(np.array([10.0, 0.0]), error=0.4), Peer(np.array([0.0, 0.0]), error=0.4)
    after = update(mine, peer, 30.0, heights=False)
    assert after.coordinate == pytest.approx([10 + 0.25 * 0.5 * 20, 0.0])
    assert after.error == pytest.approx((20 / 30) * 0.125 + 0.4 * 0.875)
    assert after.height == mine.height


def test_an_update_with_heights_shares_the_step_between_line_and_height() -> None:
    mine, peer = Peer(np.array([10.0, 0.0]), height=4.0, error=1.0), Peer(np.array([0.0, 0.0]), height=6.0, error=1.0)
    after = update(mine, peer, 30.0)
    force = 0.25 * 0.5 * (30 - 20)
    assert after.coordinate == pytest.approx([10 + force * 10 / 20, 0.0])
    assert after.height == pytest.approx(4 + force * 10 / 20)


def test_a_sure_node_hardly_follows_an_unsure_one() -> None:
    sure, unsure = Peer(np.array([10.0, 0.0]), error=0.01), Peer(np.array([0.0, 0.0]), error=1.0)
    assert abs(update(sure, unsure, 30.0, heights=False).coordinate[0] - 10) < 0.1
    assert abs(update(unsure, sure, 30.0, heights=False).coordinate[0]) > 4


@given(
    rtt=st.floats(1e-3, 1e5),
    error=st.floats(1e-3, 5),
    heights=st.booleans(),
    dimensions=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_nodes_on_one_spot_part(rtt: float, error: float, heights: bool, dimensions: int, seed: int) -> None:
    spot = Peer(np.zeros(dimensions), error=error)
    after = update(spot, spot, rtt, heights=heights, seed=seed)
    assert np.isfinite(after.coordinate).all()
    if rtt > 1:
        assert np.linalg.norm(after.coordinate) > 0
    assert after.height > 0
    assert math.isfinite(after.error)


@pytest.mark.parametrize("rtt", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_rtt_is_refused(rtt: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        update(Peer(np.zeros(2)), Peer(np.ones(2)), rtt)


def test_online_updates_settle_a_newcomer() -> None:
    """A node that measures known peers one after another comes to sit where it belongs."""
    truth = phantom.grid(6)
    mine = Peer(np.array([500.0, 500.0]))
    rng = np.random.default_rng(1)
    for _ in range(400):
        k = int(rng.integers(35))
        rtt = float(truth.between(np.array([35]), np.array([k]))[0])
        mine = update(mine, Peer(truth.coordinates[k], error=0.05), rtt, heights=False)
    assert mine.coordinate == pytest.approx(truth.coordinates[35], abs=1.0)


def test_the_same_seed_gives_the_same_space() -> None:
    latency = phantom.measured(phantom.grid(5))
    spaces = [vivaldi.solve(25, latency.first, latency.second, latency.rtt_ms, seed=s)[0] for s in (1, 1, 2)]
    assert np.array_equal(spaces[0], spaces[1])
    assert not np.array_equal(spaces[0], spaces[2])


@pytest.mark.shared
@pytest.mark.parametrize(("data", "m", "known"), [(latencies.ripe_atlas, 20, 0.165), (latencies.planetlab, 32, 0.112)])
def test_plain_vivaldi_has_its_known_error_on_real_latencies(shared, data, m: int, known: float) -> None:  # type: ignore[no-untyped-def]
    n, latency = data(shared)
    used = choose(n, latency.first, latency.second, latency.rtt_ms, m, 0, near=0.0)
    first, second, rtt = latency.first, latency.second, latency.rtt_ms
    space = CostSpace(*vivaldi.solve(n, first[used], second[used], rtt[used], dimensions=2, heights=False))
    error = np.abs(space.between(first[~used], second[~used]) - rtt[~used]) / rtt[~used]
    assert float(np.median(error)) == pytest.approx(known, rel=0.1)
