"""`nova bench instances`: plans of the published instances against the bound and the published scripts."""

from __future__ import annotations

import statistics
from pathlib import Path

import typer

from nova.cli.output import JSON, emit_json, progress, table


def instances(
    folder: Path = typer.Argument(help="Folder of instance files <topology>-<level>.json."),
    only: list[str] = typer.Option([], "--only", help="Parts of instance names, one option each; default: all."),
    json: bool = JSON,
) -> None:
    """Plan the fixed instances: window slices against the linear program's optimum, grids against published plans.

    Example: `nova bench instances ../shared/instances --only fit --only king-5`
    """
    from nova_lab.bench import instances as bench

    files = bench.finite(folder, only)
    rows = []
    with progress("planning") as bar:
        task = bar.task_ids[0]
        bar.update(task, total=len(files))
        for file in files:
            bar.update(task, description=file.stem)
            rows.append(bench.measure(file))
            bar.advance(task)
    worst = max(max(r.window_gap_latency, r.window_gap_paper) for r in rows)
    ratios = [r.grid_ratio for r in rows]
    summary = {
        "window_gap_worst": worst,
        "grid_ratio_mean": statistics.mean(ratios),
        "grid_ratio_worst": max(ratios),
        "grid_gap_mean": statistics.mean(r.grid_gap for r in rows),
        "overloaded": sum(r.overloaded for r in rows),
    }
    if json:
        emit_json({**summary, "instances": [r.as_dict() for r in rows]})
        return
    table(
        "Window slices against the optimum, grids against the published scripts",
        ["instance", "window gap %", "paper obj. gap %", "grid gap %", "over", "grid delta ms", "published", "ratio"],
        [
            [
                r.instance,
                100 * r.window_gap_latency,
                100 * r.window_gap_paper,
                100 * r.grid_gap,
                r.overloaded,
                r.grid_delta_ms,
                r.published_delta_ms,
                r.grid_ratio,
            ]
            for r in rows
        ],
    )
    typer.echo(
        f"window slices: worst gap {100 * worst:.2g} %; grids: {summary['grid_ratio_mean']:.3f} × the published delta "
        f"on average, {summary['grid_ratio_worst']:.3f} × at worst; overloaded nodes: {summary['overloaded']}"
    )
