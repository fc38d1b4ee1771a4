"""Bounds: never above a feasible plan, equal to the optimum where that is known."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nova import synthetic
from nova.baselines import place
from nova.datasets.instances import load
from nova.evaluation import bounds
from nova.evaluation.bounds.boxes import boxes, cheapest
from nova.evaluation.bounds.costs import cost_matrix
from nova.evaluation.bounds.exact import integer_optimum
from nova.evaluation.bounds.linear import solve
from nova.evaluation.bounds.prices import ascend, dense_prices, space_prices
from nova.evaluation.metrics import evaluate, flows, node_load
from nova.model.errors import Infeasible, InvalidInput
from nova.model.options import LEG_WEIGHTS, Objective, Options
from nova.model.plan import Plan
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources, numbered_ids
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.optimizer import optimize
from nova.placement.resolve import resolve

OBJECTIVES: tuple[Objective, ...] = ("latency", "paper")
BY_DISTANCE = Options(waiting=0.0)
"""The bound without time at hosts; `test_bounds_felt` has the other."""


def small(seed: int, joins: int, hosts: int, spare: float = 2.0) -> tuple[Problem, CostSpace]:
    """A few sub-joins with two sinks, hosts with `spare` times the room they need together, and heights."""
    rng = np.random.default_rng(seed)
    n = 2 * joins + hosts + 2
    rate = rng.integers(1, 20, size=2 * joins).astype(float)
    capacity = np.zeros(n)
    capacity[2 * joins : 2 * joins + hosts] = rng.random(hosts) + 0.2
    capacity *= spare * rate.sum() / capacity.sum()
    may = capacity > 0
    at, tall = rng.normal(size=(n, 2)) * 30, rng.random(n) * 4
    half = joins // 2
    rows = np.arange(joins, dtype=np.int32)
    matrices = [
        Pairs(rows[part], rows[part] + np.int32(joins), np.full(len(rows[part]), np.nan))
        for part in (slice(0, half), slice(half, None))
    ]
    problem = Problem(
        nodes=Nodes(numbered_ids(n), capacity, np.full(n, np.inf), may, at, tall),
        streams=("left", "right"),
        sources=Sources(
            pa.concat_arrays([numbered_ids(joins, "l"), numbered_ids(joins, "r")]),
            np.repeat(np.array([0, 1], np.int32), joins),
            np.arange(2 * joins, dtype=np.int32),
            rate,
        ),
        queries=tuple(Query(f"q{i}", 0, 1, n - 2 + i, matrix) for i, matrix in enumerate(matrices)),
    )
    return problem, CostSpace(at, tall)


def cost_of(plan: Plan, problem: Problem, objective: Objective) -> float:
    figures = evaluate(problem, plan)
    return figures.cost_latency_ms if objective == "latency" else figures.cost_paper_ms


def random_grid(rng: np.random.Generator, problem: Problem, space: CostSpace, options: Options) -> Plan:
    """Every sub-join cut into a random grid of random slices, dealt out to random hosts, feasible or not."""
    joins, hosts = resolve(problem), np.flatnonzero(problem.nodes.hosts)
    parts = []
    for j in range(len(joins)):
        cuts = [np.concatenate([[0.0], np.sort(rng.random(rng.integers(0, 3))), [1.0]]) for _ in range(3)]
        boxes_here = [
            [c for side, i in zip(cuts, cell, strict=True) for c in (side[i], side[i + 1])]
            for cell in product(*(range(len(side) - 1) for side in cuts))
        ]
        table = np.array(boxes_here)
        where = rng.choice(hosts, len(table)).astype(np.int32)
        parts.append(Replicas(np.full(len(table), j, np.int32), where, *table.T.copy()))
    return Plan(joins, Replicas.concat(parts), space, options)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6), st.sampled_from(OBJECTIVES))
@example(4090, 1, 1, "latency")  # load and room differ by rounding only
def test_no_feasible_plan_is_below_the_bound(seed: int, joins: int, hosts: int, objective: Objective) -> None:
    """Random grids are made feasible by giving every host exactly the room that the plan takes."""
    problem, space = small(seed, joins, hosts)
    options = Options(objective=objective, waiting=0.0)
    plan = random_grid(np.random.default_rng(seed), problem, space, options)
    load = node_load(flows(problem, plan), len(problem.nodes))
    roomy = Problem(
        Nodes(problem.nodes.ids, load, problem.nodes.bandwidth, problem.nodes.hosts, problem.nodes.coordinates),
        problem.streams,
        problem.sources,
        problem.queries,
    )
    cost = cost_of(plan, roomy, objective)
    for exact in (bounds.EXACT, 0):
        found = bounds.bound(roomy, plan.joins, space, options, exact=exact)
        assert found.kind == ("lp" if exact else "lagrangian")
        assert found.value <= cost * (1 + 1e-9) + 1e-9
    assert bounds.lower_bound(roomy, plan).value <= cost * (1 + 1e-9) + 1e-9


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.sampled_from(OBJECTIVES))
def test_the_bound_is_the_optimum_of_small_problems(seed: int, joins: int, hosts: int, objective: Objective) -> None:
    problem, space = small(seed, joins, hosts)
    rows, options = resolve(problem), Options(objective=objective, waiting=0.0)
    found = bounds.bound(problem, rows, space, options)
    assert found.attained == pytest.approx(found.value, rel=1e-6)
    # an independent way to the same optimum: shares with a switch each, as many parts as hosts
    able = np.flatnonzero(problem.nodes.room > 0)
    cost = cost_matrix(rows, space, able, LEG_WEIGHTS[objective])
    parts = integer_optimum(cost, rows.demand, problem.nodes.room[able], parts=max(2, len(able)))
    assert float((parts.share * cost[parts.join, parts.node]).sum()) == pytest.approx(found.value, rel=1e-6)
    plan = place("optimum", problem, rows, space, options).plan
    assert len(plan.overloaded) == 0
    assert cost_of(plan, problem, objective) == pytest.approx(found.value, rel=1e-6)


def test_whole_joins_cost_at_least_as_much_and_match_enumeration() -> None:
    problem, space = small(seed=4, joins=4, hosts=3, spare=2.5)
    joins = resolve(problem)
    hosts = np.flatnonzero(problem.nodes.room > 0)
    cost, room = cost_matrix(joins, space, hosts, LEG_WEIGHTS["latency"]), problem.nodes.room[hosts]
    best = min(
        sum(cost[j, h] for j, h in enumerate(where))
        for where in product(range(len(hosts)), repeat=len(joins))
        if (np.bincount(where, joins.demand, len(hosts)) <= room).all()
    )
    plan = place("optimum", problem, joins, space, Options(max_replicas=1, waiting=0.0)).plan
    assert cost_of(plan, problem, "latency") == pytest.approx(best)
    assert len(plan.replicas) == len(joins)
    assert bounds.bound(problem, joins, space, BY_DISTANCE).value <= best + 1e-9


def test_largest_parts_are_respected() -> None:
    cost, demand, room = np.array([[1.0, 2.0, 9.0]]), np.array([10.0]), np.full(3, 100.0)
    shares = integer_optimum(cost, demand, room, parts=2, largest=6.0)
    assert sorted(shares.node.tolist()) == [0, 1]
    assert shares.share.max() == pytest.approx(0.6)


def test_the_optimum_refuses_what_it_cannot_do() -> None:
    problem, space = small(seed=1, joins=2, hosts=2, spare=0.5)
    joins = resolve(problem)
    with pytest.raises(Infeasible, match="short of"):
        place("optimum", problem, joins, space)
    with pytest.raises(InvalidInput, match="not grids"):
        place("optimum", problem, joins, space, Options(partition="grid"))
    with pytest.raises(Infeasible, match="every sub-join whole"):
        integer_optimum(np.ones((1, 2)), np.array([10.0]), np.array([6.0, 6.0]), parts=1)
    with pytest.raises(InvalidInput, match="too many"):
        integer_optimum(np.ones((300, 300)), np.ones(300), np.ones(300), parts=1)


def test_a_problem_that_cannot_fit_is_bounded_without_capacities() -> None:
    problem, space = small(seed=1, joins=3, hosts=2, spare=0.5)
    joins = resolve(problem)
    found = bounds.bound(problem, joins, space, BY_DISTANCE)
    every = np.arange(len(space))
    least = cost_matrix(joins, space, every, LEG_WEIGHTS["latency"]).min(axis=1).sum()
    assert (found.kind, found.value) == ("unconstrained", pytest.approx(least))
    assert bounds.bound(problem, joins, space, BY_DISTANCE, distances=space).value == pytest.approx(least)


def test_unlimited_nodes_leave_every_join_where_it_costs_least() -> None:
    problem = synthetic.draw(60, level=None, seed=3)
    assert problem.nodes.coordinates is not None
    space, joins = CostSpace(problem.nodes.coordinates, np.zeros(60)), resolve(problem)
    hosts = np.flatnonzero(problem.nodes.hosts)
    least = cost_matrix(joins, space, hosts, LEG_WEIGHTS["latency"]).min(axis=1).sum()
    for exact in (bounds.EXACT, 0):
        found = bounds.bound(problem, joins, space, BY_DISTANCE, exact=exact)
        assert found.value == pytest.approx(least, rel=1e-3)
        assert found.value <= least + 1e-9


def test_headroom_raises_the_bound() -> None:
    problem, space = small(seed=9, joins=6, hosts=5, spare=1.6)
    joins = resolve(problem)
    tight = bounds.bound(problem, joins, space, Options(utilisation=0.7, waiting=0.0)).value
    assert tight > bounds.bound(problem, joins, space, BY_DISTANCE).value


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 70), st.integers(1, 3))
def test_the_search_among_priced_hosts_is_exact(seed: int, n: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)
    problem, _ = small(seed, joins=5, hosts=n)
    nodes = len(problem.nodes)
    space = CostSpace(rng.normal(size=(nodes, dimensions)).round(1), rng.random(nodes) * rng.integers(0, 3))
    joins, hosts = resolve(problem), np.sort(rng.choice(nodes, n, replace=False))
    tree = boxes(space, hosts)
    price = rng.random(n) * 0.2
    wanted = (cost_matrix(joins, space, tree.host, (1.0, 1.0, 2.0)) + joins.demand[:, None] * price).min(axis=1)
    hint = rng.integers(n, size=len(joins))
    found, _ = cheapest(tree, space, joins, (1.0, 1.0, 2.0), price, hint)
    assert found == pytest.approx(wanted, abs=1e-9)
    loose, _ = cheapest(tree, space, joins, (1.0, 1.0, 2.0), price, hint, slack=0.01)
    assert (loose <= wanted + 1e-9).all()
    assert (loose >= wanted * 0.99 - 1e-9).all()


def test_prices_come_close_to_the_linear_program() -> None:
    problem = synthetic.draw(400, level=5, seed=2)
    assert problem.nodes.coordinates is not None
    space, joins = CostSpace(problem.nodes.coordinates, np.zeros(400)), resolve(problem)
    hosts = np.flatnonzero(problem.nodes.room > 0)
    room, legs = problem.nodes.room[hosts], LEG_WEIGHTS["latency"]
    best = solve(cost_matrix(joins, space, hosts, legs), joins.demand, room).cost
    value, prices = space_prices(space, joins, hosts, room, legs, seed=0)
    assert 0.99 * best < value <= best
    priced = cost_matrix(joins, space, hosts, legs) + joins.demand[:, None] * prices
    again = priced.min(axis=1).sum() - prices @ room  # the prices prove the value, without the search
    assert 0 <= again - value < 1e-3 * again
    dense, _ = dense_prices(space, joins, hosts, room, legs)
    assert 0.97 * best < dense <= best


def test_ascent_stops_where_nothing_is_short() -> None:
    room = np.array([10.0, 10.0])
    value, price = ascend(lambda p: (5.0 - float(p.sum()), np.array([-7.0, -10.0])), room, np.zeros(2), 50)
    assert value == 5.0
    assert not price.any()


def test_the_optimizer_stays_above_the_bound_and_the_prices_meet_its_options() -> None:
    problem = synthetic.draw(300, level=4, seed=6)
    for options in (Options(partition="window", waiting=0.0), Options(partition="grid", waiting=0.0), Options()):
        plan = optimize(problem, options)
        figures = evaluate(problem, plan, bound=bounds.lower_bound)
        assert figures.gap is not None
        assert figures.gap >= -1e-9
        assert figures.gap < 0.6


@pytest.mark.shared
@pytest.mark.parametrize(
    ("topology", "delta"),
    [("fit", 3.8), ("planetlab", 5.0), ("atlas392", 19.7), ("king", 25.0), ("sim1000", 9.9)],
)
def test_the_known_optima_come_out(shared: Path, topology: str, delta: float) -> None:
    """PROTOCOL.md: mean delta to sink-based of the optimum with window slices at level 5, in ms."""
    problem = load(shared / "instances" / f"{topology}-5.json").problem
    assert problem.nodes.coordinates is not None
    space, joins = CostSpace(problem.nodes.coordinates, np.zeros(len(problem.nodes))), resolve(problem)
    found = bounds.bound(problem, joins, space, BY_DISTANCE)
    assert found.attained is not None
    assert found.value == pytest.approx(found.attained, rel=1e-6)
    straight = space.between(joins.left_node, joins.sink).sum() + space.between(joins.right_node, joins.sink).sum()
    assert (found.value - straight) / (2 * len(joins)) == pytest.approx(delta, abs=0.05)
    assert found.shares is not None
    taken = np.bincount(found.shares.node, found.shares.share * joins.demand[found.shares.join], len(problem.nodes))
    assert (taken <= problem.nodes.room * (1 + 1e-6)).all()
