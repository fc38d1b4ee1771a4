"""Nova on the fixed instances of the published simulations: gap to the bound, and ratio to the published scripts.

    python benchmarks/instances.py FOLDER [--only fit-5 king] [--json]

FOLDER holds `<topology>-<level>.json`. For window slices the gap to the linear program's optimum is shown for both
objectives; for grids the gap, and the mean delta to sink-based as a share of the published scripts' delta.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from nova.cli.output import emit_json, table
from nova.datasets.instances import load
from nova.evaluate.bounds import bound
from nova.evaluate.metrics import evaluate
from nova.optimizer import optimize
from nova.options import Objective, Options


def measure(path: Path) -> dict[str, Any]:
    """The figures of one instance."""
    instance = load(path)
    row: dict[str, Any] = {"instance": instance.name}
    objectives: tuple[Objective, ...] = ("latency", "paper")
    for objective in objectives:
        plan = optimize(instance.problem, Options(partition="window", objective=objective))
        metrics = evaluate(instance.problem, plan)
        least = bound(instance.problem, plan.joins, plan.space, plan.options).value
        cost = metrics.cost_latency_ms if objective == "latency" else metrics.cost_paper_ms
        row[f"window_gap_{objective}"] = cost / least - 1
    plan = optimize(instance.problem, Options(partition="grid"))
    metrics = evaluate(instance.problem, plan)
    least = bound(instance.problem, plan.joins, plan.space, plan.options).value
    row["grid_gap"] = metrics.cost_latency_ms / least - 1
    row["grid_overloaded"] = metrics.overloaded
    row["grid_replicas"] = metrics.replicas
    row["grid_delta_ms"] = metrics.delta_mean_ms
    row["published_delta_ms"] = instance.published["nova"]["exact_mean_delta_to_sink"]
    row["grid_ratio"] = row["grid_delta_ms"] / row["published_delta_ms"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[""], help="Parts of instance names.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    paths = [p for p in sorted(arguments.folder.glob("*.json")) if "-inf" not in p.stem]
    rows = [measure(p) for p in paths if any(part in p.stem for part in arguments.only)]
    if arguments.json:
        emit_json(rows)
        return
    table(
        "Finite instances: window slices against the bound, grids against the published scripts",
        ["instance", "window gap %", "paper obj. gap %", "grid gap %", "over", "grid delta ms", "published", "ratio"],
        [
            [r["instance"], 100 * r["window_gap_latency"], 100 * r["window_gap_paper"], 100 * r["grid_gap"],
             r["grid_overloaded"], r["grid_delta_ms"], r["published_delta_ms"], r["grid_ratio"]]
            for r in rows
        ],
    )
    ratios = [r["grid_ratio"] for r in rows]
    worst = max(max(r["window_gap_latency"], r["window_gap_paper"]) for r in rows)
    print(f"window: worst gap {100 * worst:.4f} %   grid ratio: mean {statistics.mean(ratios):.3f}, "
          f"worst {max(ratios):.3f}, overloaded {sum(r['grid_overloaded'] for r in rows)}")


if __name__ == "__main__":
    main()
