"""How long a full optimization takes, beside the time scipy takes for a nearest-neighbour look-up on the same nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from nova.evaluation.bounds import lower_bound
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.optimizer import optimize
from nova.synthetic import LEVELS, draw
from nova_lab.bench.memory import resident_bytes

WARM_NODES = 4000
"""Enough to take the way of large problems, so that compiling is not in the figures."""


@dataclass(frozen=True)
class Scale:
    """One size, measured. Times in seconds, the least of the repeats; memory in MB beyond the input."""

    nodes: int
    joins: int
    seconds: float
    floor_seconds: float
    """scipy: build a cKDTree on all nodes and look up the nearest node of every sub-join's sink-side position."""
    ratio: float
    peak_mb: float
    overloaded: int
    gap: float | None
    """Cost over the lower bound, minus one; None where the bound was not asked for."""
    certainty: float | None
    """Probability that the lower bound is one."""
    replicas: int
    compile_seconds: float
    phases: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    nodes: int,
    level: int,
    seed: int,
    options: Options,
    repeats: int = 3,
    with_gap: bool = True,
    make: Callable[[int, int, int], Problem] = draw,
) -> Scale:
    """Plan a drawn problem of `nodes` nodes `repeats` times, floor and plan in turn, and keep the best of each. `make`
    draws it from nodes, level and seed."""
    begin = time.perf_counter()
    optimize(make(WARM_NODES, level, seed), options)
    compiled = time.perf_counter() - begin
    problem = make(nodes, level, seed)
    floors, runs = [], []
    plan, peak = None, 0.0
    for _ in range(repeats):
        floors.append(_floor(problem))
        with _peak_memory() as memory:
            plan, phases = _timed(problem, options)
        runs.append(phases)
        peak = max(peak, memory[0])
    assert plan is not None
    best = min(runs, key=lambda run: sum(run.values()))
    figures = evaluate(problem, plan, bound=lower_bound if with_gap else None)
    seconds, floor = sum(best.values()), min(floors)
    return Scale(
        nodes=nodes,
        joins=len(plan.joins),
        seconds=seconds,
        floor_seconds=floor,
        ratio=seconds / floor,
        peak_mb=peak,
        overloaded=figures.overloaded,
        gap=figures.gap,
        certainty=figures.bound_certainty,
        replicas=len(plan.replicas),
        compile_seconds=compiled,
        phases=best,
    )


def _timed(problem: Problem, options: Options) -> tuple[Plan, dict[str, float]]:
    phases: dict[str, float] = {}
    last = time.perf_counter()

    def mark(stage: str, _: Any) -> None:
        nonlocal last
        now = time.perf_counter()
        phases[stage] = now - last
        last = now

    return optimize(problem, options, mark), phases


def _floor(problem: Problem) -> float:
    at = problem.nodes.coordinates
    assert at is not None
    born = [
        query.right if level else query.left for query, level in zip(problem.queries, problem.levels(), strict=True)
    ]
    ends = problem.sources.node[np.concatenate([problem.sources_of(stream) for stream in born])]
    begin = time.perf_counter()
    cKDTree(at).query(at[ends])
    return time.perf_counter() - begin


def _gap(problem: Problem, plan: Plan) -> float:
    return float(evaluate(problem, plan).cost_ms / lower_bound(problem, plan).value - 1)


@contextmanager
def _peak_memory() -> Iterator[list[float]]:
    """The most memory that the process takes inside, in MB beyond what it had at entry."""
    result, done = [0.0], threading.Event()
    start = _resident_mb()

    def watch() -> None:
        while not done.wait(0.005):
            result[0] = max(result[0], _resident_mb() - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield result
    finally:
        done.set()
        watcher.join()
        result[0] = max(result[0], _resident_mb() - start)


def _resident_mb() -> float:
    return resident_bytes() / 1e6


def utilisations(
    nodes: int, seed: int, loads: tuple[float, ...], options: Options, with_gap: bool = True
) -> list[dict[str, Any]]:
    """Whether plans hold, and honest refusals come, as the joins need more and more of all capacity."""
    from nova.model.errors import Infeasible

    rows = []
    for load in loads:
        problem = draw(nodes, 5, seed, load=load)
        try:
            plan = optimize(problem, options)
        except Infeasible as error:
            says = str(error).split("\n")[0]
            rows.append(
                {
                    "nodes": nodes,
                    "load": load,
                    "placed": False,
                    "overloaded": 0,
                    "gap": None,
                    "says": says,
                }
            )
            continue
        rows.append(
            {
                "nodes": nodes,
                "load": load,
                "placed": True,
                "overloaded": evaluate(problem, plan).overloaded,
                "gap": _gap(problem, plan) if with_gap else None,
                "says": f"{len(plan.replicas):,} replicas",
            }
        )
    return rows


def levels(nodes: int, seed: int, options: Options, with_gap: bool = True) -> list[dict[str, Any]]:
    """Overload and gap at all six heterogeneity levels."""
    rows = []
    for level in range(LEVELS):
        problem = draw(nodes, level, seed)
        plan = optimize(problem, options)
        spread = problem.nodes.capacity[problem.nodes.hosts]
        rows.append(
            {
                "nodes": nodes,
                "level": level,
                "cv": float(np.std(spread) / np.mean(spread)),
                "overloaded": evaluate(problem, plan).overloaded,
                "gap": _gap(problem, plan) if with_gap else None,
            }
        )
    return rows
