"""Impact of estimation errors: placements are made on estimated latencies; what do the measured ones say?"""

from __future__ import annotations

from dataclasses import replace

from nova.costspace import embed
from nova.draw.figures import canvas, draw_bars, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, run
from nova.evaluation.metrics import Measured, evaluate
from nova.model.options import Options
from nova_lab.report import published
from nova_lab.report.data import SUBSET, missing_data, round_trips, space_from
from nova_lab.report.experiment import Experiment, Setting, Unit, distinct, mean, select, times
from nova_lab.report.units import Parameters
from nova_lab.report.workloads import UNLIMITED, instance, instance_file, over

DATA = SUBSET
NEIGHBOURS = 20
"""m of Phase I, the paper's choice for RIPE Atlas."""
INSTANCE = "atlas419"
ORDER = ("sink", "nova-inf", "nova-measured", "nova", "nova-paper", "source", "top-c", "cl-sf", "tree", "cl-tree-sf")
HOPS = ("tree", "cl-tree-sf")
"""Approaches whose ways have many hops; left out of the drawing, as in the paper."""


def units(setting: Setting) -> list[Unit]:
    """Draws over the 419 nodes, with and without capacity limits, and the fixed instance."""
    drawn = [
        Unit("estimation", {"origin": "draw", "level": level, "seed": seed})
        for level in (5, UNLIMITED)
        for seed in range(setting.seeds)
    ]
    fixed = [
        Unit("estimation", {"origin": "instance", "level": level, "seed": 0})
        for level in (5, UNLIMITED)
        if instance_file(setting, INSTANCE, level) is not None
    ]
    return drawn + fixed


def run_approaches(setting: Setting, parameters: Parameters) -> list[Row]:
    """Place on the estimates, charge by estimates and by measurements. One variant of Nova may know the measurements
    when it chooses hosts. The fixed instance brings its own coordinates (Vivaldi, 2-D)."""
    level, seed = parameters["level"], parameters["seed"]
    n, latency = round_trips(DATA)
    options = Options(seed=seed, neighbours=NEIGHBOURS)
    if parameters["origin"] == "draw":
        fitted = space_from(DATA, NEIGHBOURS)
        problem = over(fitted, None if level == UNLIMITED else level, seed)
    else:
        problem = instance(setting, INSTANCE, level).problem
        fitted = embed(replace(problem, latency=latency), options)
    problem, space = embedded(problem, options)
    measured = Measured(latency, n, space)
    accuracy = fitted.accuracy
    assert accuracy is not None, "accuracy is told wherever there are measurements"
    rows = []
    for name in ("nova", "top-c") if level == UNLIMITED else [name for name in ORDER if name != "nova-inf"]:
        placement, seconds = (
            run("nova", replace(problem, latency=latency), space, options)
            if name == "nova-measured"
            else run(name, problem, space, options)
        )
        estimate = evaluate(problem, placement.plan, placement.distances)
        truth = evaluate(problem, placement.plan, placement.over(measured))
        rows.append(
            {
                **parameters,
                "approach": f"{name}-inf" if level == UNLIMITED else name,
                "nodes": n,
                "neighbours": NEIGHBOURS,
                "seconds": seconds,
                "median_relative_error": accuracy.median_relative_error,
                "tiv_share": accuracy.tiv_share,
                "mean_estimated_ms": estimate.latency_mean_ms,
                "mean_measured_ms": truth.latency_mean_ms,
                "p90_estimated_ms": estimate.latency_p90_ms,
                "p90_measured_ms": truth.latency_p90_ms,
                "overloaded": estimate.overloaded,
            }
        )
    return rows


def section(_setting: Setting, rows: list[Row]) -> Section:
    """Estimated beside measured, per approach."""
    drawn, fixed = select(rows, origin="draw"), select(rows, origin="instance")
    names = [name for name in ORDER if select(drawn, approach=name)]
    shown = [name for name in names if name not in HOPS]
    with canvas(2, height=4.2) as (figure, axes):
        for panel, (column, title) in zip(axes, (("mean", "mean"), ("p90", "90th percentile")), strict=True):
            bars = {
                label(name): {
                    kind: mean(select(drawn, approach=name), f"{column}_{kind}_ms")
                    for kind in ("estimated", "measured")
                }
                for name in shown
            }
            draw_bars(panel, bars, "latency, ms", title=title)
        axes[1].set_yticklabels([])
        legend_below(figure, axes)
        drawing = svg(figure)
    content: list[Figure | Grid] = [
        Figure(
            drawing,
            "Mean and 90th percentile of latency, as the cost space estimates it and as it was measured. "
            "Trees are left out of the drawing: their ways have many hops.",
        ),
        _table(drawn, names, "Random draws: latency in ms, estimated and measured, means over the draws.", {}),
    ]
    if fixed:
        content.append(
            _table(
                fixed,
                [name for name in ORDER if select(fixed, approach=name)],
                "The fixed instance with its published 2-D coordinates, sink at node 0. *Scripts* are the published "
                "placements charged by the matrix they belong to. The paper's own figures, estimated / measured, "
                "come from another day's matrix of other nodes, looked up by row number.",
                published.SCRIPTS_MEASURED,
            )
        )
    return Section(
        name="estimation",
        title="Impact of estimation errors",
        question="A placement is made on a cost space that only estimates latencies. Does it still hold when every way "
        "is charged its measured round-trip time?",
        setup=_setup(drawn),
        content=content,
        reading=_reading(drawn, names),
        skipped=[] if fixed else ["the fixed instance (give the folder of instances with `--instances`)."],
    )


def _setup(drawn: list[Row]) -> str:
    error, broken = mean(drawn, "median_relative_error"), mean(drawn, "tiv_share")
    return (
        f"The {int(mean(drawn, 'nodes'))} RIPE Atlas anchors of the paper's subset, with all round-trip times known. "
        f"Phase I embeds them in 3-D with heights from {int(mean(drawn, 'neighbours'))} measured neighbours per node; "
        f"on pairs it has not seen, the median relative error is {number(100 * error)} %, and {number(100 * broken)} % "
        f"of node triples break the triangle inequality. Every approach places on the estimates only, but for *Nova, "
        f"measurements known*, which scores hosts by measured times. {times(len(distinct(drawn, 'seed')), 'draw')}, "
        f"capacities at their most unequal."
    )


def _table(rows: list[Row], names: list[str], caption: str, scripts: dict[str, tuple[float, float]]) -> Grid:
    columns = ["approach", "mean est.", "mean meas.", "90P est.", "90P meas."]
    if scripts:
        columns += ["scripts: mean meas.", "90P meas.", "paper: mean", "paper: 90P"]
    lines = []
    for name in names:
        # the published top-c ran without capacity limits
        mine = select(rows, approach="top-c-inf" if scripts and name == "top-c" else name)
        line: list[object] = [
            label(name),
            *(mean(mine, f"{column}_{kind}_ms") for column in ("mean", "p90") for kind in ("estimated", "measured")),
        ]
        if scripts:
            printed = published.PAPER_ESTIMATION.get(name, {})
            line += [*scripts.get(name, (None, None)), _pair(printed, "mean"), _pair(printed, "p90")]
        lines.append(line)
    return Grid(caption, columns, lines, ours=[i for i, n in enumerate(names) if n.startswith("nova")])


def _pair(printed: dict[str, float], column: str) -> str | None:
    if f"{column}_estimated" not in printed:
        return None
    return f"{number(printed[f'{column}_estimated'])} / {number(printed[f'{column}_measured'])}"


def _reading(rows: list[Row], names: list[str]) -> list[str]:
    def off(name: str, column: str) -> float:
        mine = select(rows, approach=name)
        return mean(mine, f"{column}_measured_ms") / mean(mine, f"{column}_estimated_ms") - 1

    nova = select(rows, approach="nova")
    sink = select(rows, approach="sink")
    gain = mean(nova, "p90_measured_ms") - mean(sink, "p90_measured_ms")
    sentences = [
        f"On measured round-trip times Nova's mean latency is {number(mean(nova, 'mean_measured_ms'))} ms where the "
        f"cost space said {number(mean(nova, 'mean_estimated_ms'))} ms ({100 * off('nova', 'mean'):+.1f} %); its 90th "
        f"percentile is {number(abs(gain))} ms {'above' if gain >= 0 else 'below'} that of sink-based."
    ]
    wide = max(names, key=lambda name: abs(off(name, "mean")))
    sentences.append(
        f"The estimate is furthest off for {label(wide)} ({100 * off(wide, 'mean'):+.0f} % in the mean): errors of one "
        f"hop add up along a route."
        if wide in HOPS
        else f"The estimate is furthest off for {label(wide)} ({100 * off(wide, 'mean'):+.0f} % in the mean)."
    )
    slower = [
        name
        for name in names
        if not name.startswith("nova")
        and name != "sink"
        and mean(select(rows, approach=name), "p90_measured_ms") > mean(nova, "p90_measured_ms")
    ]
    total = len([n for n in names if not n.startswith("nova") and n != "sink"])
    sentences.append(
        f"Measured at the 90th percentile, {len(slower)} of {total} baselines other than sink-based are slower than "
        f"Nova."
    )
    informed = select(rows, approach="nova-measured")
    if informed:
        sentences.append(
            f"Letting Nova score hosts by measured times takes its measured mean from "
            f"{number(mean(nova, 'mean_measured_ms'))} to {number(mean(informed, 'mean_measured_ms'))} ms and its 90th "
            f"percentile from {number(mean(nova, 'p90_measured_ms'))} to "
            f"{number(mean(informed, 'p90_measured_ms'))} ms; sink-based stands at "
            f"{number(mean(sink, 'mean_measured_ms'))} and {number(mean(sink, 'p90_measured_ms'))} ms."
        )
    return sentences


EXPERIMENT = Experiment(
    "estimation", "Estimated against measured latency", units, section, lambda _: missing_data(DATA)
)
