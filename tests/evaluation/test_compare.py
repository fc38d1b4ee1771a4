"""Who can be run, who is first, and what hinders the others."""

from __future__ import annotations

from typing import Any

import pytest

from nova.evaluation.compare import compare, hindrance, ranked, usable, verdict
from nova.scenario.builder import Model


def row(approach: str, mean: float, **more: Any) -> dict[str, Any]:
    figures = {"felt_mean_ms": mean, "felt_p99_ms": 2 * mean, "overloaded": 0, "forbidden": 0, "hosts": 3}
    return {"approach": approach, **figures, **more}


def test_plans_that_can_be_run_come_first_and_the_soonest_of_them_wins() -> None:
    rows = [row("sink", 5.0, forbidden=1), row("top-c", 90.0), row("tree", 1.0, overloaded=2), row("nova", 40.0)]
    assert [one["approach"] for one in ranked(rows)] == ["nova", "top-c", "tree", "sink"]
    assert verdict(rows) == (
        "Of the 2 plans that can be run, Nova has the lowest mean (40 ms) and the lowest 99th percentile (80 ms)."
    )
    assert [hindrance(one) for one in rows] == [
        "sink puts joins where none may run (hosts: false)",
        None,
        "tree overloads 2 of 3 hosts",
        None,
    ]


def test_a_queue_that_never_settles_hinders_and_means_and_tails_may_have_two_winners() -> None:
    endless = row("nova-paper", float("inf"))
    assert not usable(endless)
    assert "never settle" in str(hindrance(endless))
    assert verdict([endless]) == "None of these plans can be run as it is."
    assert "Nova has the lowest mean (40 ms), Top-c the lowest 99th percentile (60 ms)" in verdict(
        [row("nova", 40.0), row("top-c", 50.0, felt_p99_ms=60.0)]
    )


@pytest.mark.parametrize("hosts", [True, False])
def test_joins_on_a_node_that_takes_none_are_told(hosts: bool) -> None:
    model = Model()
    for x, (name, capacity) in enumerate((("a", 100), ("b", 100), ("hq", 1000))):
        model.add_node(name, capacity, hosts=hosts or name != "hq", x=x, y=0)
    model.add_stream("l", [{"id": "i", "node": "a", "rate": 10}])
    model.add_stream("r", [{"id": "j", "node": "b", "rate": 10}])
    model.add_query("q", left="l", right="r", window="1s", sink="hq")
    (sink,) = compare(model.scenario().problem, ["sink"])
    assert sink.row["forbidden"] == (0 if hosts else 1)
    assert usable(sink.row) is hosts
