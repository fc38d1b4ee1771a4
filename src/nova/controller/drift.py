"""Drift: how far a running plan is from one made afresh for the same scenario, and what changing over would move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.controller.diff import Diff, diff
from nova.evaluation.metrics import Distances, Measured, Metrics, evaluate
from nova.evaluation.prediction import Felt, predict
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.optimizer import optimize


@dataclass(frozen=True, slots=True)
class Drift:
    """A running plan beside a fresh one, both under the same latencies."""

    running: Metrics
    fresh: Metrics
    felt_running: Felt
    """Predicted latency of results from event to sink: network, service and waiting."""
    felt_fresh: Felt
    moves: Diff
    """From the running plan to the fresh one."""

    @property
    def gain_ms(self) -> float:
        """Mean latency of a source that a re-plan would save."""
        return self.running.latency_mean_ms - self.fresh.latency_mean_ms

    @property
    def gain(self) -> float:
        """The same as a share of the running plan's mean latency."""
        return self.gain_ms / self.running.latency_mean_ms if self.running.latency_mean_ms > 0 else 0.0

    @property
    def costs(self) -> tuple[float, float]:
        """What both plans cost under the plan's objective, summed over sub-joins, in ms."""
        name = f"cost_{self.fresh.objective}_ms"
        return getattr(self.running, name), getattr(self.fresh, name)

    @property
    def excess(self) -> float:
        """How far the running plan's cost lies above the fresh one's, as a share of that. Below zero: it is better."""
        running, fresh = self.costs
        return running / fresh - 1 if fresh > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        running, fresh = self.costs
        return {
            "running": _figures(self.running, running) | {"felt": self.felt_running.as_dict()},
            "fresh": _figures(self.fresh, fresh) | {"felt": self.felt_fresh.as_dict()},
            "excess": self.excess,
            "gain_mean_ms": self.gain_ms,
            "gain": self.gain,
            "gain_p90_ms": self.running.latency_p90_ms - self.fresh.latency_p90_ms,
            "gain_cost_ms": running - fresh,
            "moves": self.moves.summary(),
        }


def _figures(metrics: Metrics, cost: float) -> dict[str, Any]:
    return {
        "latency_mean_ms": metrics.latency_mean_ms,
        "latency_p90_ms": metrics.latency_p90_ms,
        "cost_ms": cost,
        "replicas": metrics.replicas,
        "hosts": metrics.hosts,
        "overloaded": metrics.overloaded,
        "tuples_in": metrics.tuples_in,
    }


def drift(problem: Problem, plan: Plan) -> Drift:
    """Plan afresh with the running plan's options, and compare. Raises `Infeasible` where no fresh plan is possible.

    Both are judged by the best that is known now: measured latencies where there are any, and otherwise the cost space
    of the fresh plan, since the running one may have been made before the latencies changed.
    """
    fresh = optimize(problem, plan.options)
    distances: Distances = fresh.space
    if problem.latency is not None:
        distances = Measured(problem.latency, len(problem.nodes), fresh.space)
    return Drift(
        evaluate(problem, plan, distances),
        evaluate(problem, fresh, distances),
        predict(problem, plan, distances).felt,
        predict(problem, fresh, distances).felt,
        diff(plan.table(problem), fresh.table(problem)),
    )
