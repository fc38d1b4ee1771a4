"""Queueing: what a placement does to tuples when nodes take time to serve them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from nova.draw.figures import Line, canvas, draw_cdf, draw_lines, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, run
from nova.evaluation.metrics import flows, node_limit, node_load, overloaded
from nova.evaluation.simulation import SimulationResult, percentiles, simulate
from nova.model.options import Options
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources, numbered_ids
from nova.synthetic import blobs
from nova_lab.report import published
from nova_lab.report.experiment import Experiment, Setting, Unit, listing, mean, select
from nova_lab.report.units import Parameters
from nova_lab.report.workloads import drawn

ORDER = ("nova-window", "nova-grid", "source", "top-c", "tree", "cl-sf", "cl-tree-sf", "sink")
CLUSTER = ("nova", "nova-grid", "source", "tree", "top-c", "cl-sf", "cl-tree-sf", "sink")
WINDOWS_MS = (100.0, 1_000.0, 5_000.0)
HEADROOM = (1.0, 0.9, 0.8, 0.7)
"""Shares of each capacity that a plan may use."""
STEADY = 0.8
"""The share at which window lengths are compared: full nodes would queue whatever the split."""


def units(setting: Setting) -> list[Unit]:
    """The paper's rates under every approach; bursts by window and headroom; the cluster of the paper."""
    long = 10.0 if setting.quick else 60.0
    runs = [Unit("queueing", {"approach": name, "seed": 0, "seconds": long, "level": 5}) for name in ORDER]
    bursts = [
        Unit("bursts", {"approach": name, "utilisation": share, "seed": 0, "seconds": 30.0 if setting.quick else 60.0})
        for name in ("nova-window", "nova-grid")
        for share in (HEADROOM[::2] if setting.quick else HEADROOM)
    ]
    cluster = [Unit("cluster", {"approach": name, "seed": 0, "seconds": 120.0}) for name in CLUSTER]
    return runs + bursts + cluster


def run_approach(_setting: Setting, parameters: Parameters) -> list[Row]:
    """The synthetic thousand nodes under one approach."""
    problem = drawn("synthetic", parameters["level"], parameters["seed"]).problem
    return [{"part": "queueing", **parameters, **simulated(problem, parameters, Options(seed=parameters["seed"]))}]


def run_bursts(_setting: Setting, parameters: Parameters) -> list[Row]:
    """The same nodes with only a share of each capacity used, and windows of several lengths."""
    problem = drawn("synthetic", 5, parameters["seed"]).problem
    options = Options(seed=parameters["seed"], utilisation=parameters["utilisation"])
    return [
        {
            "part": "bursts",
            **parameters,
            "window_ms": window,
            **simulated(with_window(problem, window), parameters, options),
        }
        for window in (WINDOWS_MS if parameters["utilisation"] == STEADY else (1_000.0,))
    ]


def with_window(problem: Problem, window_ms: float) -> Problem:
    """The same problem with windows of another length."""
    return replace(problem, queries=tuple(replace(query, window_ms=window_ms) for query in problem.queries))


def run_cluster(_setting: Setting, parameters: Parameters) -> list[Row]:
    """The paper's cluster under one approach."""
    problem = cluster_problem(parameters["seed"])
    return [{"part": "cluster", **parameters, **simulated(problem, parameters, Options(seed=parameters["seed"]))}]


def cluster_problem(seed: int) -> Problem:
    """Eight sources of 1,000 tuples/s that join in four regions, five workers and a sink, one second windows. One
    match per tuple of a stream, so 1,000 results/s per region. Places are drawn like those of synthetic topologies."""
    n, regions, rate, device = 14, 4, 1000.0, 2500.0
    capacity = np.full(n, device)
    source_nodes = np.arange(1, 1 + 2 * regions, dtype=np.int32)
    capacity[source_nodes] -= rate
    hosts = np.ones(n, bool)
    hosts[0] = False
    rows = np.arange(regions, dtype=np.int32)
    return Problem(
        nodes=Nodes(numbered_ids(n, "pi"), capacity, np.full(n, np.inf), hosts, blobs(n, seed), np.zeros(n)),
        streams=("pressure", "humidity"),
        sources=Sources(
            numbered_ids(2 * regions, "s"),
            np.repeat(np.array([0, 1], np.int32), regions),
            source_nodes,
            np.full(2 * regions, rate),
        ),
        queries=(Query("climate", 0, 1, 0, Pairs(rows, rows + np.int32(regions), np.full(regions, rate))),),
    )


def simulated(problem: Problem, parameters: Parameters, options: Options) -> Row:
    """Figures of a run of one approach, with its backlog over time and its latency distribution."""
    problem, space = embedded(problem, options)
    placement, seconds = run(parameters["approach"], problem, space, options)
    plan = placement.plan
    outcome = simulate(problem, plan, parameters["seconds"], seed=parameters["seed"], distances=placement.distances)
    load = node_load(flows(problem, plan), len(problem.nodes))
    per_join = np.bincount(plan.replicas.join, minlength=len(plan.joins))
    return {
        **_latencies(outcome),
        "planning_s": seconds,
        "emitted_per_s": outcome.emitted / outcome.duration_s,
        "delivered_per_s": outcome.delivered / outcome.duration_s,
        "served_per_s": outcome.served_per_s,
        "results": outcome.results,
        "results_per_s": outcome.results_per_s,
        "backlog": outcome.backlog,
        "peak_backlog": int(outcome.node_peak_backlog.max(initial=0)),
        "saturated": int((outcome.offered > 1.0).sum()),
        "overloaded": int(overloaded(load, node_limit(problem)).sum()),
        "split_share": float((per_join > 1).mean()),
        "times_s": outcome.timeline.end_s.tolist(),
        "backlogs": outcome.timeline.backlog.tolist(),
        "quantiles_ms": np.quantile(outcome.tuple_ms, np.linspace(0, 1, 101), method="inverted_cdf").tolist(),
    }


def _latencies(outcome: SimulationResult) -> Row:
    kinds = {"tuple": outcome.tuple_ms, "result": outcome.result_ms, "window": outcome.window_ms}
    return {f"{kind}_{name}_ms": value for kind, column in kinds.items() for name, value in percentiles(column).items()}


def section(_setting: Setting, rows: list[Row]) -> Section:
    """Backlog over time, latency distributions, bursts, and the paper's cluster."""
    runs, bursts, cluster = (select(rows, part=part) for part in ("queueing", "bursts", "cluster"))
    names = [name for name in ORDER if select(runs, approach=name)]
    one = {name: select(runs, approach=name)[0] for name in names}
    with canvas(2, height=4.0) as (figure, axes):
        lines = [
            Line(name, one[name]["times_s"], [b / 1000 for b in one[name]["backlogs"]], plain=True) for name in names
        ]
        draw_lines(axes[0], lines, "seconds", "thousand tuples waiting", title="backlog over time")
        draw_cdf(
            axes[1],
            {name: one[name]["quantiles_ms"] for name in names},
            "event to sink, ms",
            title="tuples that arrive within",
        )
        legend_below(figure, axes, 4)
        drawing = svg(figure)
    content: list[Figure | Grid] = [
        Figure(
            drawing,
            "Left: tuples that have reached a host and wait there. Right: share of tuples whose way from "
            "event to sink, queue included, takes at most so long (logarithmic).",
        ),
        _runs_table(names, one),
    ]
    if bursts:
        content += [_bursts_figure(bursts), _bursts_table(bursts)]
    if cluster:
        content.append(_cluster_table(cluster))
    return Section(
        name="queueing",
        title="End-to-end in simulation",
        question="Averages know a node's load, not its queue. What latency, throughput and backlog do tuples see when "
        "nodes serve them one by one?",
        setup=_setup(runs),
        content=content,
        reading=_reading(names, one, bursts, cluster),
    )


def _setup(runs: list[Row]) -> str:
    return (
        f"The synthetic thousand nodes at the most unequal capacities. {number(mean(runs, 'emitted_per_s'))} tuples/s "
        f"are born at random times (Poisson) for {number(mean(runs, 'seconds'))} s, travel the latency of the cost "
        "space to every host that needs them, are served there first come, first served, at the host's capacity, and "
        "their results go on to the sink. Latency covers every tuple, also those still waiting at the end. Windows "
        "last one second unless stated. The paper's cluster experiment is repeated in simulation: eight sources of "
        "1,000 tuples/s in four regions, five workers and a sink. Each of the 14 devices can serve 2,500 tuples/s (our "
        "assumption; the paper states none), and sources spend 1,000 of them on their own readings."
    )


def _runs_table(names: list[str], one: dict[str, Row]) -> Grid:
    return Grid(
        "Every approach at the paper's rates. Served are tuples that a host has finished, once per sub-join; results "
        "are matched pairs at the sink; saturated nodes get more than they can serve.",
        [
            "approach",
            "tuple p50, ms",
            "tuple p99, ms",
            "result p99, ms",
            "window p99, ms",
            "served /s",
            "results /s",
            "backlog at the end",
            "saturated nodes",
        ],
        [
            [
                label(n),
                one[n]["tuple_p50_ms"],
                one[n]["tuple_p99_ms"],
                one[n]["result_p99_ms"],
                one[n]["window_p99_ms"],
                one[n]["served_per_s"],
                one[n]["results_per_s"],
                int(one[n]["backlog"]),
                int(one[n]["saturated"]),
            ]
            for n in names
        ],
        ours=[i for i, n in enumerate(names) if n.startswith("nova")],
    )


def _bursts_figure(bursts: list[Row]) -> Figure:
    with canvas(2, height=3.4) as (figure, axes):
        for panel, (column, fixed, x, title) in zip(
            axes,
            (
                (
                    "window_ms",
                    {"utilisation": STEADY},
                    "window, ms",
                    f"by window length, {STEADY:.0%} utilisation allowed",
                ),
                ("utilisation", {"window_ms": 1000.0}, "utilisation allowed", "by headroom, windows of one second"),
            ),
            strict=True,
        ):
            lines = []
            for name in ("nova-window", "nova-grid"):
                mine = sorted(select(bursts, approach=name, **fixed), key=lambda r: float(r[column]))
                lines.append(Line(name, [r[column] for r in mine], [r["tuple_p99_ms"] for r in mine]))
            draw_lines(panel, lines, x, "tuple p99, ms", log="xy" if column == "window_ms" else "y", title=title)
        legend_below(figure, axes)
        return Figure(
            svg(figure),
            "The price of bursts: with window slices a whole window comes to one host at once, "
            "with a grid every host gets a steady part of every window.",
        )


def _bursts_table(bursts: list[Row]) -> Grid:
    order = sorted(bursts, key=lambda r: (r["window_ms"], -r["utilisation"], r["approach"]))
    return Grid(
        "Slices and grid under the same load: what each sends, and how long tuples and windows take.",
        [
            "window, ms",
            "utilisation allowed",
            "split",
            "split joins, %",
            "deliveries/s",
            "tuple p50, ms",
            "p99, ms",
            "window p99, ms",
            "longest queue",
            "overloaded hosts",
        ],
        [
            [
                r["window_ms"],
                r["utilisation"],
                label(r["approach"]),
                100 * r["split_share"],
                r["delivered_per_s"],
                r["tuple_p50_ms"],
                r["tuple_p99_ms"],
                r["window_p99_ms"],
                int(r["peak_backlog"]),
                int(r["overloaded"]),
            ]
            for r in order
        ],
    )


def _cluster_table(cluster: list[Row]) -> Grid:
    names = [name for name in CLUSTER if select(cluster, approach=name)]
    base = mean(select(cluster, approach="nova"), "results")
    paper_base = published.PAPER_CLUSTER["nova"][0]
    lines = []
    for name in names:
        row = select(cluster, approach=name)[0]
        known = published.PAPER_CLUSTER.get({"tree": "source", "cl-sf": "top-c", "cl-tree-sf": "top-c"}.get(name, name))
        ratio = base / row["results"] if row["results"] else math.inf
        lines.append(
            [
                label(name),
                round(row["results"]),
                ratio,
                row["tuple_mean_ms"],
                row["tuple_p99_ms"],
                int(row["backlog"]),
                known[0] if known else None,
                paper_base / known[0] if known else None,
            ]
        )
    ours = [i for i, name in enumerate(names) if name.startswith("nova")]
    return Grid(
        "The paper's cluster in simulation, two minutes. The paper groups tree with source-based, and clusters with "
        "top-c; its 'latency' is the gap between two results at the sink and is therefore not set beside ours.",
        [
            "approach",
            "results",
            "Nova's results / its",
            "tuple mean, ms",
            "tuple p99, ms",
            "backlog at the end",
            "paper: results",
            "paper: Nova's / its",
        ],
        lines,
        ours=ours,
    )


def _reading(names: list[str], one: dict[str, Row], bursts: list[Row], cluster: list[Row]) -> list[str]:
    growing = [n for n in names if _grows(one[n]["backlogs"])]
    steady = [n for n in names if _level(one[n]["backlogs"])]
    best = min((n for n in names if n.startswith("nova")), key=lambda n: float(one[n]["tuple_p99_ms"]))
    rival = min((n for n in names if not n.startswith("nova")), key=lambda n: float(one[n]["tuple_p99_ms"]))
    sentences = [
        f"The backlog grows as long as the run lasts for {listing([label(n) for n in growing])}"
        + (f"; it stays level for {listing([label(n) for n in steady])}" if steady else "")
        + ". At the 99th percentile a tuple needs "
        f"{_time(one[best]['tuple_p99_ms'])} with {label(best)} and "
        f"{_time(one[rival]['tuple_p99_ms'])} with {label(rival)}, the best baseline."
        if growing
        else "No approach builds up a growing backlog at this load."
    ]
    if "nova-window" in one and "nova-grid" in one:
        a, b = one["nova-window"], one["nova-grid"]
        sentences.append(
            f"Nova's two ways of splitting: the grid sends {number(b['delivered_per_s'] / a['delivered_per_s'])} times "
            f"the tuples of the slices; a window is complete within {_time(b['window_p99_ms'])} with the grid and "
            f"{_time(a['window_p99_ms'])} with slices (99th percentile)."
        )
    slices = {r["window_ms"]: r for r in select(bursts, approach="nova-window", utilisation=STEADY)}
    grid = {r["window_ms"]: r for r in select(bursts, approach="nova-grid", utilisation=STEADY)}
    if slices and grid:
        ratios = {w: slices[w]["tuple_p99_ms"] / grid[w]["tuple_p99_ms"] for w in sorted(slices)}
        told = ", ".join(f"{number(w / 1000)} s: {number(ratio)} ×" for w, ratio in ratios.items())
        grows = len(ratios) > 1 and all(a < b for a, b in pairwise(ratios.values()))
        sentences.append(
            f"99th percentile of slices over grid by window length: {told}"
            + (": a host must work off a whole window that came at its full rate." if grows else ".")
        )
    if cluster:
        nova = select(cluster, approach="nova")[0]
        ratio = {r["approach"]: nova["results"] / r["results"] if r["results"] else math.inf for r in cluster}
        sentences.append(
            f"On the paper's cluster Nova brings {number(nova['results'])} results to the sink in two minutes, "
            f"{number(ratio['sink'])} times as many as sink-based and {number(ratio['source'])} times as many as "
            f"source-based (the paper: 13.4 and 4.5 times, with capacities that it does not state)."
        )
        quickest = min(cluster, key=lambda r: float(r["tuple_p99_ms"]))
        if quickest["approach"] != "nova":
            sentences.append(
                f"The quickest there is {label(quickest['approach'])} with a 99th percentile of "
                f"{_time(quickest['tuple_p99_ms'])} against {_time(nova['tuple_p99_ms'])} of Nova."
            )
    return sentences


def _grows(backlog: list[float]) -> bool:
    """Whether the second half of the run added at least half of what the first one did."""
    half = backlog[len(backlog) // 2 - 1]
    return backlog[-1] - half > 0.5 * max(half, 1.0)


def _level(backlog: list[float]) -> bool:
    """Whether the backlog at the end is that of the middle, within a tenth (or ten tuples)."""
    half = backlog[len(backlog) // 2 - 1]
    return abs(backlog[-1] - half) <= max(0.1 * half, 10.0)


def _time(ms: float) -> str:
    return "forever" if math.isnan(ms) else f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"


EXPERIMENT = Experiment("queueing", "End-to-end in simulation", units, section)
