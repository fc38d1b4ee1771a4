"""The bound with time at hosts: below every plan, near the best one, and the linear program's where nothing waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from nova.evaluation.bounds import bound, lower_bound
from nova.evaluation.bounds.felt import ascend
from nova.evaluation.bounds.linear import solve
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.model.problem import Floats
from nova.model.waiting import sojourn_ms
from nova.optimizer import optimize
from nova.synthetic import draw


def drawn(seed: int, joins: int, hosts: int) -> tuple[Floats, Floats, Floats]:
    """Legs in ms, demands and limits in tuples/s; the hosts have room for twice the demand at least."""
    rng = np.random.default_rng(seed)
    cost, demand = rng.uniform(10, 200, (joins, hosts)), rng.uniform(2, 60, joins)
    limit = rng.uniform(5, 100, hosts)
    return cost, demand, limit * max(1.0, 2 * demand.sum() / limit.sum())


def felt(cost: Floats, demand: Floats, limit: Floats, shares: Floats, weight: float) -> float:
    """What shares cost: legs, and time at the hosts for all that is there."""
    load = demand @ shares
    return float((cost * shares).sum() + weight * shares.sum(axis=0) @ sojourn_ms(load, limit))


def bounded(cost: Floats, demand: Floats, limit: Floats, weight: float, rounds: int = 250) -> float:
    start = (cost + weight * 1000.0 / limit).min(axis=1)
    return ascend(cost, demand, limit, limit, np.zeros(len(limit)), weight, 1.0, 0.0, start, rounds)[0]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    joins=st.integers(1, 8),
    hosts=st.integers(1, 6),
    weight=st.sampled_from([0.0, 0.5, 2.0]),
    rounds=st.integers(1, 60),
)
def test_no_plan_within_capacities_costs_less(seed, joins, hosts, weight, rounds):
    """Whatever the prices: random shares and whole sub-joins, wherever they fit."""
    cost, demand, limit = drawn(seed, joins, hosts)
    floor = bounded(cost, demand, limit, weight, rounds)
    rng = np.random.default_rng([seed, 1])
    for spread in (0.05, 0.3, 1.0):
        for _ in range(40):
            shares = rng.dirichlet(np.full(hosts, spread), joins)
            if (demand @ shares <= limit).all():
                assert floor <= felt(cost, demand, limit, shares, weight) * (1 + 1e-9)
    fluid = np.tile(limit / limit.sum(), (joins, 1))
    assert floor <= felt(cost, demand, limit, fluid, weight) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_convex_solver_comes_down_to_it(seed):
    """SLSQP from several starts finds shares at most a tenth above the bound."""
    joins, hosts, weight = 6, 5, 2.0
    cost, demand, limit = drawn(seed, joins, hosts)
    floor = bounded(cost, demand, limit, weight)
    whole = np.kron(np.eye(joins), np.ones(hosts))
    load = np.kron(demand, np.eye(hosts)).reshape(hosts, joins * hosts)
    best = np.inf
    for start in range(4):
        first = np.random.default_rng([seed, start]).dirichlet(100 * limit / limit.sum(), joins)
        found = minimize(
            lambda x: felt(cost, demand, limit, np.abs(x.reshape(joins, hosts)), weight),
            first.ravel(),
            method="SLSQP",
            bounds=[(0, 1)] * (joins * hosts),
            constraints=[LinearConstraint(whole, 1, 1), LinearConstraint(load, -np.inf, 0.98 * limit)],
            options={"maxiter": 300},
        )
        shares = np.abs(found.x.reshape(joins, hosts))
        shares /= shares.sum(axis=1, keepdims=True)
        if (demand @ shares <= limit).all():
            best = min(best, felt(cost, demand, limit, shares, weight))
    assert floor <= best * (1 + 1e-6)
    assert best <= 1.1 * floor


@pytest.mark.parametrize("seed", range(3))
def test_without_waiting_it_is_the_linear_program(seed):
    cost, demand, limit = drawn(seed, 12, 8)
    exact = solve(cost, demand, limit)
    prices = (cost + demand[:, None] * exact.prices).min(axis=1)
    value, _ = ascend(cost, demand, limit, limit, np.zeros(8), 0.0, 1.0, 0.0, prices)
    assert value == pytest.approx(exact.cost, rel=2e-3)
    assert value <= exact.cost * (1 + 1e-9)


def test_more_waiting_never_lowers_the_bound():
    cost, demand, limit = drawn(5, 10, 6)
    values = [bounded(cost, demand, limit, weight) for weight in (0.0, 1.0, 2.0, 4.0)]
    assert values == sorted(values)


@pytest.mark.parametrize("objective", ["latency", "paper"])
def test_plans_lie_above_the_bound_and_near_it(objective):
    """The bound of a whole problem: exact on small ones, from a sample of the hosts on large ones."""
    problem = draw(150, 4, seed=3, load=0.4)
    plan = optimize(problem, Options(objective=objective))
    told = evaluate(problem, plan, bound=lower_bound)
    assert told.gap is not None
    assert 0 <= told.gap < 0.25
    sampled = bound(problem, plan.joins, plan.space, plan.options, exact=0, guide=plan)
    assert sampled.kind == "sampled"
    assert sampled.value <= told.cost_ms
    by_distance = bound(problem, plan.joins, plan.space, replace(plan.options, waiting=0.0))
    assert 0.99 * by_distance.value <= sampled.value <= told.bound_ms


def test_the_percentile_of_the_wait_has_a_bound_too():
    problem = draw(100, 4, seed=5, load=0.4)
    plan = optimize(problem, Options(percentile=99.0))
    told = evaluate(problem, plan, bound=lower_bound)
    assert told.gap is not None
    assert told.gap >= 0
