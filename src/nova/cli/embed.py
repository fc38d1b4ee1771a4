"""`nova embed`: Phase I alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.output import JSON, emit_json, progress, table, warn
from nova.model.errors import Fault, InvalidInput

if TYPE_CHECKING:
    from nova.costspace import CostSpace
    from nova.scenario import Scenario

app = typer.Typer()

HELDOUT = {
    "unused": "measured pairs beyond the m neighbours per node",
    "reserved": "pairs kept out of the fit",
    "refit": "a tenth of the pairs, kept out of a second fit",
    "given": "all measured pairs, as the coordinates were given",
    "none": "the fitted pairs themselves: too few to keep any out",
}
"""What the figures are told on, in words."""


@app.command()
def command(
    scenario: Path = typer.Argument(
        ...,
        metavar="SCENARIO",
        help="Scenario file, YAML or JSON; with --engine spark "
        "also a table of latencies (from, to, rtt_ms), Parquet or CSV.",
    ),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="FILE", help="Where to write id, x, y, …, height: .csv or .parquet."
    ),
    method: str | None = typer.Option(None, help="stress (batch solver with heights), vivaldi, or mds."),
    dimensions: int | None = typer.Option(None, help="Dimensions of the cost space."),
    heights: bool | None = typer.Option(None, "--heights/--no-heights", help="Give nodes a height for their link."),
    neighbours: int | None = typer.Option(None, help="Measured neighbours per node that are used at most."),
    seed: int | None = typer.Option(None, help="Same seed, same coordinates."),
    engine: str = typer.Option("local", help="local, or spark for more pairs than one process can hold."),
    work: Path | None = typer.Option(
        None,
        metavar="DIR",
        help="With spark: where a run keeps what it needs to "
        "continue when it was killed; by default FILE.work. All workers have to see it.",
    ),
    base: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="With spark: coordinates that stay as they are; only nodes that are not in them are placed.",
    ),
    unit: str | None = typer.Option(
        None, metavar="UNIT", help="With a table whose column is called rtt: ms, s, us or ns. rtt_ms, rtt_s say it."
    ),
    master: str | None = typer.Option(None, help="With spark: address of a cluster; without one, this machine."),
    as_json: bool = JSON,
) -> None:
    """Place the nodes of SCENARIO so that distance says latency, and tell how well it does.

    The latency of two nodes is the distance of their coordinates plus both heights, in ms. The file can be joined to
    the nodes table by id: its columns are those of a scenario's nodes. Nodes that carry coordinates keep them; then
    only the accuracy is told.

    Example: `nova embed demo/scenario.yaml -o coords.csv --neighbours 20`

    On Spark: `nova embed clean/latency.parquet --engine spark -o coords.parquet`. A killed run continues when it is
    started again with the same arguments.
    """
    from nova.costspace import embed
    from nova.costspace.table import check_ending, write_coordinates

    if output is not None:
        check_ending(output)
    if engine not in ("local", "spark"):
        raise InvalidInput([Fault("--engine", "local or spark expected", value=engine)])
    overrides = {
        "embedding": method,
        "dimensions": dimensions,
        "heights": heights,
        "neighbours": neighbours,
        "seed": seed,
    }
    if engine == "spark":
        from nova.cli.embed_spark import run

        run(scenario, output, overrides, work, base, unit, master, as_json)
        return
    if work is not None or base is not None or unit is not None or master is not None:
        raise InvalidInput([Fault("--engine", "--work, --base, --unit and --master need --engine spark", value=engine)])
    with progress("reading the scenario"):
        from nova.scenario import load

        loaded = load(scenario, overrides)
    warn(loaded.warnings)
    started = time.perf_counter()
    with progress("embedding") as bar:
        task = bar.task_ids[0]
        space = embed(loaded.problem, loaded.options, lambda share: bar.update(task, total=1.0, completed=share))
    seconds = time.perf_counter() - started
    figures = summarise(space, loaded) | {"seconds": round(seconds, 3)}
    if output is not None:
        write_coordinates(output, loaded.problem.nodes.ids, space)
        figures["coordinates"] = str(output)
    if figures["unreachable"]:
        warn([f"{figures['unreachable']:,} nodes that nothing uses have no measured way to the others: left out"])
    if as_json:
        emit_json(figures | {"warnings": list(loaded.warnings)})
    else:
        _print(figures)


def summarise(space: CostSpace, loaded: Scenario) -> dict[str, Any]:
    """What was embedded, how, and how well; ms."""
    import numpy as np

    given = loaded.problem.nodes.coordinates is not None
    latency = loaded.problem.latency
    figures: dict[str, Any] = {
        "nodes": len(space),
        "unreachable": int(np.count_nonzero(~np.isfinite(space.heights))),
        "pairs": 0 if latency is None else len(latency),
        "method": "given" if given else loaded.options.embedding,
        "dimensions": space.dimensions,
        "heights": bool(space.heights.any()),
        "neighbours": None if given else loaded.options.neighbours,
        "seed": loaded.options.seed,
    }
    told = space.accuracy
    figures["residual_rank"] = 0 if space.residual is None else space.residual.rank
    figures["heldout"] = None if told is None else told.heldout
    for name in (
        "heldout_pairs",
        "median_relative_error",
        "p90_relative_error",
        "mae_ms",
        "tiv_share",
        "coordinates_median",
    ):
        figures[name] = None if told is None else getattr(told, name)
    return figures


def _print(figures: dict[str, Any]) -> None:
    how = f"{figures['method']}, {figures['dimensions']} dimensions" + (" + height" if figures["heights"] else "")
    rows: list[tuple[str, Any]] = [("nodes", figures["nodes"]), ("measured pairs", figures["pairs"]), ("method", how)]
    if figures["neighbours"] is not None:
        rows.append(("neighbours per node, at most", figures["neighbours"]))
    table("Cost space", ["", "value"], rows)
    if figures["heldout"] is None:
        typer.echo("no latencies were measured: nothing tells how accurate the given coordinates are")
    else:
        alone = (f"median without the residual of rank {figures['residual_rank']}", figures["coordinates_median"])
        table(
            f"Accuracy on {HELDOUT[figures['heldout']]}",
            ["", "value"],
            [
                ("pairs", figures["heldout_pairs"]),
                ("median relative error", figures["median_relative_error"]),
                ("90th percentile of it", figures["p90_relative_error"]),
                ("mean absolute error, ms", figures["mae_ms"]),
                *([alone] if figures["residual_rank"] else []),
                ("triples that break the triangle inequality", figures["tiv_share"]),
            ],
        )
    if "coordinates" in figures:
        typer.echo(f"wrote {figures['coordinates']} in {figures['seconds']:.1f} s")
