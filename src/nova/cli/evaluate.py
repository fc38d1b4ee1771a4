"""`nova evaluate`: the figures of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.opening import PLAN, SCENARIO, open_plan
from nova.cli.output import JSON, emit_json, estimated_bound, progress, table, warn

if TYPE_CHECKING:
    from nova.evaluation.metrics import Metrics
    from nova.evaluation.prediction import Felt
    from nova.evaluation.results import Results
    from nova.model.plan import Plan
    from nova.model.problem import Problem

app = typer.Typer()

SHOWN = 20
"""Overloaded nodes listed by name; the rest is counted."""


@app.command()
def command(scenario: Path = SCENARIO, plan: Path = PLAN, as_json: bool = JSON) -> None:
    """Figures of PLAN under SCENARIO: felt latency, load, traffic, cost and the gap to a lower bound.

    Felt latency is what results take from event to sink: network, service at the host, and waiting in line there,
    predicted for tuples that come at random. Network latency of a source is its way to the host plus the host's way to
    the sink, weighted by the tuples that go each way. Where the scenario holds measured latencies, they are told beside
    those of the cost space.

    Example: `nova evaluate demo/scenario.yaml demo/plan --json`
    """
    opened = open_plan(scenario, plan)
    problem, made = opened.scenario.problem, opened.plan
    from nova.evaluation.bounds import lower_bound
    from nova.evaluation.metrics import Measured, evaluate
    from nova.evaluation.prediction import predict
    from nova.evaluation.results import traffic

    with progress("evaluating"):
        estimated = evaluate(problem, made, bound=lower_bound)
        prediction = predict(problem, made)
        felt = [prediction.felt]
        measured = None
        if problem.latency is not None:
            reach = Measured(problem.latency, len(problem.nodes), made.space)
            measured = evaluate(problem, made, reach)
            felt.append(predict(problem, made, reach).felt)
        results = traffic(problem, made)
    over = overloads(problem, made)
    notes = prediction.notes(problem)
    if as_json:
        emit_json(
            {
                "plan": str(plan),
                "matches_scenario": not opened.stale,
                "felt": felt[0].as_dict(),
                "felt_measured": felt[1].as_dict() if measured is not None else None,
                "slices": None if prediction.sliced is None else prediction.sliced.as_dict(),
                "notes": notes,
                **estimated.as_dict(),
                "measured": None if measured is None else measured.as_dict(),
                "results": results.as_dict(),
                "overloaded_nodes": over,
            }
        )
        return
    print_felt(f"Felt latency, {made.approach} plan: event to sink, ms, predicted", felt)
    _print(estimated, measured, results, over)
    warn([*notes, *results.warnings()])


def print_felt(title: str, felt: list[Felt]) -> None:
    """The predicted latency of results: from the cost space, and from measurements where there are any."""
    rows: list[tuple[str, Callable[[Felt], float]]] = [
        ("mean", lambda f: f.mean_ms),
        ("half of the results within", lambda f: f.p50_ms),
        ("90 % within", lambda f: f.p90_ms),
        ("99 % within", lambda f: f.p99_ms),
        ("of the mean: network", lambda f: f.network_ms),
        ("of the mean: service at the host", lambda f: f.service_ms),
        ("of the mean: waiting at the host", lambda f: f.waiting_ms),
    ]
    table(
        title,
        ["", "cost space", "measured"][: 1 + len(felt)],
        [[name, *(_settled(value(f)) for f in felt)] for name, value in rows],
    )


def _settled(ms: float) -> float | str:
    """A latency for a cell; a queue that never settles has none."""
    return "never settles" if math.isinf(ms) else ms


def overloads(problem: Problem, plan: Plan) -> list[dict[str, Any]]:
    """The overloaded nodes, worst first: tuples/s that reach them and that they can take."""
    import numpy as np

    from nova.evaluation.metrics import flows, node_limit, overloaded, plan_load

    load, limit = plan_load(problem, plan, flows(problem, plan)) + problem.nodes.other_load, node_limit(problem)
    rows = np.flatnonzero(overloaded(load, limit))
    rows = rows[np.argsort(limit[rows] - load[rows], kind="stable")]
    return [
        {"node": problem.nodes.ids[int(row)].as_py(), "load": float(load[row]), "limit": float(limit[row])}
        for row in rows
    ]


def _print(estimated: Metrics, measured: Metrics | None, results: Results, over: list[dict[str, Any]]) -> None:
    def row(name: str, value: Callable[[Metrics], Any]) -> list[Any]:
        return [name, value(estimated)] + ([] if measured is None else [value(measured)])

    table(
        f"Network latency of sources, {estimated.approach} plan, ms",
        ["", "cost space"] + ["measured"] * (measured is not None),
        [
            row("mean over sources", lambda m: m.latency_mean_ms),
            row("90th percentile", lambda m: m.latency_p90_ms),
            row("sink-based, mean", lambda m: m.sink_based_mean_ms),
            row("sink-based, 90th percentile", lambda m: m.sink_based_p90_ms),
            row("over sink-based, mean", lambda m: m.delta_mean_ms),
            row("over sink-based, 90th percentile", lambda m: m.delta_p90_ms),
            row("slowest replica, mean over sources", lambda m: m.slowest_mean_ms),
            row("slowest replica, 90th percentile", lambda m: m.slowest_p90_ms),
            row("unweighted over replicas, mean", lambda m: m.unweighted_mean_ms),
            row("unweighted over replicas, 90th percentile", lambda m: m.unweighted_p90_ms),
            row("cost, every link of every replica (Eq. 1)", lambda m: m.cost_eq1_ms),
            row("cost by shares, objective latency", lambda m: m.cost_latency_ms),
            row("cost by shares, objective paper", lambda m: m.cost_paper_ms),
            row("network: tuples/s × ms, objective network", lambda m: m.cost_network_ms),
            row("cost of service and waiting at hosts", lambda m: m.cost_at_hosts_ms),
            *([row("cost of metrics, weighed", lambda m: m.cost_metrics_ms)] if estimated.metrics else []),
            row("cost that the plan was made by", lambda m: m.cost_ms),
            [f"lower bound of that cost{estimated_bound(estimated.bound_certainty)}", estimated.bound_ms]
            + [None] * (measured is not None),
            ["gap to the bound", _percent(estimated.gap)] + [None] * (measured is not None),
        ],
    )
    if measured is not None and measured.measured_share is not None and measured.measured_share < 1:
        typer.echo(f"{1 - measured.measured_share:.1%} of the links were not measured: the cost space tells those")
    table(
        "Load and traffic",
        ["", "value"],
        [
            ["sub-joins", estimated.sub_joins],
            ["replicas", estimated.replicas],
            ["replicas of a sub-join, most", estimated.replicas_max],
            ["hosts used", estimated.hosts],
            ["overloaded nodes", estimated.overloaded],
            ["overloaded, of hosts", f"{estimated.overloaded_percent:.1f} %"],
            ["utilisation, mean over hosts", _percent(estimated.utilisation_mean)],
            ["utilisation, most", _percent(estimated.utilisation_max)],
            ["all rates may grow by", _percent(max(0.0, 1 / max(estimated.utilisation_max, 1e-9) - 1))],
            ["tuples/s into hosts", estimated.tuples_in],
            ["tuples/s over the network", estimated.tuples_network],
            *([f"{name}, units/s", amount] for name, amount in estimated.metrics.items()),
            ["results/s to the sinks", results.total],
            ["results/s over the network", results.network],
        ],
    )
    for merged in results.merges:
        typer.echo(merged.said())
    full = [sink for sink in results.sinks if sink.overloaded]
    if full:
        table(
            "Sinks that cannot take their results",
            ["sink", "results/s", "other input/s", "tuples/s at most"],
            [[sink.sink, sink.results, sink.hosted, sink.limit] for sink in full[:SHOWN]],
        )
    if over:
        more = f", the worst {SHOWN} of {len(over):,}" if len(over) > SHOWN else ""
        table(
            f"Overloaded nodes{more}",
            ["node", "tuples/s in", "tuples/s at most", "times"],
            [
                [node["node"], node["load"], node["limit"], node["load"] / max(node["limit"], 1e-300)]
                for node in over[:SHOWN]
            ],
        )


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:,.1f} %"
