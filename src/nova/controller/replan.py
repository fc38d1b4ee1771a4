"""Replan: where a whole plan is cheap, a step is compared with one, and follows it where that is worth its moves.

The sub-joins that a fresh plan places otherwise fall into groups that share no hosts. Each group near the step's events
is taken over as a whole if it gains more than its moves cost (`Stability`), or if it lets something run that waits.
What a re-plan would gain beyond that is kept in `State.replan_gain_ms`, for the step's answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nova.controller.impact import Impact
from nova.controller.ledger import OVER, RESERVE, drop_all, own_costs, put, times_at, total_cost
from nova.controller.materialize import Materialized, problem_with, replicas_of
from nova.controller.schema import HYSTERESIS, RUNNING, STAY, WAITING, WORTH, Values
from nova.controller.state import WHOLE, State, cut_freely
from nova.model.errors import Infeasible
from nova.model.plan import Plan
from nova.model.problem import Floats
from nova.model.replicas import SHARES
from nova.optimizer import optimize
from nova.placement.assign import Start

NODES = 256
"""Nodes up to which a whole plan is cheap: a few ms, since it starts from what runs."""
TRIALS = 1000
"""Cuts tried in exchanges of a few sub-joins: about ten ms."""
PAIRS = 20_000
"""Sub-joins × nodes up to which it is."""
CLOSE = 1.05
"""Standing up to which what runs is as good as a fresh plan, and none is made."""
AS_GOOD, TIGHT, STIRRED, FEW = 1.01, 1.25, 1.02, 64
"""A plan that starts from what runs will do where the standing grows by no more than the first factor. Networks above
the second are tight: they hide gains that only a long search finds. It is made where the cost changes by the third, and
always up to so many nodes, where it takes less than 0.1 s."""


@dataclass(frozen=True)
class _Placement:
    """The parts of one sub-join: hosts (rows of the state), boxes, their tuples/s, and what they cost together in ms,
    but for the time at hosts."""

    hosts: tuple[int, ...]
    boxes: Floats
    amounts: Floats
    cost: float

    @property
    def shares(self) -> Floats:
        """Part of the results that each computes."""
        shares: Floats = np.prod(self.boxes[:, 1::2] - self.boxes[:, ::2], axis=1)
        return shares

    @property
    def parts(self) -> set[tuple[int, bytes]]:
        return {(host, box.tobytes()) for host, box in zip(self.hosts, self.boxes, strict=True)}


def standing(state: State) -> float:
    """What runs, as a multiple of what it would cost if every sub-join had all hosts to itself; ∞ where the problem is
    too large for that to be of use."""
    if not _is_small(state):
        return np.inf
    joins = np.flatnonzero(state.joins["first"][: state.joins.end] >= 0)
    hosts = np.flatnonzero(state.nodes["room"][: state.nodes.end] > 0)
    if not len(joins) or not len(hosts):
        return 1.0
    boxes = np.tile(WHOLE, (len(joins) * len(hosts), 1))
    costs = own_costs(state.handle, np.repeat(joins, len(hosts)), np.tile(hosts, len(joins)), boxes)
    service = state.limits[STAY] * 1000.0 / state.nodes["limit"][hosts]
    least = (costs.reshape(len(joins), len(hosts)) + service).min(axis=1).sum()
    return float(total_cost(state.handle, state.joins.end, state.nodes.end) / max(least, 1e-300))


def replan(state: State, impact: Impact) -> None:
    """Compare what runs with a whole plan, and take over what is worth it. The plan starts from what runs, which takes
    milliseconds; where that ends worse off than before the step, or room is scarce, one is made afresh."""
    state.replan_gain_ms = None
    if not _worth_a_look(state, impact):
        return
    cost = total_cost(state.handle, state.joins.end, state.nodes.end)
    stirred = not 1 / STIRRED <= cost / max(state.settled_cost, 1e-300) <= STIRRED
    _follow(state, impact, TRIALS, stirred)
    now = standing(state)
    few = state.nodes.end - len(state.nodes.free) <= FEW
    if now > AS_GOOD * state.standing or (now > TIGHT and (stirred or few)):
        _follow(state, impact, None, stirred)
        now = state.standing = standing(state)
    state.standing = min(now, state.standing)
    while state.fullest() > state.kept.utilisation * (1 + OVER) and state.widen():
        pass  # a whole plan may need more of the hosts than steps kept to
    state.settled_cost = float(total_cost(state.handle, state.joins.end, state.nodes.end))


def _is_small(state: State) -> bool:
    nodes = state.nodes.end - len(state.nodes.free)
    joins = state.joins.end - len(state.joins.free)
    return nodes <= NODES and joins * nodes <= PAIRS


def _worth_a_look(state: State, impact: Impact) -> bool:
    """Whether the problem is small, all streams flow, and the step changed anything."""
    if not _is_small(state) or not state.stability.effort:
        return False
    sources = state.sources["rate"][: state.sources.end][state.sources["alive"][: state.sources.end]]
    # a stream that is silent has no fresh plan: there is nothing to cut it by
    if not sources.all() or not (impact.reasons or impact.opened or impact.repriced or impact.crowded or impact.retry):
        return False
    return bool(state.backlog.queue) or standing(state) > CLOSE


def _follow(state: State, impact: Impact, trials: int | None, stirred: bool) -> None:
    """Take over what is worth it of a whole plan, made afresh (no `trials`) or from what runs: near the step's events
    or, where these `stirred` the cost of all, anywhere."""
    found = _whole_plan(state, trials)
    if found is None:
        return
    running, fresh = found
    moved = [row for row in fresh if running[row].parts != fresh[row].parts]
    kept = 0.0
    near, changed = {*impact.reasons, *impact.placed}, {*impact.opened, *impact.crowded}
    for group in _groups(moved, running, fresh):
        hosts = {host for row in group for host in (*running[row].hosts, *fresh[row].hosts)}
        touched = stirred or not (near.isdisjoint(group) and hosts.isdisjoint(changed)) or _runs_more(group, running)
        gain = _gain(state, group, running, fresh)
        if touched and _pays(state, group, running, fresh, gain) and _separate(group, fresh):
            _take_over(state, impact, group, fresh)
        elif not _runs_more(group, running):
            kept += gain
    state.replan_gain_ms = max(kept, 0.0)


def _whole_plan(state: State, trials: int | None) -> tuple[dict[int, _Placement], dict[int, _Placement]] | None:
    """What runs, and a whole plan beside it, by sub-join: for all that has a sink or, where that does not fit, for what
    runs; None where neither fits without overload."""
    for waiting in (True, False):
        written = problem_with(state, waiting=waiting)
        if not len(written.join_rows):
            return None
        start = None if trials is None else Start(replicas_of(state, written), trials)
        try:
            plan = optimize(written.problem, state.options, start=start)
        except Infeasible:
            continue
        if not len(plan.overloaded):
            return _running(state, written), _placements(state, written, plan)
        if not len(state.backlog):
            return None
    return None


def _placements(state: State, written: Materialized, plan: Plan) -> dict[int, _Placement]:
    """What a fresh plan says, by sub-join of the state."""
    order = np.argsort(plan.replicas.join, kind="stable")
    replicas = plan.replicas.take(order)
    join = written.join_rows[replicas.join]
    host = written.node_rows[replicas.node]
    boxes = np.column_stack([getattr(replicas, name) for name in SHARES])
    return _by_join(state, join, host, boxes)


def _running(state: State, written: Materialized) -> dict[int, _Placement]:
    """What runs, by sub-join; nothing for one that waits."""
    table = state.replicas
    found = []
    for row in written.join_rows.tolist():
        r = int(state.joins["first"][row])
        while r >= 0:
            found.append(r)
            r = int(table["next"][r])
    rows = np.array(found, np.int64)
    none = _Placement((), np.empty((0, len(SHARES))), np.empty(0), 0.0)
    running = _by_join(state, table["join"][rows], table["node"][rows], table["box"][rows])
    return {row: running.get(row, none) for row in written.join_rows.tolist()}


def _by_join(state: State, join: Values, host: Values, boxes: Floats) -> dict[int, _Placement]:
    rate, size = state.sources["rate"], boxes[:, 1::2] - boxes[:, ::2]
    left, right = (rate[state.joins[side][join]] * size[:, k] for k, side in enumerate(("left", "right")))
    amount = (left + right) * size[:, 2] * size[:, 3]
    cost = own_costs(state.handle, join.astype(np.int64), host.astype(np.int64), np.ascontiguousarray(boxes))
    found = {}
    ends = [*np.flatnonzero(np.diff(join)).tolist(), len(join) - 1] if len(join) else []
    begin = 0
    for end in ends:
        part = slice(begin, end + 1)
        found[int(join[begin])] = _Placement(
            tuple(host[part].tolist()), boxes[part], amount[part], float(cost[part].sum())
        )
        begin = end + 1
    return found


def _groups(moved: list[int], running: dict[int, _Placement], fresh: dict[int, _Placement]) -> Iterator[list[int]]:
    """The sub-joins that move, in groups that share no host, before or after."""
    group_of: dict[int, int] = {}  # by host
    groups: dict[int, list[int]] = {}
    for row in moved:
        hosts = {*running[row].hosts, *fresh[row].hosts}
        joined = sorted({group_of[host] for host in hosts if host in group_of})
        number = joined[0] if joined else row
        groups.setdefault(number, []).append(row)
        for other in joined[1:]:
            groups[number] += groups.pop(other)
            group_of |= {host: number for host, group in group_of.items() if group == other}
        group_of |= dict.fromkeys(hosts, number)
    yield from groups.values()


def _gain(state: State, group: list[int], running: dict[int, _Placement], fresh: dict[int, _Placement]) -> float:
    """What a group costs less in the fresh plan, in ms: its own cost, and the time at all its hosts."""
    more: dict[int, list[float]] = {}
    own = 0.0
    for row in group:
        own += running[row].cost - fresh[row].cost
        for sign, placement in ((-1.0, running[row]), (1.0, fresh[row])):
            for host, share, amount in zip(placement.hosts, placement.shares, placement.amounts, strict=True):
                change = more.setdefault(host, [0.0, 0.0])
                change[0] += sign * share
                change[1] += sign * amount
    hosts, changes = np.array(list(more), np.int64), np.array(list(more.values())).reshape(-1, 2).T
    nothing = np.zeros(len(hosts))
    before = times_at(state.handle, hosts, nothing, nothing)
    after = times_at(state.handle, hosts, changes[0].copy(), changes[1].copy())
    return own + float((before - after).sum())


def _pays(
    state: State, group: list[int], running: dict[int, _Placement], fresh: dict[int, _Placement], gain: float
) -> bool:
    """Whether a group gains more than its moves cost, or runs what waits."""
    if _runs_more(group, running):
        return True
    price = 0.0
    for row in group:
        stays = running[row].parts & fresh[row].parts
        share = 1.0 - sum(float(np.prod(np.diff(np.frombuffer(box).reshape(-1, 2)))) for _, box in stays)
        price += share * (state.limits[WORTH] + state.limits[HYSTERESIS] * running[row].cost)
    return gain > price


def _runs_more(group: list[int], running: dict[int, _Placement]) -> bool:
    """Whether one of a group waits now."""
    return any(not running[row].hosts for row in group)


def _separate(group: list[int], fresh: dict[int, _Placement]) -> bool:
    """Whether no two boxes of a grid share a host, so that each can be charged by itself."""
    return all(
        len(set(fresh[row].hosts)) == len(fresh[row].hosts) or cut_freely(fresh[row].boxes).all() for row in group
    )


def _take_over(state: State, impact: Impact, group: list[int], fresh: dict[int, _Placement]) -> None:
    """Run a group as the fresh plan has it."""
    cause = impact.cause
    for row in group:
        drop_all(state.handle, row)
        state.backlog.remove(row)
    for row in group:
        state.have_spare(len(fresh[row].hosts), RESERVE)
        for host, box in zip(fresh[row].hosts, fresh[row].boxes, strict=True):
            put(state.handle, row, host, box)
        if state.joins["state"][row] == WAITING:
            impact.reasons[row] = f"there is room again: {cause}"
        else:
            impact.reasons.setdefault(
                row, f"room on {state.names.nodes[fresh[row].hosts[0]]} after re-planning: {cause}"
            )
        state.joins["state"][row] = RUNNING
