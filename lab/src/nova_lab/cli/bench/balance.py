"""`nova bench balance`: what headroom and few replicas cost."""

from __future__ import annotations

import typer

from nova.cli.output import JSON, emit_json, progress, table


def balance(
    nodes: int = typer.Option(1001, min=10, help="Size of the drawn topology."),
    level: int = typer.Option(5, min=0, max=5, help="Heterogeneity of capacities, 0 (uniform) to 5 (exponential)."),
    partition: str = typer.Option("auto", help="How joins are split: auto, window or grid."),
    seed: int = typer.Option(1, help="Seed of the draw, and of the simulation."),
    simulate: float = typer.Option(20.0, min=0.0, help="Seconds of stream to simulate per plan; 0: none."),
    json: bool = JSON,
) -> None:
    """Plan one topology under tighter and tighter targets for utilisation, and with fewer and fewer replicas.

    Example: `nova bench balance --nodes 1001 --partition window`
    """
    from nova.model.errors import InvalidInput
    from nova.synthetic import draw
    from nova_lab.bench import balance as bench

    if partition not in ("auto", "window", "grid"):
        raise InvalidInput(f"--partition is auto, window or grid; got {partition}")
    with progress("planning and simulating"):
        rows = bench.measure(draw(nodes, level, seed), partition, simulate, seed)  # type: ignore[arg-type]
    if json:
        emit_json({"nodes": nodes, "level": level, "partition": partition, "rows": [r.as_dict() for r in rows]})
        return
    table(
        f"Headroom and replicas, {nodes:,} nodes, {partition} partitioning",
        ["use ≤ %", "parts ≤", "gap %", "mean ms", "fullest %", "growth ×", "parts", "p99 ms"],
        [
            [
                100 * r.utilisation,
                r.max_replicas,
                100 * r.gap,
                r.latency_mean_ms,
                100 * r.utilisation_max,
                r.growth,
                r.replicas,
                r.simulated_p99_ms,
            ]
            if r.gap is not None and r.utilisation_max is not None
            else [100 * r.utilisation, r.max_replicas, "refused", None, None, None, None, None]
            for r in rows
        ],
    )
    typer.echo(
        "gap: over the bound with all of every capacity; growth: of all rates, until the fullest node is full; "
        "parts: replicas, at most of a sub-join and in all; p99: a tuple's way through network and queues, simulated"
    )
