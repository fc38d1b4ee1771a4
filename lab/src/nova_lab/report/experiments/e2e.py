"""End to end: the paper's cluster on the real runtime (Section 4.7), one run per approach, window and condition.

Fourteen nodes: a sink, eight sensors of 1,000 tuples/s that join in four regions, five workers. Every approach runs its
own plan on `nova_lab.cluster`: each node that joins is a process with a Spark of its own in real-time mode, each link a
relay that delays. All approaches get the very same tuples, by the clock.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from nova.baselines.placement import Placement
from nova.datasets.sensors import readings
from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, reach, run
from nova.model.problem import Floats, Problem
from nova.scenario import Scenario, load
from nova.synthetic import blobs
from nova_lab.report import published
from nova_lab.report.data import missing_data, round_trips
from nova_lab.report.experiment import Experiment, Setting, Unit, between, listing, mean, select, values
from nova_lab.report.units import Parameters
from nova_lab.showcase.place import write_table

if TYPE_CHECKING:
    from nova_lab.cluster.cluster import Cluster, Outcome
    from nova_lab.cluster.sensors import Tuples

ORDER = ("nova", "source", "tree", "top-c", "cl-sf", "sink")
ALIKE = {"tree": "source", "cl-sf": "top-c"}
"""In the paper's topology these place as those do, and it tells one figure for both."""
NODES, REGIONS, RATE = 14, 4, 1000.0
"""Nodes in all, regions (a pressure and a humidity sensor each), tuples/s of a sensor."""
DEVICE = 2500.0
"""Tuples/s that a node of middling speed can take in: less than a site joins on a core of its own, so that it is the
node's speed that bounds a run."""
UNEQUAL = 0.7
"""Other nodes' speeds lie within a factor of 2 to this power."""
STRESS = 0.2
"""Share of its speed that a stressed sensor's node has left for joins."""
WINDOWS_MS = (1.0, 10.0, 100.0, 1000.0)
FULL_S, QUICK_S = 120.0, 5.0
"""Length of a run: the paper's, and with `--quick`."""
TOPOLOGY = "ripe-atlas-419"
ARCHIVE = "aberdeen-bme280"
"""Sensors that read pressure and humidity, one per region."""
CONDITIONS = {False: "idle", True: "stressed"}
"""Of the sensors' nodes."""
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)
STEPS = 60
"""Points of a run's course."""
WARM_S, WARM_RATE = 4.0, 125.0
"""Of the two runs that warm up the sites and tell what a tuple costs: their length, and tuples/s of a sensor."""
RESERVE = 0.5
"""Cores that sensors, links and sink need beside the nodes that join."""
PUNCTUAL_MS = 50.0
"""Where sensors send later than this, the machine had too much else to do for the latencies to be the plans' own."""


def units(setting: Setting) -> list[Unit]:
    """Every window length, with the sensors idle and busy, each approach by itself."""
    windows = WINDOWS_MS[::3] if setting.quick else WINDOWS_MS
    seconds = QUICK_S if setting.quick else FULL_S
    return [
        Unit("e2e", {"window_ms": window, "stressed": stressed, "approach": name, "seconds": seconds, "seed": 0})
        for window in windows
        for stressed in (False, True)
        for name in ORDER
    ]


def run_approach(_setting: Setting, parameters: Parameters) -> list[Row]:
    """One approach on the cluster that stands for all units of this process."""
    return [run_on(*standing(parameters["seed"]), parameters)]


@cache
def standing(seed: int) -> tuple[Cluster, float]:
    """Sites for every plan, warm, and the seconds of a core that a tuple costs one. They stay until the process ends:
    to start them takes longer than a short run. CPU shares bound the nodes where those of the widest plan fit on this
    machine together, else gates do."""
    from nova_lab.cluster.cluster import Workload, cluster
    from nova_lab.cluster.sensors import drawn

    cases = [
        {"window_ms": window, "stressed": stressed, "seconds": WARM_S, "seed": seed}
        for window in (WINDOWS_MS[-1], WINDOWS_MS[0])
        for stressed in (True, False)
    ]
    plans = [placed(case, name) for case in cases for name in ORDER]
    hosts = [np.unique(placement.plan.replicas.node) for _, placement in plans]
    kept = ExitStack()
    atexit.register(kept.close)
    made = kept.enter_context(cluster(max(map(len, hosts))))
    scenario, whole = placed(cases[-1], "sink")
    work = Workload(scenario.problem, drawn(scenario, WARM_S, WARM_RATE), WARM_S)
    core_s = made.cost(work, whole.plan, whole.plan.space)
    shares = max(
        float(scenario.problem.nodes.capacity[rows].sum()) * core_s
        for (scenario, _), rows in zip(plans, hosts, strict=True)
    )
    cores = os.cpu_count() or 1
    if made.means == "cgroup" and shares > cores - RESERVE:
        made.limits = f"the nodes of one plan would need {shares:.1f} cores together, and the machine has {cores}"
    return made, core_s


def placed(parameters: Parameters, name: str) -> tuple[Scenario, Placement]:
    """The cluster as a scenario with its cost space, and where an approach joins."""
    with tempfile.TemporaryDirectory(prefix="nova-e2e-") as scratch:
        scenario = load(write_scenario(Path(scratch), parameters))
        problem, space = embedded(scenario.problem, scenario.options)
    return replace(scenario, problem=problem), run(name, problem, space, scenario.options)[0]


def run_on(made: Cluster, core_s: float, parameters: Parameters) -> Row:
    """One run on a cluster. Its figures are those of the results that reached the sink while tuples were born."""
    from nova_lab.cluster.cluster import Workload, ordered
    from nova_lab.cluster.sensors import drawn

    scenario, placement = placed(parameters, parameters["approach"])
    problem, seconds = scenario.problem, parameters["seconds"]
    streams = drawn(scenario, seconds)
    archived = missing_data(ARCHIVE) is None
    if archived:
        streams = recorded(problem, streams)
    work = Workload(problem, streams, seconds)
    expected = work.joined(placement.plan)
    outcome = made.run(work, placement.plan, reach(problem, placement), len(expected), problem.nodes.capacity, core_s)
    return {
        **parameters,
        "topology": TOPOLOGY if missing_data(TOPOLOGY) is None else "drawn",
        "readings": ARCHIVE if archived else "drawn",
        "means": made.means,
        "why_no_cgroup": made.limits if isinstance(made.limits, str) else "",
        "core_us_per_tuple": 1e6 * core_s,
        "hosts": len(outcome.cpu_cores),
        "tuples": sum(len(side) for side in streams),
        "delivered": outcome.delivered,
        "results": len(expected),
        "exact": bool(np.array_equal(ordered(outcome.results), expected)),
        "sent_late_ms": outcome.sent_late_ms,
        "cores_used": sum(outcome.cpu_cores.values()),
        **figures(outcome, seconds),
    }


def recorded(problem: Problem, streams: tuple[Tuples, Tuples]) -> tuple[Tuples, Tuples]:
    """The same tuples with the archive's readings, one after the other, as often as needed: sensors of a region read
    pressure and humidity at one place."""
    table = readings(ARCHIVE).table
    places = sorted(set(table["sensor"].to_pylist()))
    told = []
    for quantity, tuples in zip(("pressure", "humidity"), streams, strict=True):
        value = tuples.value.copy()
        for row in np.unique(tuples.source).tolist():
            region = int(problem.sources.ids[row].as_py().rpartition("-")[2])
            mine = table.filter(np.asarray(table["sensor"]) == places[region % len(places)])[quantity].drop_null()
            at = np.flatnonzero(tuples.source == row)
            value[at] = np.resize(mine.to_numpy(), len(at))
        told.append(replace(tuples, value=value))
    return told[0], told[1]


def figures(outcome: Outcome, seconds: float) -> Row:
    """Throughput, latency and gaps of the results that came in time. The paper drops gaps of nothing between results
    that came at once, and so do we."""
    order = np.argsort(outcome.age_s, kind="stable")
    order = order[outcome.age_s[order] <= seconds]
    age, latency = outcome.age_s[order], outcome.latency_ms[order]
    gaps = 1000.0 * np.diff(age)
    gaps = gaps[gaps > 0]
    ends = np.linspace(0.0, seconds, STEPS + 1)[1:]
    cuts = np.searchsorted(age, ends, "right")
    course = [
        (int(cut), float(latency[before:cut].mean()))
        for before, cut in zip([0, *cuts[:-1].tolist()], cuts.tolist(), strict=True)
        if cut > before
    ]
    return {
        "at_sink": len(age),
        "results_per_s": len(age) / seconds,
        "waiting": len(outcome.age_s) - len(age),
        "mean_ms": float(latency.mean()) if len(age) else np.nan,
        **{f"p{100 * q:g}_ms": _quantile(latency, q) for q in QUANTILES},
        "mean_gap_ms": float(gaps.mean()) if len(gaps) else np.nan,
        "p99.99_gap_ms": _quantile(gaps, 0.9999),
        "course_results": [results for results, _ in course],
        "course_ms": [ms for _, ms in course],
    }


def _quantile(numbers: Floats, q: float) -> float:
    return float(np.quantile(numbers, q)) if len(numbers) else float("nan")


def write_scenario(folder: Path, parameters: Parameters) -> Path:
    """The cluster as a scenario. A tuple meets one partner on average, whatever the window: there are as many keys as
    a sensor sends tuples in a window."""
    rng = np.random.default_rng(parameters["seed"])
    nodes = [f"pi{i}" for i in range(NODES)]
    capacity = DEVICE * np.exp2(rng.uniform(-UNEQUAL, UNEQUAL, NODES))
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
    """Latency over processed results, and latency percentiles, as the paper draws them."""
    names = [name for name in ORDER if select(rows, approach=name)]
    windows = sorted({row["window_ms"] for row in rows})
    content: list[Figure | Grid] = [
        Figure(
            _courses(rows, names, some),
            f"Latency over processed results, sensors idle, windows of {listing([f'{w:g} ms' for w in some])}: each "
            "curve follows one run; how far right it ends is its throughput, how high it lies its latency, event to "
            "sink (logarithmic; means over short times). A curve that climbs is a plan that falls behind.",
        )
        for some in (windows[:2], windows[2:])
        if some
    ]
    content.append(
        Figure(
            _percentiles(rows, names),
            "Latency percentiles of results, event to sink, means over the window lengths.",
        )
    )
    content += [_grid(rows, names, window) for window in windows]
    content.append(_gaps(rows, names))
    return Section(
        name="e2e",
        title="End-to-end performance",
        question="What do the placements do on the running system: how many results arrive, and how late?",
        setup=_setup(rows, windows),
        content=content,
        reading=_reading(rows, names, windows),
    )


def _setup(rows: list[Row], windows: list[float]) -> str:
    return (
        f"The paper's cluster: {NODES} nodes (a sink, {2 * REGIONS} sensors of {RATE:,.0f} tuples/s in {REGIONS} "
        f"regions, {NODES - 2 * REGIONS - 1} workers) of unequal speed, from {DEVICE / 2**UNEQUAL:,.0f} to "
        f"{DEVICE * 2**UNEQUAL:,.0f} tuples/s, the sensors' nodes less what they send; windows of "
        f"{listing([f'{w:g} ms' for w in windows])}, about one match per tuple. {_readings(rows)} "
        f"Runs of {rows[0]['seconds']:g} s. Every node that joins is "
        "a process with a Spark of its own in real-time mode, up to "
        f"{int(max(values(rows, 'hosts')))} at once; sensors and sink are processes, too; every link is a relay in "
        f"user space that delays by {_ways(rows)}, with trees and clusters every hop. {_means(rows)} *Stressed*: the "
        f"sensors' nodes have {100 * STRESS:g} % of their speed left for joins; what they send is not "
        "slowed, as the paper's may be. Throughput is results at the sink while tuples are born; latency is from the "
        "later event of a pair to the sink, of those results. What the paper calls latency is the gap between two "
        "results at the sink: the last table has ours on the same measure. Absolute figures are those of the nodes' "
        "speeds, which are ours, not a Raspberry Pi's: compare approaches."
    )


def _readings(rows: list[Row]) -> str:
    if rows[0]["readings"] == "drawn":
        return "Pressure and humidity are drawn."
    return "Pressure and humidity are readings of four BME280 sensors in Aberdeen, played faster."


def _ways(rows: list[Row]) -> str:
    known = rows[0]["topology"] != "drawn"
    return "round-trip times that RIPE Atlas anchors measured" if known else "distances drawn like synthetic topologies"


def _means(rows: list[Row]) -> str:
    """What kept nodes to their speed."""
    told = []
    if shared := select(rows, means="cgroup"):
        cost = values(shared, "core_us_per_tuple")
        told.append(
            "cgroups, which bound a node's share of a core (a tuple costs "
            f"{between(min(cost), max(cost), 'µs')} of one)"
        )
    if gated := select(rows, means="gate"):
        why = listing(sorted({row["why_no_cgroup"] for row in gated}))
        told.append(f"gates, which let tuples in no faster than the node's speed (no cgroups: {why})")
    if len(told) == 1:
        return f"Nodes were kept to their speed by {told[0]}."
    return f"Nodes were kept to their speed by {told[0]} in {len(shared)} runs and by {told[1]} in {len(gated)}."


def _courses(rows: list[Row], names: list[str], windows: list[float]) -> str:
    with canvas(len(windows), height=3.6) as (figure, axes):
        for panel, window in zip(axes, windows, strict=True):
            lines = []
            for name in names:
                for one in select(rows, approach=name, window_ms=window, stressed=False):
                    lines.append(Line(name, one["course_results"], one["course_ms"]))
            first = panel is axes[0]
            draw_lines(panel, lines, "results", "latency, ms" if first else "", log="y", title=f"{window:g} ms windows")
            for drawn in panel.lines:
                drawn.set(linewidth=0.8, markersize=2.5)
            panel.locator_params(axis="x", nbins=5)
            panel.xaxis.set_major_formatter("{x:,.0f}")
        legend_below(figure, axes, columns=6)
        return svg(figure)


def _percentiles(rows: list[Row], names: list[str]) -> str:
    places = list(range(len(QUANTILES)))
    with canvas(2, height=3.6) as (figure, axes):
        for panel, stressed in zip(axes, (False, True), strict=True):
            lines = [
                Line(
                    name,
                    places,
                    [mean(select(rows, approach=name, stressed=stressed), f"p{100 * q:g}_ms") for q in QUANTILES],
                )
                for name in names
            ]
            draw_lines(panel, lines, "percentile", "latency, ms", log="y", title=f"sensors {CONDITIONS[stressed]}")
            panel.set_xticks(places, [f"{100 * q:g}" for q in QUANTILES])
        legend_below(figure, axes, columns=6)
        return svg(figure)


def _grid(rows: list[Row], names: list[str], window: float) -> Grid:
    mine = [row for name in names for row in select(rows, approach=name, window_ms=window)]
    columns = ["mean_ms", "p50_ms", "p99_ms", "p99.99_ms"]
    return Grid(
        f"Windows of {window:g} ms. Results at the sink when the last tuple is born, their latency from event to sink, "
        "and results that were still to come then.",
        ["approach", "sensors", "results", "mean, ms", "p50", "p99", "p99.99", "still to come"],
        [
            [
                label(row["approach"]),
                CONDITIONS[row["stressed"]],
                int(row["at_sink"]),
                *(row[column] for column in columns),
                int(row["waiting"]),
            ]
            for row in mine
        ],
        ours=[i for i, row in enumerate(mine) if row["approach"] == "nova"],
    )


def _gaps(rows: list[Row], names: list[str]) -> Grid:
    """On the paper's measure."""
    lines: list[list[object]] = []
    for name in names:
        for stressed, known in ((False, published.PAPER_CLUSTER), (True, published.PAPER_CLUSTER_STRESSED)):
            mine = select(rows, approach=name, stressed=stressed)
            ours = [mean(mine, column) for column in ("results_per_s", "mean_gap_ms", "p99.99_gap_ms")]
            results, *gaps = known[ALIKE.get(name, name)]
            lines.append([label(name), CONDITIONS[stressed], *ours, results / published.PAPER_CLUSTER_S, *gaps])
    return Grid(
        "Beside the paper, on its measure: results per second, and the gaps between results at the sink in ms, means "
        "over the window lengths. The paper's nodes are Raspberry Pis, and it gives one figure for tree and "
        "source-based, and one for clusters and top-c. Results that come at once leave no gap: ours come in "
        "packets, so that their gaps say how often one comes, not how many results.",
        [
            "approach",
            "sensors",
            "results/s",
            "mean gap",
            "p99.99",
            "paper: results/s",
            "mean gap",
            "p99.99",
        ],
        lines,
        ours=[i for i, line in enumerate(lines) if line[0] == label("nova")],
    )


def _reading(rows: list[Row], names: list[str], windows: list[float]) -> list[str]:
    sentences = []
    span = "–".join(f"{window:g}" for window in dict.fromkeys((windows[0], windows[-1])))
    for stressed, words in ((False, "With idle sensors"), (True, "Under stress")):
        nova = select(rows, approach="nova", stressed=stressed)
        if not nova:
            continue
        parts = []
        for name in names:
            theirs = [] if name == "nova" else select(rows, approach=name, stressed=stressed)
            pairs = [(r, one) for r in theirs for one in select(nova, window_ms=r["window_ms"])]
            slower = [r["mean_ms"] / one["mean_ms"] for r, one in pairs if r["mean_ms"] == r["mean_ms"]]
            share = [100.0 * r["at_sink"] / max(one["at_sink"], 1) for r, one in pairs]
            if slower:
                parts.append(
                    f"{label(name)} has {between(min(slower), max(slower))} times Nova's mean latency and "
                    f"{between(min(share), max(share), '%')} of its results"
                )
        low, high = min(values(nova, "mean_ms")), max(values(nova, "mean_ms"))
        tail = max(values(nova, "p99.99_ms"))
        sentences.append(
            f"{words}, Nova's results need {between(low, high, 'ms')} on average over windows of "
            f"{span} ms (99.99th percentile {number(tail)} ms at most)" + "".join(f"; {part}" for part in parts) + "."
        )
    wrong = [row for row in rows if not row["exact"]]
    sentences.append(
        f"All {len(rows)} runs gave the results of a plain join, each once."
        if not wrong
        else f"{len(wrong)} of {len(rows)} runs did not give the results of a plain join: "
        + listing([f"{label(r['approach'])} at {r['window_ms']:g} ms" for r in wrong])
        + "."
    )
    late = max(values(rows, "sent_late_ms"))
    sentences.append(
        f"Sensors sent {number(late)} ms late at most"
        + (
            ": the machine was busy with other work, and latencies hold some of that."
            if late > PUNCTUAL_MS
            else ": the machine kept up."
        )
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
