"""All approaches on fixed draws: prints ratios and gaps, never absolute claims alone.

    python benchmarks/approaches.py [--nodes 1001] [--seeds 3] [--level 5] [--simulate 20]

Latencies and costs stand as ratios to sink-based and to a lower bound, times as ratios to a k-d tree build with one
nearest-neighbour query per sub-join in the same run, so that figures of different machines can be compared.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from scipy.spatial import cKDTree

from nova.cli.output import table
from nova.evaluation.approaches import COMPARED, Row, label
from nova.evaluation.compare import compare
from nova.model.options import Options
from nova.model.problem import Problem
from nova.placement.resolve import resolve
from nova.synthetic import draw


def floor_seconds(problem: Problem) -> float:
    """What no placement can undercut by much: index all nodes and look each sub-join up once."""
    coordinates = problem.nodes.coordinates
    assert coordinates is not None
    joins = resolve(problem)
    middle = (coordinates[joins.left_node] + coordinates[joins.right_node] + coordinates[joins.sink]) / 3
    started = time.perf_counter()
    cKDTree(coordinates).query(middle)
    return time.perf_counter() - started


def main() -> None:
    """Draw, compare, and print means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1001)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--level", type=int, default=5)
    parser.add_argument("--simulate", type=float, default=20.0, help="seconds to simulate")
    wanted = parser.parse_args()
    rows: list[Row] = []
    for seed in range(wanted.seeds):
        problem = draw(wanted.nodes, wanted.level, seed)
        floor = statistics.median(floor_seconds(problem) for _ in range(5))
        options = Options(seed=seed)
        done = [one.row for one in compare(problem, COMPARED, options, simulated_s=wanted.simulate, with_bound=True)]
        sink = next(row for row in done if row["approach"] == "sink")
        fastest = min(row["simulated_p99_ms"] for row in done) if wanted.simulate else float("nan")
        for row in done:
            rows.append(
                {
                    "approach": row["approach"],
                    "mean / sink": row["latency_mean_ms"] / sink["latency_mean_ms"],
                    "90P / sink": row["latency_p90_ms"] / sink["latency_p90_ms"],
                    "gap %": 100 * row["gap"],
                    "overloaded %": row["overloaded_percent"],
                    "traffic / sink": row["tuples_in"] / sink["tuples_in"],
                    "replicas / joins": row["replicas"] / len(resolve(problem)),
                    "simulated p99 / best": row.get("simulated_p99_ms", float("nan")) / fastest,
                    "time / k-d floor": row["seconds"] / floor,
                }
            )
    columns = [name for name in rows[0] if name != "approach"]
    table(
        f"{wanted.nodes:,} nodes, level {wanted.level}, means over {wanted.seeds} draws",
        ["approach", *columns],
        [
            [label(name), *(float(np.mean([r[c] for r in rows if r["approach"] == name])) for c in columns)]
            for name in COMPARED
        ],
    )


if __name__ == "__main__":
    main()
