"""`nova bench events`: time per event beside one full optimization, and quality and memory over a long run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from nova.cli.output import JSON, emit_json, progress, table

if TYPE_CHECKING:
    from nova_lab.bench.events import Latency, LongRun


def events(
    nodes: list[int] = typer.Option([10_000, 100_000, 1_000_000], "--nodes", help="Topology sizes, one option each."),
    count: int = typer.Option(1000, "--events", min=1, help="Events of each kind that are timed at each size."),
    long: int = typer.Option(0, min=0, help="Mixed events in a row at each size, instead of timing single ones."),
    every: int = typer.Option(1000, min=1, help="Events of the long run between comparisons with a fresh plan."),
    level: int = typer.Option(5, min=0, max=5, help="Heterogeneity of capacities, 0 (uniform) to 5 (exponential)."),
    partition: str = typer.Option("auto", help="How joins are split: auto, window or grid."),
    seed: int = typer.Option(1, help="Seed of the drawn topologies and events."),
    json: bool = JSON,
) -> None:
    """Time how long a running plan takes to follow one event, by kind, at several sizes.

    Beside it stands the time of one full optimization of the same network. With `--long`, quality: mixed events in a
    row, with the cost against a fresh plan (both by the independent evaluation) and memory. Examples:

        nova bench events --nodes 10000 --nodes 1000000 --json
        nova bench events --nodes 100000 --long 100000
    """
    from nova.model.errors import InvalidInput
    from nova.model.options import Options
    from nova_lab.bench import events as bench

    if partition not in ("auto", "window", "grid"):
        raise InvalidInput(f"--partition is auto, window or grid; got {partition}")
    options = Options(partition=partition)  # type: ignore[arg-type]
    runs: list[LongRun] = []
    rows: list[Latency] = []
    with progress("measuring"):
        for n in nodes:
            if long:
                runs.append(bench.long_run(n, level, seed, options, long, every))
            else:
                rows.append(bench.latency(n, level, seed, options, count))
    if json:
        documents = [run.as_dict() for run in runs] + [row.as_dict() for row in rows]
        emit_json(documents[0] if len(documents) == 1 else {"sizes": documents})
        return
    for row in rows:
        _print_latency(row)
    for run in runs:
        _print_run(run)


def _print_latency(row: Latency) -> None:
    table(
        f"{row.nodes:,} nodes, {row.joins:,} sub-joins; one full optimization: {row.optimize_ms:.1f} ms of CPU",
        ["event", "p50 ms", "p99 ms", "CPU p50 ms", "CPU p99 ms", "events per optimization"],
        [
            [
                kind,
                row.p50_ms[kind],
                row.p99_ms[kind],
                row.cpu_p50_ms[kind],
                row.cpu_p99_ms[kind],
                row.optimize_over_p99[kind],
            ]
            for kind in row.p50_ms
        ],
    )


def _print_run(run: LongRun) -> None:
    table(
        f"{run.nodes:,} nodes, {run.events:,} events: cost at most {run.worst_cost_ratio:.4f} of a fresh plan's, "
        f"memory {run.memory_growth_mb:+.1f} MB",
        ["events", "cost / fresh", "overloaded", "waiting", "replicas", "fresh", "changes", "memory MB"],
        [
            [c.events, c.cost_ratio, c.overloaded, c.waiting, c.replicas, c.fresh_replicas, c.changes, c.memory_mb]
            for c in run.checks
        ],
    )
