"""Every experiment tells what its rows say, in sentences that follow from them."""

from __future__ import annotations

import math

import pytest

from nova.draw.page import Figure, render
from nova_lab.report.experiment import Setting, between, listing, mean, select, spread
from nova_lab.report.experiments import EXPERIMENTS, RUNNERS, estimation, overload, queueing, scaling
from nova_lab.report.published import SCRIPTS_P90_DELTA
from nova_lab.report.workloads import TOPOLOGIES


def test_every_unit_has_a_runner_and_json_parameters():
    for experiment in EXPERIMENTS.values():
        if experiment.missing(Setting(quick=True, seeds=1)) is None:
            for unit in experiment.units(Setting(quick=True, seeds=1)):
                assert unit.runner in RUNNERS
                assert all(isinstance(v, str | int | float) for v in unit.parameters.values())


def test_quick_is_less_than_full():
    for experiment in EXPERIMENTS.values():
        if experiment.missing(Setting()) is None and experiment.name != "maps":  # one map per topology, at any length
            assert len(experiment.units(Setting(quick=True, seeds=1))) < len(experiment.units(Setting()))


def test_findings_follow_the_rows(overload_rows):
    good = overload.section(Setting(), overload_rows(0, 6.0))
    bad = overload.section(Setting(), overload_rows(7, 6.0))
    assert "no host in any of its 2 placements" in good.reading[0]
    assert "Top-c, overloads 6.00–11.0 %" in good.reading[0]
    assert "0 of 2 placements" in bad.reading[0]
    assert "7.00 %" in bad.reading[0]
    assert "rises for Top-c" in good.reading[1]
    assert any("fixed instances" in text for text in good.skipped)
    assert "<svg" in next(item.svg for item in good.content if isinstance(item, Figure))


def test_scaling_says_how_long_placing_and_events_take():
    rows = [
        {"approach": name, "nodes": n, "joins": n // 3, "seconds": n / 1e4, "overloaded": 0, "replicas": n, "cores": 2}
        for name in ("nova", "sink")
        for n in (1_000, 10_000)
    ]
    rows += [{"kind": "change rate", "nodes": n, "p50_ms": n / 1e5, "p99_ms": n / 1e4} for n in (1_000, 10_000)]
    section = scaling.section(Setting(quick=True), rows)
    assert "3,333 joins on 10,000 nodes in 1.00 s" in section.reading[0]
    assert "power of 1.00" in section.reading[1]
    assert "0.10 ms or less (median, 10,000 nodes)" in section.reading[0]
    assert "near-linear" in section.reading[1]
    assert "1. Placement and re-optimization" in render("t", "b", "l", [section])


@pytest.mark.parametrize("exponent", [0.6, 1.3])
def test_growth_is_called_near_linear_only_where_its_exponent_is_near_one(exponent: float) -> None:
    rows = [
        {
            "approach": "nova",
            "nodes": n,
            "joins": n // 3,
            "seconds": n**exponent,
            "overloaded": 0,
            "replicas": n,
            "cores": 2,
        }
        for n in (1_000, 10_000)
    ]
    rows.append({"kind": "change rate", "nodes": 1_000, "p50_ms": 0.1, "p99_ms": 0.2})
    reading = scaling.section(Setting(quick=True), rows).reading[1]
    assert f"power of {exponent:.2f}" in reading
    assert "linear" not in reading


@pytest.mark.parametrize(
    ("backlog", "grows", "level"),
    [([0, 50, 50, 52], False, True), ([0, 100, 200, 300], True, False), ([0, 100, 110, 60], False, False)],
)
def test_a_backlog_is_called_level_only_where_it_is(backlog: list[float], grows: bool, level: bool) -> None:
    assert (queueing._grows(backlog), queueing._level(backlog)) == (grows, level)


def simulated(approach: str, **figures: float) -> dict[str, object]:
    """A row of the queueing experiment."""
    return {"approach": approach, "tuple_p99_ms": 10.0, "delivered_per_s": 1.0, "window_p99_ms": 5.0, **figures}


@pytest.mark.parametrize(("longer", "grows"), [(40.0, True), (10.0, False)])
def test_slices_are_said_to_cost_more_in_longer_windows_only_where_they_do(longer: float, grows: bool) -> None:
    bursts = [
        {**simulated(name, tuple_p99_ms=p99), "window_ms": window, "utilisation": queueing.STEADY}
        for name, window, p99 in (
            ("nova-window", 100.0, 20.0), ("nova-window", 1000.0, longer),
            ("nova-grid", 100.0, 10.0), ("nova-grid", 1000.0, 10.0),
        )
    ]  # fmt: skip
    one = {name: {**simulated(name), "backlogs": [0, 1, 1, 1]} for name in ("nova", "sink")}
    told = queueing._reading(list(one), one, bursts, [])[1]
    assert told.startswith(
        f"99th percentile of slices over grid by window length: 0.10 s: 2.00 ×, 1.00 s: {longer / 10:.2f} ×"
    )
    assert ("work off a whole window" in told) == grows


@pytest.mark.parametrize(("p90", "words"), [(120.0, "20.0 ms above"), (70.0, "30.0 ms below")])
def test_a_percentile_is_above_or_below_that_of_sink_based(p90: float, words: str) -> None:
    rows = [
        {
            "approach": name,
            "mean_estimated_ms": 50.0,
            "mean_measured_ms": 50.0,
            "p90_estimated_ms": p,
            "p90_measured_ms": p,
        }
        for name, p in (("nova", p90), ("sink", 100.0))
    ]
    assert words in estimation._reading(rows, ["nova", "sink"])[0]


def test_one_placement_unit_measures_all_approaches_alike():
    """A small draw stands in for the thousand nodes."""
    from nova.evaluation.compare import compare
    from nova.model.options import Options
    from nova.synthetic import draw
    from nova_lab.report.experiments.placements import APPROACHES, shape
    from nova_lab.report.workloads import Workload

    problem = draw(80, 5, seed=3)
    rows = {done.row["approach"]: done.row for done in compare(problem, APPROACHES, Options(), simulated_s=2.0)}
    assert list(rows) == list(APPROACHES)
    assert rows["sink"]["delta_p90_ms"] == pytest.approx(0.0, abs=1e-9)
    assert rows["sink"]["overloaded_percent"] == 100.0
    assert rows["nova"]["overloaded"] == 0
    assert rows["nova"]["replicas"] >= len(problem.sources) // 2
    assert rows["tree"]["latency_p90_ms"] >= rows["sink"]["latency_p90_ms"]
    assert all(math.isnan(row["gap"]) for row in rows.values())  # no bound was asked for
    assert rows["sink"]["simulated_backlog"] > rows["nova"]["simulated_backlog"]
    assert shape(Workload(problem))["joins"] == 23


def test_the_bound_is_set_beside_every_approach():
    from nova.evaluation.compare import compare
    from nova.model.options import Options
    from nova.synthetic import draw

    problem = draw(60, 0, seed=1, load=0.2)
    rows = [done.row for done in compare(problem, ["nova", "top-c"], Options(), with_bound=True)]
    floors = [row["cost_ms"] / (1 + row["gap"]) for row in rows if not row["overloaded"]]
    assert len(floors) == 2
    assert floors[0] == pytest.approx(floors[1])
    assert all(row["gap"] >= 0 for row in rows)


def test_published_figures_cover_the_topologies():
    assert set(SCRIPTS_P90_DELTA) == set(TOPOLOGIES)


def test_small_helpers():
    rows = [{"a": 1, "x": 1.0}, {"a": 2, "x": 3.0}, {"a": 2, "x": math.nan}]
    assert mean(select(rows, a=2), "x") == 3.0
    assert spread(rows, "x") == (1.0, 3.0)
    assert between(1.0, 1.0, "%") == "1.00 %"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing([]) == "none"
