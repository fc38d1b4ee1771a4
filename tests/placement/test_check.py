"""The last stage refuses what is wrong, and only that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.model.errors import BrokenPlan
from nova.model.load import node_loads
from nova.model.options import Options
from nova.model.replicas import Replicas
from nova.optimizer import optimize
from nova.placement.check import broken_joins, check
from nova.synthetic import draw


def boxes(rows):
    table = np.array(rows, dtype=float)
    return Replicas(
        table[:, 0].astype(np.int32),
        np.zeros(len(table), np.int32),
        *(table[:, i].copy() for i in range(1, table.shape[1])),
    )


WHOLE = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([[0, *WHOLE, 0, 1]], []),
        ([[0, *WHOLE, 0, 0.3], [0, *WHOLE, 0.3, 1]], []),
        ([[0, *WHOLE, 0, 0.3], [0, *WHOLE, 0.30001, 1]], [0]),
        ([[0, *WHOLE, 0, 0.5], [0, *WHOLE, 0.4, 1]], [0]),
        ([[0, *WHOLE, 0, 1], [0, *WHOLE, 0, 1]], [0]),
        ([[0, 0, 0.5, 0, 1, 0, 1], [0, 0.5, 1, 0, 0.5, 0, 1], [0, 0.5, 1, 0.5, 1, 0, 1]], []),
        ([[0, 0, 0.5, 0, 1, 0, 1], [0, 0.5, 1, 0, 0.5, 0, 1]], [0]),
        ([[0, 0, 0.5, 0, 1, 0, 1], [0, 0.4, 1, 0, 1, 0, 1]], [0]),
        ([[0, 0.2, 0.2, 0, 1, 0, 1], [0, *WHOLE, 0, 1]], [0]),
        ([[0, *WHOLE, 0, 1, 0, 0.3], [0, *WHOLE, 0, 1, 0.3, 1]], []),  # keys dealt out
        ([[0, *WHOLE, 0, 1, 0.3, 1], [0, *WHOLE, 0, 1, 0, 0.3]], []),
        ([[0, *WHOLE, 0, 1, 0, 0.3], [0, *WHOLE, 0, 1, 0.4, 1]], [0]),
        ([[0, *WHOLE, 0, 1, 0, 0.5], [0, *WHOLE, 0, 0.5, 0.5, 1], [0, *WHOLE, 0.5, 1, 0.5, 1]], []),  # and windows
        ([[0, 0, 0.5, 0, 1, 0, 1, 0, 0.1], [0, 0.5, 1, 0, 1, 0, 1, 0, 0.1], [0, *WHOLE, 0, 1, 0.1, 1]], []),
        ([[0, 0, 0.5, 0, 1, 0, 1, 0, 0.1], [0, *WHOLE, 0, 1, 0.1, 1]], [0]),
    ],
)
def test_tiling(rows, broken):
    assert broken_joins(boxes(rows), 1).tolist() == broken


def test_a_missing_join_is_broken():
    assert broken_joins(boxes([[0, *WHOLE, 0, 1]]), 2).tolist() == [1]


def test_no_replicas_at_all_break_every_join():
    empty = np.empty(0, np.int32)
    assert broken_joins(Replicas.whole(empty, empty), 2).tolist() == [0, 1]


def test_boxes_on_one_host_share_input():
    problem = draw(50, seed=3)
    joins = optimize(problem).joins
    half = boxes([[0, 0, 0.5, 0, 1, 0, 1], [0, 0.5, 1, 0, 1, 0, 1]])
    load = node_loads(joins, half, 2)
    assert load[0] == pytest.approx(joins.left_rate[0] + joins.right_rate[0])


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_tampering_is_noticed(seed):
    problem = draw(60, seed=seed % 7)
    plan = optimize(problem, Options(partition="window"))
    check(problem, plan)
    rng = np.random.default_rng(seed)
    row = int(rng.integers(len(plan.replicas)))
    lost = plan.replicas.take(np.delete(np.arange(len(plan.replicas)), row))
    with pytest.raises(BrokenPlan):
        check(problem, replace(plan, replicas=lost))
    twice = Replicas.concat([plan.replicas, plan.replicas.take(np.array([row]))])
    with pytest.raises(BrokenPlan):
        check(problem, replace(plan, replicas=twice))
    sink = problem.queries[0].sink
    moved = plan.replicas.node.copy()
    moved[row] = sink
    with pytest.raises(BrokenPlan):
        check(problem, replace(plan, replicas=replace(plan.replicas, node=moved)))
