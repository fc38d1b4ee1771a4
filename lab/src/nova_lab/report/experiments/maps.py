"""Maps: the cost spaces of the topologies that the other experiments run on (the paper's Figure 5)."""

from __future__ import annotations

import numpy as np

from nova.draw.figures import canvas, svg
from nova.draw.page import Figure, Grid, Section, number
from nova.evaluation.approaches import Row
from nova.synthetic import draw
from nova_lab.report.data import space_from
from nova_lab.report.experiment import Experiment, Setting, Unit, listing, mean, values
from nova_lab.report.units import Parameters
from nova_lab.report.workloads import SYNTHETIC_NODES, TOPOLOGIES, available

SHOWN = 1000
"""Nodes drawn per map at most."""


def units(setting: Setting) -> list[Unit]:
    """One map per topology that is at hand."""
    found, _ = available(setting)
    return [Unit("maps", {"topology": name, "seed": 0}) for name in found]


def run_map(_setting: Setting, parameters: Parameters) -> list[Row]:
    """The first two principal axes of a cost space, and how well it tells pairs that it was not fitted to."""
    topology = TOPOLOGIES[parameters["topology"]]
    if topology.dataset is None:
        at, accuracy = draw(SYNTHETIC_NODES, 5, parameters["seed"]).nodes.coordinates, None
    else:
        space = space_from(topology.dataset, topology.neighbours)
        at, accuracy = space.coordinates, space.accuracy
    assert at is not None
    centred = at - at.mean(axis=0)
    _, strength, axes = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ axes[:2].T
    some = np.linspace(0, len(flat) - 1, min(SHOWN, len(flat))).astype(int)
    return [
        {
            **parameters,
            "nodes": len(at),
            "dimensions": at.shape[1],
            "in_two": float((strength[:2] ** 2).sum() / (strength**2).sum()),
            "median_relative_error": None if accuracy is None else accuracy.median_relative_error,
            "mae_ms": None if accuracy is None else accuracy.mae_ms,
            "tiv_share": None if accuracy is None else accuracy.tiv_share,
            "x": flat[some, 0].tolist(),
            "y": flat[some, 1].tolist(),
        }
    ]


def section(setting: Setting, rows: list[Row]) -> Section:
    """A map each, and a table of their accuracy."""
    names = [str(row["topology"]) for row in rows]
    with canvas(len(rows), width=2.5 * len(rows), height=2.9) as (figure, axes):
        for panel, row in zip(axes, rows, strict=True):
            panel.scatter(row["x"], row["y"], s=4, alpha=0.55, linewidths=0)
            panel.set_aspect("equal", adjustable="datalim")
            panel.set_title(TOPOLOGIES[str(row["topology"])].label)
            panel.set_xlabel("ms")
        drawing = svg(figure)
    lines = [
        [
            TOPOLOGIES[name].label,
            int(row["nodes"]),
            int(row["dimensions"]),
            100 * row["in_two"],
            100 * mean([row], "median_relative_error"),
            mean([row], "mae_ms"),
            100 * mean([row], "tiv_share"),
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    _, missing = available(setting)
    return Section(
        name="maps",
        title="Network coordinate systems",
        question="What do the cost spaces look like that joins are placed in?",
        setup=f"{listing([TOPOLOGIES[name].label for name in names])}: measured round-trip times embedded by Phase I, "
        "or coordinates where no times are public. Each map shows the two axes along which nodes lie furthest apart.",
        content=[
            Figure(drawing, "A point is a node; distances estimate round-trip times in ms."),
            Grid(
                "Errors are on pairs that the embedding did not see; a triangle is violated where a way over a third "
                "node beats the direct one.",
                [
                    "topology",
                    "nodes",
                    "dimensions",
                    "seen in the map, %",
                    "median error, %",
                    "mean error, ms",
                    "TIV, %",
                ],
                lines,
            ),
        ],
        reading=_reading(rows),
        skipped=[f"{TOPOLOGIES[name].label}: {why}" for name, why in missing.items()],
    )


def _reading(rows: list[Row]) -> list[str]:
    known = [row for row in rows if values([row], "median_relative_error")]
    if not known:
        return ["Only drawn coordinates were at hand: there is nothing that they could be wrong about."]
    best = min(known, key=lambda r: float(r["median_relative_error"]))
    worst = max(known, key=lambda r: float(r["median_relative_error"]))
    first = f"The median error on unseen pairs is {_of(best)}"
    return [first + ("." if best is worst else f", and {_of(worst)} at most.")]


def _of(row: Row) -> str:
    return f"{number(100 * row['median_relative_error'])} % ({TOPOLOGIES[str(row['topology'])].label})"


EXPERIMENT = Experiment("maps", "Network coordinate systems of the topologies", units, section)
