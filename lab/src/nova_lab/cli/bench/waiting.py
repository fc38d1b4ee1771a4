"""`nova bench waiting`: felt latency under Nova's plans and under every other way, simulated."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from nova.cli.output import JSON, emit_json, progress, table
from nova.evaluation.simulation.result import Arrivals


def waiting(
    folder: Path | None = typer.Argument(
        None, help="Folder of instance files <topology>-<level>.json; default: drawn topologies only."
    ),
    only: list[str] = typer.Option([], "--only", help="Parts of instance names, one option each; default: all."),
    load: list[float] = typer.Option([0.4, 0.6, 0.8], "--load", help="Loads of the fresh draws, one option each."),
    draws: int = typer.Option(2, min=0, help="Fresh draws per load."),
    nodes: int = typer.Option(1001, min=10, help="Nodes of a drawn topology."),
    keyed: bool = typer.Option(False, "--keyed", help="Give every join a key, so that it divides by ranges of it."),
    way: list[str] = typer.Option([], "--way", help="Which ways, one option each; default: all."),
    seconds: float = typer.Option(60.0, min=1.0, help="Seconds to simulate each plan."),
    arrivals: Arrivals = typer.Option("poisson", "--arrivals", help="Tuples come at random, evenly, or in bursts."),
    json: bool = JSON,
) -> None:
    """Simulate Nova's plans, with other options and beside every baseline: event-to-sink latency of results.

    Says where Nova loses by more than 2 % at the mean, p90 or p99.

    Example: `nova bench waiting ../shared/instances --only fit-5 --draws 0 --way nova --way top-c-largest`
    """
    from nova_lab.bench import waiting as bench

    rows = []
    ways = way or list(bench.WAYS)
    with progress("planning and simulating") as bar:
        task = bar.task_ids[0]
        for case in bench.cases(folder, only, load, draws, nodes, keyed):
            bar.update(task, description=case.name)
            rows += bench.measure(case, ways, seconds, arrivals)
    lost = bench.losses(rows)
    wrong = bench.errors(rows)
    if json:
        emit_json(
            {
                "seconds": seconds,
                "arrivals": arrivals,
                "rows": [row.as_dict() for row in rows],
                "losses": [loss.as_dict() for loss in lost],
                "prediction_errors": wrong,
            }
        )
        return
    for name in dict.fromkeys(row.case for row in rows):
        table(
            f"{name}: event to sink, ms, results of {seconds:g} s, {arrivals} arrivals",
            ["way", "mean", "p50", "p90", "p99", "network", "over the bound %", "fullest %", "notes"],
            [
                [r.way, r.mean, r.p50, r.p90, r.p99, r.network, _percent(r.gap), 100 * r.busiest, r.notes]
                for r in rows
                if r.case == name
            ],
        )
    if lost:
        table(
            "Where another way is ahead of Nova by more than 2 %",
            ["case", "figure", "nova ms", "way", "its ms"],
            [[loss.case, loss.figure, loss.nova, loss.way, loss.other] for loss in lost],
        )
    compared = len({row.case for row in rows if row.way == "nova"}) * len(bench.FIGURES)
    typer.echo(f"Nova is behind in {len(lost)} of {compared} figures (mean, p90 and p99 of every case)")
    if arrivals == "poisson":
        typer.echo(
            f"prediction, where queues settle: off by {wrong['mean']:.1%} (mean), {wrong['p99']:.1%} (p99) at most"
        )


def _percent(share: float) -> float | None:
    """A share in per cent; nothing where there is none."""
    return 100 * share if math.isfinite(share) else None
