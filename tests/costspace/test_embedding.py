"""Phase I as a whole: what is used, what is held out, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import handmade
import latencies
from nova.costspace import CostSpace, embed, embed_latency, embedding, phantom
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Latency, Nodes, Problem, numbered_ids


def problem(n: int, latency: Latency | None, coordinates: np.ndarray | None = None, **columns: object) -> Problem:
    """n hosts; the first two carry the sources, the last is the sink."""
    base = handmade.problem()
    hosts = np.ones(n, dtype=bool)
    nodes = Nodes(numbered_ids(n, "n"), np.full(n, 100.0), np.full(n, np.inf), hosts, coordinates, None)
    sources = replace(base.sources, node=(np.arange(len(base.sources)) % 2).astype(np.int32))
    queries = tuple(replace(query, sink=2) for query in base.queries)
    return replace(base, nodes=replace(nodes, **columns), sources=sources, queries=queries, latency=latency)


def test_given_coordinates_are_the_space() -> None:
    truth = phantom.grid(4)
    space = embed(problem(16, None, truth.coordinates))
    assert np.array_equal(space.coordinates, truth.coordinates)
    assert not space.heights.any()
    assert space.accuracy is None
    lifted = embed(problem(16, None, truth.coordinates, heights=np.arange(16.0)))
    assert np.array_equal(lifted.heights, np.arange(16.0))


def test_given_coordinates_are_measured_against_latencies() -> None:
    truth = phantom.grid(4)
    latency = phantom.measured(truth)
    told = embed(problem(16, replace(latency, rtt_ms=latency.rtt_ms / 0.9), truth.coordinates)).accuracy
    assert told is not None
    assert told.heldout == "given"
    assert told.heldout_pairs == len(latency)
    assert told.median_relative_error == pytest.approx(0.1)


def test_pairs_beyond_m_neighbours_are_held_out() -> None:
    truth = phantom.scattered(80)
    latency = phantom.measured(truth, noise=0.05)
    told = embed(problem(80, latency), Options(neighbours=10)).accuracy
    assert told is not None
    assert told.heldout == "unused"
    assert 80 * 79 / 2 - 80 * 10 <= told.heldout_pairs < 80 * 79 / 2
    assert told.median_relative_error < 0.1


def test_held_out_figures_are_those_of_the_space_itself() -> None:
    latency = phantom.measured(phantom.scattered(60), noise=0.1)
    space = embed_latency(60, latency, Options(neighbours=8))
    used, _ = embedding._used(60, latency, Options(neighbours=8))
    rtt = latency.rtt_ms[~used]
    error = np.abs(space.between(latency.first[~used], latency.second[~used]) - rtt) / rtt
    assert space.accuracy is not None
    assert space.accuracy.median_relative_error == pytest.approx(float(np.median(error)))


def test_sparse_measurements_are_all_used_and_told_by_a_second_fit() -> None:
    latency = phantom.measured(phantom.scattered(80), m=12, noise=0.05)
    space = embed(problem(80, latency), Options(neighbours=12))
    assert space.accuracy is not None
    assert space.accuracy.heldout == "refit"
    assert space.accuracy.heldout_pairs == round(0.1 * len(latency))
    # the space is that of a fit to all pairs, not of the second fit
    whole = embedding._fit(80, latency, np.ones(len(latency), bool), Options(neighbours=12), None)
    assert np.array_equal(space.coordinates, whole.coordinates)


def test_very_many_pairs_reserve_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "RESERVE_FROM", 500)
    monkeypatch.setattr(embedding, "RESERVED", 40)
    latency = phantom.measured(phantom.scattered(80), m=12)
    told = embed_latency(80, latency).accuracy
    assert told is not None
    assert (told.heldout, told.heldout_pairs) == ("reserved", 40)


def test_a_tree_of_measurements_has_nothing_to_hold_out() -> None:
    latency = latencies.of_pairs([(0, 1, 10.0), (1, 2, 10.0), (2, 3, 10.0)])
    space = embed(problem(4, latency))
    assert space.accuracy is not None
    assert space.accuracy.heldout == "none"
    assert space.accuracy.heldout_pairs == 3
    assert space.accuracy.median_relative_error < 0.01


@pytest.mark.parametrize("method", ["stress", "vivaldi", "mds"])
@pytest.mark.parametrize("dimensions", [2, 3, 5])
def test_every_method_gives_what_was_asked_for(method: str, dimensions: int) -> None:
    latency = phantom.measured(phantom.scattered(40), noise=0.05)
    options = Options(embedding=method, dimensions=dimensions, neighbours=12)  # type: ignore[arg-type]
    space, again = embed(problem(40, latency), options), embed(problem(40, latency), options)
    assert space.coordinates.shape == (40, dimensions)
    assert np.array_equal(space.coordinates, again.coordinates)
    assert space.heights.any() == (method != "mds")
    assert not embed(problem(40, latency), replace(options, heights=False)).heights.any()
    assert space.accuracy is not None
    assert space.accuracy.median_relative_error < 0.2


def test_pieces_that_are_in_use_are_refused_by_name() -> None:
    latency = latencies.of_pairs([(0, 1, 10.0), (1, 2, 10.0), (0, 2, 10.0), (3, 4, 5.0)])
    with pytest.raises(InvalidInput) as caught:
        embed(problem(5, latency))
    assert [fault.value for fault in caught.value.faults] == ["n3", "n4"]
    with pytest.raises(InvalidInput, match="neither coordinates nor latencies"):
        embed(problem(5, None))


def test_pieces_that_nothing_uses_are_infinitely_far() -> None:
    latency = latencies.of_pairs([(0, 1, 10.0), (1, 2, 10.0), (0, 2, 10.0), (3, 4, 5.0)])
    hosts = np.array([True, True, True, False, False])
    space = embed(problem(5, latency, hosts=hosts))
    assert np.isfinite(space.coordinates).all()
    assert space.between(np.array([0, 1]), np.array([3, 4])).tolist() == [np.inf, np.inf]
    assert space.between(np.array([0, 1]), np.array([1, 2])) == pytest.approx([10.0, 10.0], rel=0.01)


def test_progress_ends_at_one_and_never_falls() -> None:
    seen: list[float] = []
    embed_latency(60, phantom.measured(phantom.scattered(60)), Options(neighbours=8), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_distance_of_a_node_to_itself_is_zero_whatever_its_height() -> None:
    space = CostSpace(np.zeros((2, 2)), np.array([3.0, 4.0]))
    assert space.between(np.array([0, 0, 1]), np.array([0, 1, 1])).tolist() == [0.0, 7.0, 0.0]


@pytest.mark.shared
@pytest.mark.parametrize(("data", "m", "budget"), [(latencies.ripe_atlas, 20, 0.09), (latencies.planetlab, 32, 0.08)])
def test_budgets_on_real_latencies(shared, data, m: int, budget: float) -> None:  # type: ignore[no-untyped-def]
    n, latency = data(shared)
    told = embed_latency(n, latency, Options(neighbours=m)).accuracy
    assert told is not None
    assert told.heldout == "unused"
    assert told.median_relative_error <= budget
    # only the drawn pairs are known, as where a user gives no more than these
    used, _ = embedding._used(n, latency, Options(neighbours=m))
    sparse = Latency(latency.first[used], latency.second[used], latency.rtt_ms[used])
    told = embed_latency(n, sparse, Options(neighbours=m)).accuracy
    assert told is not None
    assert told.heldout == "refit"
