"""`nova drift`: whether planning again would be worth it."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, progress, table

app = typer.Typer()


@app.command()
def command(scenario: Path = SCENARIO, plan: Path = PLAN, as_json: bool = JSON) -> None:
    """How far the running PLAN is from one made afresh for SCENARIO, and what a re-plan would gain and move.

    The fresh plan is made with the options of the running one and is not written. Both are judged by measured latencies
    where the scenario has them, else by the cost space as it is now. For a folder of `nova events`, give its
    current/scenario/scenario.yaml and current/plan.

    Example: `nova drift demo/scenario.yaml demo/plan`
    """
    opened = open_plan(scenario, plan)
    with progress("planning afresh"):
        from nova.controller.drift import drift

        found = drift(opened.scenario.problem, opened.plan)
    if as_json:
        emit_json({"plan": str(plan), "matches_scenario": not opened.stale, **found.as_dict()})
        return
    running, fresh = found.running, found.fresh
    costs = found.costs
    table(
        f"{plan} beside a fresh plan",
        ["", "running", "fresh", "gain", "gain, %"],
        [
            _row("felt latency of a result, mean, ms", found.felt_running.mean_ms, found.felt_fresh.mean_ms),
            _row("felt latency of a result, 99th percentile, ms", found.felt_running.p99_ms, found.felt_fresh.p99_ms),
            _row("latency of a source, mean, ms", running.latency_mean_ms, fresh.latency_mean_ms),
            _row("latency of a source, 90th percentile, ms", running.latency_p90_ms, fresh.latency_p90_ms),
            _row(f"cost, objective {fresh.objective}, ms", *costs),
            ["replicas", running.replicas, fresh.replicas, None, None],
            ["overloaded nodes", running.overloaded, fresh.overloaded, None, None],
        ],
    )
    moves = found.moves
    share = moves.moved_tuples_per_s / moves.tuples_per_s if moves.tuples_per_s else 0.0
    table(
        "What a re-plan would move",
        ["", "value", "of all, %"],
        [
            ["sub-joins", moves.sub_joins_changed, _percent(moves.sub_joins_changed, moves.sub_joins)],
            ["replicas moved", moves.count("moved"), None],
            ["replicas resized", moves.count("resized"), None],
            ["replicas added", moves.count("added"), None],
            ["replicas removed", moves.count("removed"), None],
            ["tuples/s", moves.moved_tuples_per_s, 100 * share],
        ],
    )
    typer.echo(_said(found.felt_running.mean_ms, found.felt_fresh.mean_ms))


def _said(running: float, fresh: float) -> str:
    """The mean felt latencies (ms) of both plans in a sentence; infinite where queues never settle."""
    if math.isfinite(fresh) and not math.isfinite(running):
        return "results of the running plan come later and later; those of a fresh one would not"
    if running - fresh > 5e-4 * running:
        saved = running - fresh
        return f"a re-plan would save {saved:.3g} ms ({saved / running:.1%}) of the mean latency from event to sink"
    return "a re-plan would not lower the mean latency from event to sink"


def _row(name: str, running: float, fresh: float) -> list[object]:
    if not (math.isfinite(running) and math.isfinite(fresh)):  # queues that never settle
        return [name, running, fresh, None, None]
    return [name, running, fresh, running - fresh, _percent(running - fresh, running)]


def _percent(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None
