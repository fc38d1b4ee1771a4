"""Waiting where window slices burst: the backlog of a host, followed from window to window.

In a window that falls to a slice, the host gets its sub-join at full rate; in the others nothing of it. The backlog
grows or shrinks by what comes less what is served, with the spread of random arrivals. The windows are those of a run,
numbered from 0, and the dice are the same every time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.evaluation.metrics import Flows
from nova.jit import kernel
from nova.model.plan import Plan
from nova.model.problem import Floats
from nova.model.queue import LEVELS
from nova.routing.position import GOLDEN

STEPS = 240
"""Windows followed: slices are spread evenly over them."""
FOLLOWED = 4000
"""Sub-joins on hosts whose backlog is followed, at most; where there are more, these stand for all."""
INSIDE = 16
"""Moments looked at within a window."""


def waits(plan: Plan, flow: Flows, load: Floats, limit: Floats, window: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """(rows of `flow` on hosts that run slices, their waits in ms at `LEVELS`)."""
    boxes = plan.replicas
    narrow = boxes.slice_to - boxes.slice_from < 1.0
    bursting = np.zeros(len(limit), bool)
    bursting[boxes.node[narrow]] = True
    rows = np.flatnonzero(bursting[flow.node])
    rows = rows[np.argsort(flow.node[rows], kind="stable")]
    every = max(1, -(-len(rows) // FOLLOWED))
    if every > 1:
        return rows, _from_some(plan, flow, load, limit, window, rows, every)
    return rows, _waits(plan, flow, load, limit, window, rows)


def _from_some(
    plan: Plan, flow: Flows, load: Floats, limit: Floats, window: Floats, rows: npt.NDArray[np.intp], every: int
) -> Floats:
    """Every so-many-th host is followed; rows on the others take the waits of the followed row whose burst is nearest
    to theirs, in loads of its host."""
    hosts = np.unique(flow.node[rows])
    followed = np.isin(flow.node[rows], hosts[::every])
    peak = load[flow.node[rows]] / limit[flow.node[rows]] / np.maximum(flow.share[rows], 1e-9)
    found = np.empty((len(rows), len(LEVELS)))
    found[followed] = _waits(plan, flow, load, limit, window, rows[followed])
    order = np.argsort(peak[followed], kind="stable")
    at = np.searchsorted(peak[followed][order], peak[~followed])
    found[~followed] = found[followed][order[np.minimum(at, len(order) - 1)]]
    return found


def _waits(plan: Plan, flow: Flows, load: Floats, limit: Floats, window: Floats, rows: npt.NDArray[np.intp]) -> Floats:
    """Waits of `rows`, which are all rows of some hosts, host by host."""
    boxes, joins = plan.replicas, plan.joins
    chosen = np.zeros(len(limit), bool)
    chosen[flow.node[rows]] = True
    # each row's slices: the boxes of its sub-join on its host
    key = flow.join[rows].astype(np.int64) * len(limit) + flow.node[rows]
    by_key = np.argsort(key, kind="stable")
    mine = np.flatnonzero((boxes.slice_to - boxes.slice_from < 1.0) & chosen[boxes.node])
    of_box = by_key[np.searchsorted(key[by_key], boxes.join[mine].astype(np.int64) * len(limit) + boxes.node[mine])]
    order = np.argsort(of_box, kind="stable")
    mine, of_box = mine[order], of_box[order]
    left, right = boxes.rates(joins)
    part = boxes.slice_to - boxes.slice_from
    rate = np.divide(left + right, part, out=np.zeros(len(part)), where=part > 0)[mine]
    host = flow.node[rows]
    first_row = np.flatnonzero(np.r_[True, host[1:] != host[:-1]])
    nodes = host[first_row]
    sliced_load = np.bincount(boxes.node[mine], (left + right)[mine], len(limit))
    steady = np.maximum(load - sliced_load, 0.0)[nodes]
    found: Floats = _follow(
        np.append(first_row, len(rows)),
        np.searchsorted(of_box, np.arange(len(rows) + 1)),
        rate,
        boxes.slice_from[mine],
        boxes.slice_to[mine],
        window[rows],
        steady,
        limit[nodes],
        LEVELS,
    )
    return found


@kernel
def _follow(first_row, first_box, rate, start, end, window_ms, steady, limit, levels):  # type: ignore[no-untyped-def]
    """Waits of each row. Row r has boxes first_box[r] … first_box[r + 1] − 1, host h rows first_row[h] … ."""
    found = np.empty((len(first_box) - 1, len(levels)))
    for h in range(len(first_row) - 1):
        rows = range(first_row[h], first_row[h + 1])
        step = np.inf
        for r in rows:
            if first_box[r + 1] > first_box[r]:
                step = min(step, window_ms[r])
        backlog = np.empty((STEPS, INSIDE))
        left = 0.0  # ms of work
        np.random.seed(h)  # noqa: NPY002 - numba's own generator inside kernels
        for s in range(STEPS):
            coming = steady[h]
            for r in rows:
                position = (int((s + 0.5) * step / window_ms[r]) * GOLDEN) % 1.0
                for b in range(first_box[r], first_box[r + 1]):
                    if start[b] <= position < end[b]:
                        coming += rate[b]
            for i in range(INSIDE):
                # the later tuple of a pair comes late in its window, so each moment stands for as many results
                dt = step * (np.sqrt((i + 1.0) / INSIDE) - np.sqrt(i / INSIDE))
                spread = np.sqrt(coming * dt / 1000.0) * 1000.0 / limit[h]
                after = max(0.0, left + dt * (coming / limit[h] - 1.0) + spread * np.random.normal())  # noqa: NPY002
                settled = _settled(np.random.random(), coming, limit[h], step)  # noqa: NPY002
                partner = 1000.0 / limit[h] if coming >= limit[h] else 0.0  # the pair's other tuple, if still in line
                backlog[s, i] = max((left + after) / 2.0 + partner, settled)
                left = after
        samples = np.empty(STEPS * INSIDE)
        for r in rows:
            count = 0
            for s in range(STEPS):
                mine = first_box[r + 1] == first_box[r]
                position = (int((s + 0.5) * step / window_ms[r]) * GOLDEN) % 1.0
                for b in range(first_box[r], first_box[r + 1]):
                    mine = mine or start[b] <= position < end[b]
                if mine:
                    samples[count : count + INSIDE] = backlog[s]
                    count += INSIDE
            if count == 0:
                found[r] = 0.0
                continue
            ordered = np.sort(samples[:count])
            for k in range(len(levels)):
                found[r, k] = ordered[min(int(levels[k] * count), count - 1)]
    return found


@kernel
def _settled(chance: float, coming: float, limit: float, step: float) -> float:
    """The wait in ms of a queue that is level at this rate: no less is met at any moment of a window."""
    rho = coming / limit
    if rho <= 0.0 or rho >= 1.0 or chance <= 1.0 - rho:
        return 0.0
    mean = min(rho / (2.0 * (1.0 - rho)), 0.8 * np.sqrt(coming * step / 1000.0))
    return float(-mean / rho * np.log((1.0 - chance) / rho) * 1000.0 / limit)
