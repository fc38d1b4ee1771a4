"""Controller: a plan that runs, and what becomes of it. Pure: events in, changes out, no clock, no files."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nova.controller import validate as admission
from nova.controller.apply import Step
from nova.controller.changes import Change
from nova.controller.costs import total_cost
from nova.controller.derived import with_derived
from nova.controller.events import Event, OneEvent
from nova.controller.layout import CREATED, GONE, REMOVED, STEP
from nova.controller.ledger import end_step
from nova.controller.materialize import plan_of, problem_of
from nova.controller.measurements import Measured
from nova.controller.names import Names
from nova.controller.report import changes_of
from nova.controller.settle import Settling
from nova.controller.stability import Stability
from nova.controller.state import State
from nova.model.errors import InvalidInput
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

    def __init__(self, state: State, names: Names, measured: Measured, stability: Stability) -> None:
        self.state, self.names, self.measured, self.stability = state, names, measured, stability
        self.waiting: dict[int, float] = {}
        """Sub-joins that do not run (or, if allowed, overload their hosts): their demand, infinite without a sink."""
        self.queue: list[tuple[float, int]] = []
        """The same as a heap, smallest demand first; entries that disagree with `waiting` are out of date."""
        self.homes: dict[int, set[int]] = {}
        """Replicas that were ousted, by the node they were ousted from."""
        self.lifted = bool(np.any(state.nodes["height"][: state.nodes.end] > 0))
        """Whether nodes have heights, so that newcomers get one."""

    @classmethod
    def from_plan(cls, problem: Problem, plan: Plan, stability: Stability = Stability()) -> Controller:
        """A controller over a plan of a problem. Raises `InvalidInput` where queries require labels of their hosts."""
        if bound := [query.id for query in problem.queries if query.requires]:
            named = ", ".join(bound)
            raise InvalidInput(f"events do not move queries that require labels of their hosts ({named}): plan again")
        return cls(
            State.of(problem, plan, stability),
            Names.of(problem),
            Measured(problem.latency, len(problem.nodes)),
            stability,
        )

    @property
    def options(self) -> Options:
        """The options the plan was made with."""
        return self.state.options

    @property
    def step(self) -> int:
        """How many steps were handled so far, plus one."""
        return int(self.state.counts[STEP])

    def handle(self, events: Event | Sequence[Event], file: str = "event", line: int | None = None) -> list[Change]:
        """Take in one event, or a batch as one step, and say what changes. A batch in which anything is wrong is
        refused as a whole with `InvalidInput`, which names `file` and `line` (without one: the number of the event),
        field and value; nothing changes."""
        batch: tuple[Event, ...] = (events,) if isinstance(events, OneEvent) else tuple(events)
        if self.names.derived:
            batch = tuple(with_derived(batch, self.names))
        state = self.state
        faults = admission.faults(batch, self.names, state.sources["node"], state.nodes["at"].shape[1], file, line)
        if faults:
            raise InvalidInput(faults)
        step = Step(self)
        for event in batch:
            step.apply(event)
        Settling(step).run(len(batch))
        times = [event.time for event in batch if event.time is not None]
        changes = changes_of(state, self.names, step.reasons, step.opened, max(times) if times else None)
        self._end(step)
        return changes

    def _end(self, step: Step) -> None:
        """Give rows back, and keep the books of ousted replicas."""
        state, replicas = self.state, self.state.replicas
        for row in state.removed[: state.counts[REMOVED]].tolist():
            home = int(replicas["home"][row])
            if home >= 0 and home in self.homes:
                self.homes[home].discard(row)
                if not self.homes[home]:
                    del self.homes[home]
        for row in state.created[: state.counts[CREATED]].tolist():
            home = int(replicas["home"][row])
            if home >= 0 and replicas["next"][row] != GONE:
                self.homes.setdefault(home, set()).add(row)
        for node in step.dead_nodes:
            for row in self.homes.pop(node, ()):
                replicas["home"][row] = -1
        end_step(state.handle)
        state.nodes.free += step.dead_nodes
        state.sources.free += step.dead_sources
        state.joins.free += step.dead_joins
        state.queries.free += step.dead_queries
        for query in step.dead_queries:
            self.names.queries[query] = None
            state.queries["sink"][query] = -1

    def wait(self, join: int, demand: float) -> None:
        """A sub-join does not run until there is room (or, with infinite demand, a sink)."""
        self.waiting[join] = demand
        if demand < math.inf:
            heapq.heappush(self.queue, (demand, join))
            if len(self.queue) > 2 * len(self.waiting) + 64:  # mostly out of date
                self.queue = sorted((demand, join) for join, demand in self.waiting.items() if demand < math.inf)

    def cost(self) -> float:
        """Share-weighted cost of all that runs, in ms, under the plan's objective."""
        return float(total_cost(self.state.handle, self.state.joins.end))

    def waiting_list(self) -> list[Waiting]:
        """What does not run, and why."""
        joins, names, rate = self.state.joins, self.names, self.state.sources["rate"]
        found = []
        for row, demand in sorted(self.waiting.items()):
            if joins["first"][row] >= 0:
                continue  # it runs, on hosts that are overloaded knowingly
            left, right = int(joins["left"][row]), int(joins["right"][row])
            found.append(
                Waiting(
                    names.rule(int(joins["query"][row])).id,
                    names.sources[left],
                    names.sources[right],
                    0.0 if math.isinf(demand) else float(rate[left] + rate[right]),
                    "its query has no sink" if math.isinf(demand) else "no room",
                )
            )
        return found

    def problem(self) -> Problem:
        """The problem as events have left it, without the sub-joins that wait. Nodes carry the coordinates of the
        running cost space."""
        return problem_of(self.state, self.names, self.measured).problem

    def plan(self) -> Plan:
        """The plan that runs now, for `problem()`."""
        return plan_of(self.state, problem_of(self.state, self.names, self.measured))
