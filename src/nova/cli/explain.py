"""`nova explain`: why a plan is as it is."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, table
from nova.evaluation.words import rate

if TYPE_CHECKING:
    from nova.evaluation.explain import Explainer, JoinExplained, NodeExplained

app = typer.Typer()

SHOWN = 30
"""Rows of a table; the rest is counted. JSON holds all."""


@app.command()
def command(
    scenario: Path = SCENARIO,
    plan: Path = PLAN,
    node: str | None = typer.Option(None, "--node", metavar="ID", help="Explain one node: what it hosts and why."),
    join: tuple[str, str] | None = typer.Option(
        None, "--join", metavar="LEFT RIGHT", help="Explain the join of two sources, by their ids."
    ),
    all_rows: bool = typer.Option(False, "--all", help="Show every placement, not only what fits the terminal."),
    as_json: bool = JSON,
) -> None:
    """Say what each stage of PLAN decided and why.

    For a join: where it would sit, how it was cut, and the nodes in the order of what it would cost there, each chosen
    or turned down with the reason. For a node: what it hosts, who sends what to it, and what is left. Reasons follow
    from the finished plan: what hosts have left, and who took the rest.

    Example: `nova explain demo/scenario.yaml demo/plan --join p1 h1`
    """
    from nova.cli.placements import print_placements
    from nova.evaluation.explain import Explainer
    from nova.evaluation.placements import placements
    from nova.model.errors import InvalidInput

    if node is not None and join is not None:
        raise InvalidInput("give --node or --join, not both")
    opened = open_plan(scenario, plan)
    explainer = Explainer(opened.scenario.problem, opened.plan)
    if node is not None:
        told = explainer.node(node)
        emit_json(told.as_dict()) if as_json else _print_node(told)
    elif join is not None:
        joins = explainer.joins(*join)
        if as_json:
            emit_json({"joins": [one.as_dict() for one in joins]})
        else:
            for one in joins:
                _print_join(one)
    elif as_json:
        found = placements(opened.scenario.problem, opened.plan).to_pylist()
        emit_json({"stages": [asdict(stage) for stage in explainer.stages()], "placements": found})
    else:
        print_placements(placements(opened.scenario.problem, opened.plan), all_rows=all_rows)
        _print_stages(explainer)


def _print_stages(explainer: Explainer) -> None:
    for stage in explainer.stages():
        typer.secho(stage.name, bold=True)
        typer.echo(f"  {stage.said}")
    typer.echo("\nAsk further with --node ID or --join LEFT RIGHT.")


def _print_join(join: JoinExplained) -> None:
    typer.secho(f"{join.left} ⋈ {join.right}, query {join.query}", bold=True)
    typer.echo(
        f"  {join.left} on {join.left_node} sends {rate(join.left_rate)} tuples/s, {join.right} on {join.right_node}"
        f" {rate(join.right_rate)}; results go to {join.sink}."
    )
    place = ", ".join(f"{x:,.1f}" for x in join.virtual_position)
    above = f", {join.cost_ms / join.ideal_cost_ms - 1:+.1%}" if join.ideal_cost_ms > 0 else ""
    typer.echo(
        f"  It would sit at ({place}) and cost {join.ideal_cost_ms:,.1f} ms there; it costs {join.cost_ms:,.1f} ms"
        f" where it runs{above}."
    )
    felt = join.felt
    if math.isfinite(felt.p99_ms):
        typer.echo(
            f"  Its results are at the sink {felt.mean_ms:,.0f} ms after their events on average"
            f" ({felt.network_ms:,.0f} network, {felt.service_ms:,.0f} service, {felt.waiting_ms:,.0f} waiting),"
            f" 99 % within {felt.p99_ms:,.0f} ms."
        )
    else:
        typer.echo(f"  {felt.unsettled:.0%} of its results come from hosts so full that their queues never settle.")
    typer.echo(f"  {'Whole' if join.cut == 'whole' else 'Cut'}: {join.why}")
    table(
        "Hosts",
        ["node", "cost, ms", "service", "waiting", "results", "left/s", "right/s"],
        [
            [p.node, p.cost_ms, p.service_ms, _waiting(p.waiting_ms), f"{p.share:.1%}", p.left_rate, p.right_rate]
            for p in join.parts[:SHOWN]
        ],
    )
    estimates = any(abs(c.cost_ms - c.estimated_ms) > 1e-9 for c in join.candidates)
    columns = ["", "node", "cost, ms", *(["estimated"] if estimates else []), "free/s", "verdict", "reason"]
    table(
        "Nodes by cost",
        columns,
        [
            [
                c.rank,
                c.node,
                c.cost_ms,
                *([c.estimated_ms] if estimates else []),
                c.free,
                c.verdict,
                c.reason if c.measured else f"{c.reason} (not all links measured)",
            ]
            for c in join.candidates
        ],
    )
    if join.turned_down:
        counts = ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(join.turned_down.items()))
        typer.echo(f"Turned down before its last host: {counts}.")


def _waiting(ms: float) -> float | str:
    """A wait for a cell; a queue that never settles has none."""
    return "never settles" if math.isinf(ms) else ms


def _print_node(node: NodeExplained) -> None:
    typer.secho(node.node, bold=True)
    typer.echo(f"  {node.said}")
    table(
        "Tuples/s",
        ["capacity", "bandwidth", "load", "free", "utilisation", "service, ms", "waiting, ms"],
        [
            [
                rate(node.capacity),
                rate(node.bandwidth),
                rate(node.load),
                rate(node.free),
                f"{node.utilisation:.1%}",
                node.service_ms,
                _waiting(node.waiting_ms),
            ]
        ],
    )
    if node.hosted:
        more = f", {SHOWN} of {len(node.hosted):,}" if len(node.hosted) > SHOWN else ""
        table(
            f"Hosts{more}",
            ["join", "results", "left", "right", "to the sink"],
            [
                [
                    f"{h.left} ⋈ {h.right} ({h.query})",
                    f"{h.share:.1%}",
                    f"{rate(h.left_rate)}/s from {h.left_node}, {h.left_ms:,.1f} ms",
                    f"{rate(h.right_rate)}/s from {h.right_node}, {h.right_ms:,.1f} ms",
                    f"{h.sink}, {h.sink_ms:,.1f} ms",
                ]
                for h in node.hosted[:SHOWN]
            ],
        )
    if node.sources:
        more = f", {SHOWN} of {len(node.sources):,}" if len(node.sources) > SHOWN else ""
        table(
            f"Sends{more}",
            ["source", "rate/s", "to", "tuples/s", "ms"],
            [[s.source, s.rate, s.to, s.tuples, s.ms] for s in node.sources[:SHOWN]],
        )
    if node.sink_of:
        more = (
            f", with its other input more than the {rate(min(node.capacity, node.bandwidth))} it can take"
            if node.flooded
            else ""
        )
        typer.echo(f"Sink of {', '.join(node.sink_of)}: {rate(node.results)} results/s{more}.")
