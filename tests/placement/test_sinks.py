from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova
from nova.evaluation.results import traffic
from nova.placement.sinks import expected_results


def scenario(capacity: float, share: float | None, fog: float = 1000.0) -> Any:
    """Two streams of 100 tuples/s, a sink that hosts, and a machine beside it."""
    query: dict[str, Any] = {"id": "q", "left": "a", "right": "b", "window": "1s", "sink": "hq"}
    if share is not None:
        query["selectivity"] = {"join": share}
    return nova.load(
        {
            "nova": 1,
            "nodes": [
                {"id": "n", "capacity": 1, "x": 0, "y": 0},
                {"id": "fog", "capacity": fog, "x": 20, "y": 0},
                {"id": "hq", "capacity": capacity, "x": 1, "y": 0},
            ],
            "streams": {
                "a": {"sources": [{"id": "l", "node": "n", "rate": 100}]},
                "b": {"sources": [{"id": "r", "node": "n", "rate": 100}]},
            },
            "queries": [query],
        }
    )


def hosts(loaded: Any) -> set[str]:
    plan = nova.optimize(loaded)
    return set(plan.to_arrow()["node"].to_pylist())


@pytest.mark.parametrize(
    ("share", "chosen"),
    [
        (0.01, {"hq"}),  # 100 results/s beside 200 tuples/s, of 1,000
        (0.09, {"fog"}),  # 900: the join finds no room beside them
        (None, {"hq"}),  # nobody knows how many: none are charged before the plan is made
    ],
)
def test_known_results_take_room_at_their_sink(share: float | None, chosen: set[str]) -> None:
    assert hosts(scenario(1000, share)) == chosen


def test_where_there_is_no_other_room_the_join_runs_and_the_sink_is_told() -> None:
    loaded = scenario(1000, 0.09, fog=10)
    plan = nova.optimize(loaded)
    assert set(plan.to_arrow()["node"].to_pylist()) == {"hq"}
    (sink,) = traffic(loaded.problem, plan).sinks
    assert sink.overloaded
    assert (sink.results, sink.hosted) == (900, 200)


@settings(max_examples=25, deadline=None)
@given(st.floats(150, 2000), st.floats(0.0, 0.3))
def test_a_sink_takes_joins_and_results_or_no_joins(capacity: float, share: float) -> None:
    loaded = scenario(capacity, share)
    plan = nova.optimize(loaded)
    (sink,) = traffic(loaded.problem, plan).sinks
    assert sink.hosted == 0 or not sink.overloaded


def test_results_that_go_on_and_those_of_groups_are_not_charged_beforehand() -> None:
    loaded = scenario(1000, 0.05)
    plan = nova.optimize(loaded)
    problem = loaded.problem
    assert expected_results(problem, plan.joins).tolist() == [0, 0, 500]
    read = replace(problem, queries=tuple(replace(query, makes=0) for query in problem.queries))
    assert not np.any(expected_results(read, plan.joins))
