"""The bound with time at hosts: below every plan, near the best one, and the linear program's where nothing waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from nova.evaluation.bounds import bound, lower_bound
from nova.evaluation.bounds.felt import Task, _least_load, _most_share, _pack
from nova.evaluation.bounds.linear import solve
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.model.problem import Floats
from nova.model.rates import counts
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


def bounded(
    cost: Floats,
    demand: Floats,
    limit: Floats,
    weight: float,
    rounds: int = 250,
    small: float = 0.0,
    counts: float = 1.0,
) -> float:
    """`small`: share of each demand that is the smaller stream's, 0 where sub-joins divide freely."""
    start = (cost + weight * 1000.0 / limit).min(axis=1) * counts
    rates = (demand * (1 - small), demand * small, np.full(len(demand), counts))
    return Task(*rates, limit, limit, np.zeros(len(limit)), weight, 1.0, 0.0).ascend(cost, start, rounds)[0]


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
    task = Task(demand, np.zeros(12), np.ones(12), limit, limit, np.zeros(8), 0.0, 1.0, 0.0)
    value, _ = task.ascend(cost, prices)
    assert value == pytest.approx(exact.cost, rel=2e-3)
    assert value <= exact.cost * (1 + 1e-9)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    small=st.sampled_from([0.1, 0.3, 0.5]),
    counts=st.sampled_from([0.5, 3.0]),
    rounds=st.integers(1, 60),
)
def test_no_plan_of_whole_joins_and_grids_costs_less(seed, small, counts, rounds):
    """Each sub-join in an m × n grid of equal boxes, on whatever hosts; boxes on one host share their input."""
    joins, hosts, weight = 4, 5, 2.0
    cost, demand, limit = drawn(seed, joins, hosts)
    floor = bounded(cost, demand, limit, weight, rounds, small, counts)
    assert floor >= bounded(cost, demand, limit, weight, rounds=1, counts=counts) * (1 - 1e-9)
    rng = np.random.default_rng([seed, 1])
    for _ in range(200):
        shares, load = np.zeros((joins, hosts)), np.zeros(hosts)
        for j in range(joins):
            m, n = rng.integers(1, 4, 2)
            at = rng.integers(0, hosts, (m, n))
            for h in range(hosts):
                shares[j, h] = (at == h).mean()
                load[h] += demand[j] * (1 - small) * (at == h).any(axis=1).mean()
                load[h] += demand[j] * small * (at == h).any(axis=0).mean()
        if (load <= limit).all():
            paid = float((cost * shares).sum() + weight * shares.sum(axis=0) @ sojourn_ms(load, limit))
            assert floor <= counts * paid * (1 + 1e-9)


@given(share=st.floats(0.001, 1.0), large=st.floats(0.1, 100.0), ratio=st.floats(0.0, 1.0))
def test_a_share_loads_its_host_as_the_best_rectangle_does(share, large, ratio):
    small = ratio * large
    left = np.linspace(share, 1.0, 2001)
    best = float(np.minimum(left * large + share / left * small, left * small + share / left * large).min())
    load = _least_load(share, large, small)
    assert load <= best * (1 + 1e-9)
    assert best == pytest.approx(load, rel=1e-3)
    assert _most_share(load, large, small) == pytest.approx(share)


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), room=st.floats(1.0, 150.0), free=st.booleans())
@example(seed=5985, n=7, room=78.0, free=False)
def test_what_a_host_gains_most_by_is_found(seed, n, room, free):
    """Against all sets of whole sub-joins with a part of one more; searched shortly, it is never less."""
    rng = np.random.default_rng(seed)
    gain, count, large = rng.uniform(0, 9, n), rng.uniform(0.5, 2, n), rng.uniform(1, 60, n)
    small, share, wait = (0.0 if free else 1.0) * rng.uniform(0, 1, n) * large, np.empty(n), 1.5
    best = 0.0
    for chosen in range(2**n):
        whole = np.array([chosen >> i & 1 for i in range(n)], np.bool_)
        left = room - float((large + small)[whole].sum())
        if left >= 0:
            parts = [_most_share(left, large[i], small[i]) * (gain - count * wait)[i] for i in np.flatnonzero(~whole)]
            best = max(best, float((gain - count * wait)[whole].sum()) + max([0.0, *parts]))
    assert _pack(gain, count, large, small, n, wait, room, 10**6, share) == pytest.approx(best, rel=1e-8, abs=1e-9)
    assert share @ (gain - count * wait) == pytest.approx(best, rel=1e-8, abs=1e-9)
    assert sum(map(_least_load, share, large, small)) <= room * (1 + 1e-9)
    for tries in (0, 1, 5):
        assert _pack(gain, count, large, small, n, wait, room, tries, share) >= best * (1 - 1e-9)


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
    assert 0 <= told.gap < 0.1
    sampled = bound(problem, plan.joins, plan.space, plan.options, exact=0, guide=plan)
    assert sampled.kind == "sampled"
    assert sampled.value <= told.cost_ms
    by_distance = bound(problem, plan.joins, plan.space, replace(plan.options, waiting=0.0))
    least = float(counts(problem, plan.joins, plan.options).min())  # of distances it knows only that they count so much
    assert 0.99 * least * by_distance.value <= sampled.value <= told.bound_ms


def test_the_percentile_of_the_wait_has_a_bound_too():
    problem = draw(100, 4, seed=5, load=0.4)
    plan = optimize(problem, Options(percentile=99.0))
    told = evaluate(problem, plan, bound=lower_bound)
    assert told.gap is not None
    assert told.gap >= 0
