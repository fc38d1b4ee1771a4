"""Still pictures with matplotlib, without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter

from nova.draw import palette
from nova.draw.labels import offset, place_labels
from nova.draw.picture import FEW, Arrows, Picture, compose, thin, widen
from nova.evaluation.words import rate
from nova.model.plan import Plan
from nova.model.problem import Floats, Problem

MOST_ARROWS = 500
MOST_MARKS = 20_000
"""Marks of one kind; more would only paint over each other."""
CROWD = 3_000
"""Hosts from which they are drawn as dust, with the flows above them."""
MOST_BARS = 24
"""Up to this many hosts get a bar with their name each; more become one curve."""

COLOURS = LinearSegmentedColormap.from_list("utilisation", list(palette.UTILISATION))
STYLE: dict[str, Any] = {"color": palette.INK, "fontsize": 9}


def write(problem: Problem, plan: Plan, file: Path) -> None:
    """Draw a plan as PNG."""
    with rc_context({"text.parse_math": False}):  # a dollar sign in an id is a dollar sign
        _write(compose(problem, plan, MOST_ARROWS, MOST_MARKS), problem, plan, file)


def _write(picture: Picture, problem: Problem, plan: Plan, file: Path) -> None:
    figure = Figure(figsize=(14.5, 8.4), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        2,
        2,
        width_ratios=(2.35, 1),
        height_ratios=(1, 1.45),
        left=0.045,
        right=0.985,
        top=0.9,
        bottom=0.075,
        wspace=0.12,
        hspace=0.16,
    )
    figure.text(0.045, 0.955, picture.title, fontsize=15, fontweight="bold", color=palette.INK)
    figure.text(0.045, 0.922, picture.note, fontsize=9.5, color=palette.FAINT)
    _figures(figure.add_subplot(grid[0, 1]), picture)
    _utilisation(figure.add_subplot(grid[1, 1]), picture, problem)
    _space(figure.add_subplot(grid[:, 0]), picture, problem, plan)
    figure.savefig(file, format="png")


def _space(axes: Axes, picture: Picture, problem: Problem, plan: Plan) -> None:
    """The cost space: nodes, flows and virtual positions."""
    box = axes.get_window_extent()
    x0, x1, y0, y1 = widen(picture.frame, box.width / box.height)
    axes.set_xlim(x0, x1)
    axes.set_ylim(y0, y1)
    axes.grid(color=palette.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=palette.FAINT, labelsize=8, length=0)
    for spine in axes.spines.values():
        spine.set_color(palette.GRID)
    axes.set_xlabel("ms", **STYLE)
    axes.set_ylabel("ms", **STYLE)

    scale = _scale(len(picture.points))
    points = picture.points
    idle = thin(picture.idle, picture.limit, MOST_MARKS)
    _marks(axes, points[idle], s=26 * scale, marker="o", c=palette.IDLE, linewidths=0, zorder=1)
    # hosts in their thousands would bury the flows
    on_top = 4.5 if len(picture.hosts) > CROWD else 0.0
    _arrows(axes, picture.inward, palette.FLOW_IN, picture, 2.5 + on_top)
    _arrows(axes, picture.outward, palette.FLOW_OUT, picture, 2 + on_top)
    sources = thin(picture.sources, picture.load, MOST_MARKS)
    edge = 0.8 if picture.few else 0.0
    _marks(
        axes, points[sources], s=42 * scale, marker="s", c=palette.SOURCE, edgecolors="white", linewidths=edge, zorder=4
    )
    if len(picture.virtual):
        if picture.few:
            _displacements(axes, picture)
        drawn = thin(np.arange(len(picture.virtual), dtype=np.int32), plan.joins.demand, MOST_MARKS // 4)
        # under the objective `latency` they all lie on the sinks, where they must not hide below
        few_places = len(np.unique(picture.virtual.round(6), axis=0)) <= FEW
        _marks(
            axes,
            picture.virtual[drawn],
            s=48 if few_places else 48 * scale,
            marker="^",
            facecolors="none" if few_places else to_rgba(palette.VIRTUAL, 0.25),
            edgecolors=palette.VIRTUAL,
            linewidths=1.3 if few_places else max(0.35, 1.3 * scale),
            zorder=8 if few_places else 5,
        )
    hosts = thin(picture.hosts, picture.load, MOST_MARKS)
    size = _host_size(picture, hosts, scale)
    _marks(
        axes,
        points[hosts],
        s=size,
        marker="o",
        c=_host_colours(picture, hosts),
        zorder=6,
        edgecolors=np.where(picture.overloaded[hosts], palette.OVERLOAD, "white").tolist(),
        linewidths=0.0 if len(hosts) > CROWD else max(0.15, edge),
    )
    _marks(
        axes,
        points[picture.sinks],
        s=150 if picture.few else 90,
        marker="D",
        c=palette.SINK,
        edgecolors="white",
        linewidths=1.2,
        zorder=7.5,
    )
    _legend(axes, picture)
    if picture.few:
        _names(axes, picture, problem, hosts, size)


def _marks(axes: Axes, at: Floats, **style: Any) -> None:
    axes.scatter(at[:, 0], at[:, 1], **style)


def _scale(nodes: int) -> float:
    """How large marks are drawn: smaller in a crowd."""
    return float(np.clip((60 / max(nodes, 1)) ** 0.55, 0.02, 1.0))


def _host_size(picture: Picture, hosts: Any, scale: float) -> Floats:
    """Area of a host's mark, growing with its load."""
    most = max(float(picture.load.max(initial=0.0)), 1e-300)
    area: Floats = (60 + 260 * np.sqrt(picture.load[hosts] / most)) * max(scale, 0.01 if len(hosts) > CROWD else 0.045)
    return area


def _host_colours(picture: Picture, hosts: Any) -> Any:
    colours = COLOURS(np.clip(picture.used[hosts], 0.0, 1.0))
    colours[picture.overloaded[hosts]] = to_rgba(palette.OVERLOAD)
    return colours


def _arrows(axes: Axes, arrows: Arrows, colour: str, picture: Picture, zorder: float) -> None:
    """Flows: single curved arrows where few, bundles of straight strokes where many. Width tells tuples/s."""
    if not len(arrows):
        return
    strength = np.sqrt(arrows.tuples / arrows.tuples.max())
    if picture.few:
        for start, end, s in zip(arrows.start, arrows.end, strength, strict=True):
            axes.add_patch(
                FancyArrowPatch(
                    tuple(start),
                    tuple(end),
                    arrowstyle="-|>",
                    mutation_scale=9 + 5 * s,
                    shrinkA=4,
                    shrinkB=8,
                    connectionstyle="arc3,rad=0.06",
                    color=colour,
                    alpha=0.75,
                    linewidth=0.8 + 1.8 * s,
                    zorder=zorder,
                )
            )
        return
    crowd = float(np.clip(120 / len(arrows), 0.25, 1.0))
    axes.add_collection(
        LineCollection(
            np.stack([arrows.start, arrows.end], axis=1).tolist(),
            colors=colour,
            zorder=zorder,
            capstyle="round",
            linewidths=0.3 + 2.2 * strength,
            alpha=(np.clip((0.15 + 0.7 * strength) * crowd, 0.08, 0.8)).tolist(),
        ),
        autolim=False,
    )


def _displacements(axes: Axes, picture: Picture) -> None:
    """Dotted lines from where a sub-join would like to sit to where it does."""
    start = picture.virtual[picture.flow.join]
    end = picture.points[picture.flow.node]
    axes.add_collection(
        LineCollection(
            np.stack([start, end], axis=1).tolist(),
            colors=palette.VIRTUAL,
            linewidths=1.1,
            linestyles=(0, (1, 2)),
            zorder=5,
            alpha=0.9,
        ),
        autolim=False,
    )


def _legend(axes: Axes, picture: Picture) -> None:
    def mark(marker: str, colour: str, name: str, **more: Any) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, linestyle="", label=name, markersize=8, **more)

    entries = [mark("s", palette.SOURCE, "source"), mark("o", palette.UTILISATION[2][1], "host")]
    if picture.overloaded.any():
        entries.append(mark("o", palette.OVERLOAD, "overloaded host"))
    if len(picture.idle):
        entries.append(mark("o", palette.IDLE, "idle node"))
    entries.append(mark("D", palette.SINK, "sink"))
    if len(picture.virtual):
        entries.append(mark("^", palette.VIRTUAL, "virtual position", markerfacecolor="none"))
    entries += [
        Line2D([], [], color=palette.FLOW_IN, linewidth=2, label="source → host"),
        Line2D([], [], color=palette.FLOW_OUT, linewidth=2, label="host → sink"),
    ]
    legend = axes.legend(
        handles=entries,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.045),
        ncol=len(entries),
        frameon=False,
        fontsize=9,
        labelcolor=palette.INK,
        handletextpad=0.3,
        columnspacing=1.4,
    )
    legend.set_zorder(9)


def _names(axes: Axes, picture: Picture, problem: Problem, hosts: Any, host_size: Floats) -> None:
    """Names beside their nodes, hosts and sinks first; those that find no free place are left out."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    to_pixels = figure.dpi / 72
    n = len(picture.points)
    radius = np.full(n, 4.0)
    radius[hosts] = np.sqrt(host_size / np.pi)
    radius[picture.sinks] = 9.0
    order = np.concatenate([picture.sinks, hosts, picture.sources, picture.idle])
    order = order[np.sort(np.unique(order, return_index=True)[1])]
    pixels = axes.transData.transform(picture.points)
    names = problem.nodes.ids.take(order).to_pylist()
    size = np.array([[5.4 * len(name) + 1, 9.5] for name in names]) * to_pixels
    marks = axes.transData.transform(picture.virtual) if len(picture.virtual) else np.empty((0, 2))
    obstacles = np.column_stack([marks, np.full(len(marks), 4.0 * to_pixels)])
    reach = 2.5
    strokes = axes.transData.transform(picture.strokes())
    placed = place_labels(pixels[order], radius[order] * to_pixels, size, obstacles, strokes, reach * to_pixels)
    for label in placed:
        dx, dy = offset(label.side, radius[order][label.point] + reach)
        axes.annotate(
            names[label.point],
            picture.points[order[label.point]],
            xytext=(dx, dy),
            textcoords="offset points",
            ha="right" if "left" in label.side else "left" if "right" in label.side else "center",
            va="top" if "bottom" in label.side else "bottom" if "top" in label.side else "center",
            fontsize=9,
            color=palette.INK,
            zorder=9,
            path_effects=[withStroke(linewidth=2.2, foreground="white")],
        )


def _figures(axes: Axes, picture: Picture) -> None:
    """The main figures as text, in two columns."""
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    step = min(1 / len(picture.figures), 0.105)
    for row, (name, value, wrong) in enumerate(picture.figures):
        y = 0.99 - row * step
        axes.text(0.0, y, name, va="top", color=palette.FAINT, fontsize=10)
        axes.text(
            1.0,
            y,
            value,
            va="top",
            ha="right",
            fontsize=10,
            fontweight="bold",
            color=palette.OVERLOAD if wrong else palette.INK,
        )


def _utilisation(axes: Axes, picture: Picture, problem: Problem) -> None:
    """How full the hosts are against what they can take."""
    axes.set_title("load of hosts over capacity", loc="left", fontsize=10.5, color=palette.INK, pad=8)
    for name in ("top", "right", "left"):
        axes.spines[name].set_visible(False)
    axes.spines["bottom"].set_color(palette.GRID)
    axes.tick_params(colors=palette.FAINT, labelsize=8.5, length=0)
    hosts = picture.hosts[np.argsort(-picture.load[picture.hosts], kind="stable")]
    hosts = hosts[np.argsort(-picture.used[hosts], kind="stable")]
    if not len(hosts):
        axes.text(0.5, 0.5, "no hosts", ha="center", transform=axes.transAxes, color=palette.FAINT)
        return
    top = float(np.clip(np.max(picture.used[hosts], initial=0.0), 1.0, 3.0)) * 1.06
    used = np.minimum(picture.used[hosts], top)
    if len(hosts) <= MOST_BARS:
        _bars(axes, picture, problem, hosts, used, top)
        return
    axes.grid(axis="y", color=palette.GRID, linewidth=0.8)
    at = (np.arange(len(hosts)) + 0.5) / len(hosts)
    over = picture.overloaded[hosts]
    axes.fill_between(at, used, color=palette.UTILISATION[1][1], linewidth=0, step="mid")
    axes.fill_between(at, used, 1.0, where=over.tolist(), color=palette.OVERLOAD, linewidth=0, step="mid")
    axes.axhline(1.0, color=palette.INK, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, top)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"{len(hosts):,} hosts, fullest first", **STYLE)


def _bars(axes: Axes, picture: Picture, problem: Problem, hosts: Any, used: Floats, top: float) -> None:
    rows = np.arange(len(hosts))
    axes.barh(rows, used, color=_host_colours(picture, hosts), height=0.62)
    axes.axvline(1.0, color=palette.INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2)
    axes.set_xlim(0, top * 1.06)
    axes.set_ylim(max(len(hosts), 8) - 0.4, -0.6)
    axes.set_yticks(rows, [_short(name) for name in problem.nodes.ids.take(hosts).to_pylist()], color=palette.INK)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xticks([tick for tick in (0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0) if tick <= top])
    for row, host in enumerate(hosts):
        limit = picture.limit[host]
        text = f"{rate(picture.load[host])} / {rate(limit)}"
        inside = used[row] > 0.4 * top
        dark = picture.used[host] > 0.5
        axes.text(
            used[row] + (-0.02 if inside else 0.02) * top,
            row,
            text,
            va="center",
            ha="right" if inside else "left",
            fontsize=8.5,
            color=("white" if dark else palette.INK) if inside else palette.FAINT,
            zorder=3,
        )


def _short(name: str) -> str:
    return name if len(name) <= 14 else name[:13] + "…"
