"""The paper's cluster end to end: its scenario, its figures, what the page says, and runs on site processes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from nova.draw.page import render
from nova.optimizer import optimize
from nova.scenario import load
from nova_lab.cluster.cluster import Cluster, Outcome
from nova_lab.cluster.sensors import drawn
from nova_lab.report.experiment import Setting
from nova_lab.report.experiments import e2e

CASE = {"window_ms": 100.0, "stressed": False, "seconds": 2.0, "seed": 0}


@pytest.mark.parametrize("stressed", [False, True])
def test_the_cluster_is_the_papers_and_can_be_planned(tmp_path: Path, stressed: bool) -> None:
    problem = load(e2e.write_scenario(tmp_path, {**CASE, "stressed": stressed})).problem
    assert (len(problem.nodes), len(problem.sources)) == (14, 8)
    plan = optimize(problem)
    assert len(plan.joins) == 4
    assert plan.joins.demand.tolist() == [2000.0] * 4


def test_figures_are_those_of_the_results_that_came_in_time() -> None:
    age = np.array([1.0, 1.0, 2.0, 4.0, 30.0])
    outcome = Outcome(np.array([10.0, 30.0, 50.0, 70.0, 9e3]), age, np.zeros((5, 4), np.int64), {}, 0, 0.0)
    told = e2e.figures(outcome, 10.0)
    assert (told["at_sink"], told["waiting"], told["results_per_s"]) == (4, 1, 0.4)
    assert (told["mean_ms"], told["p50_ms"]) == (40.0, 40.0)
    assert told["mean_gap_ms"] == 1500.0  # the gap of nothing between the first two does not count
    assert told["course_results"] == [2, 3, 4]
    assert told["course_ms"] == [20.0, 50.0, 70.0]


def test_a_run_without_results_has_no_latency() -> None:
    none = Outcome(np.empty(0), np.empty(0), np.zeros((0, 4), np.int64), {}, 0, 0.0)
    told = e2e.figures(none, 10.0)
    assert (told["at_sink"], told["course_ms"]) == (0, [])
    assert math.isnan(told["mean_ms"])
    assert math.isnan(told["p99.99_gap_ms"])


@pytest.mark.shared
def test_readings_of_the_archive_take_the_place_of_drawn_values(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    scenario, _ = e2e.placed(CASE, "sink")
    before = drawn(scenario, 1.0)
    pressure, humidity = e2e.recorded(scenario.problem, before)
    assert np.array_equal(pressure.time_us, before[0].time_us)
    assert 90_000 < np.median(pressure.value) < 110_000
    assert 0 < np.median(humidity.value) <= 100


def row(approach: str, stressed: bool, window: float, mean: float, at_sink: int, **other: object) -> dict[str, object]:
    quantiles = {f"p{100 * q:g}_ms": mean * (1 + q) for q in e2e.QUANTILES}
    return {
        "approach": approach, "stressed": stressed, "window_ms": window, "seconds": 120.0, "topology": "drawn",
        "readings": "drawn", "means": "gate", "why_no_cgroup": "none here", "core_us_per_tuple": 100.0, "hosts": 4,
        "at_sink": at_sink, "results_per_s": at_sink / 120, "mean_ms": mean, "waiting": 0, "exact": True,
        "sent_late_ms": 3.0, "mean_gap_ms": 1.0, "p99.99_gap_ms": 9.0, "course_results": [1, at_sink],
        "course_ms": [mean, mean], **quantiles, **other,
    }  # fmt: skip


def rows(**other: object) -> list[dict[str, object]]:
    return [
        row(name, stressed, window, mean, at_sink, **other)
        for name, mean, at_sink in (("nova", 10.0, 900), ("sink", 40.0, 300))
        for stressed in (False, True)
        for window in (1.0, 1000.0)
    ]


def test_the_page_says_how_much_slower_the_others_are() -> None:
    section = e2e.section(Setting(), rows())
    assert "Sink-based has 4.00 times Nova's mean latency and 33.3 % of its results" in section.reading[0]
    assert "need 10.0 ms on average" in section.reading[0]  # no range with equal ends
    assert section.reading[2:] == [
        "All 8 runs gave the results of a plain join, each once.",
        "Sensors sent 3.00 ms late at most: the machine kept up.",
    ]
    page = render("t", "b", "l", [section])
    assert "118" in page  # 14,159 results in 120 s
    assert "1,827" in page or "1,828" in page


def test_the_page_says_what_kept_nodes_to_their_speed() -> None:
    gated = e2e._setup(rows(), [1.0])
    assert "by gates, which let tuples in no faster than the node's speed (no cgroups: none here)" in gated
    shared = e2e._setup(rows(means="cgroup"), [1.0])
    assert "by cgroups, which bound a node's share of a core (a tuple costs 100 µs of one)." in shared
    assert "gates" not in shared
    both = e2e._setup(rows() + rows(means="cgroup")[:2], [1.0])
    assert "in 2 runs and by gates" in both


def test_what_went_wrong_stands_on_the_page() -> None:
    some = [*rows(sent_late_ms=400.0)[:-1], row("sink", True, 1000.0, 40.0, 300, exact=False)]
    told = e2e._reading(some, ["nova", "sink"], [1.0, 1000.0])
    assert "1 of 8 runs did not give the results of a plain join: Sink-based at 1000 ms." in told
    assert "Sensors sent 400 ms late at most: the machine was busy" in told[-1]


def test_a_run_gives_the_plain_joins_results_and_falls_behind_where_its_node_is_slow(two: Cluster) -> None:
    told = e2e.run_on(two, 1e-4, {**CASE, "approach": "sink"})
    assert told["exact"]
    assert (told["tuples"], told["hosts"], told["means"]) == (8 * 1000 * 2, 1, "gate")
    assert told["why_no_cgroup"] == "not in this test"
    assert told["at_sink"] + told["waiting"] == told["results"]
    assert told["at_sink"] < 0.6 * told["results"]  # it takes 2,855 of 8,000 tuples/s


@pytest.mark.slow
def test_every_approach_runs_by_itself_and_gives_the_plain_joins_results() -> None:
    told = [e2e.run_approach(Setting(quick=True), {**CASE, "approach": name, "seconds": 5.0})[0] for name in e2e.ORDER]
    assert all(one["exact"] for one in told)
    assert len({one["results"] for one in told}) == 1
    assert len({(one["means"], one["core_us_per_tuple"]) for one in told}) == 1
    assert {one["tuples"] for one in told} == {8 * 1000 * 5}
