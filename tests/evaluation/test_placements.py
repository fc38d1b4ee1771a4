"""The table of placements: every sub-join whole, at the rates and ways that one works out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import handmade
from nova.evaluation.metrics import evaluate
from nova.evaluation.placements import COLUMNS, placements


def test_every_sub_join_is_there_whole_and_the_loads_add_up() -> None:
    problem = handmade.problem()
    plan = handmade.plan(problem)
    found = placements(problem, plan)
    assert tuple(found.column_names) == COLUMNS
    shares: dict[tuple[str, str], float] = {}
    for row in found.to_pylist():
        shares[row["left"], row["right"]] = shares.get((row["left"], row["right"]), 0.0) + row["share"]
    assert len(shares) == len(plan.joins)
    assert list(shares.values()) == pytest.approx([1.0] * len(shares))
    assert sum(found["tuples_per_s"].to_pylist()) == pytest.approx(evaluate(problem, plan).tuples_in)


def test_the_way_of_one_join_by_hand() -> None:
    problem = handmade.problem()
    plan = handmade.plan(problem)
    row = placements(problem, plan).to_pylist()[0]
    ids = problem.nodes.ids.to_pylist()
    host = ids.index(row["host"])
    sources = problem.sources.ids.to_pylist()
    left, right = (int(problem.sources.node[sources.index(row[side])]) for side in ("left", "right"))
    sink = int(plan.joins.sink[0])
    where = plan.space.between
    at = np.array
    rates = [float(problem.sources.rate[sources.index(row[side])]) for side in ("left", "right")]
    legs = [float(where(at([node]), at([host]))[0]) for node in (left, right)]
    mean = sum(rate * leg for rate, leg in zip(rates, legs, strict=True)) / sum(rates)
    assert row["way_ms"] == pytest.approx(mean + float(where(at([host]), at([sink]))[0]))
