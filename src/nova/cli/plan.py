"""`nova plan`: from a scenario to a plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.output import JSON, emit_json, progress, table, unkept, warn

if TYPE_CHECKING:
    from nova.evaluation.results import Results
    from nova.model.plan import Plan
    from nova.model.problem import Problem

app = typer.Typer()
NO_FOLDERS = (".html", ".htm", ".png", ".svg", ".pdf", ".json", ".yaml", ".yml", ".xlsx", ".txt")
"""Endings with which nobody means a folder."""


@app.command()
def command(
    scenario: Path = typer.Argument(..., metavar="SCENARIO", help="Scenario file, YAML or JSON."),
    outputs: list[Path] | None = typer.Option(
        None,
        "-o",
        "--output",
        metavar="PLAN",
        help="Folder of the plan; FILE.csv or FILE.parquet for the table of placements. May be given for both, or not"
        " at all to look first.",
    ),
    all_rows: bool = typer.Option(False, "--all", help="Show every placement, not only what fits the terminal."),
    explain_query: bool = typer.Option(
        False, "--explain-query", help="Only print the operators of each query, with the rate on every edge."
    ),
    seed: int | None = typer.Option(None, help="Same seed, same plan."),
    objective: str | None = typer.Option(None, help="What counts: latency, paper (Eq. 1) or network (Σ rate × ms)."),
    partition: str | None = typer.Option(None, help="How large joins are split: auto, key, grid or window."),
    sigma: float | None = typer.Option(None, help="The paper's σ in 0…1: limits the parts of a grid."),
    bandwidth_budget: str | None = typer.Option(None, help="Most tuples/s into one replica."),
    c_min: str | None = typer.Option(None, help="Pass over hosts with less free capacity (tuples/s) than this."),
    waiting: float | None = typer.Option(None, help="Weight of service and waiting at hosts; 0: distance alone."),
    percentile: float | None = typer.Option(None, help="Place by this percentile of the wait instead of its mean."),
    arrival_scv: float | None = typer.Option(None, help="Variability of arrivals: 1 Poisson, 0 even, more for bursts."),
    utilisation: float | None = typer.Option(None, help="Share of each capacity that may be used, in 0…1."),
    max_replicas: int | None = typer.Option(None, help="Most replicas of one sub-join."),
    allow_overload: bool | None = typer.Option(
        None, "--allow-overload", help="Spread what does not fit evenly and report it, instead of refusing."
    ),
    embedding: str | None = typer.Option(None, help="Phase I: stress, vivaldi or mds."),
    dimensions: int | None = typer.Option(None, help="Dimensions of the cost space."),
    heights: bool | None = typer.Option(None, "--heights/--no-heights", help="Give nodes a height for their link."),
    neighbours: int | None = typer.Option(None, help="Measured neighbours per node that Phase I uses at most."),
    as_json: bool = JSON,
) -> None:
    """Decide where every join of SCENARIO runs, in how many replicas and on which part of each stream.

    Options given here win over those of the scenario file. If the scenario is wrong or cannot fit, the command says
    what is missing, ends with exit code 2 and writes nothing.

    Examples: `nova plan demo/scenario.yaml`, `nova plan demo/scenario.yaml -o demo/plan --partition grid`,
    `nova plan demo/scenario.yaml -o plan.csv`
    """
    overrides = {
        "seed": seed,
        "objective": objective,
        "partition": partition,
        "sigma": sigma,
        "bandwidth_budget": bandwidth_budget,
        "c_min": c_min,
        "waiting": waiting,
        "percentile": percentile,
        "arrival_scv": arrival_scv,
        "utilisation": utilisation,
        "max_replicas": max_replicas,
        "allow_overload": allow_overload,
        "embedding": embedding,
        "dimensions": dimensions,
        "heights": heights,
        "neighbours": neighbours,
    }
    if explain_query:
        from nova.cli.queries import explain_queries

        explain_queries(scenario, as_json=as_json)
        return
    from nova.scenario.folder import save

    folder, files = _targets(outputs or [])
    started = time.perf_counter()
    with progress("reading the scenario"):
        from nova.scenario import load

        loaded = load(scenario, overrides)
    warn(loaded.warnings)
    with progress("planning") as bar:
        from nova.optimizer import optimize

        plan = optimize(
            loaded.problem,
            loaded.options,
            lambda stage, _: bar.update(bar.task_ids[0], description=f"planning: {stage} done"),
        )
    from nova.cli.placements import print_placements, write_placements
    from nova.evaluation.placements import placements
    from nova.evaluation.results import traffic

    results = traffic(loaded.problem, plan)
    notes = [*results.warnings(), *unkept(plan.options.utilisation, plan.summary.max_utilisation)]
    found = placements(loaded.problem, plan)
    if folder is not None:
        save(plan, folder, loaded.problem)
    for file in files:
        write_placements(found, file)
    figures = summarise(plan, loaded.problem, results) | {"seconds": round(time.perf_counter() - started, 3)}
    if as_json:
        emit_json(
            {
                "plan": None if folder is None else str(folder),
                **figures,
                "placements": found.to_pylist(),
                **({"merges": [one.as_dict() for one in results.merges]} if results.merges else {}),
                "warnings": [*loaded.warnings, *notes],
            }
        )
    else:
        print_placements(found, all_rows=all_rows)
        for merged in results.merges:
            typer.echo(merged.said())
        _print(figures, outputs or [])
    warn(notes)
    if figures["sliced_sub_joins"]:
        late = f"results up to {figures['slice_lateness_ms']:,.0f} ms late"
        warn([f"{figures['sliced_sub_joins']:,} sub-joins found room only by dealing out their windows: {late}"])
    if figures["overloaded"]:
        warn([f"{figures['overloaded']:,} nodes are overloaded: `nova evaluate` names them and says by how much"])


def _targets(outputs: list[Path]) -> tuple[Path | None, list[Path]]:
    """The folder of the plan, if there is to be one, and the files for its table."""
    from nova.cli.placements import ENDINGS
    from nova.model.errors import InvalidInput
    from nova.scenario.folder import refuse_other_folder

    files = [path for path in outputs if path.suffix.lower() in ENDINGS and not path.is_dir()]
    folders = [path for path in outputs if path not in files]
    for path in folders:
        if path.suffix.lower() in NO_FOLDERS and not path.is_dir():
            ways = "its table a file in .csv or .parquet, its picture comes from `nova show`, and `--json` prints it"
            raise InvalidInput(f"{path}: a plan is a folder; {ways}")
    if len(folders) > 1:
        raise InvalidInput(f"one folder for the plan, please, not {len(folders)}: {', '.join(map(str, folders))}")
    for folder in folders:
        refuse_other_folder(folder)
    return (folders[0] if folders else None), files


def summarise(plan: Plan, problem: Problem, results: Results) -> dict[str, Any]:
    """The figures that one looks at first; ms and tuples/s. `nova evaluate` has the rest."""
    import numpy as np

    from nova.evaluation.metrics import evaluate

    metrics = evaluate(problem, plan)
    per_join = np.bincount(plan.replicas.join, minlength=len(plan.joins))
    return {
        "nodes": len(problem.nodes),
        "sub_joins": metrics.sub_joins,
        "replicas": metrics.replicas,
        "split_sub_joins": int(np.count_nonzero(per_join > 1)),
        "sliced_sub_joins": plan.summary.sliced_sub_joins,
        "slice_lateness_ms": plan.summary.slice_lateness_ms,
        "hosts": metrics.hosts,
        "latency_mean_ms": metrics.latency_mean_ms,
        "latency_p90_ms": metrics.latency_p90_ms,
        "sink_based_mean_ms": metrics.sink_based_mean_ms,
        "sink_based_p90_ms": metrics.sink_based_p90_ms,
        "overloaded": metrics.overloaded,
        "overloaded_sinks": sum(sink.overloaded for sink in results.sinks),
    }


def _print(figures: dict[str, Any], outputs: list[Path]) -> None:
    table(
        "Plan",
        ["", "value"],
        [
            ("nodes", figures["nodes"]),
            ("sub-joins", figures["sub_joins"]),
            ("replicas", figures["replicas"]),
            ("split sub-joins", figures["split_sub_joins"]),
            ("hosts used", figures["hosts"]),
            ("overloaded nodes", figures["overloaded"]),
            ("sinks that cannot take their results", figures["overloaded_sinks"]),
        ],
    )
    table(
        "Latency of a source, ms",
        ["", "mean", "90th percentile"],
        [
            ("this plan", figures["latency_mean_ms"], figures["latency_p90_ms"]),
            ("straight to the sink (ignores capacity)", figures["sink_based_mean_ms"], figures["sink_based_p90_ms"]),
        ],
    )
    if outputs:
        typer.echo(f"wrote {', '.join(map(str, outputs))} in {figures['seconds']:.1f} s")
    else:
        typer.echo(f"planned in {figures['seconds']:.1f} s; nothing is written without -o FOLDER")
