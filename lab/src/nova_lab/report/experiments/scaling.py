"""Scalability: seconds to place, milliseconds to re-optimize, up to a million nodes."""

from __future__ import annotations

import math
import os
import time

import numpy as np

from nova.controller import Controller
from nova.draw.figures import Line, canvas, draw_lines, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row, embedded, label, run, warm_up
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.synthetic import draw
from nova_lab.bench.drawn_events import Drawing
from nova_lab.report import published
from nova_lab.report.experiment import Experiment, Setting, Unit, listing, mean, select
from nova_lab.report.units import Parameters

ORDER = ("nova", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf")
WHOLE = ("tree", "cl-sf", "cl-tree-sf")
"""Approaches whose time grows out of hand: the paper's exceed ten minutes above 20,000 nodes."""
REPEATS = 3
EVENTS_EACH = 100
"""Events of each kind that are timed."""
NEAR_LINEAR = 0.1
"""How far from 1 an exponent of growth may lie that is called near-linear."""
EVENTS = {
    "source_removed": "remove source",
    "source_added": "add source",
    "node_removed": "remove worker",
    "node_moved": "move node",
    "rate_changed": "change rate",
}
"""The paper's five events, and what it calls them. A source leaves before one comes, so that the new one finds a
partner."""


def sizes(setting: Setting) -> list[int]:
    """Nodes per topology."""
    return [100, 1_000, 10_000] if setting.quick else [100, 1_000, 10_000, 100_000, 1_000_000]


def limit(setting: Setting) -> int:
    """Nodes beyond which the slow baselines are not run."""
    return 1_000 if setting.quick else 10_000


def units(setting: Setting) -> list[Unit]:
    """Each size and approach once, then the events at each size."""
    placing = [
        Unit("placing", {"nodes": n, "approach": name, "seed": 0})
        for n in sizes(setting)
        for name in ORDER
        if name not in WHOLE or n <= limit(setting)
    ]
    return placing + [Unit("events", {"nodes": n, "seed": 0, "repeats": EVENTS_EACH}) for n in sizes(setting)]


def run_placing(_setting: Setting, parameters: Parameters) -> list[Row]:
    """Wall time of one approach at one size, the best of three where it is short. A small plan comes first: nobody
    should pay for compiling kernels."""
    name, options = parameters["approach"], Options(seed=parameters["seed"])
    warm_up((name,))
    problem, space = embedded(draw(parameters["nodes"], 5, parameters["seed"]), options)
    placement, seconds = run(name, problem, space, options)
    for _ in range(REPEATS - 1 if seconds < 1.0 else 0):
        seconds = min(seconds, run(name, problem, space, options)[1])
    figures = evaluate(problem, placement.plan, placement.distances)
    return [
        {
            **parameters,
            "joins": figures.sub_joins,
            "seconds": seconds,
            "replicas": figures.replicas,
            "overloaded": figures.overloaded,
            "cores": os.cpu_count(),
        }
    ]


def run_events(_setting: Setting, parameters: Parameters) -> list[Row]:
    """Time of single events on a running plan, by kind. Kinds come in turn, each on something drawn at random. A
    small network goes through the same first, which compiles the kernels."""
    options = Options(seed=parameters["seed"])
    taken: dict[str, list[float]] = {}
    for nodes in (400, parameters["nodes"]):
        problem, space = embedded(draw(nodes, 5, parameters["seed"]), options)
        plan = run("nova", problem, space, options)[0].plan
        controller = Controller.from_plan(problem, plan)
        drawing = Drawing(problem, parameters["seed"])
        taken = {name: [] for name in EVENTS.values()}
        for _ in range(parameters["repeats"]):
            for kind, name in EVENTS.items():
                event = drawing.next(kind)
                started = time.perf_counter()
                controller.handle(event)
                taken[name].append(1000.0 * (time.perf_counter() - started))
    return [
        {
            **parameters,
            "kind": kind,
            "p50_ms": float(np.percentile(ms, 50)),
            "p99_ms": float(np.percentile(ms, 99)),
            "events": len(ms),
        }
        for kind, ms in taken.items()
    ]


def section(setting: Setting, rows: list[Row]) -> Section:
    """Runtime against size, log-log."""
    placing = [row for row in rows if "approach" in row]
    events = [row for row in rows if "kind" in row]
    kinds = list(dict.fromkeys(row["kind"] for row in events))
    names = [name for name in ORDER if select(placing, approach=name)]
    with canvas(2, height=3.9) as (figure, axes):
        lines = []
        for name in names:
            mine = sorted(select(placing, approach=name), key=lambda r: r["nodes"])
            lines.append(Line(name, [r["nodes"] for r in mine], [r["seconds"] for r in mine]))
        paper = published.PAPER_SECONDS
        lines.append(Line("paper", list(paper), list(paper.values()), label="Nova as in the paper", dashed=True))
        scripts = published.SCRIPTS_SECONDS
        lines.append(Line("scripts", list(scripts), list(scripts.values()), label="published scripts", dashed=True))
        draw_lines(axes[0], lines, "nodes", "seconds", log="xy", title="placing all joins")
        axes[0].legend(fontsize=8)
        lines = []
        for i, kind in enumerate(kinds):
            mine = sorted(select(events, kind=kind), key=lambda r: r["nodes"])
            colour = ("nova", "source", "top-c", "nova-inf", "cl-sf")[i % 5]
            lines.append(Line(colour, [r["nodes"] for r in mine], [r["p50_ms"] for r in mine], label=kind))
        draw_lines(axes[1], lines, "nodes", "milliseconds, median", log="x", title="re-optimizing after one event")
        axes[1].set_ylim(0, 1.25 * axes[1].get_ylim()[1])
        axes[1].legend(fontsize=8)
        drawing = svg(figure)
    content: list[Figure | Grid] = [
        Figure(
            drawing,
            "Time to place all joins, and to re-optimize after one event, against the number of nodes "
            "(logarithmic). Streams and joins grow with the nodes.",
        ),
        _placing_table(placing, names),
        _events_table(events, kinds),
    ]
    slow = [label(name) for name in WHOLE if name in names]
    skipped = [f"{listing(slow)} beyond {limit(setting):,} nodes, where their time grows out of hand."] if slow else []
    return Section(
        name="scaling",
        title="Placement and re-optimization scalability",
        question="How long does it take to place the joins of a network, and to react when one thing in it changes, as "
        "the network grows to a million nodes?",
        setup=(
            f"Synthetic topologies from {min(r['nodes'] for r in placing):,} to {max(r['nodes'] for r in placing):,} "
            f"nodes, 60 % of them sources, at the most unequal capacities. Times are wall time on this machine "
            f"({_machine(placing)}) from coordinates to plan, after one small plan has compiled the kernels. Events as "
            "in the paper: a source is added or removed, a worker removed, a node's coordinates change, a source's "
            "rate changes; the baselines would have to place everything anew."
        ),
        content=content,
        reading=_reading(placing, events),
        skipped=skipped,
    )


def _machine(rows: list[Row]) -> str:
    return f"{int(rows[0]['cores'])} cores"


def _placing_table(placing: list[Row], names: list[str]) -> Grid:
    every = sorted({row["nodes"] for row in placing})
    lines = [
        [label(name), *(mean(select(placing, approach=name, nodes=n), "seconds") for n in every)] for name in names
    ]
    nova = [select(placing, approach="nova", nodes=n) for n in every]
    lines.append(["Nova: overloaded hosts", *(int(mean(r, "overloaded")) if r else None for r in nova)])
    lines.append(["Nova: joins per second", *(mean(r, "joins") / mean(r, "seconds") if r else None for r in nova)])
    lines.append(["Nova in the paper (Ryzen 7 5700X)", *(published.PAPER_SECONDS.get(n) for n in every)])
    lines.append(["published scripts, two cores", *(published.SCRIPTS_SECONDS.get(n) for n in every)])
    return Grid(
        "Seconds to place all joins. The published scripts reach 100,000 nodes only with capacities ignored.",
        ["approach", *(f"{n:,} nodes" for n in every)],
        lines,
        ours=[0],
    )


def _events_table(events: list[Row], kinds: list[str]) -> Grid:
    every = sorted({row["nodes"] for row in events})
    lines = []
    for kind in kinds:
        cells: list[object] = [kind]
        for n in every:
            mine = select(events, kind=kind, nodes=n)
            cells.append(f"{number(mean(mine, 'p50_ms'))} / {number(mean(mine, 'p99_ms'))}" if mine else None)
        known = published.PAPER_EVENT_SECONDS.get(kind)
        lines.append([*cells, f"{'' if kind == 'add source' else '< '}{number(1000 * known)}" if known else None])
    return Grid(
        "Milliseconds to re-optimize after one event, median / 99th percentile.",
        ["event", *(f"{n:,} nodes" for n in every), "paper, 1,000,000 nodes"],
        lines,
        ours=range(len(lines)),
    )


def _reading(placing: list[Row], events: list[Row]) -> list[str]:
    nova = sorted(select(placing, approach="nova"), key=lambda r: r["nodes"])
    large = nova[-1]
    first = (
        f"Nova places {int(large['joins']):,} joins on {int(large['nodes']):,} nodes in {number(large['seconds'])} s"
    )
    known = published.PAPER_SECONDS.get(int(large["nodes"]))
    if known:
        first += f" (the paper: {number(known)} s, on another machine)"
    most = max(row["nodes"] for row in events)
    worst = max(select(events, nodes=most), key=lambda r: r["p50_ms"])
    first += f", and re-optimizes after one event in {number(worst['p50_ms'])} ms or less (median, {int(most):,} nodes)"
    sentences = [first + "."]
    big = [r for r in nova if r["nodes"] >= 1_000]
    if len(big) > 1:
        a, b = big[0], big[-1]
        power = math.log(b["seconds"] / a["seconds"]) / math.log(b["nodes"] / a["nodes"])
        sentences.append(
            f"From {int(a['nodes']):,} nodes on the time grows with the number of nodes to the power of {power:.2f}"
            + (" — near-linear." if abs(power - 1) <= NEAR_LINEAR else ".")
        )
    over = sum(int(r["overloaded"]) for r in nova)
    sentences.append(
        "No host is overloaded at any size." if over == 0 else f"Over all sizes {over} hosts are overloaded."
    )
    slow = [name for name in WHOLE if select(placing, approach=name)]
    if slow:
        n = max(r["nodes"] for r in placing if r["approach"] in slow)
        ratio = {
            name: mean(select(placing, approach=name, nodes=n), "seconds")
            / mean(select(placing, approach="nova", nodes=n), "seconds")
            for name in slow
        }
        worst_name = max(ratio, key=lambda name: ratio[name])
        if ratio[worst_name] > 1:
            sentences.append(
                f"At {int(n):,} nodes {label(worst_name)} takes {number(ratio[worst_name])} times as long as Nova."
            )
    return sentences


EXPERIMENT = Experiment("scaling", "Runtime and re-optimization up to a million nodes", units, section)
