"""What tests of re-optimization share: small problems, and the promises a running plan keeps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nova.controller import Controller
from nova.controller.materialize import plan_of, problem_of
from nova.evaluation.metrics import flows, node_limit, node_load, overloaded
from nova.model.options import Options, Stability
from nova.model.plan import Plan
from nova.model.problem import Dense, Equal, Latency, Problem, Query
from nova.optimizer import optimize
from nova.placement.check import check
from nova.synthetic import draw

Placement = dict[tuple[str, str, str], list[tuple[object, ...]]]


def controller(
    nodes: int = 40, seed: int = 0, stability: Stability = Stability(), load: float | None = 0.5, **options: object
) -> Controller:
    """A controller over a fresh plan of a drawn problem."""
    problem = draw(nodes, level=2, seed=seed, load=load)
    return Controller.from_plan(problem, optimize(problem, Options(**options)), stability)  # type: ignore[arg-type]


def with_rules(seed: int = 0) -> Problem:
    """A drawn problem with three queries more: a dense one, one on an attribute, and one with long windows."""
    problem = draw(30, level=2, seed=seed, load=0.05)
    first = problem.queries[0]
    n = len(problem.sources) // 2
    codes = (np.arange(n) % 5).astype(np.int32)
    return replace(
        problem,
        queries=(
            first,
            Query("region", 0, 1, first.sink, Equal("region", codes, codes[::-1].copy())),
            Query("all", 1, 0, int(problem.sources.node[0]), Dense(), 5000.0),
            Query("long", 0, 1, first.sink, Equal("site", codes, codes), 3_600_000.0),
        ),
    )


def with_measurements(problem: Problem) -> Problem:
    """The same with measured round trips between most nodes, which obey no geometry."""
    random = np.random.default_rng(7)
    at = problem.nodes.coordinates
    assert at is not None
    first, second = np.triu_indices(len(at), 1)
    rtt = np.linalg.norm(at[first] - at[second], axis=1) * random.uniform(0.7, 1.6, len(first)) + 0.1
    known = random.random(len(first)) < 0.9
    return replace(problem, latency=Latency(first[known].astype(np.int32), second[known].astype(np.int32), rtt[known]))


def placement(plan: Plan, problem: Problem) -> Placement:
    """The replicas of every sub-join by ids, whatever rows they have."""
    found: Placement = {}
    for row in plan.table(problem).to_pylist():
        key = (row["query"], row["left_source"], row["right_source"])
        found.setdefault(key, []).append(
            (
                row["node"],
                row["left_from"],
                row["left_to"],
                row["right_from"],
                row["right_to"],
                row["slice_from"],
                row["slice_to"],
                row["key_from"],
                row["key_to"],
            )
        )
    return {key: sorted(parts, key=str) for key, parts in sorted(found.items())}


def now(running: Controller) -> Placement:
    """What runs."""
    written = problem_of(running.state)
    return placement(plan_of(running.state, written), written.problem)


def keeps_its_promises(running: Controller) -> Placement:
    """The plan tiles exactly, overloads nothing, and runs on nodes that there are; the books agree with it. Returns
    what runs."""
    written = problem_of(running.state)
    problem, plan = written.problem, plan_of(running.state, written)
    check(problem, plan)
    load, limit = node_load(flows(problem, plan), len(problem.nodes)), node_limit(problem)
    assert running.options.allow_overload or not overloaded(load, limit).any()
    assert len(plan.joins) + len(running.waiting_list()) == sum(
        1 for state in running.state.joins["state"][: running.state.joins.end] if state
    )
    state = running.state
    rows = np.flatnonzero(state.nodes["alive"][: state.nodes.end])
    assert np.allclose(state.nodes["used"][rows], load, rtol=1e-9, atol=1e-6)
    for row, name in zip(rows.tolist(), problem.nodes.ids.to_pylist(), strict=True):
        assert running.state.names.nodes[row] == name
        slot = int(state.nodes["slot"][row])
        assert (slot >= 0) == (state.nodes["room"][row] > 0)
        if slot >= 0:
            assert state.index.node[slot] == row
            free = max(0.0, float(state.nodes["room"][row] - state.nodes["used"][row]))
            assert math.isclose(state.index.free[slot], free, rel_tol=1e-9, abs_tol=1e-9)
    assert np.count_nonzero(state.index.node >= 0) == np.count_nonzero(state.nodes["room"][rows] > 0)
    obeys_its_options(running, plan)
    return placement(plan, problem)


def obeys_its_options(running: Controller, plan: Plan) -> None:
    """No replica is larger, and no sub-join has more, than the options say."""
    options = running.options
    left, right = plan.replicas.rates(plan.joins)
    if options.bandwidth_budget is not None:
        assert (left + right).max(initial=0.0) <= options.bandwidth_budget * (1 + 1e-6)
    if options.max_replicas is not None:
        assert np.bincount(plan.replicas.join, minlength=1).max() <= options.max_replicas
