"""All approaches on one problem: the same figures for each, and one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nova.baselines import charge
from nova.baselines.placement import Placement
from nova.evaluation.approaches import Row, embedded, label, reach, run, warm_up
from nova.evaluation.bounds import Bound, bound
from nova.evaluation.metrics import Measured, evaluate, source_latency
from nova.evaluation.prediction import predict
from nova.evaluation.simulation import SimulationResult, percentiles, simulate
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace


@dataclass(frozen=True)
class Compared:
    """One approach's figures, with its placement and, where asked for, its simulated run."""

    row: Row
    placement: Placement
    simulation: SimulationResult | None


def compare(
    problem: Problem,
    names: Sequence[str],
    options: Options = Options(),
    *,
    simulated_s: float = 0.0,
    with_bound: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[Compared]:
    """Place by every approach named and measure all alike. `simulated_s` seconds are simulated, none with 0.

    Ways take what was measured where the problem has measurements. The bound is worked out once, for the objective of
    `options` and all of every capacity. It holds for placements within capacities: one that overloads nodes may lie
    below it.
    """
    problem, space = embedded(problem, options)
    report("warming up")
    warm_up(tuple(names))
    placed = []
    for name in names:
        report(name)
        placed.append((name, *run(name, problem, space, options)))
    floor = None
    if with_bound and placed:
        report("lower bound")
        joins, all_of_it = placed[0][1].plan.joins, replace(options, utilisation=1.0)
        floor = bound(problem, joins, space, all_of_it, _measured(problem, space), guide=placed[0][1].plan)
    done = []
    for name, placement, seconds in placed:
        report(f"figures of {name}")
        done.append(measure(problem, space, name, placement, seconds, floor, simulated_s, options))
    return done


def measure(
    problem: Problem,
    space: CostSpace,
    name: str,
    placement: Placement,
    seconds: float,
    floor: Bound | None,
    simulated_s: float,
    options: Options,
) -> Compared:
    """The figures of one placement, felt latency first (results, event to sink). Ways are charged along the approach's
    own routes, every hop; deltas are to every source's straight way to the sink; `floor` is a lower bound under the
    objective of `options`."""
    least = float("nan") if floor is None else floor.value
    plan = placement.plan
    ways = reach(problem, placement)
    figures = evaluate(problem, replace(plan, options=options), ways)
    felt = predict(problem, plan, ways).felt
    straight = source_latency(problem, plan, _measured(problem, space) or space).sink_based
    sink_mean, sink_p90 = float(np.nanmean(straight)), float(np.nanpercentile(straight, 90))
    plain = options.objective == "latency" and options.waiting == 0 and not figures.cost_metrics_ms
    mean_bound = least / max(1, len(plan.joins)) / 2 if plain else float("nan")
    row: Row = {
        "approach": name,
        "felt_mean_ms": felt.mean_ms,
        "felt_p50_ms": felt.p50_ms,
        "felt_p90_ms": felt.p90_ms,
        "felt_p99_ms": felt.p99_ms,
        "network_ms": felt.network_ms,
        "service_ms": felt.service_ms,
        "waiting_ms": felt.waiting_ms,
        "unsettled": felt.unsettled,
        "latency_mean_ms": figures.latency_mean_ms,
        "latency_p90_ms": figures.latency_p90_ms,
        "delta_mean_ms": _less(figures.latency_mean_ms, sink_mean),
        "delta_p90_ms": _less(figures.latency_p90_ms, sink_p90),
        "unweighted_delta_mean_ms": _less(figures.unweighted_mean_ms, sink_mean),
        "unweighted_delta_p90_ms": _less(figures.unweighted_p90_ms, sink_p90),
        "slowest_mean_ms": figures.slowest_mean_ms,
        "slowest_p90_ms": figures.slowest_p90_ms,
        "overloaded": figures.overloaded,
        "overloaded_percent": figures.overloaded_percent,
        "forbidden": len(np.unique(plan.replicas.node[~problem.nodes.hosts[plan.replicas.node]])),
        "overloaded_percent_scripts": charge.overloaded_percent(problem, charge.arrivals(problem, placement)),
        "utilisation_max": figures.utilisation_max,
        "hosts": figures.hosts,
        "replicas": figures.replicas,
        "tuples_in": figures.tuples_in,
        "tuples_network": figures.tuples_network,
        "cost_eq1_ms": figures.cost_eq1_ms,
        "cost_ms": figures.cost_ms,
        "bound_ms": least,
        "bound_certainty": float("nan") if floor is None else floor.certainty,
        "bound_delta_mean_ms": mean_bound - sink_mean,
        "gap": _less(figures.cost_ms, least) / least if least > 0 else float("nan"),
        "seconds": seconds,
    }
    if not simulated_s:
        return Compared(row, placement, None)
    simulated = simulate(problem, plan, simulated_s, seed=options.seed, distances=ways)
    result = percentiles(simulated.result_ms)
    row |= {
        **{f"simulated_{name}_ms": result[name] for name in ("mean", "p50", "p90", "p99")},
        **{f"simulated_{name}_ms": value for name, value in simulated.result_parts.items()},
        "simulated_backlog": simulated.backlog,
        "simulated_served_per_s": simulated.served_per_s,
        "simulated_results_per_s": simulated.results_per_s,
    }
    return Compared(row, placement, simulated)


def told(rows: Sequence[Row]) -> str:
    """Where rows have their latencies from: "simulated", or "felt" where nothing was simulated."""
    return "simulated" if "simulated_p99_ms" in rows[0] else "felt"


def usable(row: Row) -> bool:
    """Whether somebody could run this: no node gets more than it can take, none gets joins that takes none, and what
    waits does not grow."""
    late: float = row[f"{told([row])}_p99_ms"]
    return not row["overloaded"] and not row["forbidden"] and bool(np.isfinite(late))


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The usable ones first, and the soonest results first among either."""
    return sorted(
        rows, key=lambda row: (not usable(row), float(np.nan_to_num(row[f"{told([row])}_mean_ms"], nan=np.inf)))
    )


def verdict(rows: Sequence[Row]) -> str:
    """Who is first of those that can be run."""
    fit = [row for row in rows if usable(row)]
    if not fit:
        return "None of these plans can be run as it is."
    source = told(rows)
    quick, late = (min(fit, key=lambda row: float(row[f"{source}_{name}_ms"])) for name in ("mean", "p99"))
    link = " and" if late is quick else f", {label(late['approach'])}"
    return (
        f"Of the {len(fit)} plans that can be run, {label(quick['approach'])} has the lowest mean "
        f"({quick[f'{source}_mean_ms']:,.0f} ms){link} the lowest 99th percentile ({late[f'{source}_p99_ms']:,.0f} ms)."
    )


def hindrance(row: Row) -> str | None:
    """Why nobody could run an approach's plan; None where one could."""
    if usable(row):
        return None
    if row["forbidden"]:
        return f"{row['approach']} puts joins where none may run (hosts: false)"
    if row["overloaded"]:
        return f"{row['approach']} overloads {row['overloaded']} of {row['hosts']} hosts"
    return f"{row['approach']} has hosts whose queues never settle"


def _measured(problem: Problem, space: CostSpace) -> Measured | None:
    """Measured distances, where the problem has any."""
    return None if problem.latency is None else Measured(problem.latency, len(problem.nodes), space)


def _less(a: float, b: float) -> float:
    """a − b, without the dust that rounding leaves where they are the same."""
    return 0.0 if abs(a - b) <= 1e-9 * max(abs(a), abs(b)) else a - b
