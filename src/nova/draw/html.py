"""Interactive pictures with plotly: one page with everything inside, so that it opens without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from nova.draw import palette
from nova.draw.labels import place_labels
from nova.draw.picture import Arrows, Picture, compose, thin, widen
from nova.evaluation.words import rate
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem

MOST_ARROWS = 400
MOST_MARKS = 2_000
"""Marks of one kind: a browser stays quick with a few thousand."""
MOST_BARS = 24
WIDTH, HEIGHT = 1400, 820
"""Pixels the labels are laid out for; the page itself follows the window."""
ASPECT = 0.66 * (WIDTH - 80) / (HEIGHT - 150)
"""Width over height of the cost space within the page."""
RIGHT = 0.735
"""Where the right column begins, as a share of the page."""
NAMED = 8
"""Sub-joins named in a hover text; the rest is counted."""
LEGEND = ("source", "host", "overloaded host", "idle node", "sink", "virtual position", "source → host", "host → sink")
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>html, body {{margin: 0; height: 100%; overflow: hidden; background: white}}</style></head>
<body>{plot}</body>
</html>
"""


def write(problem: Problem, plan: Plan, file: Path) -> None:
    """Draw a plan as a page."""
    figure = page(problem, plan)
    plot = figure.to_html(
        include_plotlyjs=True,
        full_html=False,
        default_height="100vh",
        config={"displaylogo": False, "scrollZoom": True, "responsive": True},
    )
    title = escape(f"Nova: {figure.layout.meta['title']}")
    file.write_text(PAGE.format(title=title, plot=plot), encoding="utf-8")


def page(problem: Problem, plan: Plan) -> Any:
    """The plotly figure of a plan."""
    picture = compose(problem, plan, MOST_ARROWS, MOST_MARKS)
    figure = make_subplots(
        rows=2,
        cols=2,
        column_widths=[0.72, 0.28],
        row_heights=[0.44, 0.56],
        horizontal_spacing=0.06,
        vertical_spacing=0.1,
        specs=[[{"rowspan": 2}, None], [None, {}]],
        subplot_titles=(None, "load of hosts over capacity"),
    )
    for trace in _space(picture, problem, plan):
        figure.add_trace(trace, row=1, col=1)
    _utilisation(figure, picture, problem)
    x0, x1, y0, y1 = widen(picture.frame, ASPECT)
    axis = {"gridcolor": palette.GRID, "zeroline": False, "title": "ms", "tickfont": {"color": palette.FAINT}}
    figure.update_xaxes(range=[x0, x1], constrain="domain", row=1, col=1, **axis)
    figure.update_yaxes(range=[y0, y1], scaleanchor="x", row=1, col=1, **axis)
    figure.update_layout(
        title={
            "text": f"<b>{escape(picture.title)}</b><br><span style='font-size:12px;color:{palette.FAINT}'>"
            f"{escape(picture.note)}</span>",
            "x": 0.01,
            "xanchor": "left",
            "y": 0.97,
        },
        meta={"title": picture.title},
        template="plotly_white",
        font={"color": palette.INK, "size": 12},
        legend={"orientation": "h", "x": 0, "y": -0.07, "yanchor": "top", "itemsizing": "constant"},
        margin={"l": 55, "r": 25, "t": 85, "b": 65},
        hovermode="closest",
        autosize=True,
        hoverlabel={"bgcolor": "white", "bordercolor": palette.FAINT, "font": {"color": palette.INK}, "align": "left"},
    )
    for note in figure.layout.annotations:
        note.update(x=RIGHT, xanchor="left", font={"size": 13})
    _figures(figure, picture)
    return figure


def _space(picture: Picture, problem: Problem, plan: Plan) -> Iterable[Any]:
    """The layers of the cost space, from back to front."""
    nodes = _Nodes(picture, problem, plan)
    names = _Names(picture, problem)
    idle = thin(picture.idle, picture.limit, MOST_MARKS)
    if len(idle):
        yield _marks(
            "idle node",
            picture.points[idle],
            nodes.texts(idle),
            names.of(idle),
            {"symbol": "circle", "size": 7 if picture.few else 3.5, "color": palette.IDLE},
        )
    yield from _flows("host → sink", picture.outward, palette.FLOW_OUT, picture, problem, "tuples/s joined")
    yield from _flows("source → host", picture.inward, palette.FLOW_IN, picture, problem, "tuples/s")
    sources = thin(np.setdiff1d(picture.sources, picture.hosts), picture.load, MOST_MARKS)
    yield _marks(
        "source",
        picture.points[sources],
        nodes.texts(sources),
        names.of(sources),
        {
            "symbol": "square",
            "size": 9 if picture.few else 4.5,
            "color": palette.SOURCE,
            "line": {"color": "white", "width": 0.5},
        },
    )
    hosts = thin(picture.hosts, picture.load, MOST_MARKS)
    most = max(float(picture.load.max(initial=0.0)), 1e-300)
    scale = 1.0 if picture.few else 0.5 if len(hosts) < MOST_MARKS else 0.35
    size = (9 + 13 * np.sqrt(picture.load[hosts] / most)) * scale
    over = picture.overloaded[hosts]
    for name, rows, colour in (
        (
            "host",
            ~over,
            {
                "color": np.clip(picture.used[hosts], 0, 1)[~over],
                "colorscale": [list(c) for c in palette.UTILISATION],
                "cmin": 0,
                "cmax": 1,
            },
        ),
        ("overloaded host", over, {"color": palette.OVERLOAD}),
    ):
        if rows.any():
            yield _marks(
                name,
                picture.points[hosts[rows]],
                nodes.texts(hosts[rows]),
                names.of(hosts[rows]),
                {
                    "symbol": "circle",
                    "size": size[rows],
                    "opacity": 1,
                    "line": {"color": "white", "width": 0.8},
                    **colour,
                },
            )
    yield _marks(
        "sink",
        picture.points[picture.sinks],
        nodes.texts(picture.sinks),
        names.of(picture.sinks),
        {"symbol": "diamond", "size": 15, "color": palette.SINK, "line": {"color": "white", "width": 1}},
    )
    if len(picture.virtual):
        if picture.few:
            yield _displacements(picture)
        drawn = thin(np.arange(len(picture.virtual), dtype=np.int32), plan.joins.demand, MOST_MARKS)
        yield _marks(
            "virtual position",
            picture.virtual[drawn],
            nodes.virtual_texts(drawn),
            None,
            {
                "symbol": "triangle-up-open",
                "size": 11 if picture.few else 5,
                "color": palette.VIRTUAL,
                "line": {"width": 1.6 if picture.few else 0.8},
            },
        )


def _marks(name: str, at: Floats, texts: Sequence[str], labels: Any, marker: dict[str, Any]) -> Any:
    shown = {"text": labels.texts, "textposition": labels.sides} if labels is not None else {}
    return go.Scatter(
        x=at[:, 0],
        y=at[:, 1],
        mode="markers+text" if labels is not None else "markers",
        name=name,
        marker=marker,
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
        textfont={"color": palette.INK, "size": 12},
        legendrank=LEGEND.index(name),
        **shown,
    )


def _displacements(picture: Picture) -> Any:
    """Dotted lines from where a sub-join would like to sit to where it does."""
    start, end = picture.virtual[picture.flow.join], picture.points[picture.flow.node]
    gap = np.full(len(start), np.nan)
    return go.Scatter(
        x=np.column_stack([start[:, 0], end[:, 0], gap]).ravel(),
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        y=np.column_stack([start[:, 1], end[:, 1], gap]).ravel(),
        legendgroup="virtual position",
        line={"color": palette.VIRTUAL, "width": 1.2, "dash": "dot"},
    )


def _flows(name: str, arrows: Arrows, colour: str, picture: Picture, problem: Problem, unit: str) -> Iterable[Any]:
    """Flows as strokes in a few widths, and unseen marks at their middles that carry the hover texts."""
    if not len(arrows):
        return
    strength = np.sqrt(arrows.tuples / arrows.tuples.max())
    width_class = np.minimum((strength * 4).astype(int), 3)
    crowd = 1.0 if picture.few else float(np.clip(150 / len(arrows), 0.35, 1.0))
    first = True
    for width in np.unique(width_class):
        rows = width_class == width
        gap = np.full(int(rows.sum()), np.nan)
        x = np.column_stack([arrows.start[rows, 0], arrows.end[rows, 0], gap]).ravel()
        y = np.column_stack([arrows.start[rows, 1], arrows.end[rows, 1], gap]).ravel()
        heads = np.tile([0, 11, 0], len(gap))
        yield go.Scatter(
            x=x,
            y=y,
            mode="lines+markers" if picture.few else "lines",
            name=name,
            legendgroup=name,
            showlegend=first,
            line={"color": colour, "width": 0.6 + 0.9 * float(width)},
            hoverinfo="skip",
            opacity=0.8 if picture.few else (0.25 + 0.2 * float(width)) * crowd,
            legendrank=LEGEND.index(name),
            marker={"symbol": "arrow", "angleref": "previous", "size": heads, "color": colour, "standoff": 12},
        )
        first = False
    middle = (arrows.start + arrows.end) / 2
    yield go.Scatter(
        x=middle[:, 0],
        y=middle[:, 1],
        mode="markers",
        legendgroup=name,
        showlegend=False,
        name=name,
        marker={"size": 10, "color": colour, "opacity": 0},
        hovertext=_flow_texts(arrows, problem, unit),
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _flow_texts(arrows: Arrows, problem: Problem, unit: str) -> list[str]:
    length = np.linalg.norm(arrows.end - arrows.start, axis=1)
    if len(arrows) and arrows.source[0] < 0:
        return [f"bundle: {rate(t)} {unit}" for t in arrows.tuples]
    ids = problem.nodes.ids
    return [
        f"<b>{escape(a)} → {escape(b)}</b><br>{rate(t)} {unit}<br>{ms:,.1f} ms on the picture"
        for a, b, t, ms in zip(
            ids.take(arrows.source).to_pylist(), ids.take(arrows.target).to_pylist(), arrows.tuples, length, strict=True
        )
    ]


class _Nodes:
    """Hover texts of nodes and sub-joins, made only for what is drawn."""

    def __init__(self, picture: Picture, problem: Problem, plan: Plan) -> None:
        self._picture, self._problem, self._plan = picture, problem, plan
        self._by_node = np.argsort(picture.flow.node, kind="stable")
        self._node = picture.flow.node[self._by_node]
        self._by_join = np.argsort(picture.flow.join, kind="stable")
        self._join = picture.flow.join[self._by_join]
        self._source_order = np.argsort(problem.sources.node, kind="stable")
        self._source_node = problem.sources.node[self._source_order]

    def texts(self, nodes: Ints) -> list[str]:
        return [self._text(int(node)) for node in nodes]

    def _text(self, node: int) -> str:
        picture, problem = self._picture, self._problem
        limit, load = picture.limit[node], picture.load[node]
        lines = [f"<b>{escape(problem.nodes.ids[node].as_py())}</b>"]
        room = f"{rate(limit)} tuples/s" if np.isfinite(limit) else "without limit"
        state = f" · {picture.used[node]:.0%} used" if load > 0 else ""
        lines.append(f"capacity {room}{state}")
        if not problem.nodes.hosts[node]:
            lines.append("hosts no joins")
        mine = self._source_order[slice(*np.searchsorted(self._source_node, [node, node + 1]))]
        for source in mine[:3]:
            name = escape(problem.sources.ids[int(source)].as_py())
            lines.append(f"source {name}: {rate(problem.sources.rate[source])} tuples/s")
        if len(mine) > 3:
            lines.append(f"… and {len(mine) - 3} more sources")
        rows = self._by_node[slice(*np.searchsorted(self._node, [node, node + 1]))]
        if len(rows):
            lines.append(f"load {rate(load)} tuples/s, of {len(rows):,} sub-joins:")
        for row in rows[:NAMED]:
            flow = picture.flow
            lines.append(f"  {self._pair(int(flow.join[row]))}: {rate(flow.load[row])} ({flow.share[row]:.0%})")
        if len(rows) > NAMED:
            lines.append(f"  … and {len(rows) - NAMED:,} more")
        return "<br>".join(lines)

    def _pair(self, join: int) -> str:
        ids, joins = self._problem.sources.ids, self._plan.joins
        return escape(f"{ids[int(joins.left[join])].as_py()} ⋈ {ids[int(joins.right[join])].as_py()}")

    def virtual_texts(self, joins: Ints) -> list[str]:
        texts = []
        for join in joins:
            rows = self._by_join[slice(*np.searchsorted(self._join, [join, join + 1]))]
            hosts = self._problem.nodes.ids.take(self._picture.flow.node[rows[:NAMED]]).to_pylist()
            more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
            texts.append(f"<b>{self._pair(int(join))}</b><br>would sit here; runs on {escape(', '.join(hosts))}{more}")
        return texts


class _Names:
    """Names beside nodes, where there are few enough and where they do not overlap."""

    def __init__(self, picture: Picture, problem: Problem) -> None:
        self._side: dict[int, str] = {}
        self._ids = problem.nodes.ids
        if not picture.few:
            return
        order = np.concatenate([picture.sinks, picture.hosts, picture.sources, picture.idle])
        order = order[np.sort(np.unique(order, return_index=True)[1])]
        x0, _, y0, y1 = widen(picture.frame, ASPECT)
        scale = (HEIGHT - 150) / (y1 - y0)
        pixels = (picture.points - [x0, y0]) * scale
        radius = np.full(len(pixels), 5.0)
        radius[picture.hosts] = 10.0
        radius[picture.sinks] = 9.0
        names = self._ids.take(order).to_pylist()
        size = np.array([[7.0 * len(name) + 2, 13.0] for name in names])
        obstacles = np.column_stack([(picture.virtual - [x0, y0]) * scale, np.full(len(picture.virtual), 6.0)])
        soft = (picture.strokes() - [x0, y0]) * scale
        for label in place_labels(pixels[order], radius[order], size, obstacles, soft):
            # plotly says where the text is, as "middle right" or "top center"
            vertical = next((word for word in ("top", "bottom") if word in label.side), "middle")
            across = next((word for word in ("left", "right") if word in label.side), "center")
            self._side[int(order[label.point])] = f"{vertical} {across}"

    def of(self, nodes: Ints) -> _Shown | None:
        if not self._side:
            return None
        names = self._ids.take(nodes).to_pylist()
        known = [self._side.get(int(node)) for node in nodes]
        return _Shown(
            [escape(name) if side else "" for name, side in zip(names, known, strict=True)],
            [side or "middle right" for side in known],
        )


class _Shown:
    def __init__(self, texts: list[str], sides: list[str]) -> None:
        self.texts, self.sides = texts, sides


def _figures(figure: Any, picture: Picture) -> None:
    """The main figures as text, names to the left and values to the right."""
    for row, (name, value) in enumerate(picture.figures):
        place = {"xref": "paper", "yref": "paper", "y": 1.0 - 0.041 * row, "yanchor": "top", "showarrow": False}
        wrong = name == "overloaded nodes" and picture.overloaded.any()
        figure.add_annotation(
            text=escape(name), x=RIGHT, xanchor="left", font={"size": 12, "color": palette.FAINT}, **place
        )
        figure.add_annotation(
            text=f"<b>{escape(value)}</b>",
            x=1.0,
            xanchor="right",
            font={"size": 12, "color": palette.OVERLOAD if wrong else palette.INK},
            **place,
        )


def _utilisation(figure: Any, picture: Picture, problem: Problem) -> None:
    """Bars with names for few hosts, a sorted curve for many."""
    hosts = picture.hosts[np.argsort(-picture.used[picture.hosts], kind="stable")]
    top = float(np.clip(np.max(picture.used[hosts], initial=0.0), 1.0, 3.0)) * 1.06
    line = {"color": palette.INK, "width": 1.2, "dash": "dash"}
    axis = {"gridcolor": palette.GRID, "zeroline": False, "tickfont": {"color": palette.FAINT}}
    place = {"row": 2, "col": 2}
    shown = hosts
    if len(hosts) > MOST_BARS:
        shown = hosts[np.linspace(0, len(hosts) - 1, min(len(hosts), 500)).astype(int)]
    names = problem.nodes.ids.take(shown).to_pylist()
    texts = [
        f"<b>{escape(name)}</b><br>{rate(load)} of {rate(limit)} tuples/s, {used:.0%}"
        for name, load, limit, used in zip(
            names, picture.load[shown], picture.limit[shown], picture.used[shown], strict=True
        )
    ]
    hover = {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False}
    used = np.minimum(picture.used[shown], top)
    if len(hosts) <= MOST_BARS:
        colours = np.where(picture.overloaded[shown], palette.OVERLOAD, palette.UTILISATION[2][1]).tolist()
        figure.add_trace(
            go.Bar(
                x=used,
                y=[str(i) for i in range(len(shown))],
                orientation="h",
                marker={"color": colours},
                width=0.62,
                text=[f"{rate(a)} / {rate(b)}" for a, b in zip(picture.load[shown], picture.limit[shown], strict=True)],
                textposition="auto",
                insidetextanchor="end",
                **hover,
            ),
            **place,
        )
        figure.update_xaxes(tickformat=".0%", range=[0, top * 1.15], **axis, **place)
        figure.update_yaxes(
            type="category",
            range=[max(len(hosts), 8) - 0.4, -0.6],
            tickvals=[str(i) for i in range(len(shown))],
            ticktext=[name if len(name) <= 14 else name[:13] + "…" for name in names],
            showgrid=False,
            **place,
        )
        figure.add_vline(x=1.0, line=line, **place)
        return
    at = (np.linspace(0, len(hosts) - 1, len(shown)) + 0.5) / len(hosts)
    figure.add_trace(
        go.Scatter(
            x=at,
            y=used,
            mode="lines",
            fill="tozeroy",
            line={"color": palette.UTILISATION[2][1], "width": 1.2},
            fillcolor=palette.UTILISATION[1][1],
            **hover,
        ),
        **place,
    )
    over = picture.overloaded[shown]
    if over.any():
        figure.add_trace(
            go.Scatter(
                x=at[over],
                y=used[over],
                mode="lines",
                line={"color": palette.OVERLOAD, "width": 3},
                hoverinfo="skip",
                showlegend=False,
            ),
            **place,
        )
    figure.update_xaxes(tickformat=".0%", title=f"{len(hosts):,} hosts, fullest first", range=[0, 1], **axis, **place)
    figure.update_yaxes(tickformat=".0%", range=[0, top], **axis, **place)
    figure.add_hline(y=1.0, line=line, **place)
