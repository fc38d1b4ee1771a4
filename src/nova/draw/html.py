"""The page of a plan: cost space, figures, and a table of placements to search and sort. One small file that needs
neither a network nor a library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nova.draw import palette
from nova.draw.picture import FEW, Arrows, Picture, compose, thin
from nova.evaluation.placements import placements
from nova.model.plan import Plan
from nova.model.problem import Floats, Ints, Problem

MOST_ARROWS = 400
MOST_MARKS = 2_000
"""Marks of one kind: a browser stays quick with a few thousand."""
MOST_ROWS = 20_000
"""Placements that the page holds, those with the most tuples/s; the rest is counted."""
LITTLE_LARGER = 1.5
"""All nodes are shown where the plan's own nodes then still take two thirds of the picture's width."""
SOURCES = 3
"""Sources of a node that are named; the rest is counted."""
SOURCE, HOST, SINK = 1, 2, 4
LEGEND = (
    ("source", f'<rect x="4" y="2" width="9" height="9" fill="{palette.SOURCE}"/>'),
    ("host", f'<circle cx="9" cy="7" r="6" fill="{palette.UTILISATION[2][1]}"/>'),
    ("overloaded host", f'<circle cx="9" cy="7" r="6" fill="{palette.OVERLOAD}"/>'),
    ("sink", f'<path d="M9,0L16,7L9,14L2,7Z" fill="{palette.SINK}"/>'),
    ("idle node", f'<circle cx="9" cy="7" r="4" fill="{palette.IDLE}"/>'),
    ("virtual position", f'<path d="M9,1L15,12L3,12Z" fill="none" stroke="{palette.VIRTUAL}" stroke-width="1.6"/>'),
    ("source → host", f'<path d="M0,7H18" stroke="{palette.FLOW_IN}" stroke-width="3"/>'),
    ("host → sink", f'<path d="M0,7H18" stroke="{palette.FLOW_OUT}" stroke-width="3"/>'),
)
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style></head>
<body>
<header><h1>{title}</h1><p class="note">{note}</p></header>
<div id="legend">{legend}</div>
<div id="top">
<div id="map"><svg role="img" aria-label="the cost space: nodes, joins and flows"></svg><div id="buttons">
<button id="in" title="closer">+</button><button id="out" title="farther">−</button>
<button id="fit" title="sources, hosts and sinks">fit</button><button id="all">all nodes</button></div></div>
<aside><dl id="figures"></dl><h2>Sinks: results and other input, tuples/s of capacity</h2><div id="sinks"></div>
<h2>Load of hosts, tuples/s of capacity</h2><div id="bars"></div></aside>
</div>
<section id="places"><h2>Where the joins run</h2>
<div id="tools"><input id="search" type="search" placeholder="query, source or host" aria-label="search">
<span id="count"></span><button id="more" hidden>show more</button></div>
<div class="scroll"><table id="table"><thead><tr><th>query</th><th>left</th><th>right</th><th>host</th>
<th class="n">share</th><th class="n">tuples/s</th><th class="n">way, ms</th></tr></thead><tbody></tbody></table></div>
<noscript>This page draws and sorts with JavaScript; `nova plan -o plan.csv` writes the same table.</noscript></section>
<div id="tip"></div>
<script id="data" type="application/json">{data}</script>
<script>{script}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Page:
    """A page that a notebook displays in a frame of its own."""

    text: str

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.text)}" style="width: 100%; height: 900px; border: 0"></iframe>'


def write(problem: Problem, plan: Plan, file: Path) -> None:
    """Draw a plan as a page."""
    file.write_text(page(problem, plan).text, encoding="utf-8")


def page(problem: Problem, plan: Plan) -> Page:
    """The page of a plan."""
    picture = compose(problem, plan, MOST_ARROWS, MOST_MARKS)
    assets = files("nova.draw").joinpath("assets")
    text = PAGE.format(
        title=escape(f"Nova: {picture.title}"),
        note=escape(picture.note),
        legend="".join(f'<span><svg viewBox="0 0 18 14">{mark}</svg>{name}</span>' for name, mark in LEGEND),
        style=assets.joinpath("plan.css").read_text("utf-8"),
        script=assets.joinpath("plan.js").read_text("utf-8"),
        data=_embedded(content(picture, problem, plan)),
    )
    return Page(text)


def _embedded(value: Any) -> str:
    """JSON that stays data inside a page: no text in it can end the script or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def content(picture: Picture, problem: Problem, plan: Plan) -> dict[str, Any]:
    """All that the page shows, as plain values; ms and tuples/s."""
    used = np.unique(np.concatenate([picture.sources, picture.hosts, picture.sinks]))
    drawn = _drawn(picture)
    row_of = {int(node): row for row, node in enumerate(drawn)}
    table = placements(problem, plan)
    rows = table
    if len(table) > MOST_ROWS:
        largest = np.argsort(-table["tuples_per_s"].to_numpy(), kind="stable")[:MOST_ROWS]
        rows = table.take(pa.array(np.sort(largest)))
    columns = [rows[name].to_pylist() for name in rows.column_names]
    columns[4:] = [[_rounded(value) for value in column] for column in columns[4:]]
    return {
        "figures": [list(figure) for figure in picture.figures],
        "sinks": [
            [one.sink, _rounded(one.results), _rounded(one.hosted), _limit(one.limit), one.overloaded]
            for one in picture.results.sinks[:MOST_MARKS]
        ],
        "frame": _frame(picture.points, used),
        "all": _around(picture.points),
        "nodes": _nodes(picture, problem, drawn),
        "most": max(float(picture.load.max(initial=0.0)), 1e-300),
        "flows": [*_flows(picture.outward, 1, row_of), *_flows(picture.inward, 0, row_of)],
        "virtual": _virtual(picture, problem, plan),
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "total": len(table),
        "colours": {
            "source": palette.SOURCE,
            "sink": palette.SINK,
            "idle": palette.IDLE,
            "over": palette.OVERLOAD,
            "virtual": palette.VIRTUAL,
            "in": palette.FLOW_IN,
            "out": palette.FLOW_OUT,
            "grid": palette.GRID,
            "hosts": palette.UTILISATION,
        },
    }


def _drawn(picture: Picture) -> Ints:
    """Rows of the nodes in the page, thinned where there are too many of a kind."""
    kinds = (
        (picture.idle, picture.limit),
        (np.setdiff1d(picture.sources, picture.hosts), picture.load),
        (picture.hosts, picture.load),
        (picture.sinks, picture.load),
    )
    rows: Ints = np.unique(np.concatenate([thin(rows, np.nan_to_num(weight), MOST_MARKS) for rows, weight in kinds]))
    return rows


def _frame(points: Floats, used: Ints) -> list[float]:
    """What the page shows at first: the nodes that the plan uses; all, where that makes the picture little larger."""
    whole = _around(points)
    if not len(used):
        return whole
    mine = _around(points[used])
    wider = max((whole[k + 1] - whole[k]) / (mine[k + 1] - mine[k]) for k in (0, 2))
    return whole if wider <= LITTLE_LARGER else mine


def _around(points: Floats) -> list[float]:
    """The frame of some points, x from and to, y from and to; of very many, without the few that lie far off."""
    low, high = points.min(axis=0), points.max(axis=0)
    if len(points) > FEW:
        near = np.percentile(points, [0.5, 99.5], axis=0)
        if ((high - low) > 2.5 * (near[1] - near[0])).any():
            low, high = near
    margin = max(0.04 * float((high - low).max()), 0.5)
    return [_rounded(value) for value in (low[0] - margin, high[0] + margin, low[1] - margin, high[1] + margin)]


def _nodes(picture: Picture, problem: Problem, drawn: Ints) -> list[dict[str, Any]]:
    kind = np.zeros(len(problem.nodes), np.int8)
    for rows, bit in ((picture.sources, SOURCE), (picture.hosts, HOST), (picture.sinks, SINK)):
        kind[rows] |= bit
    order = np.argsort(problem.sources.node, kind="stable")
    born = problem.sources.node[order]
    found = []
    for row, name in zip(drawn.tolist(), problem.nodes.ids.take(pa.array(drawn)).to_pylist(), strict=True):
        mine = order[slice(*np.searchsorted(born, [row, row + 1]))]
        sources = [[problem.sources.ids[int(k)].as_py(), _rounded(problem.sources.rate[k])] for k in mine[:SOURCES]]
        found.append(
            {
                "id": name,
                "x": _rounded(picture.points[row, 0]),
                "y": _rounded(picture.points[row, 1]),
                "kind": int(kind[row]),
                "load": _rounded(picture.load[row]),
                "limit": _limit(float(picture.limit[row])),
                "used": _rounded(min(float(picture.used[row]), 1e6)),
                "over": bool(picture.overloaded[row]),
                "closed": not bool(problem.nodes.hosts[row]),
                "sources": sources,
                "more": max(0, len(mine) - SOURCES),
            }
        )
    return found


def _flows(arrows: Arrows, kind: int, row_of: dict[int, int]) -> list[list[Any]]:
    """Strokes: from x, y to x, y, tuples/s, 0 to a host or 1 to a sink, rows of the two nodes (−1: bundled)."""
    return [
        [*map(_rounded, (*start, *end, tuples)), kind, row_of.get(int(a), -1), row_of.get(int(b), -1)]
        for start, end, tuples, a, b in zip(
            arrows.start, arrows.end, arrows.tuples, arrows.source, arrows.target, strict=True
        )
    ]


def _virtual(picture: Picture, problem: Problem, plan: Plan) -> list[list[Any]]:
    """Where sub-joins would sit, with their names."""
    if not len(picture.virtual):
        return []
    rows = thin(np.arange(len(picture.virtual), dtype=np.int32), plan.joins.demand, MOST_MARKS)
    left = problem.sources.ids.take(pa.array(plan.joins.left[rows])).to_pylist()
    right = problem.sources.ids.take(pa.array(plan.joins.right[rows])).to_pylist()
    return [
        [_rounded(x), _rounded(y), f"{a} ⋈ {b}"]
        for (x, y), a, b in zip(picture.virtual[rows], left, right, strict=True)
        if np.isfinite(x) and np.isfinite(y)
    ]


def _limit(value: float) -> float | None:
    """Tuples/s that a node can take; None: no limit."""
    return _rounded(value) if np.isfinite(value) else None


def _rounded(value: Any) -> float:
    """Six digits are more than a screen shows."""
    return float(f"{float(value):.6g}") if np.isfinite(value) else 0.0
