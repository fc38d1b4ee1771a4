"""Drawings of the report, as SVG: few kinds, one look, the same colour for an approach everywhere."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.draw.page import number
from nova.evaluation.approaches import look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a0",
    "axes.labelcolor": "#1d2430",
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#5b6675",
    "ytick.color": "#5b6675",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "nova",
}


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` draw a band around it."""

    approach: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    label: str | None = None
    """Instead of the approach's own."""
    dashed: bool = False
    plain: bool = False
    """Without markers: for curves of many points."""


@contextmanager
def canvas(panels: int = 1, width: float = 8.6, height: float = 3.6) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with panels side by side, in the report's style; closed when done."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, panels, figsize=(width, height), squeeze=False, layout="constrained")
        try:
            yield figure, list(axes[0])
        finally:
            plt.close(figure)


def svg(figure: Figure) -> str:
    """The drawing as SVG, without a date, so that the same figures give the same file."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def draw_lines(axes: Axes, lines: Sequence[Line], x: str, y: str, *, log: str = "", title: str = "") -> None:
    """Curves with markers; `log` names the logarithmic axes ("x", "y", "xy")."""
    for line in lines:
        style = look(line.approach)
        axes.plot(
            line.x,
            line.y,
            ("" if line.plain else style.marker) + ("--" if line.dashed else "-"),
            color=style.colour,
            label=line.label or style.label,
            linewidth=2.2 if style.ours else 1.4,
            markersize=5 if style.ours else 4,
            zorder=4 if line.approach == "nova" else 3 if style.ours else 2,
            markerfacecolor="white" if line.dashed else style.colour,
        )
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=style.colour, alpha=0.13, linewidth=0)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)


def draw_bars(axes: Axes, values: Mapping[str, Mapping[str, float]], x: str, title: str = "") -> None:
    """Bars in groups, one group below the other: group → series → value. A series may name an approach."""
    groups = list(values)
    series = list(dict.fromkeys(name for group in values.values() for name in group))
    width = 0.8 / max(1, len(series))
    rows = np.arange(len(groups))[::-1]
    for i, name in enumerate(series):
        lengths = [values[group].get(name, np.nan) for group in groups]
        style = look(name)
        at = rows - (i - (len(series) - 1) / 2) * width
        axes.barh(at, lengths, width * 0.92, color=style.colour, label=style.label)
        for y, length in zip(at, lengths, strict=True):
            axes.annotate(
                number(length), (length, y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8
            )
    axes.set_yticks(rows, groups)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.14)
    axes.grid(False, axis="y")
    axes.set_xlabel(x)
    axes.set_title(title)


def draw_heat(axes: Axes, values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> None:
    """A heat map on a logarithmic colour scale with the numbers in its cells; NaN stays empty."""
    from matplotlib.colors import LogNorm

    data = np.array(values, dtype=float)
    shown = np.clip(data, 1.0, None)
    top = float(np.nanmax(shown)) if np.isfinite(shown).any() else 10.0
    axes.imshow(shown, cmap="YlOrRd", norm=LogNorm(1.0, max(top, 10.0)), aspect="auto", alpha=0.85)
    for (i, j), value in np.ndenumerate(data):
        if np.isfinite(value):
            dark = shown[i, j] > top**0.75
            axes.text(j, i, number(float(value)), ha="center", va="center", color="white" if dark else "#1d2430")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_cdf(axes: Axes, samples: Mapping[str, Sequence[float]], x: str, title: str = "") -> None:
    """Share of values up to x, on a logarithmic axis; `samples` are quantiles from 0 to 1 in equal steps."""
    for name, values in samples.items():
        style = look(name)
        axes.plot(
            values,
            np.linspace(0, 100, len(values)),
            color=style.colour,
            label=style.label,
            linewidth=2.2 if style.ours else 1.4,
            zorder=3 if style.ours else 2,
        )
    axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel("percent")
    axes.set_title(title)


def legend_below(figure: Figure, axes: Sequence[Axes], columns: int = 5) -> None:
    """One legend for all panels, under them."""
    entries: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=min(columns, max(1, len(entries)))
    )
