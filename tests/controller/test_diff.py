"""Diff: told by ids, matched replica by replica, with the tuples that have to go elsewhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.controller.diff import Diff, diff
from nova.model.options import Options
from nova.model.replicas import SHARES
from nova.optimizer import optimize
from nova.synthetic import draw

WHOLE = (0.0, 1.0) * 4
Row = tuple[str, str, str, tuple[float, ...]]


def sliced(low: float, high: float) -> tuple[float, ...]:
    return (0.0, 1.0, 0.0, 1.0, low, high, 0.0, 1.0)


def replicas(*rows: Row, left: float = 30.0, right: float = 10.0) -> pa.Table:
    """A replica table of one query: (left source, right source, node, shares); all sources have the same rates."""
    boxes = np.array([(*row[3], 0.0, 1.0)[:8] for row in rows]).reshape(len(rows), 8)
    part = boxes[:, 1::2] - boxes[:, ::2]
    return pa.table(
        {
            "query": pa.array(["q"] * len(rows), pa.string()),
            **{
                name: pa.array([row[i] for row in rows], pa.string())
                for i, name in enumerate(("left_source", "right_source", "node"))
            },
            **{name: boxes[:, i] for i, name in enumerate(SHARES)},
            "left_rate": left * part[:, 0] * part[:, 2],
            "right_rate": right * part[:, 1] * part[:, 2],
        }
    )


def counts(found: Diff) -> tuple[int, int, int, int, int]:
    """Added, removed, moved, resized, unchanged."""
    added, removed, moved, resized = (found.count(kind) for kind in ("added", "removed", "moved", "resized"))
    return added, removed, moved, resized, found.unchanged


def test_a_plan_is_not_different_from_itself() -> None:
    plan = replicas(("a", "b", "x", sliced(0, 0.5)), ("a", "b", "y", sliced(0.5, 1)), ("c", "b", "x", WHOLE))
    found = diff(plan, plan.take([2, 1, 0]))
    assert counts(found) == (0, 0, 0, 0, 3)
    assert found.moved_tuples_per_s == 0
    assert found.tuples_per_s == 80
    assert (found.sub_joins, found.sub_joins_changed, found.rates_changed) == (2, 0, 0)


def test_a_replica_moves() -> None:
    found = diff(replicas(("a", "b", "x", WHOLE)), replicas(("a", "b", "y", WHOLE)))
    assert counts(found) == (0, 0, 1, 0, 0)
    change = found.changes[0]
    assert (change.kind, change.node, change.from_node, change.shares) == ("moved", "y", "x", WHOLE)
    assert found.moved_tuples_per_s == change.tuples_per_s == 40


def test_a_replica_is_resized_and_another_added() -> None:
    found = diff(
        replicas(("a", "b", "x", WHOLE)), replicas(("a", "b", "x", sliced(0, 0.75)), ("a", "b", "y", sliced(0.75, 1)))
    )
    assert counts(found) == (1, 0, 0, 1, 0)
    resized = next(change for change in found.changes if change.kind == "resized")
    assert (resized.node, resized.from_shares, resized.shares) == ("x", WHOLE, sliced(0, 0.75))
    assert found.moved_tuples_per_s == pytest.approx(10)
    back = diff(
        replicas(("a", "b", "x", sliced(0, 0.75)), ("a", "b", "y", sliced(0.75, 1))), replicas(("a", "b", "x", WHOLE))
    )
    assert counts(back) == (0, 1, 0, 1, 0)
    assert back.moved_tuples_per_s == pytest.approx(10)


def test_parts_of_a_stream_that_a_host_has_already_do_not_move() -> None:
    """x had the left half of the left stream with all of the right one; it gets the other half: 15 tuples/s more."""
    halves = ((0.0, 0.5, 0.0, 1.0, 0.0, 1.0), (0.5, 1.0, 0.0, 1.0, 0.0, 1.0))
    found = diff(
        replicas(("a", "b", "x", halves[0]), ("a", "b", "y", halves[1])),
        replicas(("a", "b", "x", halves[0]), ("a", "b", "x", halves[1])),
    )
    assert counts(found) == (0, 0, 1, 0, 1)
    assert found.moved_tuples_per_s == pytest.approx(15)
    assert found.tuples_per_s == pytest.approx(40)


def test_sub_joins_come_and_go_and_rates_change() -> None:
    found = diff(
        replicas(("a", "b", "x", WHOLE), ("c", "b", "x", WHOLE)),
        replicas(("a", "b", "x", WHOLE), ("d", "b", "z", WHOLE), left=60.0),
    )
    assert counts(found) == (1, 1, 0, 0, 1)
    assert (found.sub_joins_added, found.sub_joins_removed, found.sub_joins_changed) == (1, 1, 0)
    assert found.rates_changed == 1
    assert (found.added_tuples_per_s, found.removed_tuples_per_s, found.moved_tuples_per_s) == (70, 40, 0)


def test_empty_plans() -> None:
    plan = replicas(("a", "b", "x", WHOLE))
    none = plan.slice(0, 0)
    assert counts(diff(none, none)) == (0, 0, 0, 0, 0)
    assert counts(diff(none, plan)) == (1, 0, 0, 0, 0)
    assert diff(plan, none).removed_tuples_per_s == 40


@given(st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=12)
def test_what_is_told_leads_from_one_plan_to_the_other(first: int, second: int) -> None:
    """Undo and redo each change on the rows of the first plan: the rows of the second come out."""
    tables = []
    for seed, options in ((first, Options(partition="grid")), (second, Options(partition="window"))):
        problem = draw(40, level=4, seed=seed % 2, load=0.2 + 0.05 * (seed // 2))
        tables.append(optimize(problem, options).table(problem))
    rows = [
        {
            (r["query"], r["left_source"], r["right_source"], r["node"], *(r[name] for name in SHARES))
            for r in table.to_pylist()
        }
        for table in tables
    ]
    found = diff(*tables)
    now = set(rows[0])
    for change in found.changes:
        key = (change.query, change.left, change.right)
        if change.kind != "added":
            node = change.from_node or change.node
            now.remove((*key, node, *(change.from_shares or change.shares)))
    for change in found.changes:
        if change.kind != "removed":
            now.add((change.query, change.left, change.right, change.node, *change.shares))
    assert now == rows[1]
    assert 0 <= found.moved_tuples_per_s <= found.tuples_per_s * (1 + 1e-9)
    assert found.unchanged == len(rows[0] & rows[1])
