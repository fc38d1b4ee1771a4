"""`nova simulate`: run a plan through a queueing simulation."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import typer

from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, progress, table, warn
from nova.evaluation.simulation.result import Arrivals, SimulationResult

app = typer.Typer()

BUSIEST = 10
"""Nodes listed by name."""


@app.command()
def command(
    scenario: Path = SCENARIO,
    plan: Path = PLAN,
    duration: float = typer.Option(30.0, "--duration", "-t", help="Seconds to simulate.", metavar="SECONDS"),
    seed: int = typer.Option(0, "--seed", help="Same seed, same tuples."),
    arrivals: Arrivals = typer.Option("poisson", "--arrivals", help="Tuples come at random, evenly or in bursts."),
    output: Path | None = typer.Option(None, "--output", "-o", help="CSV of the run over time.", metavar="FILE.csv"),
    as_json: bool = JSON,
) -> None:
    """Let tuples live through a plan: sources emit them, links delay them, nodes serve them at their capacity.

    Prints event-to-sink latency percentiles (per tuple, per result and per window), throughput, backlog and the busiest
    nodes. Links take the measured latency where the scenario has one, else the distance of the cost space, once per
    leg, as in `nova evaluate`. The prediction stands beside the results.

    Example: `nova simulate demo/scenario.yaml demo/plan --duration 60 -o backlog.csv`
    """
    from nova.evaluation import simulation
    from nova.evaluation.metrics import Measured
    from nova.evaluation.prediction import predict

    opened = open_plan(scenario, plan)
    problem, made = opened.scenario.problem, opened.plan
    with progress(f"simulating {duration:g} s"):
        known = problem.latency
        reach = None if known is None else Measured(known, len(problem.nodes), made.space)
        run = simulation.simulate(problem, made, duration, seed=seed, arrivals=arrivals, distances=reach)
        prediction = predict(problem, made, reach)
    nodes = busiest(run, problem.nodes.ids.to_pylist())
    if output is not None:
        write_timeline(run, output)
    if as_json:
        emit_json({**run.summary(), "predicted": prediction.felt.as_dict(), "busiest": nodes})
        return
    figures, felt = run.summary(), prediction.felt
    table(
        f"Results: event to sink, ms, {run.approach}, {duration:g} s simulated",
        ["", "mean", "p50", "p90", "p99", "network", "service", "waiting"],
        [
            [
                "simulated",
                *(figures["latency_ms"]["result"][name] for name in ("mean", "p50", "p90", "p99")),
                *figures["result_parts_ms"].values(),
            ],
            [
                "predicted",
                *(
                    "never" if math.isinf(ms) else ms
                    for ms in (
                        felt.mean_ms,
                        felt.p50_ms,
                        felt.p90_ms,
                        felt.p99_ms,
                        felt.network_ms,
                        felt.service_ms,
                        felt.waiting_ms,
                    )
                ),
            ],
        ],
    )
    table(
        f"Event to sink, {run.approach}, {duration:g} s simulated",
        ["ms", *figures["latency_ms"]["tuple"]],
        [[name, *columns.values()] for name, columns in figures["latency_ms"].items()],
    )
    table(
        "Tuples and results",
        ["", "count", "per second"],
        [
            ["tuples emitted", run.emitted, run.emitted / duration],
            ["deliveries to hosts", run.delivered, run.delivered / duration],
            ["deliveries served", run.served, run.served_per_s],
            ["backlog at the end", run.backlog, None],
            ["on the way at the end", run.in_flight, None],
            ["results at the sink", round(run.results), run.results_per_s],
        ],
    )
    table(
        f"Busiest of {figures['nodes']['used']} nodes ({figures['nodes']['saturated']} get more than they can serve)",
        ["node", "offered load", "busy", "served", "backlog", "longest queue"],
        [list(node.values()) for node in nodes],
    )
    warn(prediction.notes(problem))


def busiest(run: SimulationResult, ids: list[str]) -> list[dict[str, Any]]:
    """The nodes with the highest offered load."""
    order = (-run.offered).argsort(kind="stable")
    return [
        {
            "node": ids[v],
            "offered": float(run.offered[v]),
            "utilisation": float(run.utilisation[v]),
            "served": int(run.node_served[v]),
            "backlog": int(run.node_backlog[v]),
            "peak_backlog": int(run.node_peak_backlog[v]),
        }
        for v in order[:BUSIEST]
        if run.node_arrived[v] > 0
    ]


def write_timeline(run: SimulationResult, file: Path) -> None:
    """One row per step of the run."""
    rows = run.timeline.rows()
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
