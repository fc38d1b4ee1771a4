"""`nova bench stream`: the routed job against the plain Spark join of the same streams."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer

from nova.cli.output import JSON, emit_json, progress, table


def stream(
    rounds: int = typer.Option(2, min=1, help="Runs of each job; they take turns."),
    batches: int = typer.Option(10, min=1, help="Batches of each run that are counted."),
    saturated: float = typer.Option(20.0, min=1.0, help="Seconds of the streams in one batch at saturation."),
    live: float = typer.Option(20.0, min=0.0, help="Seconds of each live run; 0: none."),
    every: list[int] = typer.Option([0], help="Time between batches of the live runs in ms; 0: none between them."),
    soak: float = typer.Option(0.0, min=0.0, help="Seconds of a long live run at full rate, for state and memory."),
    rate: float = typer.Option(1000.0, min=1.0, help="Tuples/s of each of the 8 sensors."),
    window: float = typer.Option(1000.0, min=0.001, help="Length of the windows in ms."),
    cores: int = typer.Option(2, min=1, help="Cores for Spark."),
    as_json: bool = JSON,
) -> None:
    """Measure how many tuples a second the job of a plan takes, and the plain Spark stream-stream join beside it.

    Both read the same files and write Parquet, in one Spark session, taking turns; `ratio` is routed over plain at
    saturation. Latency is from event to sink on live streams at the given rate.

    Example: `nova bench stream --every 0 --every 1000 --every 5000 --json`
    """
    from nova.spark.run.bench import Workload, bench
    from nova.spark.session import session

    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="nova-bench-") as scratch:
        with progress("starting Spark"):
            spark = session(cores=cores, name="nova bench stream", config={"spark.local.dir": scratch})
        with spark, progress("measuring"):
            figures = bench(
                spark, Workload(rate=rate, window_ms=window), rounds=rounds, batches=batches, saturated_s=saturated,
                live_s=live, intervals_ms=every if live > 0 else [], soak_s=soak, scratch=Path(scratch),
            )
    if as_json:
        emit_json(figures)
    else:
        _print(figures)


def _print(figures: dict[str, Any]) -> None:
    table("Throughput, tuples/s", ["tuples a batch", "routed", "plain Spark join", "ratio"], [
        (part["tuples_per_batch"], part["tuples_per_s"], part["plain_tuples_per_s"], part["ratio"])
        for part in (figures["usual"], figures["saturated"])
    ])
    runs = [*figures["live"], *([figures["soak"]] if figures["soak"] else [])]
    if runs:
        table("Live", ["batch every, ms", "latency p50, ms", "p99, ms", "first result, s", "state, MB", "memory, MB"], [
            (run["every_ms"], (run["latency_ms"] or {}).get("p50"), (run["latency_ms"] or {}).get("p99"),
             run["first_result_s"], run["state_bytes"] and run["state_bytes"]["most"] / 2**20,
             run["memory_mb"] and run["memory_mb"]["most"]) for run in runs
        ])
