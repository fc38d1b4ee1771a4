"""Felt latency: what results wait for under Nova's plans and under every other way to place the same joins.

Every case is planned by every way, and all plans are simulated with the same fresh tuples. A way that leaves joins
unplaced is refused; Nova loses a case where any other way is ahead by more than a tie at the mean, p90 or p99.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nova.baselines import BASELINES
from nova.datasets.instances import load
from nova.evaluation.approaches import embedded, run
from nova.evaluation.bounds import bound
from nova.evaluation.metrics import evaluate
from nova.evaluation.prediction import predict
from nova.evaluation.simulation import Arrivals, percentiles, simulate
from nova.model.errors import Infeasible, InvalidInput
from nova.model.options import Options
from nova.model.problem import Key, Problem
from nova.synthetic import draw
from nova_lab.bench.instances import finite

NOVA: dict[str, dict[str, Any]] = {
    "nova": {},
    "waiting 0": {"waiting": 0.0},
    **{f"utilisation {share}": {"utilisation": share} for share in (0.9, 0.8, 0.7, 0.5)},
}
"""Nova's default, and what else its options could have said."""
WAYS = (*NOVA, *(name for name in BASELINES if name != "optimum"))
TIE = 0.02
"""Ahead by less than this share is a tie."""
FIGURES = ("mean", "p90", "p99")
"""Where Nova must not lose."""
SIMULATION = 7_919
"""Added to the seed of a case: tuples that no plan was made with."""


@dataclass(frozen=True)
class Case:
    """One problem to place."""

    name: str
    problem: Problem
    seed: int


@dataclass(frozen=True)
class Felt:
    """One way on one case: simulated event-to-sink latency of results, in ms."""

    case: str
    way: str
    mean: float
    p50: float
    p90: float
    p99: float
    network: float
    """Parts of the mean."""
    service: float
    waiting: float
    predicted_mean: float
    """What was predicted for Poisson arrivals; infinite where queues never settle."""
    predicted_p99: float
    gap: float
    """Cost that default plans are made by, over the lower bound, less one."""
    busiest: float
    """Highest share of its capacity that a host is loaded with."""
    slices: int
    """Replicas that take only some of the windows."""
    overloaded: int

    @property
    def notes(self) -> str:
        """What else a reader must know of the plan."""
        notes = [(self.slices, "slices"), (self.overloaded, "overloaded")]
        return ", ".join(f"{count:,} {word}" for count, word in notes if count)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Loss:
    """Where another way is ahead of Nova."""

    case: str
    figure: str
    nova: float
    way: str
    other: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cases(
    folder: Path | None, only: list[str], loads: Sequence[float], draws: int, nodes: int, keyed: bool = False
) -> Iterator[Case]:
    """The finite instances of a folder, then `draws` fresh draws per load: over the instances' topologies in turn where
    there is a folder, else over drawn ones of `nodes` nodes. `keyed`: every join has a key that it divides by."""
    for case in _unkeyed(folder, only, loads, draws, nodes):
        if keyed:
            queries = tuple(replace(query, key=Key(("key",))) for query in case.problem.queries)
            yield replace(case, problem=replace(case.problem, queries=queries))
        else:
            yield case


def _unkeyed(folder: Path | None, only: list[str], loads: Sequence[float], draws: int, nodes: int) -> Iterator[Case]:
    files = finite(folder, only) if folder is not None else []
    for file in files:
        yield Case(file.stem, load(file).problem, 0)
    places = {file.stem.rsplit("-", 1)[0]: file for file in files}
    for share in loads:
        for seed in range(1, draws + 1):
            if not places:
                yield Case(f"drawn-{seed} at {share:.0%}", draw(nodes, 5, seed, load=share), seed)
                continue
            name = list(places)[(seed - 1) % len(places)]
            at = load(places[name]).problem.nodes.coordinates
            yield Case(f"{name}/{seed} at {share:.0%}", draw(seed=seed, coordinates=at, load=share), seed)


def measure(case: Case, ways: Sequence[str], seconds: float, arrivals: Arrivals) -> list[Felt]:
    """Plan a case in every way, and let the same tuples live through all plans."""
    unknown = [way for way in ways if way not in WAYS]
    if unknown:
        raise InvalidInput(f"no way {', '.join(map(repr, unknown))}; there are {', '.join(WAYS)}")
    problem, space = embedded(case.problem, Options(seed=case.seed))
    floor, rows = None, []
    for way in ways:
        options = replace(Options(seed=case.seed), **NOVA.get(way, {}))
        try:
            placement, _ = run("nova" if way in NOVA else way, problem, space, options)
        except Infeasible:
            continue
        plan = placement.plan
        if floor is None:
            floor = bound(problem, plan.joins, space, Options(seed=case.seed), guide=plan).value
        judged = replace(plan, options=Options(seed=case.seed))  # all ways by the default's cost
        figures = evaluate(problem, judged, placement.distances)
        told = simulate(
            problem, plan, seconds, seed=SIMULATION + case.seed, arrivals=arrivals, distances=placement.distances
        )
        result, felt = percentiles(told.result_ms), predict(problem, plan, placement.distances).felt
        boxes = plan.replicas
        rows.append(
            Felt(
                case=case.name,
                way=way,
                mean=result["mean"],
                p50=result["p50"],
                p90=result["p90"],
                p99=result["p99"],
                **told.result_parts,
                predicted_mean=felt.mean_ms,
                predicted_p99=felt.p99_ms,
                gap=figures.cost_ms / floor - 1 if floor > 0 else float("nan"),
                busiest=figures.utilisation_max,
                slices=int((boxes.slice_to - boxes.slice_from < 1).sum()),
                overloaded=figures.overloaded,
            )
        )
    return rows


def errors(rows: Sequence[Felt]) -> dict[str, float]:
    """Largest relative errors of the prediction, over the plans whose queues settle; NaN where there is none."""
    settled = [row for row in rows if math.isfinite(row.predicted_mean) and row.mean > 0]
    return {
        "mean": max((abs(row.predicted_mean / row.mean - 1) for row in settled), default=math.nan),
        "p99": max((abs(row.predicted_p99 / row.p99 - 1) for row in settled), default=math.nan),
    }


def losses(rows: Sequence[Felt]) -> list[Loss]:
    """The best other way per case and figure, where it is ahead of Nova by more than a tie."""
    found = []
    for ours in rows:
        others = [row for row in rows if row.case == ours.case and row.way != "nova"]
        if ours.way != "nova" or not others:
            continue
        for figure in FIGURES:
            best = min(others, key=lambda row: float(getattr(row, figure)))
            if getattr(ours, figure) > (1 + TIE) * getattr(best, figure):
                found.append(Loss(ours.case, figure, getattr(ours, figure), best.way, getattr(best, figure)))
    return found
