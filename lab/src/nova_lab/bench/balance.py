"""What headroom and few replicas cost: the same problem planned under tighter and tighter wishes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nova.evaluation.bounds import bound
from nova.evaluation.metrics import evaluate
from nova.evaluation.simulation import simulate
from nova.evaluation.simulation.result import percentile
from nova.model.errors import Infeasible
from nova.model.options import Options, Partition
from nova.model.problem import Problem
from nova.optimizer import optimize
from nova.placement.resolve import resolve

TARGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of every capacity that may be used."""
REPLICAS = (None, 8, 4, 2, 1)
"""Replicas that a sub-join may have; None: as many as it takes."""


@dataclass(frozen=True)
class Balance:
    """One wish, fulfilled or refused."""

    utilisation: float
    max_replicas: int | None
    placed: bool
    gap: float | None = None
    """Cost over the lower bound with all of every capacity, less one: the same bound for every row."""
    latency_mean_ms: float | None = None
    utilisation_max: float | None = None
    growth: float | None = None
    """Factor by which all rates may grow before the fullest node is."""
    replicas: int | None = None
    replicas_max: int | None = None
    """Most replicas of one sub-join."""
    simulated_p99_ms: float | None = None
    """99th percentile of the way of a tuple through network and queues."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(problem: Problem, partition: Partition, simulated_s: float, seed: int) -> list[Balance]:
    """Plan under every utilisation target, then under every limit on replicas."""
    wishes: list[tuple[float, int | None]] = [(target, None) for target in TARGETS]
    wishes += [(1.0, most) for most in REPLICAS[1:]]
    least = None
    rows = []
    for utilisation, most in wishes:
        options = Options(seed=seed, partition=partition, utilisation=utilisation, max_replicas=most, waiting=0.0)
        try:
            plan = optimize(problem, options)
        except Infeasible:
            rows.append(Balance(utilisation, most, placed=False))
            continue
        if least is None:
            least = bound(problem, resolve(problem), plan.space, Options(seed=seed)).value
        figures = evaluate(problem, plan)
        simulated = simulate(problem, plan, simulated_s, seed=seed) if simulated_s else None
        rows.append(
            Balance(
                utilisation,
                most,
                placed=True,
                gap=figures.cost_latency_ms / least - 1,
                latency_mean_ms=figures.latency_mean_ms,
                utilisation_max=figures.utilisation_max,
                growth=1 / figures.utilisation_max,
                replicas=figures.replicas,
                replicas_max=figures.replicas_max,
                simulated_p99_ms=None if simulated is None else percentile(simulated.tuple_ms, 99.0),
            )
        )
    return rows
