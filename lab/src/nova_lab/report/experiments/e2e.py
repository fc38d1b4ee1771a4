"""End to end: the paper's cluster on the real runtime (Section 4.7), one Spark run per approach, window and condition.

Fourteen nodes: a sink, eight sensors of 1,000 tuples/s that join in four regions, five workers. Every approach runs its
own plan on Spark, tuple by tuple; the nodes' speeds and the ways between them are emulated (`nova.spark.emulate`):
fourteen machines do not fit on one. All approaches get the very same tuples.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, run
from nova.scenario import Scenario, load
from nova.synthetic import blobs
from nova_lab.report import published
from nova_lab.report.data import missing_data, round_trips
from nova_lab.report.experiment import Experiment, Setting, Unit, between, listing, mean, select
from nova_lab.report.units import Parameters
from nova_lab.showcase.place import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = ("nova", "source", "top-c", "sink")
"""In this topology the paper groups tree with source-based, and the cluster approaches with top-c."""
NODES, REGIONS, RATE = 14, 4, 1000.0
"""Nodes in all, regions (a pressure and a humidity sensor each), tuples/s of a sensor."""
DEVICE = 2500.0
"""Tuples/s that a node of middling speed can take in; the others' speeds lie within a factor of 1.6 of it."""
STRESS = 0.2
"""Share of its speed that a stressed sensor's node has left for joins."""
WINDOWS_MS = (1.0, 10.0, 100.0, 1000.0)
TOPOLOGY = "ripe-atlas-419"
SPEED = 8.0
"""Event time passes this many times as fast as the clock: the emulation counts in event time."""
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)


def units(setting: Setting) -> list[Unit]:
    """Every window length, with the sensors idle and busy."""
    windows = WINDOWS_MS[::3] if setting.quick else WINDOWS_MS
    seconds = 10.0 if setting.quick else 120.0
    return [
        Unit("e2e", {"window_ms": window, "stressed": stressed, "seconds": seconds, "seed": 0})
        for window in windows
        for stressed in (False, True)
    ]


def run_cluster(_setting: Setting, parameters: Parameters) -> list[Row]:
    """One window length under one condition, every approach on Spark after the other, in one session."""
    from nova.spark.session import open_session

    with tempfile.TemporaryDirectory(prefix="nova-e2e-") as scratch, open_session(None, name="nova paper e2e") as spark:
        folder = Path(scratch)
        scenario = load(write_scenario(folder, parameters))
        return [{**parameters, **_run(spark, scenario, name, folder / name)} for name in ORDER]


def _run(spark: SparkSession, scenario: Scenario, name: str, folder: Path) -> Row:
    from nova.spark.job.run import Run, Settings

    problem, space = embedded(scenario.problem, scenario.options)
    placement, _ = run(name, problem, space, scenario.options)
    settings = Settings(folder, until_end=True, speed=SPEED, emulate=True)
    running = Run(spark, replace(scenario, problem=problem), placement.plan, settings)
    running.start()
    running.wait(None)
    report = running.report()
    assert running.emulation is not None
    told = running.emulation.report()
    latencies = running.emulation.results
    return {
        "approach": name,
        "topology": TOPOLOGY if missing_data(TOPOLOGY) is None else "drawn",
        "tuples": report["tuples"],
        "results": report["results"],
        "at_sink": told["results"]["at_sink"],
        "results_per_s": told["throughput"]["results_per_s"],
        "backlog": told["tuples"]["backlog"],
        "hosts": len(told["nodes"]),
        "mean_ms": latencies.mean(),
        **{f"p{100 * q:g}_ms": latencies.quantile(q) for q in QUANTILES},
    }


def write_scenario(folder: Path, parameters: Parameters) -> Path:
    """The cluster as a scenario. A tuple meets one partner on average, whatever the window: there are as many keys as
    a sensor sends tuples in a window."""
    rng = np.random.default_rng(parameters["seed"])
    nodes = [f"pi{i}" for i in range(NODES)]
    capacity = DEVICE * np.exp2(rng.uniform(-0.7, 0.7, NODES))
    sensors = np.arange(1, 1 + 2 * REGIONS)
    capacity[sensors] = np.maximum(capacity[sensors] - RATE, 0.2 * DEVICE) * (STRESS if parameters["stressed"] else 1.0)
    rows = [
        {"id": name, "capacity": round(float(capacity[i]), 1), "hosts": "true" if i else "false"}
        for i, name in enumerate(nodes)
    ]
    document: dict[str, Any] = {"nova": 1, "nodes": "nodes.csv"}
    if missing_data(TOPOLOGY) is None:
        document["latency"] = "rtt.csv"
        write_table(folder / "rtt.csv", _latencies(nodes, rng))
    else:
        for row, at in zip(rows, blobs(NODES, parameters["seed"]), strict=True):
            row |= {"x": round(float(at[0]), 3), "y": round(float(at[1]), 3)}
    write_table(folder / "nodes.csv", rows)
    keys = max(1, round(RATE * parameters["window_ms"] / 1000.0))
    document["streams"] = {}
    for s, stream in enumerate(("pressure", "humidity")):
        write_table(
            folder / f"{stream}.csv",
            [
                {
                    "id": f"{stream}-{r}",
                    "node": nodes[1 + s * REGIONS + r],
                    "rate": RATE,
                    "region": f"r{r}",
                    "key": "all",
                }
                for r in range(REGIONS)
            ],
        )
        options = {"seed": 2 * parameters["seed"] + s, "keys": keys, "length": f"{parameters['seconds']:g}s"}
        document["streams"][stream] = {
            "sources": f"{stream}.csv",
            "input": {"format": "generator", "options": options},
        }
    document["queries"] = [
        {
            "id": "climate",
            "left": "pressure",
            "right": "humidity",
            "on": ["region", "key"],
            "window": {"tumbling": f"{parameters['window_ms']:g}ms"},
            "sink": nodes[0],
        }
    ]
    document["options"] = {"seed": parameters["seed"]}
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return file


def _latencies(nodes: list[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Measured round-trip times between as many anchors, drawn at random."""
    n, latency = round_trips(TOPOLOGY)
    matrix = latency.matrix(n)
    complete = np.flatnonzero(np.isfinite(matrix).sum(axis=1) > 0.95 * n)
    chosen = rng.choice(complete, len(nodes), replace=False)
    return [
        {"from": nodes[i], "to": nodes[j], "rtt_ms": float(matrix[chosen[i], chosen[j]])}
        for i in range(len(nodes))
        for j in range(i)
        if np.isfinite(matrix[chosen[i], chosen[j]])
    ]


def section(_setting: Setting, rows: list[Row]) -> Section:
    """Throughput against latency, and latency percentiles, as the paper draws them."""
    names = [name for name in ORDER if select(rows, approach=name)]
    windows = sorted({row["window_ms"] for row in rows})
    content: list[Figure | Grid] = [
        Figure(
            _scatter(rows, names),
            "Results at the sink within the run against their mean latency, event to sink; "
            "a point per window length, sensors idle. Both axes are logarithmic.",
        ),
        Figure(_percentiles(rows, names), "Latency percentiles of results, event to sink, over all window lengths."),
    ]
    content += [_grid(rows, names, window) for window in windows]
    return Section(
        name="e2e",
        title="End-to-end performance",
        question="What do the placements do on the running system: how many results arrive, and how late?",
        setup=(
            f"The paper's cluster: {NODES} nodes (a sink, {2 * REGIONS} sensors of {RATE:,.0f} tuples/s in {REGIONS} "
            f"regions, {NODES - 2 * REGIONS - 1} workers) of unequal speed, windows of "
            f"{listing([f'{w:g} ms' for w in windows])}, about one match per tuple, {rows[0]['seconds']:g} s of "
            f"tuples. Ways between nodes: {_ways(rows)}. Each approach's plan runs on Spark with the same tuples "
            "and gives the same results; node speeds and ways are emulated. *Stressed*: the sensors' nodes have "
            f"{STRESS:.0%} of their speed left. Latency is from the later event of a pair to the sink; what the paper "
            "calls latency is the gap between two results at the sink."
        ),
        content=content,
        reading=_reading(rows, names, windows),
    )


def _ways(rows: list[Row]) -> str:
    return "drawn like synthetic topologies" if rows[0]["topology"] == "drawn" else "measured by RIPE Atlas anchors"


def _scatter(rows: list[Row], names: list[str]) -> str:
    with canvas(width=6.4, height=3.8) as (figure, axes):
        lines = []
        for name in names:
            mine = sorted(select(rows, approach=name, stressed=False), key=lambda r: r["at_sink"])
            lines.append(Line(name, [max(r["at_sink"], 1.0) for r in mine], [r["mean_ms"] for r in mine]))
        draw_lines(axes[0], lines, "results at the sink", "mean latency, ms", log="xy")
        axes[0].legend(fontsize=8)
        return svg(figure)


def _percentiles(rows: list[Row], names: list[str]) -> str:
    places = list(range(len(QUANTILES)))
    with canvas(2, height=3.4) as (figure, axes):
        for panel, stressed in zip(axes, (False, True), strict=True):
            lines = [
                Line(
                    name,
                    places,
                    [mean(select(rows, approach=name, stressed=stressed), f"p{100 * q:g}_ms") for q in QUANTILES],
                )
                for name in names
            ]
            draw_lines(panel, lines, "percentile", "latency, ms", log="y", title="stressed" if stressed else "normal")
            panel.set_xticks(places, [f"{100 * q:g}" for q in QUANTILES])
        legend_below(figure, axes)
        return svg(figure)


def _grid(rows: list[Row], names: list[str], window: float) -> Grid:
    lines: list[list[object]] = []
    for name in names:
        cells: list[object] = [label(name)]
        for stressed in (False, True):
            one = select(rows, approach=name, window_ms=window, stressed=stressed)[0]
            cells += [round(one["at_sink"]), one["mean_ms"], one["p99_ms"], one["p99.99_ms"], int(one["backlog"])]
        known = published.PAPER_CLUSTER.get(name)
        lines.append([*cells, *(known or (None, None, None))])
    figures = ["results", "mean, ms", "p99", "p99.99", "backlog"]
    return Grid(
        f"Windows of {window:g} ms. Results at the sink when the last tuple is born, their latency from event to sink, "
        "tuples that wait at the end; then the paper's results in two minutes and its gaps between results.",
        [
            "approach",
            *figures,
            *(f"stressed: {name}" for name in figures),
            "paper: results",
            "mean gap, ms",
            "p99.99 gap",
        ],
        lines,
        ours=[i for i, name in enumerate(names) if name == "nova"],
    )


def _reading(rows: list[Row], names: list[str], windows: list[float]) -> list[str]:
    sentences = []
    for stressed, words in ((False, "With idle sensors"), (True, "Under stress")):
        nova = select(rows, approach="nova", stressed=stressed)
        parts = []
        for name in names[1:]:
            pairs = [
                (r, select(nova, window_ms=r["window_ms"])[0]) for r in select(rows, approach=name, stressed=stressed)
            ]
            slower = [theirs["mean_ms"] / ours["mean_ms"] for theirs, ours in pairs]
            fewer = [ours["at_sink"] / max(theirs["at_sink"], 1.0) for theirs, ours in pairs]
            parts.append(
                f"{label(name)} {between(min(slower), max(slower))} × Nova's mean latency and "
                f"1/{between(min(fewer), max(fewer))} of its results"
            )
        low, high = min(r["mean_ms"] for r in nova), max(r["mean_ms"] for r in nova)
        tail = max(r["p99.99_ms"] for r in nova)
        sentences.append(
            f"{words}, Nova's results need {between(low, high, 'ms')} on average over windows of "
            f"{between(windows[0], windows[-1], 'ms')} (99.99th percentile {number(tail)} ms at most); "
            f"{'; '.join(parts)}."
        )
    return sentences


def missing(_setting: Setting) -> str | None:
    """Why it cannot run here."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        return "it runs on Spark: pip install 'nova-placement[spark]'"
    return None


EXPERIMENT = Experiment(
    "e2e", "End to end on Spark: throughput and latency of the paper's cluster", units, section, missing
)
