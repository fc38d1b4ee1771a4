"""Show: one run of the showcase's scenario on Spark, with Nova beside the baselines, and a page about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.baselines import BASELINES
from nova.draw import draw
from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.html import page as draw_page
from nova.draw.page import Figure, Frame, Grid, standalone
from nova.evaluation.approaches import Row, label, look
from nova.evaluation.compare import Compared, compare, ranked, verdict
from nova.evaluation.words import latency
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.scenario import load
from nova.spark.job.run import Run, Settings
from nova.spark.realtime.run import RealtimeRun, why_not
from nova_lab.showcase.anomalies import STRANGE, Anomaly, Climate, climate, find
from nova_lab.showcase.place import LEFT, Sensor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPROACHES = ("nova", *(name for name in BASELINES if name != "optimum"))
LATENESS_MS = 5000
SIMULATED_S = 20.0
"""Seconds of the streams that every approach's hosts are simulated for."""
NOTABLE = 1.5
"""Scores from which on windows are worth a look where there is no anomaly."""


@dataclass(frozen=True)
class Case:
    """What is shown."""

    scenario: Path
    sensors: Sequence[Sensor]
    out: Path
    speed: float
    title: str


def show(
    spark: SparkSession,
    case: Case,
    step: Callable[[str], None] = lambda _: None,
    observe: Callable[[Run], None] | None = None,
) -> dict[str, Any]:
    """Plan, run, find anomalies, compare; writes `plan.html`, `plan.png` and `index.html`, and returns the figures."""
    step("planning")
    scenario = load(case.scenario)
    compared = compare(scenario.problem, APPROACHES, scenario.options, simulated_s=SIMULATED_S, report=step)
    plan = next(one.placement.plan for one in compared if one.row["approach"] == "nova")
    step("running on Spark")
    settings = Settings(case.out / "run", until_end=True, speed=case.speed, lateness_ms=LATENESS_MS)
    on_cluster = why_not(scenario, settings, spark.sparkContext.master) is not None
    run = (Run if on_cluster else RealtimeRun)(spark, scenario, plan, settings)
    run.start()
    run.wait(observe)
    report = run.report()
    step("looking for anomalies")
    region_of = {sensor.id: sensor.region for sensor in case.sensors if sensor.stream == LEFT}
    seen = climate(run.folder.results, region_of)
    window_us = round(scenario.problem.queries[0].window_ms * 1000)
    anomalies, strangest = find(seen, window_us), find(seen, window_us, NOTABLE)[:5]
    step("drawing")
    draw(scenario.problem, plan, case.out / "plan.html")
    picture = draw(scenario.problem, plan, case.out / "plan.png")
    page(case, plan, seen, anomalies or strangest, compared, report, run.problem)
    return {
        "scenario": str(case.scenario),
        "page": str(case.out / "index.html"),
        "picture": str(picture),
        "anomalies": [anomaly.told() for anomaly in anomalies],
        "strangest": [anomaly.told() for anomaly in strangest],
        "placements": [one.row for one in compared],
        "run": report,
    }


COLUMNS = {
    "simulated_p50_ms": "median",
    "simulated_p99_ms": "99 %",
    "simulated_network_ms": "network",
    "simulated_waiting_ms": "waiting",
    "overloaded": "over",
    "simulated_results_per_s": "results/s",
}
"""Figures of a placement and their headings."""


def beside(compared: Sequence[Row]) -> list[list[Any]]:
    """Rows of the comparison, best first: label, then `COLUMNS` as people read them."""
    return [
        [label(row["approach"]), *((latency if name.endswith("_ms") else round)(row[name]) for name in COLUMNS)]
        for row in ranked(compared)
    ]


def page(
    case: Case,
    plan: Plan,
    seen: Climate,
    anomalies: Sequence[Anomaly],
    compared: Sequence[Compared],
    report: Mapping[str, Any],
    problem: Problem,
) -> Path:
    """The page about the run."""
    rows = [one.row for one in compared]
    content: list[Figure | Frame | Grid | str] = [
        f"Sensors in {len(seen.regions)} regions send pressure and humidity. A query joins both by region and window "
        f"of {problem.queries[0].window_ms / 1000:g} s, and its results tell when one region's weather goes its own "
        f"way. The {len(problem.sources)} sensors hang on small machines, {len(problem.nodes)} nodes in all; no "
        "single one near them could join everything. Nova has decided which machine runs which share of which join, "
        f"and Spark has run it: {spoken(report)}",
        Grid(
            "Windows in which a region's pressure and humidity both left what the other regions saw at that time, the "
            f"strangest first. From a score of {STRANGE:g} robust standard deviations on they are anomalies.",
            ["region", "from", "until", "windows", "pressure, off by", "humidity, off by", "score"],
            [list(anomaly.told().values()) for anomaly in anomalies],
        ),
        Figure(
            _weather(seen, anomalies),
            "Pressure and humidity by region and window, from the joined streams. Anomalies are shaded.",
        ),
        Frame(
            draw_page(problem, plan).text,
            "Where Nova runs the joins: point at a node or an arrow for more, click a node to see what it has to do "
            "with, drag and zoom. Alone it is `plan.html`, beside this page.",
        ),
        "How good is that placement? On this machine Spark plays all hosts, so the network between them and their "
        f"small processors are simulated: {SIMULATED_S:g} s of the same streams, tuple by tuple, through hosts of "
        "these capacities, under Nova's plan and under those of the usual ways. What counts is how long after its "
        "events a result is at the sink: the way through the *network*, and *waiting* in line at the host. The way "
        "alone is shortest where everything goes straight to the sink, but a sink that gets more than it can take "
        "falls ever further behind: its times only say how long was simulated. " + verdict(rows),
        Grid(
            "Nova beside the usual ways, best first, in ms: time from event to sink of half of the results and of "
            "99 %, its mean parts in the network and waiting; nodes that get more than they can take (over); "
            "results at the sink.",
            ["approach", "where it runs the joins", *COLUMNS.values()],
            [
                [named, look(row["approach"]).rule, *figures]
                for row, (named, *figures) in zip(ranked(rows), beside(rows), strict=True)
            ],
            ours=[number for number, row in enumerate(ranked(rows)) if row["approach"] == "nova"],
        ),
        Figure(
            _backlogs(compared),
            "Tuples that wait at hosts. Where a line climbs, a host gets more than it can process, and results come "
            "ever later.",
        ),
    ]
    file = case.out / "index.html"
    file.write_text(standalone(case.title, content), encoding="utf-8")
    return file


def spoken(report: Mapping[str, Any]) -> str:
    """What the run on Spark did, in a sentence."""
    took = report["latency_ms"] or {}
    latency = f", half of them within {took['p50']:,.0f} ms of their events and 99 % within {took['p99']:,.0f} ms"
    how = "in real time" if report["mode"] == "realtime" else "in batches"
    return f"{report['tuples']:,} readings, {report['results']:,} results, {how}{latency if took else ''}."


def _weather(seen: Climate, anomalies: Sequence[Anomaly]) -> str:
    seconds = (seen.window_us - seen.window_us[0]) / 1e6
    marked = {anomaly.region for anomaly in anomalies}
    with canvas(2, width=9.4, height=3.2) as (figure, axes):
        for panel, values, name in ((axes[0], seen.pressure, "pressure"), (axes[1], seen.humidity, "humidity")):
            for r, region in enumerate(seen.regions):
                strange = region in marked
                panel.plot(
                    seconds,
                    values[r],
                    linewidth=2.0 if strange else 0.9,
                    zorder=3 if strange else 2,
                    color="#d55e00" if strange else None,
                    alpha=1.0 if strange else 0.7,
                    label=region,
                )
            for anomaly in anomalies:
                at = np.searchsorted(seen.recorded_us, [anomaly.from_us, anomaly.until_us])
                low, high = seconds[np.minimum(at, len(seconds) - 1)]
                panel.axvspan(float(low), float(high), color="#d55e00", alpha=0.12)
            panel.set_title(name)
            panel.set_xlabel("seconds of the stream")
        legend_below(figure, axes[:1], columns=8)
        return svg(figure)


def _backlogs(compared: Sequence[Compared]) -> str:
    lines = []
    for one in compared:
        assert one.simulation is not None
        course = one.simulation.timeline
        lines.append(Line(one.row["approach"], course.end_s.tolist(), course.backlog.tolist(), plain=True))
    with canvas(width=8.6, height=3.4) as (figure, axes):
        draw_lines(axes[0], lines, "seconds", "tuples that wait")
        axes[0].set_yscale("symlog", linthresh=10)
        axes[0].set_ylim(bottom=0)
        legend_below(figure, axes, columns=4)
        return svg(figure)
