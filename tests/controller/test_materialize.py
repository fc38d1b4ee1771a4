"""The plan that a state amounts to."""

from __future__ import annotations

from pathlib import Path

from groups_at_sites import FIVE, planned, sites
from nova.controller import Controller, NodeRemoved
from nova.placement.check import check


def test_merges_are_found_anew(tmp_path: Path) -> None:
    """A node that only merges fails: no replica moves, and another host merges in its place."""
    document = sites(FIVE)
    document["nodes"].append({"id": "between", "capacity": 300, "x": 50, "y": 30})
    loaded, plan = planned(tmp_path, document)
    assert {row["to"] for row in plan.merge_rows(loaded.problem)} == {"between"}
    running = Controller.from_plan(loaded.problem, plan)
    assert running.plan().merge_rows(running.problem()) == plan.merge_rows(loaded.problem)
    assert running.handle(NodeRemoved(node="between")) == []
    left, now = running.problem(), running.plan()
    check(left, now)
    assert now.merge_rows(left) == [{"query": "q", "node": f"e{i}", "to": "e4"} for i in range(4)]
    assert now.summary["merging_hosts"] == 1
