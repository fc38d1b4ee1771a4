"""`nova bench measured`: what knowing the measured round-trip times is worth."""

from __future__ import annotations

import typer

from nova.cli.output import JSON, emit_json, progress, table


def measured(
    data: str = typer.Option("ripe-atlas-419", "--data", help="Data set of measured times (nova data list)."),
    level: int = typer.Option(5, min=0, max=5, help="Heterogeneity of capacities where there are limits."),
    neighbours: int = typer.Option(20, min=2, help="Measured neighbours per node that the cost space is made from."),
    draws: int = typer.Option(3, min=1, help="Random draws of sources, pairs, rates and capacities; means are shown."),
    seed: int = typer.Option(0, help="Seed of the first draw."),
    json: bool = JSON,
) -> None:
    """Cost of plans under measured round-trip times, over the optimum under the same times.

    Single joins have a true optimum, the best host of each; under load it is the linear program's. Example:

        nova bench measured --data ripe-atlas-419 --draws 5
    """
    from nova.datasets.topologies import topology
    from nova_lab.bench import measured as bench

    found = topology(data)
    with progress(f"planning over {data}"):
        rows = bench.means(
            [bench.measure(len(found), found.latency, level, s, neighbours) for s in range(seed, seed + draws)]
        )
    if json:
        emit_json({"data": data, "nodes": len(found), "draws": draws, "rows": [r.as_dict() for r in rows]})
        return
    table(
        f"True cost over the true optimum, {data}, {len(found)} nodes, mean of {draws} draws",
        ["joins", "partition", "by estimates", "by measurements", "overloaded"],
        [["under load" if r.limited else "single", r.partition, r.estimated, r.measured, r.overloaded] for r in rows],
    )
