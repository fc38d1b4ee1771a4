"""Phase I on real latencies: errors on held-out pairs, as ratios to plain 2-D Vivaldi in the same run.

    python benchmarks/embedding.py [--seeds 3] [--near 0.0] [--scale 100000]

Data: the folder `shared` beside the repository, or the one that NOVA_SHARED names. Every node picks m measured
neighbours, `--near` of them its nearest ones; all other pairs are held out. Zeros in the matrices are missing pairs,
two directions are averaged. `--scale N` adds N drawn nodes with 20 measurements each, to show time and memory.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nova.cli.output import table
from nova.costspace import CostSpace, choose, embed_latency, mds, measure, phantom, residual, stress, tiv, vivaldi
from nova.model.options import Options
from nova.model.problem import Bools, Latency

Solver = Callable[[int, Latency, int], CostSpace]


def _stress(dimensions: int, heights: bool) -> Solver:
    return lambda n, fit, seed: CostSpace(
        *stress.solve(n, fit.first, fit.second, fit.rtt_ms, dimensions=dimensions, heights=heights, seed=seed)
    )


def _vivaldi(dimensions: int, heights: bool) -> Solver:
    return lambda n, fit, seed: CostSpace(
        *vivaldi.solve(n, fit.first, fit.second, fit.rtt_ms, dimensions=dimensions, heights=heights, seed=seed)
    )


def _refined(n: int, fit: Latency, seed: int) -> CostSpace:
    """The default: a residual on top where cross-validation says that it helps."""

    def fitted(used: Bools) -> CostSpace:
        part = Latency(fit.first[used], fit.second[used], fit.rtt_ms[used])
        return _stress(3, True)(n, part, seed)

    every = np.ones(len(fit), bool)
    space = fitted(every)
    return residual.with_residual(space, fit, every) if residual.helpful(n, fit, every, fitted, seed) else space


METHODS: dict[str, Solver] = {
    "Vivaldi 2-D": _vivaldi(2, False),
    "Vivaldi 3-D + height": _vivaldi(3, True),
    "SMACOF 3-D": lambda n, fit, seed: CostSpace(
        *mds.solve(n, fit.first, fit.second, fit.rtt_ms, dimensions=3, seed=seed)
    ),
    "stress 2-D": _stress(2, False),
    "stress 2-D + height": _stress(2, True),
    "stress 3-D + height": _stress(3, True),
    "stress 5-D + height": _stress(5, True),
    "stress 3-D + height + residual": _refined,
}
"""The first one is what the others are compared with."""

MATRICES = {
    "RIPE Atlas": ("ripe-atlas-723.csv.gz", 20),
    "PlanetLab, slot 1": ("planetlab-490-18slots.npz", 32),
    "FIT IoT Lab, filled": ("fit-433-filled.csv.gz", 20),
    "FIT IoT Lab, A8": ("fit-a8-283.csv.gz", 20),
    "PlanetLab 169": ("planetlab-169.csv.gz", 20),
    "a cloud's regions": ("aws-regions-32.csv", 20),
}
"""File and m, the neighbours measured per node."""


def shared() -> Path:
    """The folder of public data."""
    folder = Path(os.environ.get("NOVA_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not folder.is_dir():
        sys.exit(f"no data: {folder} does not exist; set NOVA_SHARED to the folder of the shared data")
    return folder


def read(path: Path) -> tuple[int, Latency]:
    """(nodes, measured pairs) of a matrix; nodes without any measurement are left out."""
    if path.suffix == ".npz":
        matrix = np.load(path)["rtt_ms"][0].astype(np.float64)
    else:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            rows = [row[1:] for row in csv.reader(file)][1:]
        matrix = np.array([[float(entry) if entry not in ("", "NA") else 0.0 for entry in row] for row in rows])
    known = np.where(np.isfinite(matrix) & (matrix > 0), matrix, 0.0)
    np.fill_diagonal(known, 0.0)
    directions = (known > 0).astype(float) + (known.T > 0)
    mean = (known + known.T) / np.maximum(1.0, directions)
    alive = (mean > 0).any(axis=1)
    mean = mean[np.ix_(alive, alive)]
    first, second = np.nonzero(np.triu(mean))
    return len(mean), Latency(first.astype(np.int32), second.astype(np.int32), mean[first, second])


def compare(name: str, n: int, latency: Latency, m: int, near: float, seeds: int) -> None:
    """Print one table: every method on the same picks, means over the seeds."""
    figures: dict[str, list[tuple[float, float, float, float]]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        used = choose(n, latency.first, latency.second, latency.rtt_ms, m, seed, near)
        fit = Latency(latency.first[used], latency.second[used], latency.rtt_ms[used])
        for method, solve in METHODS.items():
            began = time.perf_counter()
            space = solve(n, fit, seed)
            seconds = time.perf_counter() - began
            told = measure(space, latency.first[~used], latency.second[~used], latency.rtt_ms[~used], "unused")
            figures[method].append((told.median_relative_error, told.p90_relative_error, told.mae_ms, seconds))
    means = {
        method: [statistics.fmean(column) for column in zip(*runs, strict=True)] for method, runs in figures.items()
    }
    plain = next(iter(means.values()))
    rows: list[list[Any]] = [
        [
            method,
            mean[0],
            mean[0] / plain[0],
            mean[1],
            mean[1] / plain[1],
            mean[2],
            mean[2] / plain[2],
            min(row[3] for row in figures[method]),
        ]
        for method, mean in means.items()
    ]
    broken = tiv(n, latency.first, latency.second, latency.rtt_ms)
    table(
        f"{name}: {n} nodes, m = {m}, {near:.0%} near, {seeds} seeds, triangle violations {broken:.1%}",
        ["method", "median rel. error", "ratio", "90P", "ratio", "MAE ms", "ratio", "best s"],
        rows,
    )


def scale(n: int) -> None:
    """Time and memory of a large embedding, with its error against the drawn truth."""
    truth = phantom.scattered(n)
    latency = phantom.measured(truth, 20, noise=0.05)
    began, burnt = time.perf_counter(), time.process_time()
    space = embed_latency(n, latency, Options(neighbours=20))
    seconds, cpu = time.perf_counter() - began, time.process_time() - burnt
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, n, size=(2, 100_000))
    a, b = a[a != b], b[a != b]
    error = float(np.median(np.abs(space.between(a, b) / truth.between(a, b) - 1)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    table(
        "Scale: drawn layout, 20 measurements per node with 5 % noise",
        ["nodes", "pairs", "seconds", "CPU seconds", "peak MB", "median rel. error to the truth"],
        [[n, len(latency), seconds, cpu, peak, error]],
    )


def main() -> None:
    """Print a table per data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--near", type=float, default=0.0, help="share of the nearest among the m neighbours")
    parser.add_argument("--scale", type=int, default=0, help="also embed so many drawn nodes")
    wanted = parser.parse_args()
    folder = shared() / "data" / "latency"
    for name, (file, m) in MATRICES.items():
        n, latency = read(folder / file)
        compare(name, n, latency, m, wanted.near, wanted.seeds)
    if wanted.scale:
        scale(wanted.scale)


if __name__ == "__main__":
    main()
