"""Shares of joins that divide by key: where hosts cost least in sum, within room, ranges of keys and replicas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.evaluation.prediction import predict
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.problem import Floats, Key, Pairs, Problem
from nova.model.waiting import sojourn_ms, sojourn_slope
from nova.optimizer import optimize
from nova.placement.shares import Task
from nova.synthetic import draw


def task(costs: Floats, demand: list[float], limit: list[float], least: float = 1e-6, replicas: float = 1e9) -> Task:
    joins, hosts = costs.shape
    return Task(
        costs,
        np.array(demand),
        np.ones(joins),
        np.full(joins, least),
        np.array(limit),
        np.array(limit),
        np.zeros(hosts),
        np.array([2.4, 1.0, 0.0, np.inf, 0.0, replicas]),
    )


def keyed(problem: Problem, cardinality: float = np.inf) -> Problem:
    return replace(problem, queries=tuple(replace(q, key=Key(("k",), cardinality)) for q in problem.queries))


def test_one_join_on_two_hosts_divides_where_that_costs_least() -> None:
    limit = np.array([100.0, 60.0])
    one = task(np.array([[10.0, 14.0]]), [110.0], limit.tolist())
    share, cost = one.improve(np.array([[0.7, 0.3]]))

    def total(first: Floats) -> Floats:
        parts = np.stack([first, 1 - first])
        stay = sojourn_ms(parts * 110.0, limit[:, None])
        legs = (parts * np.array([[10.0], [14.0]])).sum(axis=0) * 1.01  # a second replica costs one per cent
        return np.asarray(legs + 2.4 * (parts * stay).sum(axis=0))

    every = np.linspace(0.5, 0.9, 4001)
    assert cost == pytest.approx(total(every).min(), rel=1e-6)
    assert share[0, 0] == pytest.approx(every[total(every).argmin()], abs=1e-3)


def test_parts_that_gain_little_close() -> None:
    """A host of its own serves a join in 1 ms; another part would save less than it costs."""
    share, _ = task(np.array([[100.0, 100.0]]), [1.0], [1000.0, 1000.0]).improve(np.array([[0.5, 0.5]]))
    assert sorted(share[0]) == [0.0, 1.0]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), load=st.floats(0.1, 0.95), least=st.sampled_from([1e-6, 0.1]))
def test_improving_never_costs_more_nor_breaks_a_limit(seed: int, load: float, least: float) -> None:
    rng = np.random.default_rng(seed)
    joins, hosts = int(rng.integers(1, 8)), int(rng.integers(1, 12))
    demand, limit = rng.uniform(1, 100, joins), rng.exponential(50, hosts) + 1.0
    limit *= demand.sum() / (load * limit.sum())
    some = task(rng.uniform(1, 100, (joins, hosts)), demand.tolist(), limit.tolist(), least, replicas=6)
    begun = some.tidy(np.tile(limit / limit.sum(), (joins, 1)))
    starts = [begun, *(some.take(room) for room in some.even_rooms())]
    for start in (one for one in starts if one is not None):
        share, cost = some.improve(start)
        parts = share[share > 0]
        assert share.sum(axis=1) == pytest.approx(1.0)
        assert parts.min() >= least * (1 - 1e-6)
        assert (np.count_nonzero(share, axis=1) <= 6).all()
        assert (some.load(share) <= limit * (1 + 1e-6)).all()
        again = some.improve(share)
        assert again[1] <= cost * (1 + 1e-9)


def test_hosts_filled_evenly_cost_the_same_for_one_more_tuple() -> None:
    """d(λS)/dλ is equal where hosts have room, and no less where service alone takes longer than that."""
    limit = np.array([200.0, 60.0, 25.0, 3.0])
    for room in task(np.full((1, 4), 10.0), [100.0], limit.tolist()).even_rooms():
        margin = sojourn_ms(room, limit) + room * sojourn_slope(room, limit)
        used = (room > 0) & (room < limit * 0.98)
        assert margin[used] == pytest.approx(margin[used][0], rel=1e-6)
        assert (margin[room == 0] >= margin[used][0] * (1 - 1e-6)).all()


def test_keyed_joins_are_balanced_within_room_and_whole_ranges_of_keys() -> None:
    plain = draw(120, seed=3, load=0.8)
    problem = keyed(plain, 2000.0)
    plan = optimize(problem)
    assert (node_loads(plan.joins, plan.replicas, 120) <= problem.nodes.limit * (1 + 1e-6)).all()
    ranges = plan.replicas.key_to - plan.replicas.key_from
    assert ranges.min() >= 100 / 2000 - 1e-9
    assert plan.replicas.keyed
    assert predict(problem, plan).felt.p99_ms < 0.5 * predict(plain, optimize(plain)).felt.p99_ms


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_keys_never_make_results_later(load: float) -> None:
    """Results that differ in number count by it, with keys and without."""
    plain = draw(100, seed=4, load=load)
    pairs = plain.queries[0].matrix
    assert isinstance(pairs, Pairs)
    made = np.random.default_rng(4).exponential(20.0, len(pairs.left))
    plain = replace(plain, queries=(replace(plain.queries[0], matrix=replace(pairs, output_rate=made)),))
    with_keys, without = (predict(problem, optimize(problem)).felt for problem in (keyed(plain), plain))
    assert with_keys.mean_ms <= without.mean_ms * 1.001
    assert with_keys.p99_ms <= without.p99_ms * 1.01


def test_replicas_at_most_hold_for_keys_too() -> None:
    plan = optimize(keyed(draw(120, seed=3, load=0.5)), Options(max_replicas=3))
    assert np.bincount(plan.replicas.join).max() <= 3


def test_utilisation_is_kept_where_keys_allow_it() -> None:
    problem = keyed(draw(120, seed=3, load=0.5))
    plan = optimize(problem, Options(utilisation=0.7))
    assert (node_loads(plan.joins, plan.replicas, 120) <= 0.7 * problem.nodes.limit * (1 + 1e-6)).all()
