"""Nova on the fixed instances of the published simulations: gap to the bound, and ratio to the published scripts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nova.datasets.instances import load
from nova.evaluation.bounds import bound
from nova.evaluation.metrics import Metrics, evaluate
from nova.model.errors import InvalidInput
from nova.model.options import Objective, Options, Partition
from nova.model.problem import Problem
from nova.optimizer import optimize


@dataclass(frozen=True)
class Figures:
    """One instance. Gaps are cost over the linear program's optimum, less one."""

    instance: str
    window_gap_latency: float
    window_gap_paper: float
    grid_gap: float
    overloaded: int
    """Nodes above their capacity, over all three plans."""
    grid_replicas: int
    grid_delta_ms: float
    """Mean latency over that of sink-based placement."""
    published_delta_ms: float
    grid_ratio: float
    """Our delta over the published scripts'."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def finite(folder: Path, parts: list[str]) -> list[Path]:
    """The instances with limited capacities whose names contain one of `parts` (all, if there are none)."""
    files = [p for p in sorted(folder.glob("*.json")) if not p.stem.endswith("-inf")]
    chosen = [p for p in files if not parts or any(part in p.stem for part in parts)]
    if not chosen:
        named = f" named {parts}" if parts else ""
        raise InvalidInput(f"{folder}: no instance files <topology>-<level>.json{named}")
    return chosen


def measure(path: Path) -> Figures:
    """Plan one instance by distance with window slices for both objectives and with grids, and judge the plans."""
    instance = load(path)
    latency, latency_gap = _judged(instance.problem, "window", "latency")
    paper, paper_gap = _judged(instance.problem, "window", "paper")
    grid, grid_gap = _judged(instance.problem, "grid", "latency")
    published = instance.published["nova"]["exact_mean_delta_to_sink"]
    return Figures(
        instance=instance.name,
        window_gap_latency=latency_gap,
        window_gap_paper=paper_gap,
        grid_gap=grid_gap,
        overloaded=latency.overloaded + paper.overloaded + grid.overloaded,
        grid_replicas=grid.replicas,
        grid_delta_ms=grid.delta_mean_ms,
        published_delta_ms=published,
        grid_ratio=grid.delta_mean_ms / published,
    )


def _judged(problem: Problem, partition: Partition, objective: Objective) -> tuple[Metrics, float]:
    plan = optimize(problem, Options(partition=partition, objective=objective, waiting=0.0))
    metrics = evaluate(problem, plan)
    cost = metrics.cost_latency_ms if objective == "latency" else metrics.cost_paper_ms
    return metrics, cost / bound(problem, plan.joins, plan.space, plan.options).value - 1
