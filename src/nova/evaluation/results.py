"""What comes out of the joins: result tuples/s, as traffic and as load on the sinks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nova.evaluation.metrics import flows, node_limit, node_load
from nova.evaluation.words import rate
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.rates import known_rates, result_rates

CROSS = 10.0
"""Results per tuple taken in from which an unstated output rate is worth a warning: every pair of a window matches."""


@dataclass(frozen=True)
class SinkTraffic:
    """What one sink gets, in tuples/s."""

    sink: str
    results: float
    hosted: float
    """Input of the joins that run on the sink itself, and its other work."""
    limit: float
    """Tuples/s it can take in."""

    @property
    def overloaded(self) -> bool:
        """Whether results and joins are more than it can take."""
        return self.results + self.hosted > self.limit * (1 + 1e-6)

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {**asdict(self), "overloaded": self.overloaded}


@dataclass(frozen=True)
class Results:
    """The result traffic of a plan, in tuples/s."""

    total: float
    network: float
    """Those of them that leave their host for a sink elsewhere."""
    tuples_in: float
    """Tuples that the joins take in, to compare with."""
    unstated: float
    """Part of `total` from sub-joins whose output rate nobody knows: every pair of a window counts."""
    estimated: float
    """Part of `total` from sub-joins whose output rate is estimated from keys, windows and conditions."""
    sinks: tuple[SinkTraffic, ...]
    """Fullest first."""

    def warnings(self) -> list[str]:
        """What a reader must know: sinks that cannot take the results, and cross products."""
        said = [
            f"{sink.sink} gets {rate(sink.results)} results/s"
            + (f" and {rate(sink.hosted)} tuples/s of other input" if sink.hosted > 0 else "")
            + f", and can take {rate(sink.limit)}: raise its capacity if it takes more, or have fewer results (a "
            "filter, a narrower window, `selectivity`)"
            for sink in self.sinks
            if sink.overloaded
        ]
        if self.unstated > CROSS * self.tuples_in:
            said.append(
                f"{rate(self.tuples_in)} tuples/s in become {rate(self.unstated)} results/s if all tuples of a window "
                "match each other; where fewer do, state `selectivity: {join: SHARE}` or the key's cardinality"
            )
        return said

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "results_per_s": self.total,
            "results_network_per_s": self.network,
            "unstated_per_s": self.unstated,
            "estimated_per_s": self.estimated,
            "sinks": [sink.as_dict() for sink in self.sinks],
            "warnings": self.warnings(),
        }


def traffic(problem: Problem, plan: Plan) -> Results:
    """Results/s of a plan, in all and by sink."""
    flow, joins, nodes = flows(plan), plan.joins, problem.nodes
    each = result_rates(problem, joins)
    row = each[flow.join] * flow.share
    unknown, unstated = np.isnan(known_rates(problem, joins)), np.isnan(joins.output_rate)
    reached = np.bincount(joins.sink, each, len(nodes))
    hosted = node_load(flow, len(nodes)) + nodes.other_load
    limit = node_limit(problem)
    sinks = np.unique(joins.sink)
    with np.errstate(divide="ignore", invalid="ignore"):
        fullness = np.nan_to_num((reached + hosted)[sinks] / limit[sinks], posinf=np.inf)
    order = sinks[np.argsort(-fullness, kind="stable")]
    return Results(
        total=float(each.sum()),
        network=float(row[flow.node != joins.sink[flow.join]].sum()),
        tuples_in=float(flow.load.sum()),
        unstated=float(each[unknown].sum()),
        estimated=float(each[unstated & ~unknown].sum()),
        sinks=tuple(
            SinkTraffic(nodes.ids[int(v)].as_py(), float(reached[v]), float(hosted[v]), float(limit[v])) for v in order
        ),
    )
