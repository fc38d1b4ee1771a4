from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skewed
from nova.evaluation.bounds import lower_bound
from nova.evaluation.metrics import evaluate
from nova.evaluation.prediction import predict
from nova.model.errors import Infeasible
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.policy import ALONE, alone
from nova.model.problem import Problem
from nova.model.rates import importance, result_rates, result_shares
from nova.model.skew import KeyAxis
from nova.optimizer import optimize
from nova.placement import assign
from nova.placement.check import broken_joins, check
from nova.placement.resolve import resolve
from nova.placement.skew import Parts
from tilings import random_replicas

HEAVY = {"a": 0.6}


def parts_of(problem: Problem) -> Parts:
    parts = Parts.of(problem, resolve(problem), Options())
    assert parts is not None
    return parts


def without_values(problem: Problem) -> Problem:
    """The same where only the shares of heavy keys are known."""
    (query,) = problem.queries
    assert query.key is not None
    return replace(problem, queries=(replace(query, key=replace(query.key, values=())),))


def test_a_heavy_key_is_cut_by_grid_and_the_others_by_ranges() -> None:
    """120 of 200 tuples/s have one key, hosts take 60: only that key is broadcast."""
    problem = skewed.problem(HEAVY)
    plan = optimize(problem)
    check(problem, plan)
    r = plan.replicas
    heavy = r.key_to <= 0.6
    assert heavy.sum() > 4
    assert (r.key_from[~heavy] >= 0.6).all()
    assert ((r.left_from[~heavy] == 0) & (r.left_to[~heavy] == 1) & (r.right_to - r.right_from == 1)[~heavy]).all()
    assert not r.sliced.any()
    taken = node_loads(plan.joins, r, len(problem.nodes))
    grid = optimize(problem, Options(partition="grid"))
    assert taken.sum() < 0.8 * node_loads(grid.joins, grid.replicas, len(problem.nodes)).sum()
    soon, late = predict(problem, plan).felt, predict(problem, grid).felt
    assert soon.mean_ms < late.mean_ms
    assert soon.p99_ms < late.p99_ms
    assert lower_bound(problem, plan).value <= evaluate(problem, plan).cost_ms


def test_without_the_value_nothing_can_be_cut_apart() -> None:
    """The share alone only says that ranges would be uneven."""
    problem = skewed.problem(HEAVY)
    unknown = without_values(problem)
    assert not optimize(unknown).replicas.keyed
    assert Parts.of(unknown, resolve(unknown), Options()) is None
    assert Parts.of(problem, resolve(problem), Options(partition="grid")) is None


def test_heavy_keys_are_alone_as_far_as_they_keep_others_from_dividing() -> None:
    light = {f"k{number}": 0.001 for number in range(20)}
    for heavy, count in (({}, 0), (HEAVY, 1), ({"a": 0.3, "b": 0.2, **light}, 2), (light, 0)):
        assert alone(skewed.problem(heavy).queries[0]) == count
    assert alone(skewed.problem({f"k{number}": 0.05 for number in range(20)}).queries[0]) == ALONE
    assert alone(replace(skewed.problem(HEAVY).queries[0], apart="zone")) == 0


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("options", [{"waiting": 0.0}, {"objective": "network"}])
def test_other_rules_send_less_too(options: dict[str, Any], dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By distance, and in large problems, what is under way decides."""
    if not dense:
        monkeypatch.setattr(assign, "DENSE", 0)
    costs = []
    for problem in (skewed.problem(HEAVY), without_values(skewed.problem(HEAVY))):
        try:
            plan = optimize(problem, Options(partition="key", **options))
        except Infeasible:
            costs.append(np.inf)
            continue
        check(problem, plan)
        costs.append(evaluate(problem, plan).cost_network_ms)
    assert costs[0] < costs[1]


def test_replicas_of_a_sub_join_stay_within_their_number() -> None:
    plan = optimize(skewed.problem({"a": 0.1, "b": 0.1}), Options(max_replicas=4))
    assert len(plan.replicas) <= 4


@given(
    seed=st.integers(0, 2**32 - 1),
    heavy=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4),
    keys=st.sampled_from([5.0, 1e4, np.inf]),
    merged=st.booleans(),
)
@settings(max_examples=100)
def test_boxes_of_parts_are_boxes_of_their_sub_joins(seed: int, heavy: list[float], keys: float, merged: bool) -> None:
    """Any boxes of parts tile their sub-joins, bring the same loads and make all results; and back."""
    shares = sorted((share / max(1.0, sum(heavy)) for share in heavy), reverse=True)
    problem = skewed.problem({str(number): share for number, share in enumerate(shares)}, hosts=3, keys=keys)
    joins, parts = resolve(problem), parts_of(problem)
    assert parts.joins.demand.sum() == pytest.approx(joins.demand.sum())
    assert importance(parts.problem, parts.joins).sum() == pytest.approx(importance(problem, joins).sum())
    if np.isfinite(keys):  # where no share is left for other keys, they get a thousandth
        made = result_rates(parts.problem, parts.joins).sum()
        assert made == pytest.approx(result_rates(problem, joins).sum(), rel=5e-3)
    boxes = random_replicas(parts.joins, 6, seed, keyed=True)
    whole = parts.together(boxes, merged)
    assert not len(broken_joins(whole, len(joins)))
    assert result_shares(problem, joins, whole).sum() == pytest.approx(1.0)
    loads = node_loads(joins, whole, 6)
    np.testing.assert_allclose(loads, node_loads(parts.joins, boxes, 6), atol=1e-9)
    again = parts.divided(whole)
    np.testing.assert_allclose(loads, node_loads(parts.joins, again, 6), atol=1e-9)


def test_a_heavy_key_makes_the_square_of_its_share_of_the_results() -> None:
    problem = skewed.problem({"a": 0.5, "b": 0.3}, keys=12)
    axis, joins = KeyAxis.of(problem.queries[0]), resolve(problem)
    parts = parts_of(problem)
    made = result_rates(parts.problem, parts.joins) / result_rates(problem, joins)
    wanted = np.array([0.25, 0.09, 0.04 / 10])
    np.testing.assert_allclose(made, wanted / wanted.sum())
    assert axis.edges == pytest.approx((0.0, 0.5, 0.8))
