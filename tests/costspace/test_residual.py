"""The low-rank residual: it completes what a backbone does to RTTs, and stays away where it would complete noise."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import latencies
from nova.costspace import embed_latency, phantom
from nova.costspace.residual import complete, helpful
from nova.model.options import Options
from nova.model.plan import read
from nova.model.problem import Floats, Latency
from nova.model.space import FLOOR, CostSpace, Residual
from nova.optimizer import optimize
from nova.placement.resolve import resolve
from nova.synthetic import draw


def detours(n: int, rank: int, size: float, seed: int = 0) -> Floats:
    """Symmetric deviations of low rank, in ms, of either sign."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, rank))
    made = (factors * np.where(np.arange(rank) % 2, -1.0, 1.0)) @ factors.T
    return made * size / np.median(np.abs(made))


def backbone(n: int, noise: float = 0.01) -> Latency:
    """A scattered layout whose RTTs deviate by a matrix of rank 3."""
    truth = phantom.scattered(n)
    latency = phantom.measured(truth, noise=noise)
    extra = detours(n, 3, 0.12 * float(np.median(latency.rtt_ms)))[latency.first, latency.second]
    return Latency(latency.first, latency.second, np.maximum(latency.rtt_ms + extra, 0.3 * latency.rtt_ms))


def test_a_low_rank_matrix_is_completed() -> None:
    n = 40
    truth = detours(n, 3, 10.0)
    first, second = np.triu_indices(n, 1)
    known = np.random.default_rng(1).random(len(first)) < 0.7
    found = complete(n, first[known].astype(np.int32), second[known].astype(np.int32), truth[first, second][known])
    assert found.rank >= 3
    off = np.abs(found.between(first[~known], second[~known]) - truth[first, second][~known])
    assert np.median(off) < 0.25 * np.median(np.abs(truth[first, second][~known]))


def test_it_is_used_on_a_backbone_and_lowers_the_error_on_pairs_nobody_used() -> None:
    told = embed_latency(40, backbone(40), Options(seed=1))
    assert told.residual is not None
    assert told.accuracy is not None
    assert told.accuracy.coordinates_median is not None
    assert told.accuracy.median_relative_error < 0.8 * told.accuracy.coordinates_median


def test_noise_gets_no_residual() -> None:
    latency = phantom.measured(phantom.scattered(40), noise=0.15)
    space = embed_latency(40, latency)
    assert space.residual is None
    assert space.accuracy is not None
    assert space.accuracy.coordinates_median is None


def test_few_nodes_many_nodes_and_sparse_measurements_are_not_tried() -> None:
    def never(_: object) -> CostSpace:
        raise AssertionError("no fit should be asked for")

    for n, degree in ((10, 9), (300, 40), (60, 4)):
        latency = phantom.measured(phantom.scattered(n), degree)
        assert not helpful(n, latency, np.ones(len(latency), bool), never, 0)


def test_other_methods_stay_as_they_are() -> None:
    assert embed_latency(40, backbone(40), Options(embedding="vivaldi")).residual is None


def test_an_estimate_stays_positive_and_a_node_reaches_itself_in_no_time() -> None:
    space = CostSpace(np.array([[0.0], [10.0]]), np.zeros(2), residual=Residual(np.array([[5.0], [5.0]]), -np.ones(1)))
    assert space.estimate(np.array([0, 0]), np.array([1, 0])).tolist() == [FLOOR * 10.0, 0.0]
    assert space.between(np.array([0]), np.array([1])).tolist() == [10.0]  # geometry stays a metric


def test_plans_keep_it(tmp_path: Path) -> None:
    problem = draw(60)
    plan = optimize(problem)
    factors = np.random.default_rng(0).normal(size=(len(problem.nodes), 2))
    refined = CostSpace(plan.space.coordinates, plan.space.heights, residual=Residual(factors, np.array([1.0, -1.0])))
    replace(plan, space=refined).write(tmp_path, problem)
    again = read(tmp_path, problem, resolve(problem)).space
    ends = np.arange(20), np.arange(20) + 7
    assert np.allclose(again.estimate(*ends), refined.estimate(*ends))
    assert np.array_equal(again.between(*ends), refined.between(*ends))


@pytest.mark.shared
def test_a_clouds_regions(shared: Path) -> None:
    with (shared / "data/latency/aws-regions-32.csv").open() as file:
        rows = [row[1:] for row in csv.reader(file)][1:]
    matrix = np.array([[float(cell) if cell not in ("", "NA") else 0.0 for cell in row] for row in rows])
    np.fill_diagonal(matrix, 0.0)
    told = [embed_latency(len(matrix), latencies.of_matrix(matrix), Options(seed=seed)).accuracy for seed in range(2)]
    refined = np.mean([one.median_relative_error for one in told if one is not None])
    alone = np.mean([one.coordinates_median or np.nan for one in told if one is not None])
    assert refined < 0.7 * alone
    assert refined < 0.05


@pytest.mark.shared
def test_machines_on_the_internet_are_not_harmed(shared: Path) -> None:
    n, latency = latencies.planetlab(shared)
    some = np.random.default_rng(0).permutation(n)[:120]
    row = np.full(n, -1, np.int32)
    row[np.sort(some)] = np.arange(120)
    inside = (row[latency.first] >= 0) & (row[latency.second] >= 0)
    part = Latency(row[latency.first[inside]], row[latency.second[inside]], latency.rtt_ms[inside])
    told = embed_latency(120, part, Options(neighbours=20)).accuracy
    assert told is not None
    assert told.coordinates_median is None or told.median_relative_error <= told.coordinates_median
