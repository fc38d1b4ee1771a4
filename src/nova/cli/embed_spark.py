"""`nova embed --engine spark`: Phase I for more pairs than one process can hold."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from nova.cli.options import unit_in_ms
from nova.cli.output import emit_json, progress, table, warn
from nova.model.errors import Fault, InvalidInput
from nova.model.options import Options


def run(
    given: Path,
    output: Path | None,
    overrides: dict[str, Any],
    folder: Path | None,
    base: Path | None,
    unit: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Embed a scenario or a table of latencies on Spark, or place newcomers beside a `base`."""
    from nova.costspace.table import write_coordinates
    from nova.spark.session import open_session

    if output is None:
        raise InvalidInput([Fault("--output", "--engine spark writes the coordinates to a file: name it with -o")])
    if overrides["embedding"] not in (None, "stress"):
        raise InvalidInput([Fault("--method", "only stress runs on Spark", value=overrides["embedding"])])
    started = time.perf_counter()
    with progress("starting Spark") as bar:
        task = bar.task_ids[0]
        with open_session(master, name="nova embed", heavy=True) as spark:
            from nova.spark.ingest.embed.engine import add_newcomers, embed_table
            from nova.spark.ingest.embed.work import Work

            bar.update(task, description="reading latencies")
            latency, options, source = _latency(spark, given, overrides, unit)
            figures: dict[str, Any]
            if base is not None:
                bar.update(task, description="placing newcomers")
                ids, space, unplaced = add_newcomers(spark, latency, base, options)
                write_coordinates(output, ids, space)
                figures = {"nodes": len(ids), "newcomers": len(ids) - _rows(base), "unplaced": unplaced}
            else:
                work = folder or output.with_name(f"{output.name}.work")

                def tell(entry: dict[str, Any]) -> None:
                    error = entry["heldout_error"] if entry["heldout_error"] is not None else entry["fitted_error"]
                    bar.update(
                        task,
                        total=entry["epochs"],
                        completed=entry["epoch"],
                        description=f"epoch {entry['epoch']}/{entry['epochs']}, median error {error:.4f}",
                    )

                bar.update(task, description="dealing pairs into cells")
                done = embed_table(spark, latency, work, source, options, tell)
                write_coordinates(output, done.ids, done.space)
                Work(work).remove()
                told = done.space.accuracy
                assert told is not None, "the engine always tells its accuracy"
                figures = {
                    "nodes": len(done.ids),
                    "unreachable": int((done.space.heights == float("inf")).sum()),
                    "pairs": done.pairs,
                    "method": "stress",
                    "dimensions": done.space.dimensions,
                    "heights": bool(done.space.heights.any()),
                    "neighbours": options.neighbours,
                    "seed": options.seed,
                    "blocks": done.blocks,
                    "continued_after": done.continued_after,
                    "heldout": told.heldout,
                    "heldout_pairs": told.heldout_pairs,
                    "median_relative_error": told.median_relative_error,
                    "p90_relative_error": told.p90_relative_error,
                    "mae_ms": told.mae_ms,
                    "tiv_share": told.tiv_share,
                    "convergence": done.convergence,
                }
    figures |= {"engine": "spark", "seconds": round(time.perf_counter() - started, 3), "coordinates": str(output)}
    if figures.get("unreachable"):
        warn([f"{figures['unreachable']:,} nodes have no measured way to the others: left out"])
    if figures.get("unplaced"):
        warn([f"{figures['unplaced']:,} nodes have no measurement to a known node: left out"])
    if as_json:
        emit_json(figures)
    else:
        _print(figures)


def _latency(spark: Any, given: Path, overrides: dict[str, Any], unit: str | None) -> tuple[Any, Options, str]:
    """The latencies as Spark reads them, the options, and what tells this input from others."""
    from nova.spark.ingest.embed.engine import fingerprint, latency_frame, latency_table

    if given.is_dir() or given.name.removesuffix(".gz").endswith((".csv", ".parquet")):
        if not given.exists():
            raise InvalidInput([Fault(str(given), "no such file or folder")])
        if unit is not None:
            unit_in_ms(unit)
        chosen = Options(**{name: value for name, value in overrides.items() if value is not None})
        return latency_table(spark, str(given), unit), chosen, fingerprint(str(given))
    from nova.scenario import load

    if unit is not None:
        raise InvalidInput([Fault("--unit", "a scenario says its unit itself: latency_unit", value=unit)])
    loaded = load(given, overrides)
    warn(loaded.warnings)
    latency = loaded.problem.latency
    if latency is None:
        raise InvalidInput([Fault(str(given), "the scenario has no latencies to embed", field="latency")])
    return latency_frame(spark, loaded.problem.nodes.ids, latency), loaded.options, loaded.problem.digest


def _rows(base: Path) -> int:
    from nova.spark.ingest.embed.engine import read_coordinates

    return len(read_coordinates(base)[0])


def _print(figures: dict[str, Any]) -> None:
    if "newcomers" in figures:
        typer.echo(f"placed {figures['newcomers']:,} newcomers; wrote {figures['coordinates']}")
        return
    curve = figures["convergence"]
    shown = curve[:: max(1, len(curve) // 8)]
    shown = shown if shown[-1] is curve[-1] else [*shown, curve[-1]]
    table(
        "Convergence (median relative error)",
        ("epoch", "fitted pairs", "held-out pairs"),
        [(entry["epoch"], entry["fitted_error"], entry["heldout_error"]) for entry in shown],
    )
    table(
        "Cost space",
        ("", "value"),
        [
            ("nodes", figures["nodes"]),
            ("fitted pairs", figures["pairs"]),
            ("blocks", figures["blocks"]),
            ("held-out pairs", figures["heldout_pairs"]),
            ("median relative error", figures["median_relative_error"]),
            ("90th percentile of it", figures["p90_relative_error"]),
            ("mean absolute error, ms", figures["mae_ms"]),
        ],
    )
    typer.echo(f"wrote {figures['coordinates']} in {figures['seconds']:.1f} s")
