"""Controller: a plan that runs, and what becomes of it. Pure: events in, changes out, no clock, no files.

The life of an event is `Controller.handle`, call by call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.controller.bounded import cost_of, place_bounded
from nova.controller.chains import follow, note_yields, relink
from nova.controller.changes import Change, Deploy, Move, Part, Repartition, Shares, Undeploy
from nova.controller.events.event import Event
from nova.controller.events.sources import with_derived
from nova.controller.impact import Impact
from nova.controller.improve import improve
from nova.controller.ledger import total_cost
from nova.controller.materialize import plan_of, problem_of
from nova.controller.names import NamesAhead
from nova.controller.place import place
from nova.controller.replan import replan, standing
from nova.controller.schema import GONE, STEP
from nova.controller.state import State
from nova.model.errors import Fault, InvalidInput
from nova.model.options import Options, Stability
from nova.model.plan import Plan
from nova.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sub-join that does not run: no room for it, or no sink."""

    query: str
    left: str
    right: str
    tuples_per_s: float
    """Input for which there is no room; 0 where the sink is missing instead."""
    reason: str


class Controller:
    """Follows a running plan through events. Make one with `from_plan`, or with `controller()` of a plan.

    >>> running = nova.optimize(scenario).controller()
    >>> changes = running.handle(nova.events.NodeRemoved(node="fog"))
    >>> any(change.node == "fog" for change in changes if change.kind == "move")
    False
    """

    def __init__(self, state: State) -> None:
        self.state = state

    @classmethod
    def from_plan(cls, problem: Problem, plan: Plan, stability: Stability = Stability()) -> Controller:
        """A controller over a plan of a problem."""
        state = State.of(problem, plan, stability)
        note_yields(state)
        relink(state)
        state.standing = standing(state)
        state.settled_cost = float(total_cost(state.handle, state.joins.end, state.nodes.end))
        return cls(state)

    @property
    def options(self) -> Options:
        """The options the plan was made with."""
        return self.state.options

    @property
    def step(self) -> int:
        """How many steps were handled so far, plus one."""
        return self.state.step

    def handle(self, events: Event | Sequence[Event], file: str = "event", line: int | None = None) -> list[Change]:
        """Take in one event, or a batch as one step, and say what changes. A batch in which anything is wrong is
        refused as a whole with `InvalidInput`, which names `file` and `line` (without one: the number of the event),
        field and value; nothing changes."""
        state, impact = self.state, Impact()
        batch: tuple[Event, ...] = (events,) if isinstance(events, Event) else tuple(events)
        if state.names.derived:
            batch = tuple(with_derived(batch, state.names))  # what it means for streams that queries make of others
        validate(state, batch, file, line)
        for event in batch:
            for part in event.parts(state.names):
                impact.events += 1
                part.apply(state, impact)  # rows change; the impact says what to look at
        if state.bound:  # by more than distances and room: the optimizer's own rules place what is affected
            follow(state, impact)
            place_bounded(state, impact)
            relink(state)
        else:
            place(state, impact)  # hosts for what lost its own, or has none yet
            improve(state, impact)  # moves that pay, near what changed
            replan(state, impact)  # small problems: what a whole plan would do better
        changes = report(state, impact, max((event.time for event in batch if event.time is not None), default=None))
        state.end_step(impact.ended_nodes, impact.ended_sources, impact.ended_joins, impact.ended_queries)
        return changes

    @property
    def replan_gain_ms(self) -> float | None:
        """What a fresh plan would save after the last step, in ms of cost; None where none was made (large problems,
        and steps that affect nothing): `nova.controller.drift` makes one."""
        return self.state.replan_gain_ms

    def cost(self) -> float:
        """Cost of all that runs, in ms, under the plan's objective: share-weighted legs and, unless the options say
        otherwise, time at hosts."""
        if self.state.bound:
            return cost_of(self.problem(), self.plan())
        return float(total_cost(self.state.handle, self.state.joins.end, self.state.nodes.end))

    def fullest(self) -> float:
        """Highest share of a host that is busy: above `utilisation` where `auto` had to use more."""
        return self.state.fullest()

    def waiting_list(self) -> list[Waiting]:
        """What does not run, and why."""
        joins, names, rate = self.state.joins, self.state.names, self.state.sources["rate"]
        found = []
        no_room = "no room where it may run" if self.state.bound else "no room"
        for row, demand in sorted(self.state.backlog.demand.items()):
            if joins["first"][row] >= 0:
                continue  # it runs, on hosts that are overloaded knowingly
            left, right = int(joins["left"][row]), int(joins["right"][row])
            found.append(
                Waiting(
                    names.rule(int(joins["query"][row])).id,
                    names.sources[left],
                    names.sources[right],
                    0.0 if math.isinf(demand) else float(rate[left] + rate[right]),
                    "its query has no sink" if math.isinf(demand) else no_room,
                )
            )
        return found

    def problem(self) -> Problem:
        """The problem as events have left it, without the sub-joins that wait. Nodes carry the coordinates of the
        running cost space."""
        return problem_of(self.state).problem

    def plan(self) -> Plan:
        """The plan that runs now, for `problem()`."""
        return plan_of(self.state, problem_of(self.state))


def validate(state: State, events: Sequence[Event], file: str, line: int | None) -> None:
    """Raise `InvalidInput` with everything that is wrong with a batch: `file` and `line` (without one: the number of
    the event), field and value. Asked before anything changes, so that a refused batch leaves no trace."""
    ahead = NamesAhead(state.names, state.sources["node"], state.nodes["at"].shape[1])
    faults = []
    for number, event in enumerate(events, 1):
        for field, message, value in (*event.faults(), *event.check(ahead)):
            faults.append(Fault(file, message, number if line is None else line, field, value))
        event.note(ahead)
    if faults:
        raise InvalidInput(faults)


def report(state: State, impact: Impact, time: float | None) -> list[Change]:
    """The changes of a step that has not ended, sub-join by sub-join; `time` is when it happened in ms since 1970."""
    made, gone = state.rows_created(), state.rows_removed()
    if not len(made) and not len(gone):
        return []
    replicas = state.replicas
    made = made[replicas["next"][made] != GONE]  # not dropped again in the same step
    gone = gone[replicas["step"][gone] != state.counts[STEP]]  # nor made in it
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for rows, parts in ((gone, before), (made, after)):
        for row, join in zip(rows.tolist(), replicas["join"][rows].tolist(), strict=True):
            parts.setdefault(join, []).append(row)
    changes: list[Change] = []
    for join in dict.fromkeys((*before, *after)):
        new = after.get(join, [])
        reason = impact.reasons.get(join) or _why(state, new, impact.opened)
        changes += _changes_of_one(state, join, before.get(join, []), new, reason, time)
    return changes


def _changes_of_one(
    state: State, join: int, before: list[int], after: list[int], reason: str, time: float | None
) -> list[Change]:
    names, old, new = state.names, _parts(state, before), _parts(state, after)
    same = set(old) & set(new)
    if same:
        old, new = [part for part in old if part not in same], [part for part in new if part not in same]
    if not old and not new:
        return []
    row = state.joins.rows[join]
    rule = names.rule(int(row["query"]))
    window = None if time is None else math.ceil(time / rule.window_ms)
    common: dict[str, Any] = {
        "query": rule.id,
        "left": names.sources[int(row["left"])],
        "right": names.sources[int(row["right"])],
        "from_window": window,
        "from_ms": None if window is None else window * rule.window_ms,
        "reason": reason,
    }
    if not old:
        return [Deploy(node=part.node, shares=part.shares, **common) for part in new]
    if not new:
        return [Undeploy(node=part.node, shares=part.shares, **common) for part in old]
    where = {part.shares: part.node for part in old}
    if len(where) == len(old) == len(new) and all(part.shares in where for part in new):
        return [Move(node=part.node, from_node=where[part.shares], shares=part.shares, **common) for part in new]
    return [Repartition(before=tuple(old), after=tuple(new), **common)]


def _parts(state: State, rows: list[int]) -> list[Part]:
    parts = []
    for row in rows:
        shares: Shares = tuple(state.replicas["box"][row].tolist())
        parts.append(Part(state.names.nodes[int(state.replicas["node"][row])], shares))
    parts.sort(key=lambda part: (part.shares[4], part.shares))
    return parts


def _why(state: State, after: list[int], opened: Mapping[int, str]) -> str:
    """Why a sub-join was touched that no event names."""
    replicas, names = state.replicas.rows, state.names
    for row in after:
        if replicas[row]["evicted_from"] >= 0:
            return f"gives way on {names.nodes[int(replicas[row]['evicted_from'])]} to a sub-join that would lose more"
    for row in after:
        node = int(replicas[row]["node"])
        return f"room on {names.nodes[node]}" + (f": {opened[node]}" if node in opened else "")
    return "another share of it moved"
