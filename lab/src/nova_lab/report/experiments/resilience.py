"""Resilience: one placement, many hours of a changing network."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nova.baselines.placement import Placement
from nova.costspace import embed_latency
from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, run
from nova.evaluation.metrics import Measured, evaluate
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova_lab.report import published
from nova_lab.report.data import hourly, missing_data
from nova_lab.report.experiment import Experiment, Setting, Unit, between, distinct, mean, select, spread, times
from nova_lab.report.published import Range
from nova_lab.report.units import Parameters
from nova_lab.report.workloads import instance, instance_file, over

DATA = "ripe-atlas-631-hourly"
NEIGHBOURS = 20
"""m of Phase I, the paper's choice for RIPE Atlas."""
INSTANCE = "atlas631"
ORDER = ("nova", "nova-replanned", "sink")


def units(setting: Setting) -> list[Unit]:
    """One placement per draw, from hour 0, and the fixed instance."""
    drawn = [Unit("resilience", {"origin": "draw", "level": 5, "seed": seed}) for seed in range(setting.seeds)]
    fixed = [Unit("resilience", {"origin": "instance", "level": 5, "seed": 0})]
    return drawn + (fixed if instance_file(setting, INSTANCE, 5) is not None else [])


def run_hours(setting: Setting, parameters: Parameters) -> list[Row]:
    """The placement of hour 0 charged by every hour's measurements, beside a fresh one each hour. The fixed instance
    brings its own coordinates and is not embedded again."""
    level, seed, own = parameters["level"], parameters["seed"], parameters["origin"] == "instance"
    options = Options(seed=seed, neighbours=NEIGHBOURS)
    series = hourly(DATA)
    if own:
        first = instance(setting, INSTANCE, level).problem
        assert first.nodes.coordinates is not None
        # its coordinates embed the sums of both directions
        first = _moved(first, CostSpace(first.nodes.coordinates / 2, np.zeros(series.nodes)))
    else:
        first = over(embed_latency(series.nodes, series.at[0], options), level, seed)
    kept: dict[str, Placement] = {}
    rows: list[Row] = []
    for hour, latency in enumerate(series.at):
        problem = first if own or not hour else _moved(first, embed_latency(series.nodes, latency, options))
        problem, space = embedded(problem, options)
        if not hour:
            kept = {name: run(name, problem, space, options)[0] for name in ("nova", "sink")}
        fresh = {} if own else {"nova-replanned": run("nova", problem, space, options)[0]}
        measured = Measured(latency, series.nodes, space)
        for name, placement in (kept | fresh).items():
            figures = evaluate(problem, placement.plan, measured)
            rows.append(
                {
                    **parameters,
                    "hour": hour,
                    "approach": name,
                    "nodes": series.nodes,
                    "mean_ms": figures.latency_mean_ms,
                    "p90_ms": figures.latency_p90_ms,
                    "overloaded": figures.overloaded,
                    "changed_pairs": series.changed[hour],
                }
            )
    return rows


def _moved(problem: Problem, space: CostSpace) -> Problem:
    """The same problem with its nodes elsewhere."""
    return replace(problem, nodes=replace(problem.nodes, coordinates=space.coordinates, heights=space.heights))


def section(_setting: Setting, rows: list[Row]) -> Section:
    """Latency per hour of the placement made at hour 0."""
    drawn, fixed = select(rows, origin="draw"), select(rows, origin="instance")
    hours = sorted({int(row["hour"]) for row in rows})
    names = [name for name in ORDER if select(drawn, approach=name)]
    with canvas(2, height=3.4) as (figure, axes):
        for panel, column, title in zip(axes, ("mean_ms", "p90_ms"), ("mean", "90th percentile"), strict=True):
            lines = []
            for name in names:
                points = [select(drawn, approach=name, hour=hour) for hour in hours]
                ranges = [spread(point, column) for point in points]
                lines.append(
                    Line(
                        name,
                        hours,
                        [mean(point, column) for point in points],
                        [a for a, _ in ranges],
                        [b for _, b in ranges],
                        dashed=name == "nova-replanned",
                    )
                )
            draw_lines(panel, lines, "hour", "latency, ms", title=title)
            panel.set_ylim(0, 1.12 * panel.get_ylim()[1])
        legend_below(figure, axes)
        drawing = svg(figure)
    content: list[Figure | Grid] = [
        Figure(
            drawing,
            "Latency of the placement of hour 0, of a fresh placement every hour, and of sink-based; means "
            "over the draws, bands their range.",
        ),
        _table(
            drawn,
            hours,
            "Random draws: lowest and highest over the hours, with the standard deviation between hours, in ms.",
            {},
        ),
    ]
    if fixed:
        content.append(
            _table(
                fixed,
                hours,
                "The fixed instance of the published scripts (their coordinates of hour 0, sink at node 0) "
                "and their figures, halved: they sum both directions, as the paper prints them for Nova.",
                published.PAPER_RESILIENCE,
            )
        )
    return Section(
        name="resilience",
        title="Resilience to latency variations",
        question="Networks change by the hour. How long does a placement stay good if nobody touches it?",
        setup=(
            f"{int(mean(rows, 'nodes'))} RIPE Atlas anchors, measured every hour for {len(hours)} hours (the paper "
            f"speaks of 24; this is what is public). Nova embeds and places on hour 0 alone, at the most unequal "
            f"capacities; every later hour charges the same placement its own measured round-trip times. *Replanned* "
            f"embeds and places anew every hour. {times(len(distinct(drawn, 'seed')), 'draw')}. From one hour to the "
            f"next {number(mean([r for r in rows if r['hour']], 'changed_pairs'))} matrix entries change by more than "
            f"10 ms on average (the paper: 7,000 to 14,000)."
        ),
        content=content,
        reading=_reading(drawn, hours),
        skipped=[] if fixed else ["the fixed instance (give the folder of instances with `--instances`)."],
    )


def _table(rows: list[Row], hours: list[int], caption: str, known: Mapping[str, tuple[Range, Range]]) -> Grid:
    names = [name for name in ORDER if select(rows, approach=name)]
    columns = ["approach", "mean", "σ", "90P", "σ", "overloaded hosts"]
    lines = []
    for name in names:
        mine = select(rows, approach=name)
        line: list[object] = [label(name)]
        for column in ("mean_ms", "p90_ms"):
            by_hour = [mean(select(mine, hour=h), column) for h in hours]
            line += [between(min(by_hour), max(by_hour)), _deviation(by_hour)]
        line.append(mean(mine, "overloaded"))
        if known:
            line += [between(low / 2, high / 2) for low, high in known[name]] if name in known else [None, None]
        lines.append(line)
    return Grid(
        caption,
        columns + (["published: mean", "published: 90P"] if known else []),
        lines,
        ours=[i for i, n in enumerate(names) if n.startswith("nova")],
    )


def _deviation(numbers: list[float]) -> float:
    return statistics.pstdev(numbers) if numbers else float("nan")


def _reading(rows: list[Row], hours: list[int]) -> list[str]:
    nova = select(rows, approach="nova")
    by_hour = [mean(select(nova, hour=h), "mean_ms") for h in hours]
    p90 = [mean(select(nova, hour=h), "p90_ms") for h in hours]
    start = by_hour[0]
    drift = max(abs(v - start) for v in by_hour) / start
    sentences = [
        f"Over {len(hours)} hours the mean latency of the untouched placement stays within "
        f"{number(100 * drift)} % of its first hour ({between(min(by_hour), max(by_hour))} ms; 90th percentile "
        f"{between(min(p90), max(p90))} ms)."
    ]
    fresh = select(rows, approach="nova-replanned")
    if fresh:
        late = hours[1:]
        gain = statistics.fmean(
            mean(select(nova, hour=h), "mean_ms") - mean(select(fresh, hour=h), "mean_ms") for h in late
        )
        sentences.append(
            f"Planning anew every hour would {'save' if gain > 0 else 'cost'} {number(abs(gain))} ms of mean latency "
            f"on average ({number(100 * abs(gain) / start)} %)"
            + (
                ": there is little reason to touch a running placement for the sake of latency alone."
                if gain / start < 0.05
                else ": re-optimizing pays here."
            )
        )
    sink = select(rows, approach="sink")
    moves = _deviation([mean(select(sink, hour=h), "mean_ms") for h in hours])
    sentences.append(
        f"The mean of sink-based has a standard deviation of {number(moves)} ms between hours, that of Nova "
        f"{number(_deviation(by_hour))} ms. Loads do not depend on the network: "
        f"{number(round(mean(nova, 'overloaded')))} hosts are overloaded at any hour."
    )
    return sentences


EXPERIMENT = Experiment("resilience", "Resilience over the hours", units, section, lambda _: missing_data(DATA))
