"""Show: one run of the showcase's scenario on Spark, with Nova beside the baselines, and a page about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.baselines import BASELINES
from nova.draw import draw
from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.html import page as draw_page
from nova.draw.page import Figure, Frame, Grid, standalone
from nova.evaluation.approaches import label
from nova.evaluation.compare import Compared, compare
from nova.model.plan import Plan
from nova.scenario import load
from nova.spark.emulate import Emulation
from nova.spark.job.run import Run, Settings
from nova_lab.showcase.anomalies import STRANGE, Anomaly, Climate, climate, find
from nova_lab.showcase.place import LEFT, Sensor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPROACHES = ("nova", *(name for name in BASELINES if name != "optimum"))
LATENESS_MS = 5000
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
    done = {one.row["approach"]: one for one in compare(scenario.problem, APPROACHES, scenario.options)}
    plan = done["nova"].placement.plan
    step("running on Spark")
    settings = Settings(case.out / "run", until_end=True, speed=case.speed, lateness_ms=LATENESS_MS, emulate=True)
    run = Run(spark, scenario, plan, settings)
    run.rivals = {
        name: Emulation(scenario.problem, _constant(one.placement.plan), 0.0, one.placement.distances)
        for name, one in done.items()
        if name != "nova"
    }
    run.start()
    run.wait(observe)
    report = run.report()
    step("looking for anomalies")
    region_of = {sensor.id: sensor.region for sensor in case.sensors if sensor.stream == LEFT}
    seen = climate(run.folder.results, region_of)
    window_us = round(scenario.problem.queries[0].window_ms * 1000)
    anomalies, strangest = find(seen, window_us), find(seen, window_us, NOTABLE)[:5]
    rows = [placement(name, one, run) for name, one in done.items()]
    step("drawing")
    draw(scenario.problem, plan, case.out / "plan.html")
    picture = draw(scenario.problem, plan, case.out / "plan.png")
    page(case, plan, seen, anomalies or strangest, rows, run)
    return {
        "scenario": str(case.scenario),
        "page": str(case.out / "index.html"),
        "picture": str(picture),
        "anomalies": [anomaly.told() for anomaly in anomalies],
        "strangest": [anomaly.told() for anomaly in strangest],
        "placements": rows,
        "run": report,
    }


def _constant(plan: Plan) -> Callable[[str], Plan]:
    return lambda _: plan


def placement(name: str, one: Compared, run: Run) -> dict[str, Any]:
    """What one approach's placement costs and what the emulated hosts make of it."""
    emulation = run.emulation if name == "nova" else run.rivals[name]
    assert emulation is not None
    told = emulation.report()
    latency = told["latency_ms"]["tuple"] or {}
    return {
        "approach": name,
        "latency_mean_ms": one.row["latency_mean_ms"],
        "latency_p90_ms": one.row["latency_p90_ms"],
        "cost_eq1_ms": one.row["cost_eq1_ms"],
        "overloaded": one.row["overloaded"],
        "hosts": one.row["hosts"],
        "emulated_p50_ms": latency.get("p50"),
        "emulated_p99_ms": latency.get("p99"),
        "served_per_s": told["throughput"]["tuples_per_s"],
        "backlog": told["tuples"]["backlog"],
    }


COLUMNS = {
    "approach": "approach",
    "latency_mean_ms": "network latency, mean, ms",
    "latency_p90_ms": "90 % within, ms",
    "cost_eq1_ms": "cost (Eq. 1), ms",
    "overloaded": "overloaded nodes",
    "hosts": "hosts",
    "emulated_p50_ms": "event to sink, half within, ms",
    "emulated_p99_ms": "99 % within, ms",
    "served_per_s": "served, tuples/s",
    "backlog": "backlog, tuples",
}
"""Figures of a placement and their headings."""


def page(
    case: Case, plan: Plan, seen: Climate, anomalies: Sequence[Anomaly], rows: Sequence[dict[str, Any]], run: Run
) -> Path:
    """The page about the run."""
    problem = run.problem
    content: list[Figure | Frame | Grid | str] = [
        f"Sensors in {len(seen.regions)} regions send pressure and humidity. A query joins both by region and window "
        f"of {problem.queries[0].window_ms / 1000:g} s, and its results tell when one region's weather goes its own "
        f"way. The {len(problem.sources)} sensors hang on small machines, {len(problem.nodes)} nodes in all; no "
        "single one could join everything. Nova has decided which machine runs which share of which join, and Spark "
        "has run it.",
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
        "How good is that placement? The very tuples of this run also went, in emulation, through hosts of these "
        "capacities under the placements of the usual ways. *Network latency* is the way from sensors over the host to "
        "the sink; it is short where everything goes straight to the sink, and says nothing about whether the host "
        "keeps up. *Event to sink* is what one feels: network, service and waiting. An approach with *overloaded* "
        "nodes falls ever further behind, so its times only say how long this run was: look at *served* and *backlog* "
        "first.",
        Grid(
            "Nova beside the baselines: what each placement costs, and what hosts of these capacities make of the "
            "very tuples of this run (event to sink, per tuple; backlog at the end, in tuples).",
            list(COLUMNS.values()),
            [[label(row["approach"]), *list(row.values())[1:]] for row in rows],
            ours=[0],
        ),
        Figure(
            _backlogs(run),
            "Tuples that wait at emulated hosts. Where a line climbs, a host gets more than it can "
            "process, and results come ever later.",
        ),
    ]
    file = case.out / "index.html"
    file.write_text(standalone(case.title, content), encoding="utf-8")
    return file


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


def _backlogs(run: Run) -> str:
    assert run.emulation is not None
    lines = []
    for name, emulation in {"nova": run.emulation, **run.rivals}.items():
        x, y = zip(*emulation.course, strict=True) if emulation.course else ((), ())
        lines.append(Line(name, list(x), list(y), plain=True))
    with canvas(width=8.6, height=3.4) as (figure, axes):
        draw_lines(axes[0], lines, "seconds of the stream", "tuples that wait")
        axes[0].set_yscale("symlog", linthresh=10)
        axes[0].set_ylim(bottom=0)
        legend_below(figure, axes, columns=4)
        return svg(figure)
