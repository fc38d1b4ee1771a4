"""`nova diff`: what is different in another plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.changes import SHOWN, shares_text
from nova.cli.opening import open_plan
from nova.cli.output import JSON, emit_json, progress, table

if TYPE_CHECKING:
    from nova.controller.diff import ReplicaChange
    from nova.evaluation.metrics import Metrics

app = typer.Typer()


@app.command()
def command(
    first: Path = typer.Argument(..., metavar="PLAN", help="Folder of a plan."),
    second: Path = typer.Argument(..., metavar="PLAN2", help="Folder of another plan."),
    scenarios: list[Path] | None = typer.Option(
        None,
        "--scenario",
        "-s",
        metavar="SCENARIO",
        help="Also tell what both cost. Given twice: the first is PLAN's, the second PLAN2's.",
    ),
    as_json: bool = JSON,
) -> None:
    """Say what has to happen so that PLAN becomes PLAN2: replicas added, removed, moved, resized, and tuples/s moved.

    Plans are compared by the ids of queries, sources and nodes, so they may be for different scenarios. A tuple counts
    as moved if, for a sub-join of both plans, it goes to a host that it did not go to before.

    Example: `nova diff demo/plan demo/plan2 -s demo/scenario.yaml -s demo/plan2/scenario/scenario.yaml`
    """
    from nova.controller.diff import KINDS, diff
    from nova.model.errors import InvalidInput
    from nova.model.plan import read_replicas

    if scenarios and len(scenarios) > 2:
        raise InvalidInput(f"--scenario is given once or twice, not {len(scenarios)} times")
    with progress("comparing"):
        found = diff(read_replicas(first), read_replicas(second))
        costs = None
        if scenarios:
            costs = [
                _figures(scenario, plan)
                for scenario, plan in (
                    (scenarios[0], first),
                    (scenarios[-1], second),
                )
            ]
    if as_json:
        document: dict[str, Any] = {"before": str(first), "after": str(second), **found.as_dict()}
        if costs is not None:
            document["cost"] = dict(zip(("before", "after"), map(_plain, costs), strict=True))
        emit_json(document)
        return
    if found.changes:
        more = f", the first {SHOWN} of {len(found.changes):,}" if len(found.changes) > SHOWN else ""
        table(
            f"Replicas that are different in {second}{more}",
            ["", "sub-join", "host", "share", "tuples/s"],
            [_row(change) for change in found.changes[:SHOWN]],
        )
    table(
        f"From {first} to {second}",
        ["", "value"],
        [
            *([f"replicas {kind}", found.count(kind)] for kind in KINDS),
            ["replicas that stay", found.unchanged],
            ["sub-joins with other replicas", found.sub_joins_changed],
            ["sub-joins added", found.sub_joins_added],
            ["sub-joins removed", found.sub_joins_removed],
            ["sub-joins with other rates", found.rates_changed],
            ["tuples/s moved to other hosts", found.moved_tuples_per_s],
            ["tuples/s of added sub-joins", found.added_tuples_per_s],
            ["tuples/s of removed sub-joins", found.removed_tuples_per_s],
            [f"tuples/s into hosts of {second}", found.tuples_per_s],
        ],
    )
    if costs is not None:
        rows = [_plain(metrics) for metrics in costs]
        table(
            "Cost",
            ["", "before", "after"],
            [
                [words, *(row[name] for row in rows)]
                for name, words in (
                    ("latency_mean_ms", "latency of a source, mean, ms"),
                    ("latency_p90_ms", "latency of a source, 90th percentile, ms"),
                    ("cost_ms", "cost under the plan's objective, ms"),
                    ("tuples_network", "tuples/s over the network"),
                    ("overloaded", "overloaded nodes"),
                )
            ],
        )


def _figures(scenario: Path, plan: Path) -> Metrics:
    from nova.evaluation.metrics import Measured, evaluate

    opened = open_plan(scenario, plan)
    problem, made = opened.scenario.problem, opened.plan
    if problem.latency is None:
        return evaluate(problem, made)
    return evaluate(problem, made, Measured(problem.latency, len(problem.nodes), made.space))


def _plain(metrics: Metrics) -> dict[str, Any]:
    figures = metrics.as_dict()
    names = ("latency_mean_ms", "latency_p90_ms", "tuples_in", "tuples_network", "overloaded", "replicas", "hosts")
    return {**{name: figures[name] for name in names}, "cost_ms": figures[f"cost_{metrics.objective}_ms"]}


def _row(change: ReplicaChange) -> list[Any]:
    host = change.node if change.from_node is None else f"{change.from_node} → {change.node}"
    share = shares_text(change.shares)
    if change.from_shares is not None:
        share = f"{shares_text(change.from_shares)} → {share}"
    return [change.kind, f"{change.query}: {change.left} ⋈ {change.right}", host, share, change.tuples_per_s]
