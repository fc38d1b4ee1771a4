"""How long a running plan takes to follow one event, and how good it still is after very many."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nova.controller import Controller
from nova.controller.warm import warm
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.optimizer import optimize
from nova.synthetic import draw
from nova_lab.bench.drawn_events import KINDS, Drawing
from nova_lab.bench.memory import resident_bytes


@dataclass(frozen=True)
class Latency:
    """Time per event at one size, in ms by kind of event; wall time, and time of the CPU, which a busy machine does
    not stretch."""

    nodes: int
    joins: int
    events: int
    """Of each kind."""
    optimize_ms: float
    """CPU time of one full optimization of the same network, in the same run."""
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    cpu_p50_ms: dict[str, float]
    cpu_p99_ms: dict[str, float]
    optimize_over_p99: dict[str, float]
    """How many events of a kind fit into one full optimization, by CPU time at the 99th percentile."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A long run after so many events, against a plan made afresh for the network as it is then."""

    events: int
    cost_ratio: float
    """Cost of the running plan over that of a fresh one, both by `nova.evaluation`."""
    overloaded: int
    waiting: int
    """Sub-joins that found no room, and are in neither plan."""
    replicas: int
    fresh_replicas: int
    changes: int
    """Changes told since the last check."""
    memory_mb: float
    """Resident memory of the process before the fresh plan was made."""


@dataclass(frozen=True)
class LongRun:
    """Very many mixed events in a row."""

    nodes: int
    joins: int
    events: int
    worst_cost_ratio: float
    memory_growth_mb: float
    """Resident memory at the last check beyond that at the second: the first comparison with a fresh plan leaves the
    process with memory that later ones use again."""
    checks: list[Check]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def latency(nodes: int, level: int, seed: int, options: Options, events: int) -> Latency:
    """Draw a network and time `events` events of each kind, kinds in turn."""
    warm()
    problem = draw(nodes, level, seed)
    began = time.process_time()
    plan = optimize(problem, options)
    optimizing = 1000 * (time.process_time() - began)
    wall: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with _running(problem, plan, seed) as (controller, drawing):
        for _ in range(events):
            for kind in KINDS:
                event = drawing.next(kind)
                before, busy = time.perf_counter_ns(), time.thread_time_ns()
                controller.handle(event)
                after, busier = time.perf_counter_ns(), time.thread_time_ns()
                wall[event.kind].append((after - before) / 1e6)
                cpu[event.kind].append((busier - busy) / 1e6)
    p99 = _percentiles(cpu, 99)
    return Latency(
        nodes,
        len(plan.joins),
        events,
        optimizing,
        _percentiles(wall, 50),
        _percentiles(wall, 99),
        _percentiles(cpu, 50),
        p99,
        {kind: optimizing / ms for kind, ms in p99.items()},
    )


def long_run(nodes: int, level: int, seed: int, options: Options, events: int, every: int) -> LongRun:
    """Send mixed events to a drawn network; compare with a fresh plan `every` so many."""
    problem = draw(nodes, level, seed)
    plan = optimize(problem, options)
    checks: list[Check] = []
    with _running(problem, plan, seed) as (controller, drawing):
        changes = 0
        for number in range(1, events + 1):
            changes += len(controller.handle(drawing.next()))
            if number % every == 0 or number == events:
                checks.append(_check(controller, number, changes))
                changes = 0
    return LongRun(
        nodes,
        len(plan.joins),
        events,
        max(check.cost_ratio for check in checks),
        checks[-1].memory_mb - checks[min(1, len(checks) - 1)].memory_mb,
        checks,
    )


def _check(controller: Controller, events: int, changes: int) -> Check:
    gc.collect()
    memory = memory_mb()
    problem, plan = controller.problem(), controller.plan()
    fresh = optimize(problem, controller.options)
    now, then = evaluate(problem, plan), evaluate(problem, fresh)
    objective = controller.options.objective
    ratio = getattr(now, f"cost_{objective}_ms") / getattr(then, f"cost_{objective}_ms")
    return Check(
        events, ratio, now.overloaded, len(controller.waiting_list()), now.replicas, then.replicas, changes, memory
    )


@contextmanager
def _running(problem: Problem, plan: Plan, seed: int) -> Iterator[tuple[Controller, Drawing]]:
    """A controller and events for it. What was set up is no garbage: the collector need not look through a million
    names during an event (as a runtime should do, too)."""
    controller, drawing = Controller.from_plan(problem, plan), Drawing(problem, seed)
    gc.collect()
    gc.freeze()
    try:
        yield controller, drawing
    finally:
        gc.unfreeze()


def _percentiles(times: dict[str, list[float]], percent: float) -> dict[str, float]:
    return {kind: float(np.percentile(ms, percent)) for kind, ms in times.items()}


def memory_mb() -> float:
    """Resident memory of this process."""
    return resident_bytes() / 2**20
