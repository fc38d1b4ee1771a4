"""Overload against heterogeneity: who sends nodes more than they can take?"""

from __future__ import annotations

from nova.draw.figures import Line, canvas, draw_lines, legend_below, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, label
from nova.synthetic import LEVELS
from nova_lab.report import published
from nova_lab.report.experiment import (
    Experiment,
    Setting,
    Unit,
    between,
    distinct,
    listing,
    mean,
    select,
    spread,
    times,
    values,
)

APPROACHES = ("nova", "nova-paper", "top-c", "source", "tree", "cl-sf", "cl-tree-sf", "sink")


def units(setting: Setting) -> list[Unit]:
    """The synthetic thousand nodes at every level, and the fixed instances of it where they are given."""
    from nova_lab.report.experiments.placements import instance_unit, unit

    levels = [0, 2, 5] if setting.quick else list(range(LEVELS))
    drawn = [unit("synthetic", level, seed) for level in levels for seed in range(setting.seeds)]
    fixed = [instance_unit(setting, "synthetic", level) for level in range(LEVELS)]
    return drawn + [u for u in fixed if u is not None]


def section(_setting: Setting, rows: list[Row]) -> Section:
    """Overload by coefficient of variation, and all ranges beside the published ones."""
    drawn, fixed = select(rows, origin="draw"), select(rows, origin="instance")
    names = [name for name in APPROACHES if select(rows, approach=name)]
    levels = sorted({row["level"] for row in drawn}, key=lambda level: mean(select(drawn, level=level), "cv"))
    with canvas() as (figure, axes):
        lines = []
        for name in names:
            points = [select(drawn, approach=name, level=level) for level in levels]
            ranges = [spread(point, "overloaded_percent") for point in points]
            lines.append(
                Line(
                    name,
                    [mean(point, "cv") for point in points],
                    [mean(p, "overloaded_percent") for p in points],
                    [low for low, _ in ranges],
                    [high for _, high in ranges],
                )
            )
        draw_lines(axes[0], lines, "coefficient of variation of node capacities", "overloaded, % of hosts")
        axes[0].set_ylim(-3, 103)
        legend_below(figure, axes, 4)
        drawing = svg(figure)

    table = []
    for name in names:
        base = "nova" if name.startswith("nova") else name
        mine = select(drawn, approach=name)
        given = select(fixed, approach=name)
        table.append(
            [
                label(name),
                between(*spread(mine, "overloaded_percent")),
                round(mean(mine, "hosts")),
                between(*spread(given, "overloaded_percent")) if given else None,
                between(*spread(given, "overloaded_percent_scripts")) if given else None,
                between(*published.SCRIPTS_OVERLOAD[base]) if name != "nova" else None,
                between(*published.PAPER_OVERLOAD[base]) if name != "nova-paper" else None,
            ]
        )
    columns = [
        "approach",
        "random draws, %",
        "hosts used",
        "fixed instances, %",
        "the same, charged as the scripts do, %",
        "published scripts, %",
        "paper, %",
    ]
    return Section(
        name="overload",
        title="Mitigation of over-utilization",
        question="Does an approach ask more of a node than it can give, and does that get worse as nodes grow unequal?",
        setup=_setup(drawn, fixed),
        content=[
            Figure(
                drawing,
                "Overloaded hosts, as a percentage of the nodes that run a join, against how unequal node "
                "capacities are. Lines are means over the draws, bands their range.",
            ),
            Grid(
                "Overloaded hosts over all levels, lowest to highest. A host is overloaded when the distinct tuples/s "
                "that its sub-joins bring exceed its capacity; every approach is charged in this way. The published "
                "scripts charge source-based only the remote stream and trees also for relaying, so their figures "
                "stand beside ours charged likewise.",
                columns,
                table,
                ours=[i for i, name in enumerate(names) if name.startswith("nova")],
            ),
        ],
        reading=_reading(drawn, names),
        skipped=[] if fixed else ["the fixed instances (give their folder with `--instances`)."],
    )


def _setup(drawn: list[Row], fixed: list[Row]) -> str:
    n, joins = int(mean(drawn, "nodes")), int(mean(drawn, "joins"))
    levels, seeds = len(distinct(drawn, "level")), len(distinct(drawn, "seed"))
    also = " The fixed instances are the ones that the published scripts ran on." if fixed else ""
    return (
        f"{n:,} synthetic nodes in Gaussian clusters; 60 % of them are sources, joined in {joins:,} random pairs, the "
        f"rest workers, and the sink is drawn at random. Capacities go in {levels} levels from near-uniform to "
        f"exponential with the same sum; the total load is {number(100 * mean(drawn, 'load'))} % of it. Each level is "
        f"drawn {times(seeds, 'time')}.{also}"
    )


def _reading(drawn: list[Row], names: list[str]) -> list[str]:
    nova = select(drawn, approach="nova")
    clean = sum(1 for row in nova if row["overloaded"] == 0)
    worst = spread(nova, "overloaded_percent")[1]
    first = (
        f"Nova overloads no host in {'any' if clean == len(nova) else f'{clean} of {len(nova)}'} of its "
        f"{len(nova)} placements"
        if clean == len(nova)
        else f"Nova overloads no host in {clean} of {len(nova)} placements; at worst {number(worst)} % of its hosts"
    )
    baselines = sorted(
        (name for name in names if not name.startswith("nova")),
        key=lambda name: mean(select(drawn, approach=name), "overloaded_percent"),
    )
    best = baselines[0]
    low, high = spread(select(drawn, approach=best), "overloaded_percent")
    sentences = [f"{first}. The best baseline, {label(best)}, overloads {between(low, high)} % of its hosts."]
    rising = [name for name in baselines if _slope(select(drawn, approach=name)) > 2]
    sentences.append(
        f"From the most equal to the most unequal capacities overload rises for {listing([label(n) for n in rising])}."
        if rising
        else "Overload does not rise with heterogeneity for any baseline by more than 2 points."
    )
    paper = select(drawn, approach="nova-paper")
    if paper:
        sentences.append(
            f"With the paper's own settings (grid, σ = 0.4, C_min half the median capacity) the same optimizer "
            f"overloads {between(*spread(paper, 'overloaded_percent'))} % of its hosts and needs "
            f"{number(mean(paper, 'replicas'))} replicas and {number(mean(paper, 'tuples_in'))} tuples/s of traffic to "
            f"hosts, against {number(mean(nova, 'replicas'))} and {number(mean(nova, 'tuples_in'))} with our defaults."
        )
    return sentences


def _slope(rows: list[Row]) -> float:
    """Points of overload from the lowest to the highest level."""
    levels = sorted({row["level"] for row in rows})
    ends = [values(select(rows, level=level), "overloaded_percent") for level in (levels[0], levels[-1])]
    return sum(ends[1]) / len(ends[1]) - sum(ends[0]) / len(ends[0])


EXPERIMENT = Experiment("overload", "Overload against heterogeneity", units, section)
