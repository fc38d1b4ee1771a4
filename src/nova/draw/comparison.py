"""One picture of a comparison: felt latency, network latency and overload of every approach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova.draw.figures import canvas, svg
from nova.draw.page import Figure, Grid, cell, number, standalone
from nova.evaluation.approaches import Row, label, look
from nova.evaluation.compare import hindrance, ranked, told, usable, verdict
from nova.model.errors import Fault, InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ENDINGS = (".html", ".png")
PALE = 0.35
"""Opacity of the bars of plans that nobody could run."""


def check_ending(file: Path) -> None:
    """Refuse a file that is neither a page nor a picture before anything is computed."""
    if file.suffix.lower() not in ENDINGS:
        raise InvalidInput([Fault(str(file), "pictures are .html or .png", field="ending", value=file.suffix)])


def draw(rows: Sequence[Row], file: Path, title: str) -> Path:
    """Write the picture; a page holds the table as well."""
    check_ending(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ranked(rows)
    panels = _panels(rows)
    with canvas(len(panels), width=2.2 * len(panels) + 1.8, height=0.36 * len(rows) + 1.1) as (figure, axes):
        for panel, (name, heading, log) in zip(axes, panels, strict=True):
            _bars(panel, rows, name, heading, log)
        for panel in axes[1:]:
            panel.set_yticklabels([])
        if file.suffix.lower() == ".png":
            figure.suptitle(title, x=0.01, ha="left")
            figure.savefig(file, dpi=150)
        else:
            file.write_text(_page(rows, figure, title), encoding="utf-8")
    return file


def _panels(rows: Sequence[Row]) -> list[tuple[str, str, bool]]:
    source = told(rows)
    return [
        (f"{source}_mean_ms", "event to sink, mean, ms", True),
        (f"{source}_p99_ms", "99 % within, ms", True),
        ("latency_mean_ms", "the way alone, ms", False),
        ("overloaded_percent", "overloaded hosts, %", False),
    ]


def _bars(axes: Axes, rows: Sequence[Row], name: str, heading: str, log: bool) -> None:
    values = np.array([row.get(name, np.nan) for row in rows], dtype=float)
    at = np.arange(len(rows))[::-1]
    bars = axes.barh(
        at, np.where(np.isfinite(values), values, 0.0), 0.68, color=[look(r["approach"]).colour for r in rows]
    )
    for bar, row in zip(bars, rows, strict=True):
        bar.set_alpha(1.0 if usable(row) else PALE)
    if log and (values > 0).any():
        axes.set_xscale("log")
        axes.set_xlim(left=max(0.1, float(np.nanmin(values[values > 0])) / 3))
    for y, value in zip(at, values, strict=True):
        axes.annotate(
            number(float(value)),
            (value if np.isfinite(value) else 0.0, y),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.margins(x=0.22)
    axes.set_yticks(at, [label(row["approach"]) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_title(heading)


def _page(rows: Sequence[Row], figure: Drawing, title: str) -> str:
    columns = [name for name in rows[0] if name != "approach"]
    grid = Grid(
        "All figures; latencies and costs in ms, rates in tuples/s. Felt: predicted, from event to sink; unsettled: "
        "share of the results from hosts that get all they can take, so that waits grow without end (∞); delta: over "
        "the way straight to the sink. Gaps are relative to a lower bound for placements within capacities: one that "
        "overloads nodes may lie below it.",
        ["figure", *(label(row["approach"]) for row in rows)],
        [[name.replace("_", " "), *(_shown(row.get(name)) for row in rows)] for name in columns],
    )
    how = "simulated" if told(rows) == "simulated" else "predicted"
    drawing = Figure(
        svg(figure),
        f"How long until results are at the sink ({how}), the way through the network alone, and overloaded hosts. "
        "Pale: plans that cannot be run.",
    )
    approaches = Grid(
        "The approaches, best first: those that can be run, then the others, by the mean.",
        ["approach", "where it runs the joins", "what hinders it"],
        [[label(row["approach"]), look(row["approach"]).rule, hindrance(row) or "nothing"] for row in rows],
    )
    return standalone(f"Approaches on {title}", [verdict(rows), drawing, approaches, grid])


def _shown(value: object) -> object:
    """Numbers as text: the table is turned, so that columns hold figures of all kinds."""
    return cell(value) if isinstance(value, int | float) else value
