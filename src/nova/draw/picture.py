"""What a picture of a plan shows, worked out once for every way of drawing it: places, roles, flows, figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.evaluation.metrics import Flows, Measured, evaluate, flows, node_limit, overloaded, plan_load, utilisation
from nova.evaluation.prediction import predict
from nova.evaluation.results import Results, traffic
from nova.model.plan import Plan
from nova.model.problem import Bools, Floats, Ints, Problem
from nova.placement.median import virtual_positions

FEW = 60
"""Up to this many nodes, names and single flows are shown; above, crowds are thinned and flows bundled."""
CELLS = (32, 24, 18, 13, 9)
"""Cells along each axis for bundling flows: the finest grid is taken whose strongest bundles carry `ENOUGH`."""
ENOUGH = 0.7


@dataclass(frozen=True)
class Arrows:
    """Flows to draw, the weakest first so that the strongest lie on top."""

    start: Floats
    end: Floats
    tuples: Floats
    """Tuples/s along each."""
    source: Ints
    """Row of the node a flow leaves; −1 where several flows were bundled."""
    target: Ints

    def __len__(self) -> int:
        return len(self.tuples)


@dataclass(frozen=True)
class Picture:
    """A plan, ready to draw. Positions are in ms on both axes."""

    title: str
    note: str
    """How the plane came about, and what is not shown."""
    points: Floats
    frame: tuple[float, float, float, float]
    """x from, x to, y from, y to: all nodes, or all but the few that would squeeze the rest into a corner."""
    sources: Ints
    hosts: Ints
    sinks: Ints
    idle: Ints
    load: Floats
    limit: Floats
    used: Floats
    """Utilisation of every node."""
    overloaded: Bools
    virtual: Floats
    """Virtual positions, one per sub-join; empty for baselines, which have none."""
    inward: Arrows
    outward: Arrows
    """To the sinks, in input tuples/s of the joins the results come from (result rates are often unknown)."""
    figures: tuple[tuple[str, str, bool], ...]
    """Name, value, and whether it tells of an overload."""
    results: Results
    """What the sinks get."""
    few: bool
    flow: Flows

    def strokes(self, dots: int = 40) -> Floats:
        """Points along the drawn flows, for names to keep clear of."""
        along = np.linspace(0, 1, dots)[None, :, None]
        arrows = (self.inward, self.outward)
        lines = [a.start[:, None] * (1 - along) + a.end[:, None] * along for a in arrows]
        return np.concatenate([line.reshape(-1, 2) for line in lines])


def compose(problem: Problem, plan: Plan, most_arrows: int = 600, most_marks: int = 20_000) -> Picture:
    """Work out a picture that shows at most `most_arrows` flows each way, and says where more than `most_marks` nodes
    of a kind are there to be thinned."""
    space, joins = plan.space, plan.joins
    plane, project, note = _plane(space.coordinates)
    flow, results = flows(problem, plan), traffic(problem, plan)
    load, limit = plan_load(problem, plan, flow), node_limit(problem)
    hosts = np.union1d(flow.node, plan.merges.to).astype(np.int32)
    sources = np.unique(np.concatenate([joins.left_node, joins.right_node])).astype(np.int32)
    sinks = np.unique(joins.sink).astype(np.int32)
    idle = np.setdiff1d(np.arange(len(problem.nodes)), np.concatenate([hosts, sources, sinks])).astype(np.int32)
    virtual = np.empty((0, 2))
    if plan.approach == "nova" and len(joins):
        virtual = project(virtual_positions(joins, space, plan.options.objective))
    frame, outside = _frame(plane, np.concatenate([hosts, sources, sinks]))
    notes = [note]
    if outside:
        notes.append(f"{outside:,} far nodes lie outside the frame")

    for name, rows in {"hosts": hosts, "sources": sources, "idle nodes": idle}.items():
        if len(rows) > most_marks:
            notes.append(f"{most_marks:,} of {len(rows):,} {name} drawn")

    inward = _merge(
        np.concatenate([joins.left_node[flow.join], joins.right_node[flow.join]]),
        np.concatenate([flow.node, flow.node]),
        np.concatenate([flow.left, flow.right]),
    )
    ways = plan.merges.hops(joins.query[flow.join], flow.node, joins.sink[flow.join])
    outward = _merge(
        np.concatenate([start for _, start, _ in ways]),
        np.concatenate([end for _, _, end in ways]),
        np.concatenate([flow.load[some] for some, _, _ in ways]),
    )
    bundled = []
    arrows = []
    for name, (start, end, tuples) in {"into hosts": inward, "to sinks": outward}.items():
        drawn = _arrows(plane, start, end, tuples, most_arrows)
        arrows.append(drawn)
        if len(drawn) and drawn.source[0] < 0:
            bundled.append(f"{drawn.tuples.sum() / max(tuples.sum(), 1e-300):.0%} of the tuples {name}")
    if bundled:
        notes.append("flows between regions, bundled: " + ", ".join(bundled))
    return Picture(
        title=_title(problem, plan, len(hosts)),
        note=" · ".join(notes),
        points=plane,
        frame=frame,
        sources=sources,
        hosts=hosts,
        sinks=sinks,
        idle=idle,
        load=load,
        limit=limit,
        used=utilisation(load, limit),
        overloaded=overloaded(load, limit),
        virtual=virtual,
        inward=arrows[0],
        outward=arrows[1],
        figures=_figures(problem, plan, results),
        results=results,
        few=len(problem.nodes) <= FEW,
        flow=flow,
    )


def thin(rows: Ints, weight: Floats, most: int) -> Ints:
    """At most `most` of the rows: the heaviest half, and an even sample of the rest, the heaviest last."""
    order = rows[np.argsort(weight[rows], kind="stable")]
    if len(order) <= most:
        return order
    top = order[-(most // 2) :]
    rest = order[: -(most // 2)]
    sample = np.sort(np.random.default_rng(0).choice(len(rest), most - len(top), replace=False))
    return np.concatenate([rest[sample], top])


def _plane(coordinates: Floats) -> tuple[Floats, _Projection, str]:
    """Two dimensions of the cost space: itself, a line, or its two principal axes."""
    d = coordinates.shape[1]
    if d <= 2:
        flat = _Projection(np.zeros(d), np.eye(d, 2))
        return flat(coordinates), flat, f"cost space in {d} dimension{'s' * (d != 1)}"
    centre = coordinates.mean(axis=0)
    spread, axes = np.linalg.eigh(np.cov((coordinates - centre).T, bias=True))
    main = axes[:, ::-1][:, :2]
    # an axis has no sign of its own: fix it, so that the same plan gives the same picture everywhere
    main = main * np.where(main[np.abs(main).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    kept = spread[-2:].sum() / max(spread.sum(), 1e-300)
    pca = _Projection(centre, main)
    return pca(coordinates), pca, f"cost space in {d} dimensions, projected by PCA ({kept:.0%} of the spread)"


@dataclass(frozen=True)
class _Projection:
    centre: Floats
    axes: Floats

    def __call__(self, coordinates: Floats) -> Floats:
        plane: Floats = (coordinates - self.centre) @ self.axes
        return plane


def _frame(points: Floats, needed: Ints) -> tuple[tuple[float, float, float, float], int]:
    """The part of the plane to show, and how many nodes lie outside: far nodes must not hide the structure."""
    low, high = points.min(axis=0), points.max(axis=0)
    near_low, near_high = np.percentile(points[needed] if len(needed) else points, [0.5, 99.5], axis=0)
    if len(points) > FEW and ((high - low) > 2.5 * (near_high - near_low)).any():
        low, high = near_low, near_high
    margin = 0.06 * max(float((high - low).max()), 1.0)
    low, high = low - margin, high + margin
    outside = int(((points < low) | (points > high)).any(axis=1).sum())
    return (float(low[0]), float(high[0]), float(low[1]), float(high[1])), outside


def widen(frame: tuple[float, float, float, float], aspect: float) -> tuple[float, float, float, float]:
    """A frame of the given width over height around the same middle, so that a ms is as long both ways."""
    x0, x1, y0, y1 = frame
    height = max(y1 - y0, (x1 - x0) / aspect)
    width = height * aspect
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    return x - width / 2, x + width / 2, y - height / 2, y + height / 2


def _merge(start: Ints, end: Ints, tuples: Floats) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer], Floats]:
    """Flows between the same two nodes are one flow; what stays on its node is none."""
    moves = start != end
    start, end, tuples = start[moves].astype(np.int64), end[moves].astype(np.int64), tuples[moves]
    if not len(start):
        return start, end, tuples
    n = int(max(start.max(), end.max())) + 1
    key, group = np.unique(start * n + end, return_inverse=True)
    return key // n, key % n, np.bincount(group, weights=tuples).astype(np.float64)


def _arrows(
    points: Floats,
    start: npt.NDArray[np.integer],
    end: npt.NDArray[np.integer],
    tuples: Floats,
    most: int,
) -> Arrows:
    """Flows to draw. Too many are bundled by cells of the plane, and the strongest bundles kept."""
    if len(start) <= most:
        order = np.argsort(tuples, kind="stable")
        first, second = start[order].astype(np.int32), end[order].astype(np.int32)
        return Arrows(points[first], points[second], tuples[order], first, second)
    for side in CELLS:
        cell, middle = _cells(points, side)
        from_cell, to_cell, weight = _merge(cell[start], cell[end], tuples)
        order = np.argsort(weight, kind="stable")[-most:]
        if weight[order].sum() >= ENOUGH * tuples.sum():
            break
    nobody = np.full(len(order), -1, np.int32)
    return Arrows(middle[from_cell[order]], middle[to_cell[order]], weight[order], nobody, nobody)


def _cells(points: Floats, side: int) -> tuple[Ints, Floats]:
    """A grid of cells over the plane: the cell of each point, and the mean of the points in each cell.

    Cell borders follow the quantiles of each axis, so that dense parts are told apart as well as sparse ones.
    """
    borders = [np.quantile(points[:, axis], np.linspace(0, 1, side + 1)[1:-1]) for axis in (0, 1)]
    column, row = (np.searchsorted(border, points[:, axis]) for axis, border in enumerate(borders))
    cell = (column * side + row).astype(np.int32)
    count = np.maximum(np.bincount(cell, minlength=side * side), 1)
    middle = np.column_stack(
        [np.bincount(cell, weights=points[:, axis], minlength=side * side) / count for axis in (0, 1)]
    )
    return cell, middle


def _title(problem: Problem, plan: Plan, hosts: int) -> str:
    def count(number: int, noun: str) -> str:
        return f"{number:,} {noun}{'s' * (number != 1)}"

    return " · ".join(
        [
            f"{plan.approach} plan",
            count(len(problem.nodes), "node"),
            count(len(plan.joins), "sub-join"),
            f"{count(len(plan.replicas), 'replica')} on {count(hosts, 'host')}",
        ]
    )


def _figures(problem: Problem, plan: Plan, results: Results) -> tuple[tuple[str, str, bool], ...]:
    metrics = evaluate(problem, plan)
    known = None if problem.latency is None else Measured(problem.latency, len(problem.nodes), plan.space)
    felt = predict(problem, plan, known).felt
    rows = [
        ("event to sink, mean", _felt(felt.mean_ms)),
        ("… 90 % / 99 % within", f"{_felt(felt.p90_ms)} / {_felt(felt.p99_ms)}"),
        ("of the mean: network", _felt(felt.network_ms)),
        ("of the mean: service / waiting", f"{_felt(felt.service_ms)} / {_felt(felt.waiting_ms)}"),
        ("network of sources, mean", f"{metrics.latency_mean_ms:,.1f} ms"),
        ("network of sources, 90th percentile", f"{metrics.latency_p90_ms:,.1f} ms"),
        ("over sink-based, mean", f"{metrics.delta_mean_ms:+,.1f} ms"),
        ("over sink-based, 90th percentile", f"{metrics.delta_p90_ms:+,.1f} ms"),
        ("slowest replica, mean over sources", f"{metrics.slowest_mean_ms:,.1f} ms"),
    ]
    if known is not None:
        measured = evaluate(problem, plan, known)
        rows.append(
            (
                "the same measured, mean / 90th",
                f"{measured.latency_mean_ms:,.1f} / {measured.latency_p90_ms:,.1f} ms",
            )
        )
    flooded = sum(sink.overloaded for sink in results.sinks)
    over = f"{metrics.overloaded:,} ({metrics.overloaded_percent:.0f} % of hosts)"
    return (
        *((name, value, False) for name, value in rows),
        ("overloaded nodes", over, metrics.overloaded > 0),
        (
            "utilisation of hosts, mean / most",
            f"{_full(metrics.utilisation_mean)} / {_full(metrics.utilisation_max)}",
            False,
        ),
        ("tuples moved into hosts", f"{metrics.tuples_in:,.0f} /s", False),
        ("of these over the network", f"{metrics.tuples_network:,.0f} /s", False),
        ("results to the sinks", f"{results.total:,.0f} /s", False),
        ("sinks that cannot take them", f"{flooded:,} of {len(results.sinks):,}", flooded > 0),
    )


def _felt(ms: float) -> str:
    """A predicted latency; a queue that never settles has none."""
    return "never settles" if math.isinf(ms) else f"{ms:,.1f} ms"


def _full(used: float) -> str:
    """Utilisation in words that stay short however absurd the plan."""
    return f"{used:.0%}" if used < 10 else f"{used:,.0f}×"
