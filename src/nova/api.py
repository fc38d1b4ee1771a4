"""What `import nova` gives: from a scenario to a plan, its figures, its reasons, its picture, and what events change.

scenario = nova.load("scenario.yaml")        # or a mapping, or a nova.Model put together in Python
plan = nova.optimize(scenario, seed=7)
plan.summary.replicas, plan.cost(), plan.to_pandas()
plan.explain(join=("p1", "h1"))
plan.save("plan"); nova.Plan.load("plan")
nova.evaluate(plan), nova.compare(scenario), nova.simulate(plan)
nova.reoptimize(plan, nova.events.NodeRemoved(node="rack7")).plan
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

import numpy as np
import pyarrow as pa

from nova.controller import events
from nova.controller.changes import Change
from nova.controller.codec import event_from_json, lines_of, parse_steps
from nova.controller.controller import Controller, Waiting
from nova.controller.events import Event
from nova.evaluation.metrics import Measured, Metrics
from nova.evaluation.simulation.result import Arrivals, SimulationResult
from nova.extras import optional, require
from nova.model import plan as model_plan
from nova.model.errors import BrokenPlan, Infeasible, InvalidInput, NovaError
from nova.model.options import Options, Stability
from nova.model.problem import Problem
from nova.scenario import Model, Scenario, load

if TYPE_CHECKING:
    import pandas as pd

    from nova.evaluation.explain import JoinExplained, NodeExplained, Stage
    from nova.optimizer import Observer

__all__ = [
    "load",
    "Model",
    "Scenario",
    "Problem",
    "Options",
    "optimize",
    "Plan",
    "evaluate",
    "Metrics",
    "compare",
    "Comparison",
    "simulate",
    "reoptimize",
    "Reoptimized",
    "Controller",
    "Stability",
    "events",
    "NovaError",
    "InvalidInput",
    "Infeasible",
    "BrokenPlan",
]

Plannable: TypeAlias = Scenario | Model | Problem | str | Path | Mapping[str, Any]
"""What can be planned: a scenario (also its file, or a mapping that says the same), a model, a problem."""

SHOWN = 20
"""Rows of a plan or a comparison that a notebook shows; `to_pandas()` has all."""


@dataclass(frozen=True, repr=False)
class Plan(model_plan.Plan):
    """Where every join runs, with the problem it was made for.

    >>> plan = nova.optimize(scenario)
    >>> len(plan.to_pandas()) == plan.summary.replicas
    True
    >>> nova.Plan.load(plan.save(folder)).cost() == plan.cost()
    True
    """

    problem: Problem = field(kw_only=True, compare=False)

    @classmethod
    def of(cls, problem: Problem, plan: model_plan.Plan) -> Self:
        """A plan of any room, together with its problem."""
        kept = {f.name: getattr(plan, f.name) for f in fields(model_plan.Plan)}
        return cls(**kept, problem=problem)

    @classmethod
    def load(cls, folder: str | Path, scenario: Plannable | None = None) -> Self:
        """Read a plan's folder, as `save` and `nova plan` write it, and check it.

        `scenario` judges it by another version of what it was made for; a plan that loses, doubles or misplaces
        results there is refused with `BrokenPlan`.
        """
        from nova.scenario.folder import open_alone, open_plan

        opened = open_alone(Path(folder)) if scenario is None else open_plan(_scenario(scenario), Path(folder))
        return cls.of(opened.scenario.problem, opened.plan)

    def save(self, folder: str | Path) -> Path:
        """Write the plan as a folder, wholly or not at all: `plan.json`, `replicas.parquet`, `coordinates.parquet`, and
        the scenario it was made for in `scenario/`. Replaces a plan that stands there, and nothing else."""
        from nova.scenario.folder import refuse_other_folder, save

        folder = Path(folder)
        refuse_other_folder(folder)
        save(self, folder, self.problem)
        return folder

    def to_arrow(self) -> pa.Table:
        """One row per replica: query, sources, node, shares of streams, windows and keys, rates in tuples/s."""
        return self.table(self.problem)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas DataFrame."""
        return _pandas(self.to_arrow(), "plan.to_pandas()")

    def cost(self) -> float:
        """What the plan costs under its objective: ms, summed over sub-joins, each weighted by its shares."""
        from nova.evaluation.metrics import evaluate as metrics

        figures = metrics(self.problem, self)
        cost: float = getattr(figures, f"cost_{self.options.objective}_ms")
        return cost

    @overload
    def explain(self) -> list[Stage]: ...
    @overload
    def explain(self, *, node: str) -> NodeExplained: ...
    @overload
    def explain(self, *, join: tuple[str, str]) -> list[JoinExplained]: ...

    def explain(
        self, *, node: str | None = None, join: tuple[str, str] | None = None
    ) -> list[Stage] | NodeExplained | list[JoinExplained]:
        """Why the plan is as it is: what each stage decided; or what one node hosts and why; or why the join of two
        sources (one explanation per query that joins them) runs where it runs."""
        from nova.evaluation.explain import Explainer

        if node is not None and join is not None:
            raise InvalidInput("give node or join, not both")
        explainer = Explainer(self.problem, self)
        if node is not None:
            return explainer.node(node)
        return explainer.stages() if join is None else explainer.joins(*join)

    def show(self, file: str | Path | None = None) -> Any:
        """Draw the plan: into a `.html` or `.png` file, whose path is returned, or, without one, as a page
        that a notebook displays."""
        if file is None:
            from nova.draw.html import page

            return page(self.problem, self)
        with optional("plan.show()"):
            from nova.draw import draw

            return draw(self.problem, self, file)

    def controller(self, stability: Stability = Stability()) -> Controller:
        """A controller that follows this plan through events."""
        return Controller.from_plan(self.problem, self, stability)

    def __repr__(self) -> str:
        found = self.summary
        return (
            f"<Plan by {self.approach}: {found.replicas:,} replicas of {found.sub_joins:,} sub-joins on"
            f" {found.hosts_used:,} of {found.nodes:,} nodes>"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the figures and the first replicas."""
        head = self.replicas.take(np.arange(min(SHOWN, len(self.replicas))))
        rows = replace(self, replicas=head).to_arrow().to_pylist()
        more = f"<p>… and {len(self.replicas) - SHOWN:,} more replicas</p>" if len(self.replicas) > SHOWN else ""
        return f"<p><b>{html.escape(repr(self)[1:-1])}</b></p>{_html_table(rows)}{more}"


def optimize(
    what: Plannable, options: Options | None = None, *, observe: Observer | None = None, **overrides: Any
) -> Plan:
    """Decide where every join runs. Raises `Infeasible` where the nodes cannot take the load.

    `options` replace those of the scenario, single ones (`seed=7`, `partition="grid"`) win over both. `observe` is
    called after each stage with its name and result.

    >>> plan = nova.optimize(scenario, seed=7, observe=lambda stage, _: print(stage))
    embed
    resolve
    assign
    merge
    plan
    check
    """
    from nova.optimizer import optimize as solve

    problem, own = _problem_and_options(what, overrides)
    if options is not None:
        own = replace(options, **_checked(overrides)) if overrides else options
    return Plan.of(problem, solve(problem, own, observe))


def evaluate(
    plan: Plan | Plannable, other: model_plan.Plan | None = None, *, measured: bool = False, bound: bool = True
) -> Metrics:
    """Figures of a plan: latency, load, traffic, cost, and the gap to a lower bound.

    `nova.evaluate(plan)`, or `nova.evaluate(scenario, plan)` to judge it by another version of its scenario.
    `measured`: by the scenario's measured latencies where there are any, instead of the cost space alone. `bound` may
    be left out, as it takes longer than all the rest.

    >>> nova.evaluate(nova.optimize(scenario)).overloaded
    0
    """
    from nova.evaluation.bounds import lower_bound
    from nova.evaluation.metrics import evaluate as metrics

    problem, judged = _judged(plan, other)
    distances = None
    if measured and problem.latency is not None:
        distances = Measured(problem.latency, len(problem.nodes), judged.space)
    return metrics(problem, judged, distances, lower_bound if bound else None)


@dataclass(frozen=True)
class Comparison:
    """Approaches side by side.

    >>> nova.compare(scenario, ["nova", "sink"], simulated_s=0).to_pandas().columns[0]
    'approach'
    """

    rows: list[dict[str, Any]]
    """The figures of each approach; ms and tuples/s."""
    plans: dict[str, Plan]
    """Their plans, by name."""

    def to_arrow(self) -> pa.Table:
        """One row per approach."""
        return pa.Table.from_pylist(self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """One row per approach."""
        return _pandas(self.to_arrow(), "comparison.to_pandas()")

    def show(self, file: str | Path, title: str = "Approaches") -> Path:
        """Draw the figures into a `.html` or `.png` file."""
        with optional("comparison.show()"):
            from nova.draw.comparison import check_ending, draw

            check_ending(Path(file))
            return draw(self.rows, Path(file), title)

    def _repr_html_(self) -> str:
        return _html_table(self.rows)


def compare(
    what: Plannable, approaches: Sequence[str] | None = None, *, simulated_s: float = 20.0, **overrides: Any
) -> Comparison:
    """Place by Nova and by the usual ways, and measure all alike; `simulated_s` seconds are simulated, none with 0.

    What does not fit is spread evenly, as a comparison needs a plan from everyone.

    >>> [row["approach"] for row in nova.compare(scenario, ["nova", "sink"], simulated_s=0).rows]
    ['nova', 'sink']
    """
    from nova.evaluation.approaches import COMPARED, check_names
    from nova.evaluation.compare import compare as side_by_side

    problem, options = _problem_and_options(what, overrides)
    names = list(COMPARED) if approaches is None else check_names(list(approaches))
    done = side_by_side(problem, names, options, simulated_s=simulated_s, with_bound=True)
    return Comparison(
        [one.row for one in done],
        {name: Plan.of(problem, one.placement.plan) for name, one in zip(names, done, strict=True)},
    )


def simulate(
    plan: Plan | Plannable,
    other: model_plan.Plan | None = None,
    *,
    duration_s: float = 20.0,
    seed: int = 0,
    arrivals: Arrivals = "poisson",
) -> SimulationResult:
    """Let tuples live through a plan: sources emit them, links delay them, nodes serve them at their capacity.

    `nova.simulate(plan)`, or `nova.simulate(scenario, plan)` under another version of its scenario.

    >>> nova.simulate(nova.optimize(scenario), duration_s=2).served > 0
    True
    """
    from nova.evaluation.simulation import simulate as run

    problem, judged = _judged(plan, other)
    return run(problem, judged, duration_s, seed=seed, arrivals=arrivals)


@dataclass(frozen=True)
class Reoptimized:
    """What events have made of a plan.

    >>> after = nova.reoptimize(nova.optimize(scenario), nova.events.NodeRemoved(node="fog"))
    >>> "fog" in set(after.plan.to_pandas()["node"])
    False
    """

    plan: Plan
    changes: list[Change]
    """What to start, stop, move or cut otherwise, in order."""
    waiting: list[Waiting]
    """Sub-joins that do not run: no room for them, or no sink."""


EventLike: TypeAlias = Event | Mapping[str, Any]
"""An event, or its JSON form."""


def reoptimize(
    plan: Plan, happened: EventLike | Iterable[EventLike] | str | Path, stability: Stability = Stability()
) -> Reoptimized:
    """Take events into a running plan, each as a step of its own; only what they affect changes.

    `happened` is one event, several, or a file with a JSON line per step. To go on from there, or to take several
    events as one step, use `plan.controller()`.

    >>> plan = nova.optimize(scenario)
    >>> after = nova.reoptimize(plan, {"event": "node_removed", "node": "fog"})
    >>> "fog" in set(after.plan.to_pandas()["node"])
    False
    """
    running = plan.controller(stability)
    changes: list[Change] = []
    for step in _steps(happened):
        changes += running.handle(step)
    return Reoptimized(Plan.of(running.problem(), running.plan()), changes, running.waiting_list())


def _steps(happened: EventLike | Iterable[EventLike] | str | Path) -> Iterable[tuple[Event, ...]]:
    if isinstance(happened, str | Path):
        path = Path(happened)
        return (step.events for step in parse_steps(lines_of(path), str(path)))
    several = [happened] if isinstance(happened, Event | Mapping) else list(happened)
    return [(one if isinstance(one, Event) else event_from_json(dict(one)),) for one in several]


def _scenario(what: Plannable, overrides: Mapping[str, Any] | None = None) -> Scenario:
    match what:
        case Scenario():
            return what
        case Model():
            return load(what.to_dict(), overrides)
        case Problem():
            raise InvalidInput("a problem says nothing about options or tables: give the scenario")
        case _:
            return load(what, overrides)


def _problem_and_options(what: Plannable, overrides: Mapping[str, Any]) -> tuple[Problem, Options]:
    if isinstance(what, Problem):
        return what, Options(**_checked(overrides))
    scenario = _scenario(what, overrides)
    if isinstance(what, Scenario) and overrides:
        return scenario.problem, replace(scenario.options, **_checked(overrides))
    return scenario.problem, scenario.options


def _checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Options given by name, as `Options` has them. Raises `InvalidInput` where one is unknown or wrong."""
    from nova.scenario.scenario import checked_options

    return checked_options(overrides)


def _judged(first: Plan | Plannable, second: model_plan.Plan | None) -> tuple[Problem, model_plan.Plan]:
    """A plan with the problem it is judged by: its own, or that of a scenario given before it."""
    if isinstance(first, Plan):
        if second is not None:
            raise InvalidInput("the scenario comes first: nova.evaluate(scenario, plan)")
        return first.problem, first
    if second is None:
        raise InvalidInput("a plan is missing: nova.evaluate(plan) or nova.evaluate(scenario, plan)")
    return (first if isinstance(first, Problem) else _scenario(first).problem), second


def _pandas(table: pa.Table, wanted: str) -> pd.DataFrame:
    require(wanted, "pandas")
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as an HTML table; numbers are short and right-aligned."""
    if not rows:
        return "<p>nothing</p>"
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = ("".join(_html_cell(value) for value in row.values()) for row in rows)
    return (
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )


def _html_cell(value: Any) -> str:
    if isinstance(value, float):
        return f"<td style='text-align:right'>{value:,.4g}</td>"
    return f"<td>{html.escape(str(value))}</td>"
