"""Metrics against figures worked out by hand, against a slow reference, and at size."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import handmade
from nova.evaluation.metrics import (
    Measured,
    evaluate,
    flows,
    node_load,
    overloaded,
    source_latency,
    union_area,
    utilisation,
)
from nova.model.options import AT_HOST, Options
from nova.model.plan import Plan
from nova.model.problem import Latency, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace

FLOOR = SimpleNamespace(value=30.0, certainty=0.9)


@pytest.fixture
def problem() -> Problem:
    return handmade.problem()


@pytest.fixture
def plan(problem: Problem) -> Plan:
    return handmade.plan(problem)


def test_boxes_on_one_host_share_their_input(problem: Problem, plan: Plan) -> None:
    flow = flows(problem, plan)
    rows = {(int(j), int(n)): i for i, (j, n) in enumerate(zip(flow.join, flow.node, strict=True))}
    h1, h2 = rows[0, handmade.FIRST], rows[0, handmade.SECOND]
    # three of the four boxes: all of the left stream, all of the right stream, once each
    assert (flow.left[h1], flow.right[h1], flow.replicas[h1]) == pytest.approx((10, 20, 3))
    # the fourth: half of the left, three quarters of the right
    assert (flow.left[h2], flow.right[h2], flow.share[h2]) == pytest.approx((5, 15, 0.375))
    load = node_load(flow, len(problem.nodes))
    assert load.tolist() == pytest.approx([0, 0, 0, 30, 20 + 25, 0])


def test_latency_is_weighted_by_the_tuples_that_go_each_way(problem: Problem, plan: Plan) -> None:
    latency = source_latency(problem, plan, plan.space)
    # via h1: 3 to the host, 8 to the sink; via h2: 5 + 4 (from s1 and s2), b: 5 + 4
    assert latency.weighted.tolist() == pytest.approx([(10 * 11 + 5 * 9) / 15, 9.0, (20 * 11 + 15 * 9 + 20 * 9) / 55])
    assert latency.slowest.tolist() == pytest.approx([11, 9, 11])
    assert latency.unweighted.tolist() == pytest.approx([(3 * 11 + 9) / 4, 9, (3 * 11 + 9 + 9) / 5])
    straight = np.hypot(3, 8)
    assert latency.sink_based.tolist() == pytest.approx([straight, 3, straight])


def test_figures_of_the_hand_made_plan(problem: Problem, plan: Plan) -> None:
    metrics = evaluate(problem, plan)
    weighted = np.array([155 / 15, 9.0, 535 / 55])
    direct = np.array([np.hypot(3, 8), 3, np.hypot(3, 8)])
    assert metrics.latency_mean_ms == pytest.approx(weighted.mean())
    assert metrics.latency_p90_ms == pytest.approx(np.percentile(weighted, 90))
    assert metrics.delta_mean_ms == pytest.approx(weighted.mean() - direct.mean())
    assert metrics.delta_p90_ms == pytest.approx(np.percentile(weighted, 90) - np.percentile(direct, 90))
    # a ⋈ x costs 3 + 3 + 8 on h1 and 5 + 5 + 4 on h2, b ⋈ x 5 + 5 + 4 on h2: 14 each, five replicas
    assert metrics.cost_eq1_ms == pytest.approx(5 * 14)
    assert metrics.cost_paper_ms == pytest.approx(2 * 14)
    assert metrics.cost_latency_ms == pytest.approx(0.625 * 22 + 0.375 * 18 + 18)
    assert (metrics.replicas, metrics.sub_joins, metrics.hosts) == (5, 2, 2)
    assert (metrics.overloaded, metrics.overloaded_percent) == (1, 50.0)  # h2: 45 of 30
    assert metrics.utilisation_max == pytest.approx(1.5)
    assert metrics.utilisation_mean == pytest.approx((0.3 + 1.5) / 2)
    assert metrics.tuples_in == pytest.approx(75)
    assert metrics.tuples_network == pytest.approx(75)
    assert metrics.bound_ms is None
    assert metrics.gap is None


def test_input_from_the_hosts_own_source_does_not_cross_the_network(problem: Problem) -> None:
    at_source = handmade.plan(problem, Replicas.whole(np.array([0, 1]), np.array([handmade.LEFT, handmade.RIGHT])))
    metrics = evaluate(problem, at_source)
    assert metrics.tuples_in == pytest.approx(30 + 25)
    assert metrics.tuples_network == pytest.approx(20 + 5)


def test_sink_based_has_no_delta(problem: Problem) -> None:
    sink = np.full(2, handmade.SINK)
    metrics = evaluate(problem, handmade.plan(problem, Replicas.whole(np.arange(2), sink)))
    assert metrics.delta_mean_ms == pytest.approx(0)
    assert metrics.delta_p90_ms == pytest.approx(0)
    assert (metrics.overloaded, metrics.overloaded_percent) == (1, 100.0)


def test_gap_is_told_against_the_objective_of_the_plan(problem: Problem, plan: Plan) -> None:
    metrics = evaluate(problem, plan, bound=lambda _problem, _plan: FLOOR)
    assert (metrics.bound_ms, metrics.bound_certainty) == (30.0, 0.9)
    alike = evaluate(problem, replace(plan, options=Options(partition="window"))).cost_ms
    assert alike == pytest.approx(metrics.cost_latency_ms + AT_HOST * metrics.cost_at_hosts_ms)
    assert metrics.gap == pytest.approx(metrics.cost_ms / 30 - 1)
    by_distance = evaluate(problem, replace(plan, options=Options(waiting=0.0)), bound=lambda _problem, _plan: FLOOR)
    assert by_distance.gap == pytest.approx(metrics.cost_latency_ms / 30 - 1)


def test_bandwidth_limits_as_capacity_does(problem: Problem, plan: Plan) -> None:
    narrow = np.full(len(problem.nodes), np.inf)
    narrow[handmade.FIRST] = 20.0
    nodes = problem.nodes.__class__(**{**problem.nodes.__dict__, "bandwidth": narrow})
    tight = problem.__class__(**{**problem.__dict__, "nodes": nodes})
    assert evaluate(tight, plan).overloaded == 2


def test_measured_latencies_replace_estimates_where_they_exist(problem: Problem, plan: Plan) -> None:
    # h1 measured 100 ms from s1 and 50 ms from the sink; all else is estimated
    first = np.array([handmade.LEFT, handmade.FIRST], np.int32)
    second = np.array([handmade.FIRST, handmade.SINK], np.int32)
    measured = Measured(Latency(first, second, np.array([100.0, 50.0])), len(problem.nodes), plan.space)
    assert measured.between(np.array([3, 0, 4, 4]), np.array([0, 3, 4, 5])).tolist() == pytest.approx([100, 100, 0, 4])
    metrics = evaluate(problem, plan, measured)
    assert metrics.slowest_mean_ms == pytest.approx(np.mean([150, 9, 53]))
    assert metrics.measured_share == pytest.approx(6 / 15)  # left and sink link of the three boxes on h1


def test_nothing_placed_is_nothing_measured(problem: Problem) -> None:
    empty = handmade.plan(problem, Replicas.whole(np.empty(0, int), np.empty(0, int)))
    metrics = evaluate(problem, empty)
    assert np.isnan(metrics.latency_mean_ms)
    assert (metrics.hosts, metrics.overloaded, metrics.tuples_in, metrics.cost_eq1_ms) == (0, 0, 0, 0)


def test_utilisation_of_nodes_without_limit_or_without_room() -> None:
    load, limit = np.array([0.0, 5.0, 5.0, 5.0]), np.array([0.0, 0.0, np.inf, 10.0])
    assert utilisation(load, limit).tolist() == [0.0, np.inf, 0.0, 0.5]
    assert overloaded(load, limit).tolist() == [False, True, False, False]
    assert not overloaded(np.array([10.0 + 1e-9]), np.array([10.0]))[0]


spans = st.tuples(st.integers(0, 7), st.integers(1, 8)).map(lambda s: (s[0], min(8, s[0] + s[1])))
rectangles = st.lists(
    st.tuples(st.integers(0, 3), spans, spans).map(lambda r: (r[0], *r[1], *r[2])), min_size=1, max_size=25
)


@given(rectangles)
def test_union_area_against_counting_cells(rows: list[tuple[int, int, int, int, int]]) -> None:
    group, x_from, x_to, y_from, y_to = (np.array(column) for column in zip(*rows, strict=True))
    cells = np.zeros((group.max() + 1, 8, 8), bool)
    for g, left, right, low, high in rows:
        cells[g, left:right, low:high] = True
    area = union_area(group, x_from / 8, x_to / 8, y_from / 8, y_to / 8)
    assert area == pytest.approx(cells.sum(axis=(1, 2)) / 64)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), spans, spans, spans, spans), min_size=1, max_size=20))
def test_loads_agree_with_the_optimizers_own(rows: list[tuple[Any, ...]]) -> None:
    """Two codes that share nothing charge any boxes alike, overlapping ones too."""
    from nova.model.load import node_loads

    problem = handmade.problem()
    join, node, *ranges = zip(*rows, strict=True)
    columns = [np.array(end, float) / 8 for span in ranges for end in zip(*span, strict=True)]
    plan = handmade.plan(problem, Replicas(np.array(join, np.int32), np.array(node, np.int32), *columns))
    assert node_load(flows(problem, plan), 6) == pytest.approx(node_loads(plan.joins, plan.replicas, 6))


def test_a_million_replicas_are_evaluated() -> None:
    rng = np.random.default_rng(1)
    parts, n = 4, 1000
    problem = handmade.problem()
    joins = 1_000_000 // parts
    base = handmade.plan(problem).joins.take(np.zeros(joins, int))
    join = np.repeat(np.arange(joins), parts)
    cut = np.tile(np.arange(parts), joins) / parts
    ones, zeros = np.ones(len(join)), np.zeros(len(join))
    boxes = Replicas(
        join.astype(np.int32),
        rng.integers(0, n, len(join)).astype(np.int32) % 6,
        zeros,
        ones,
        zeros,
        ones,
        cut,
        cut + 1 / parts,
    )
    plan = Plan(base, boxes, CostSpace(handmade.POINTS, np.zeros(6)))
    metrics = evaluate(problem, plan)
    assert metrics.replicas == 1_000_000
    assert metrics.tuples_in == pytest.approx(joins * 30)
