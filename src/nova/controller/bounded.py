"""Bounded: steps of plans where more than distances and room counts: what queries require, budgets of links, metrics,
and joins that read each other's results.

What an event left without a host, and what no longer stays within bounds, is placed again by the optimizer's own rules
beside all that runs (`nova.placement.within`), so that plans and steps hold the same bounds. Sub-joins whose costs
changed are placed again together with it where that is worth their moves. Only where something does not fit, everything
is placed anew. A step thus takes as long as reading the whole state: its time grows with the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nova.controller.impact import Impact
from nova.controller.ledger import RESERVE, drop_all, put, show_room
from nova.controller.materialize import Materialized, problem_with, replicas_of
from nova.controller.schema import COUPLED, HYSTERESIS, RUNNING, WAITING, WORTH
from nova.controller.state import State, cut_freely
from nova.evaluation.metrics import Distances, Measured, evaluate
from nova.model.chain import linked, readers
from nova.model.load import node_loads
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.replicas import SHARES, Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.check import broken_joins
from nova.placement.stages import assign_stages
from nova.placement.within import breaks_bounds

SILENT = 1e-9
"""Tuples/s that a stream counts for at least: one that is silent now still has to be put somewhere."""
NEAR = 32
"""Sub-joins that an event may move although they could stay."""
Rows = npt.NDArray[np.intp]


def place_bounded(state: State, impact: Impact) -> None:
    """Find hosts, within all bounds, for what a batch of events left without; and better ones where that is cheap."""
    state.replan_gain_ms = None
    written = problem_with(state, waiting=True)
    joins = written.joins
    if not len(joins):
        return
    joins = replace(
        joins, left_rate=np.maximum(joins.left_rate, SILENT), right_rate=np.maximum(joins.right_rate, SILENT)
    )
    running = replicas_of(state, written)
    before = linked(written.problem, joins, running)
    lost = _to_place(state, written, before, running)
    found = _beside(state, written, joins, running, lost)
    if len(found.unplaced):
        whole = _beside(state, written, joins, running, np.arange(len(joins)))
        if whole.missing < found.missing * (1 - 1e-9):
            found = whole
    elif state.stability.effort and len(near := _near(state, impact, written, before, found)):
        other = _beside(state, written, joins, running, np.union1d(lost, near))
        if not len(other.unplaced) and _pays(state, written, found, other):
            found = other
    _take_over(state, impact, written, running, found)


@dataclass(frozen=True)
class _Found:
    """Hosts for some sub-joins beside all others that run."""

    rows: Rows
    """Which sub-joins were placed."""
    replicas: Replicas
    """Theirs."""
    kept: Replicas
    """Those of all others."""
    joins: SubJoins
    """All sub-joins, with ends as they are then."""
    unplaced: frozenset[int]
    """Those that do not fit, and those that would read from them."""
    missing: float
    """Tuples/s for which there is no room."""

    @property
    def every(self) -> Replicas:
        """What runs then."""
        return Replicas.concat([self.kept, self.replicas])


def _to_place(state: State, written: Materialized, joins: SubJoins, running: Replicas) -> Rows:
    """Sub-joins that do not run, not wholly, over the load of their hosts, or beyond bounds."""
    waits = [row for row, join in enumerate(written.join_rows.tolist()) if join in state.backlog]
    lost = np.union1d(broken_joins(running, len(joins)), np.array(waits, np.intp))
    left = running.take(np.flatnonzero(~np.isin(running.join, lost)))
    return np.union1d(lost, breaks_bounds(written.problem, joins, left)).astype(np.intp)


def _near(state: State, impact: Impact, written: Materialized, before: SubJoins, found: _Found) -> Rows:
    """Sub-joins whose costs an event changed, that wait longer than before, or whose input or results are elsewhere now
    because the joins they read from, or those that read them, have moved; not too many."""
    joins = [*impact.repriced]
    for node in impact.crowded:
        joins += state.joins_on(node)
    number = {int(join): row for row, join in enumerate(written.join_rows.tolist())}
    rows = [number[join] for join in dict.fromkeys(joins) if join in number]
    ends = ("left_node", "right_node", "sink")
    moved = np.logical_or.reduce([getattr(before, end) != getattr(found.joins, end) for end in ends])
    rows = list(dict.fromkeys((*rows, *np.flatnonzero(moved).tolist())))
    return np.setdiff1d(np.array(rows[:NEAR], np.intp), found.rows)


def _beside(state: State, written: Materialized, joins: SubJoins, running: Replicas, rows: Rows) -> _Found:
    """Hosts for some sub-joins beside all others that run, those first that others read from."""
    problem, kept = written.problem, running.take(np.flatnonzero(~np.isin(running.join, rows)))
    if not len(rows):
        return _Found(rows, running.take(np.empty(0, np.intp)), kept, linked(problem, joins, kept), frozenset(), 0.0)
    ends, placed = assign_stages(problem, joins, _space(written), state.options, rows=rows, kept=kept)
    replicas, missing = placed.replicas, float(placed.missing.sum())
    unplaced = placed.unplaced.astype(np.intp)
    if len(unplaced) and not state.options.allow_overload:  # a part may have found room, but all of it has to
        starved = np.setdiff1d(readers(problem, joins, unplaced), unplaced)
        unplaced, missing = np.union1d(unplaced, starved), missing + float(joins.demand[starved].sum())
        replicas = replicas.take(np.flatnonzero(~np.isin(replicas.join, unplaced)))
        kept = kept.take(np.flatnonzero(~np.isin(kept.join, starved)))
        rows = np.union1d(rows, starved)
    return _Found(rows, replicas, kept, ends, frozenset(unplaced.tolist()), missing)


def _space(written: Materialized) -> CostSpace:
    nodes = written.problem.nodes
    assert nodes.coordinates is not None
    assert nodes.heights is not None
    return CostSpace(nodes.coordinates, nodes.heights)


def _pays(state: State, written: Materialized, now: _Found, other: _Found) -> bool:
    """Whether other hosts cost so much less that the moves are worth it."""
    joins = now.joins
    before, after = (
        cost_of(written.problem, Plan(one.joins, one.every, _space(written), state.options)) for one in (now, other)
    )
    same = set(map(tuple, _rows(now.every).tolist())) & set(map(tuple, _rows(other.every).tolist()))
    stays = sum(float(np.prod(np.diff(np.array(row[2:]).reshape(-1, 2)))) for row in same)
    price = (len(joins) - stays) * (state.limits[WORTH] + state.limits[HYSTERESIS] * before / len(joins))
    return bool(before - after > price)


def cost_of(problem: Problem, plan: Plan) -> float:
    """What a plan costs by all that it is judged by, in ms; by measured latencies where there are any."""
    distances: Distances = plan.space
    if problem.latency is not None:
        distances = Measured(problem.latency, len(problem.nodes), plan.space)
    return evaluate(problem, plan, distances).cost_ms


def _rows(replicas: Replicas) -> npt.NDArray[np.float64]:
    """Sub-join, host and box of each replica."""
    return np.column_stack([replicas.join, replicas.node, *(getattr(replicas, name) for name in SHARES)])


def _take_over(state: State, impact: Impact, written: Materialized, running: Replicas, found: _Found) -> None:
    """Run sub-joins as they were placed; what found no host waits."""
    cause = impact.cause
    before, after = _by_join(running), _by_join(found.replicas)
    none = np.empty((0, 2 + len(SHARES)))
    moved = []
    for row in found.rows.tolist():
        join = int(written.join_rows[row])
        old, new = before.get(row, none), after.get(row, none)
        demand = float(state.demand(np.array([join]))[0])
        why = impact.unplaced.get(join) or impact.reasons.get(join) or impact.repriced.get(join) or cause
        state.backlog.remove(join)
        if {*map(tuple, old.tolist())} != {*map(tuple, new.tolist())}:
            drop_all(state.handle, join)
            moved.append((row, join, new))
            impact.reasons[join] = why
        if row in found.unplaced:
            impact.reasons[join] = f"does not fit: {why}"
            state.backlog.add(join, demand)
        state.joins["state"][join] = RUNNING if len(new) else WAITING
    for row, join, new in moved:  # after all have left their hosts, so that none is full meanwhile
        state.have_spare(len(new), RESERVE)
        made = [
            int(put(state.handle, join, int(written.node_rows[int(part[1])]), np.ascontiguousarray(part[2:])))
            for part in new
        ]
        _share_input(state, written, found.joins, row, join, new, made)
        if len(new):
            impact.placed.append(join)


def _by_join(replicas: Replicas) -> dict[int, npt.NDArray[np.float64]]:
    """Rows of each sub-join."""
    table = _rows(replicas)
    table = table[np.argsort(table[:, 0], kind="stable")]
    cuts = np.flatnonzero(np.diff(table[:, 0])) + 1
    return {int(part[0, 0]): part for part in np.split(table, cuts) if len(part)}


def _share_input(
    state: State,
    written: Materialized,
    joins: SubJoins,
    row: int,
    join: int,
    parts: npt.NDArray[np.float64],
    made: list[int],
) -> None:
    """Boxes of a grid that share a host are charged equal parts of what they take in together."""
    host = parts[:, 1].astype(np.int32)
    if len(np.unique(host)) == len(host) or cut_freely(parts[:, 2:]).all():
        return
    state.joins["state"][join] = COUPLED
    boxes = Replicas(np.zeros(len(parts), np.int32), host, *parts[:, 2:].T.copy())
    loads = node_loads(joins.take(np.array([row])), boxes, len(written.problem.nodes))
    for node in np.unique(host).tolist():
        here = [replica for replica, at in zip(made, host.tolist(), strict=True) if at == node]
        there = int(written.node_rows[node])
        charged = state.replicas["charge"][here]
        state.replicas["charge"][here] = loads[node] / len(here)
        state.nodes["used"][there] += loads[node] - charged.sum()
        show_room(state.handle, there)
