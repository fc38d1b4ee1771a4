"""The paper's cluster end to end: its scenario, what the page says, and one unit on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova.draw.page import render
from nova.optimizer import optimize
from nova.scenario import load
from nova_lab.report.experiment import Setting
from nova_lab.report.experiments import e2e

CASE = {"window_ms": 100.0, "stressed": False, "seconds": 5.0, "seed": 0}


@pytest.mark.parametrize("stressed", [False, True])
def test_the_cluster_is_the_papers_and_can_be_planned(tmp_path: Path, stressed: bool) -> None:
    problem = load(e2e.write_scenario(tmp_path, {**CASE, "stressed": stressed})).problem
    assert (len(problem.nodes), len(problem.sources)) == (14, 8)
    plan = optimize(problem)
    assert len(plan.joins) == 4
    assert plan.joins.demand.tolist() == [2000.0] * 4


def row(approach: str, stressed: bool, window: float, mean: float, at_sink: float) -> dict[str, object]:
    quantiles = {f"p{100 * q:g}_ms": mean * (1 + q) for q in e2e.QUANTILES}
    return {
        "approach": approach, "stressed": stressed, "window_ms": window, "seconds": 120.0, "topology": "drawn",
        "at_sink": at_sink, "mean_ms": mean, "backlog": 0, **quantiles,
    }  # fmt: skip


def test_the_page_says_how_much_slower_the_others_are() -> None:
    rows = [
        row(name, stressed, window, mean, at_sink)
        for name, mean, at_sink in (("nova", 10.0, 900.0), ("sink", 40.0, 300.0))
        for stressed in (False, True)
        for window in (1.0, 1000.0)
    ]
    section = e2e.section(Setting(), rows)
    assert "Sink-based 4.00 × Nova's mean latency and 1/3.00 of its results" in section.reading[0]
    assert "need 10.0 ms on average" in section.reading[0]  # no range with equal ends
    assert "emulated" in section.setup
    assert "14,159" in render("t", "b", "l", [section])


@pytest.mark.slow
def test_every_approach_runs_and_gives_the_same_results() -> None:
    rows = e2e.run_cluster(Setting(quick=True), CASE)
    assert [r["approach"] for r in rows] == list(e2e.ORDER)
    assert len({r["results"] for r in rows}) == 1
    assert rows[0]["results"] > 0
    assert {r["tuples"] for r in rows} == {8 * 1000 * 5}
