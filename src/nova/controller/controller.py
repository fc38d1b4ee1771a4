"""Controller: a plan that runs, and what becomes of it. Pure: events in, changes out, no clock, no files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nova.controller.apply import Impact, apply
from nova.controller.chains import follow, note_yields, relink, with_parts
from nova.controller.changes import Change
from nova.controller.derived import with_derived
from nova.controller.events import Event, OneEvent
from nova.controller.hold import cost_of, hold
from nova.controller.improve import improve
from nova.controller.ledger import total_cost
from nova.controller.materialize import plan_of, problem_of
from nova.controller.place import place
from nova.controller.replan import replan, standing
from nova.controller.report import report
from nova.controller.stability import Stability
from nova.controller.state import State
from nova.controller.validate import validate
from nova.model.options import Options
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
    """Follows a running plan through events. Make one with `from_plan`."""

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
        batch: tuple[Event, ...] = (events,) if isinstance(events, OneEvent) else tuple(events)
        if state.names.derived:
            batch = tuple(with_derived(batch, state.names))
        validate(state, batch, file, line)
        for event in with_parts(batch, state.names):
            apply(state, event, impact)
        follow(state, impact)
        if state.bound:
            hold(state, impact)
            relink(state)
        else:
            place(state, impact)
            improve(state, impact)
            replan(state, impact)
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
