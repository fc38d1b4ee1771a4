"""A bound from a sample lies below plans, and not far below the bound that looks at every pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.evaluation.bounds import bound, sampled
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.optimizer import optimize
from nova.synthetic import draw


@given(seed=st.integers(0, 10_000), load=st.sampled_from([0.2, 0.5, 0.8]), waiting=st.sampled_from([0.3, 1.0, 4.0]))
def test_plans_lie_above_it_where_every_host_is_looked_at(seed, load, waiting):
    problem = draw(60, 4, seed=seed, load=load)
    plan = optimize(problem, Options(waiting=waiting, partition="auto"))
    found = bound(problem, plan.joins, plan.space, plan.options, exact=0, guide=plan)
    assert (found.kind, found.certainty) == ("sampled", 1.0)
    assert 0 < found.value <= evaluate(problem, plan).cost_ms * (1 + 1e-9)


@pytest.mark.parametrize("options", [Options(), Options(objective="paper"), Options(percentile=99.0)], ids=str)
def test_it_is_near_the_bound_by_all_pairs(options):
    problem = draw(400, 5, seed=1, load=0.4)
    plan = optimize(problem, options)
    by_all = bound(problem, plan.joins, plan.space, options, guide=plan).value
    found = bound(problem, plan.joins, plan.space, options, exact=0, guide=plan).value
    assert 0.85 * by_all < found <= by_all * (1 + 1e-3)


def test_few_sub_joins_and_few_hosts_stand_for_all(monkeypatch):
    """The sample may miss, but by about what its standard errors say."""
    problem = draw(800, 5, seed=2, load=0.4)
    plan = optimize(problem, Options())
    of_all = bound(problem, plan.joins, plan.space, exact=0, guide=plan).value
    monkeypatch.setattr(sampled, "JOINS", 60)
    monkeypatch.setattr(sampled, "LOOKED_AT", 120)
    found = [bound(problem, plan.joins, plan.space, Options(seed=s), exact=0, guide=plan).value for s in range(3)]
    assert len(set(found)) == 3  # another sample each time
    assert max(found) <= evaluate(problem, plan).cost_ms
    assert min(found) > 0.6 * of_all


def test_what_is_estimated_is_said_to_be(monkeypatch):
    problem = draw(300, 5, seed=2, load=0.4)
    plan = optimize(problem, Options())
    monkeypatch.setattr(sampled, "LOOKED_AT", 100)
    found = bound(problem, plan.joins, plan.space, exact=0, guide=plan)
    assert found.certainty == pytest.approx(0.977, abs=1e-3)
    figures = evaluate(problem, plan, bound=lambda problem, plan: found)
    assert (figures.bound_ms, figures.bound_certainty) == (found.value, found.certainty)


@pytest.mark.parametrize("skew", [0.3, 1.0])
def test_estimates_are_above_the_sum_about_as_often_as_they_say(monkeypatch, skew):
    """Hosts of very different room, gains that grow with it, fall with the way, and scatter."""
    monkeypatch.setattr(sampled, "LOOKED_AT", 200)
    rng = np.random.default_rng(5)
    room, far = rng.exponential(50.0, 5000), rng.gamma(2.0, 20.0, 5000)
    gain = room * np.maximum(1.0 - far / 60.0, 0.0) * rng.lognormal(0.0, skew, 5000)
    found = [sampled.estimated_total(room, far, gain.__getitem__, np.random.default_rng(s)) for s in range(300)]
    enough = [mean + sampled.ERRORS * error >= gain.sum() for mean, error in found]
    assert np.mean([mean for mean, _ in found]) == pytest.approx(gain.sum(), rel=0.01)
    assert np.mean(enough) > sampled.CERTAINTY - 0.03


def test_a_host_without_limit_is_as_good_as_one_that_takes_all():
    problem = draw(80, 4, seed=1, load=0.4)
    capacity = problem.nodes.capacity.copy()
    capacity[np.flatnonzero(problem.nodes.hosts)[0]] = np.inf
    problem = replace(problem, nodes=replace(problem.nodes, capacity=capacity))
    plan = optimize(problem, Options())
    found = bound(problem, plan.joins, plan.space, exact=0, guide=plan)
    assert 0 < found.value <= evaluate(problem, plan).cost_ms * (1 + 1e-9)


def test_the_same_seed_draws_the_same_sample():
    problem = draw(300, 5, seed=3, load=0.4)
    plan = optimize(problem, Options())
    first, second = (bound(problem, plan.joins, plan.space, exact=0, guide=plan).value for _ in range(2))
    assert np.isclose(first, second, rtol=0, atol=0)
