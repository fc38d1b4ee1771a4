"""Placing by felt latency: hosts keep headroom where it pays, keys divide freely, slices come last and are told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handmade import problem as handmade
from nova.datasets.instances import load
from nova.evaluation.metrics import evaluate
from nova.evaluation.prediction import Felt, predict
from nova.evaluation.simulation import percentiles, simulate
from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.policy import ROOMS, TIE, key_ranges
from nova.model.problem import Key, Pairs, Problem
from nova.model.replicas import Replicas
from nova.model.requires import parse
from nova.optimizer import optimize
from nova.placement import assign as assigning
from nova.placement.assign import Start
from nova.synthetic import draw


def felt(problem: Problem, **options: object) -> Felt:
    return predict(problem, optimize(problem, Options(**options))).felt  # type: ignore[arg-type]


def keyed(problem: Problem, key: Key) -> Problem:
    return replace(problem, queries=tuple(replace(query, key=key) for query in problem.queries))


def felt_cost(problem: Problem, plan: Plan) -> float:
    figures = evaluate(problem, plan)
    return figures.cost_latency_ms + figures.cost_at_hosts_ms


def test_two_joins_share_a_near_host_only_by_distance() -> None:
    """h2 is nearer to the sink than h1. Joins of 30 and 25 tuples/s both fit there, at 92 % of 60 tuples/s: by distance
    they do; by felt latency one of them goes elsewhere."""
    small = handmade((1, 1, 1, 60, 60, 20))
    by_distance = optimize(small, Options(waiting=0.0)).replicas.node.tolist()
    by_felt = optimize(small).replicas.node.tolist()
    assert len(set(by_distance)) == 1
    assert len(set(by_felt)) == 2


@pytest.mark.parametrize(
    ("nodes", "load", "seed"), [(60, 0.45, 3), (40, 0.3, 1), (50, 0.4, 5), (30, 0.5, 7), (80, 0.4, 2)]
)
def test_p99_does_not_rise_as_utilisation_falls(nodes: int, load: float, seed: int) -> None:
    """Ties aside; nor does a lower utilisation make slices."""
    problem = draw(nodes, 5, seed, load=load)
    soonest, sliced_before = np.inf, optimize(problem).summary.sliced_sub_joins
    for share in (*ROOMS, 0.5):
        plan = optimize(problem, Options(utilisation=share))
        p99 = predict(problem, plan).felt.p99_ms
        assert plan.summary.sliced_sub_joins == sliced_before == 0
        assert p99 <= (1 + TIE) * soonest * (1 + 1e-9)
        soonest = min(soonest, p99)


def test_utilisation_is_kept_where_p99_allows_it() -> None:
    """Joins of 30 and 25 tuples/s on two hosts of 60: more than half of each is never needed, less is."""
    small = handmade((1, 1, 1, 60, 60, 20))
    assert optimize(small, Options(utilisation=0.5)).summary.max_utilisation == 0.5
    assert optimize(small, Options(utilisation=0.4)).summary.max_utilisation > 0.4


@settings(max_examples=8)
@given(st.integers(20, 70), st.integers(0, 5), st.floats(0.2, 0.55), st.integers(0, 10**6))
def test_felt_latency_is_not_above_that_of_placing_by_distance(
    nodes: int, level: int, load_share: float, seed: int
) -> None:
    problem = draw(nodes, level, seed, load=load_share)
    try:
        near = felt(problem, waiting=0.0)
    except Infeasible:
        return
    assert felt(problem).mean_ms <= near.mean_ms * 1.02


def test_a_percentile_trades_the_mean_for_the_tail() -> None:
    problem = draw(200, seed=3, load=0.5)
    mean, tail = predict(problem, optimize(problem)), predict(problem, optimize(problem, Options(percentile=99.0)))
    assert tail.felt.waiting_ms < mean.felt.waiting_ms
    assert tail.felt.network_ms > mean.felt.network_ms


@pytest.mark.parametrize("dense", [True, False])
def test_keys_divide_what_else_would_be_sliced(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not dense:
        monkeypatch.setattr(assigning, "DENSE", 0)
    plain = draw(200, seed=5, load=0.8)
    by_key = keyed(plain, Key(("sensor",), 1e6))
    plan = optimize(by_key)
    assert plan.summary.sliced_sub_joins == 0
    assert plan.replicas.keyed
    assert (node_loads(plan.joins, plan.replicas, 200) <= plain.nodes.capacity * (1 + 1e-6)).all()
    announced = optimize(plain).summary
    assert announced.sliced_sub_joins > 0
    assert announced.slice_lateness_ms > 100


def test_keyed_joins_stay_quick_at_high_load() -> None:
    plain = draw(200, seed=5, load=0.8)
    by_key = felt(keyed(plain, Key(("sensor",), 1e6)))
    assert by_key.unsettled == 0
    assert by_key.p99_ms <= 0.25 * felt(plain).p99_ms


def test_few_or_heavy_keys_are_not_divided() -> None:
    """150 keys make one range; a key of 30 % would make one range of ten three times as heavy as the others."""
    assert key_ranges(None) == 1
    assert key_ranges(Key(("sensor",), 150)) < 2
    assert key_ranges(Key(("sensor",), 1e6, (0.3, 0.1))) < 2
    assert key_ranges(Key(("sensor",), 1600)) == 16
    problem = keyed(draw(100, seed=5, load=0.5), Key(("sensor",), 1e6, (0.3,)))
    assert not optimize(problem, Options(partition="key")).replicas.keyed


def test_large_problems_keep_headroom_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "DENSE", 0)
    problem = draw(2000, seed=5, load=0.4)
    near, soon = felt(problem, waiting=0.0), felt(problem)
    assert soon.mean_ms < near.mean_ms
    assert soon.p99_ms < near.p99_ms
    assert soon.network_ms <= 1.35 * near.network_ms


def test_a_search_starts_from_what_runs() -> None:
    """Nothing moves without gain, little moves for a small change, and what no longer fits finds another place."""
    problem = draw(60, seed=3, load=0.4)
    plan = optimize(problem)
    again = optimize(problem, start=Start(plan.replicas, 0))
    assert again.replicas.node.tolist() == plan.replicas.node.tolist()
    nobody = Replicas.whole(np.empty(0, np.int32), np.empty(0, np.int32))
    quick = optimize(problem, start=Start(nobody, 0))
    better = optimize(problem, start=Start(quick.replicas, 2000))
    assert felt_cost(problem, better) < felt_cost(problem, quick)
    assert better.replicas.node.tolist() == optimize(problem, start=Start(quick.replicas, 2000)).replicas.node.tolist()
    gone = int(np.bincount(plan.replicas.node).argmax())
    capacity = problem.nodes.capacity.copy()
    capacity[gone] = 0.0
    smaller = replace(problem, nodes=replace(problem.nodes, capacity=capacity))
    after = optimize(smaller, start=Start(plan.replicas, 500))
    assert gone not in after.replicas.node
    assert felt_cost(smaller, after) <= 1.15 * felt_cost(smaller, optimize(smaller))
    rate = problem.sources.rate * np.random.default_rng(1).uniform(0.98, 1.02, len(problem.sources))
    shaken = optimize(replace(problem, sources=replace(problem.sources, rate=rate)), start=Start(plan.replicas, 0))
    places = [set(zip(one.replicas.join, one.replicas.node, strict=True)) for one in (plan, shaken)]
    assert len(places[1] - places[0]) <= len(plan.replicas) / 4


def test_queries_with_requirements_start_from_their_own_part() -> None:
    problem = draw(60, seed=3, load=0.3)
    (query,) = problem.queries
    nodes = replace(problem.nodes, labels={"zone": pa.array(["a" if v % 3 else "b" for v in range(60)])})
    assert isinstance(query.matrix, Pairs)
    left, right, rate = query.matrix.left, query.matrix.right, query.matrix.output_rate
    some = replace(query, id="some", matrix=Pairs(left[::2], right[::2], rate[::2]), requires=parse("zone = a"))
    rest = replace(query, matrix=Pairs(left[1::2], right[1::2], rate[1::2]))
    both = replace(problem, nodes=nodes, queries=(some, rest))
    plan = optimize(both)
    again = optimize(both, start=Start(plan.replicas, 0))
    assert again.replicas.node.tolist() == plan.replicas.node.tolist()


PUBLISHED = {"fit-5": (37.0, 80.0), "atlas419-5": (281.0, 430.0), "sim1000-5": (79.0, 160.0), "king-5": (384.0, 900.0)}
"""Simulated mean and 99th percentile in ms that a hand-made queue-aware placement reached, or that were asked for."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_instances_are_felt_within_the_targets(name: str, shared) -> None:  # type: ignore[no-untyped-def]
    problem = load(shared / "instances" / f"{name}.json").problem
    plan = optimize(problem)
    runs = [percentiles(simulate(problem, plan, 60.0, seed=seed).result_ms) for seed in (11, 12, 13)]
    mean, p99 = PUBLISHED[name]
    assert np.mean([run["mean"] for run in runs]) <= 1.02 * mean
    assert np.mean([run["p99"] for run in runs]) <= 1.05 * p99
