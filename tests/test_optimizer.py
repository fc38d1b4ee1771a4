"""Whole plans: what must hold for every problem and every option."""

from __future__ import annotations

from dataclasses import fields, replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.options import Options
from nova.optimizer import optimize
from nova.placement import assign as assigning
from nova.synthetic import draw

options = st.builds(
    Options,
    objective=st.sampled_from(["latency", "paper"]),
    partition=st.sampled_from(["auto", "grid", "window"]),
    sigma=st.sampled_from([None, 0.0, 0.4]),
    bandwidth_budget=st.sampled_from([None, 40.0, 90.0]),
    c_min=st.sampled_from([0.0, 5.0]),
    waiting=st.sampled_from([0.0, 1.0]),
    utilisation=st.sampled_from([1.0, 0.9]),
    max_replicas=st.sampled_from([None, 3, 8]),
    allow_overload=st.booleans(),
)


def same(a, b):
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


@settings(max_examples=30)
@given(st.integers(8, 80), st.integers(0, 5), options, st.booleans(), st.integers(0, 10**6))
def test_a_plan_is_valid_or_says_what_is_missing(nodes, level, opts, dense, seed):
    problem = draw(nodes, level, seed, load=0.5)
    with pytest.MonkeyPatch.context() as patch:
        if not dense:
            patch.setattr(assigning, "DENSE", 0)
        try:
            plan = optimize(problem, opts)  # check() inside refuses a wrong plan
        except Infeasible:
            assert not opts.allow_overload
            return
    loads = node_loads(plan.joins, plan.replicas, len(problem.nodes))
    above = np.flatnonzero(loads > problem.nodes.capacity * (1 + 1e-6))
    assert set(above) == set(plan.overloaded)
    if not opts.allow_overload:
        assert not len(above)
        most = 1.0 if opts.partition == "auto" and opts.waiting else opts.utilisation  # else it would have to slice
        assert (loads <= problem.nodes.capacity * most * (1 + 1e-6)).all()
        if opts.max_replicas is not None:
            assert np.bincount(plan.replicas.join).max() <= opts.max_replicas
        if opts.bandwidth_budget is not None:
            left, right = plan.replicas.rates(plan.joins)
            assert (left + right).max() <= opts.bandwidth_budget * (1 + 1e-6)


@pytest.mark.parametrize("partition", ["grid", "window"])
@pytest.mark.parametrize("dense", [True, False])
def test_same_seed_same_plan(partition, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(assigning, "DENSE", 0)
    plans = [optimize(draw(400, seed=4), Options(partition=partition)) for _ in range(2)]
    assert same(plans[0].replicas, plans[1].replicas)


@pytest.mark.parametrize("partition", ["grid", "window"])
def test_the_number_of_threads_does_not_matter(partition):
    most = numba.get_num_threads()
    plans = []
    for threads in {1, most}:
        numba.set_num_threads(threads)
        try:
            plans.append(optimize(draw(6000, seed=3), Options(partition=partition)))
        finally:
            numba.set_num_threads(most)
    assert all(same(plan.replicas, plans[0].replicas) for plan in plans)


def test_too_much_load_is_refused_with_the_amount_and_the_joins():
    problem = draw(100, seed=1, load=1.05)
    with pytest.raises(Infeasible, match=r"found no host.*\n.*l\d+ ⋈ r\d+: .* tuples/s"):
        optimize(problem, Options(partition="window"))
    plan = optimize(problem, Options(partition="window", allow_overload=True))
    assert len(plan.overloaded)
    assert plan.summary["overloaded_nodes"] == len(plan.overloaded)


@pytest.mark.parametrize("load", [0.7, 0.85, 0.95])
def test_window_slices_fit_whenever_the_sum_fits(load):
    plan = optimize(draw(300, seed=2, load=load), Options(partition="window"))
    assert plan.summary["overloaded_nodes"] == 0


def with_window(problem, window_ms):
    return replace(problem, queries=(replace(problem.queries[0], window_ms=window_ms),))


@pytest.mark.parametrize("dense", [True, False])
def test_by_distance_auto_slices_only_short_windows_while_grids_fit(dense, monkeypatch):
    """Slices make results late by whole windows, so they are for windows that last no time."""
    if not dense:
        monkeypatch.setattr(assigning, "DENSE", 0)
    problem = draw(200, seed=1, load=0.5)
    far = Options(waiting=0.0)
    second, instant = (optimize(with_window(problem, ms), far).replicas for ms in (1000.0, 1.0))
    assert (second.slice_to - second.slice_from == 1).all()
    assert (instant.slice_to - instant.slice_from < 1).any()


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("load", [0.85, 0.95])
def test_auto_slices_rather_than_refuse(load, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(assigning, "DENSE", 0)
    problem = draw(300, seed=2, load=load)
    with pytest.raises(Infeasible):
        optimize(problem, Options(partition="grid"))
    replicas = optimize(problem).replicas
    assert (replicas.slice_to - replicas.slice_from < 1).any()


def test_auto_never_slices_windows_of_an_hour():
    """Their host would drown in one window and then wait for hours."""
    problem = draw(300, seed=2, load=0.95)
    with pytest.raises(Infeasible):
        optimize(with_window(problem, 3_600_000.0))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("partition", ["auto", "grid", "window"])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_sub_join_has_more_replicas_than_wished(partition, most, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(assigning, "DENSE", 0)
    plan = optimize(draw(300, seed=2), Options(partition=partition, max_replicas=most))
    assert np.bincount(plan.replicas.join).max() <= most
    assert plan.summary["overloaded_nodes"] == 0


def test_a_limit_that_does_not_bind_changes_nothing():
    problem = draw(300, seed=2)
    free, limited = (optimize(problem, Options(partition="window", max_replicas=m)) for m in (None, 100))
    assert same(free.replicas, limited.replicas)


def test_no_slice_is_too_thin_to_see_a_window():
    replicas = optimize(draw(6000, seed=1, load=0.9), Options(partition="window")).replicas
    assert (replicas.slice_to - replicas.slice_from).min() >= 1e-7


def test_stages_are_observed_in_order():
    stages = []
    optimize(draw(30), observe=lambda stage, result: stages.append(stage))
    assert stages == ["embed", "resolve", "assign", "merge", "plan", "check"]


def test_heights_make_hosts_dearer():
    """A host behind a slow access link is worse than one a little further away."""
    problem = draw(200, level=None, seed=1)
    nodes = problem.nodes
    plain = optimize(problem)
    favourite = np.bincount(plain.replicas.node).argmax()
    heights = np.zeros(len(nodes))
    heights[favourite] = 50.0
    tall = replace(problem, nodes=replace(nodes, heights=heights))
    assert favourite not in optimize(tall).replicas.node
