"""`nova bench scale`: full optimization against scipy's nearest-neighbour look-up in the same run."""

from __future__ import annotations

import typer

from nova.cli.output import JSON, emit_json, percent, progress, table

LOADS = (0.7, 0.85, 0.95, 1.05)
"""Shares of all capacity that the joins need: the last cannot fit."""


def scale(
    nodes: list[int] = typer.Option([10_000, 100_000, 1_000_000], "--nodes", help="Topology sizes, one option each."),
    level: int = typer.Option(5, min=0, max=5, help="Heterogeneity of capacities, 0 (uniform) to 5 (exponential)."),
    partition: str = typer.Option("auto", help="How joins are split: auto, grid or window."),
    objective: str = typer.Option("latency", help="What a placement costs: latency or paper."),
    waiting: float = typer.Option(1.0, min=0.0, help="Weight of time at hosts in plan and bound; 0: distance alone."),
    streams: int = typer.Option(
        2, min=2, max=3, help="Streams per join; 3: another join reads the results of one, and sends aggregates on."
    ),
    seed: int = typer.Option(1, help="Seed of the drawn topologies."),
    repeats: int = typer.Option(3, min=1, help="Runs per size; the best counts, for floor and plan alike."),
    gap: bool = typer.Option(True, help="Work out the lower bound and the gap to it (takes longer than planning)."),
    loads: bool = typer.Option(False, "--loads", help="Also at 70, 85, 95 and 105 % utilisation of all capacity."),
    levels: bool = typer.Option(False, "--levels", help="Also at all six heterogeneity levels."),
    json: bool = JSON,
) -> None:
    """Time full optimizations of drawn topologies (coordinates given → replica table), with the gap to the bound.

    The floor is what scipy takes, in the same run, to build a cKDTree on the same nodes and answer one
    nearest-neighbour query per sub-join. Example:

        nova bench scale --nodes 1000000 --json
    """
    from nova.model.errors import InvalidInput
    from nova.model.options import LEG_WEIGHTS, Options
    from nova.synthetic import draw, draw_chains
    from nova_lab.bench import scale as bench

    if partition not in ("window", "grid", "auto") or objective not in LEG_WEIGHTS:
        raise InvalidInput(
            f"--partition is auto, grid or window, --objective latency or paper; got {partition}, {objective}"
        )
    options = Options(partition=partition, objective=objective, waiting=waiting)  # type: ignore[arg-type]
    with progress("measuring"):
        make = draw if streams == 2 else draw_chains
        gap = gap and streams == 2  # the bound is one for joins whose ends are given
        rows = [bench.measure(n, level, seed, options, repeats, gap, make) for n in nodes]
        more_loads = [row for n in nodes if loads for row in bench.utilisations(n, seed, LOADS, options, gap)]
        more_levels = [row for n in nodes if levels for row in bench.levels(n, seed, options, gap)]
    if json:
        documents = [row.as_dict() for row in rows]
        extra = {"loads": more_loads} if loads else {}
        extra |= {"levels": more_levels} if levels else {}
        emit_json({**documents[0], **extra} if len(documents) == 1 else {"sizes": documents, **extra})
        return
    table(
        f"Full optimization, {partition} partitioning, objective {objective}",
        ["nodes", "sub-joins", "seconds", "scipy floor", "ratio", "peak MB", "overloaded", "gap %", "replicas"],
        [
            [r.nodes, r.joins, r.seconds, r.floor_seconds, r.ratio, r.peak_mb, r.overloaded, percent(r.gap), r.replicas]
            for r in rows
        ],
    )
    if loads:
        table(
            "Utilisation",
            ["nodes", "load", "placed", "overloaded", "gap %", "says"],
            [[r["nodes"], r["load"], r["placed"], r["overloaded"], percent(r["gap"]), r["says"]] for r in more_loads],
        )
    if levels:
        table(
            "Heterogeneity",
            ["nodes", "level", "CV", "overloaded", "gap %"],
            [[r["nodes"], r["level"], r["cv"], r["overloaded"], percent(r["gap"])] for r in more_levels],
        )
