"""What comes out of the joins: result tuples/s, as traffic and as load on the sinks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nova.evaluation.metrics import Distances, flows, node_limit, plan_load
from nova.evaluation.words import rate
from nova.model.merges import NO_MERGES, Partials, mergeable_queries, partials
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
class MergeTraffic:
    """What merges on the way to the sink do for a query; partials in tuples/s."""

    query: str
    hosts: tuple[str, ...]
    """Those that merge what others send."""
    levels: int
    """Most of them that a partial passes on its way."""
    straight: float
    """Partials that would reach the sink if every host sent its own there."""
    merged: float
    """Partials that do."""
    straight_network: float
    """Partials/s × ms of their ways, if every host sent its own straight to the sink."""
    merged_network: float

    def said(self) -> str:
        """In words."""
        hosts = f"{len(self.hosts):,} host{'s' if len(self.hosts) > 1 else ''}"
        return (
            f"Partial aggregates of {self.query} are merged on {hosts}, {self.levels} at most on one way: the sink gets"
            f" {rate(self.merged)} of {rate(self.straight)} partials/s, and there are {rate(self.merged_network)} of"
            f" {rate(self.straight_network)} partials/s × ms under way."
        )

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


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
    merges: tuple[MergeTraffic, ...] = ()
    """Of queries whose partial aggregates are merged on their way."""

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
            **({"merges": [one.as_dict() for one in self.merges]} if self.merges else {}),
            "warnings": self.warnings(),
        }


def traffic(problem: Problem, plan: Plan, distances: Distances | None = None) -> Results:
    """Results/s of a plan, in all and by sink; ways from `distances` (default: the cost space the plan was made in). Of
    queries that can be merged, hosts send each group of a window once, and the sink gets what merges leave."""
    flow, joins, nodes = flows(problem, plan), plan.joins, problem.nodes
    each = result_rates(problem, joins)
    row = each[flow.join] * flow.share
    unknown, unstated = np.isnan(known_rates(problem, joins)), np.isnan(joins.output_rate)
    sent, able = partials(problem, joins, plan.replicas, plan.merges), mergeable_queries(problem)
    sink_of = np.array([query.sink for query in problem.queries], np.int32)
    last, plain = sent.to == sink_of[sent.query], ~able[joins.query]
    reached = np.bincount(joins.sink[plain], each[plain], len(nodes))
    reached = reached + np.bincount(sent.to[last], sent.sent[last], len(nodes))
    hosted = plan_load(problem, plan, flow) + nodes.other_load
    limit = node_limit(problem)
    sinks = np.unique(joins.sink)
    with np.errstate(divide="ignore", invalid="ignore"):
        fullness = np.nan_to_num((reached + hosted)[sinks] / limit[sinks], posinf=np.inf)
    order = sinks[np.argsort(-fullness, kind="stable")]
    return Results(
        total=float(each.sum()),
        network=float(row[plain[flow.join] & (flow.node != joins.sink[flow.join])].sum())
        + float(sent.sent[sent.node != sent.to].sum()),
        tuples_in=float(flow.load.sum()),
        unstated=float(each[unknown].sum()),
        estimated=float(each[unstated & ~unknown].sum()),
        sinks=tuple(
            SinkTraffic(nodes.ids[int(v)].as_py(), float(reached[v]), float(hosted[v]), float(limit[v])) for v in order
        ),
        merges=_merged(problem, plan, sent, plan.space if distances is None else distances),
    )


def _merged(problem: Problem, plan: Plan, sent: Partials, distances: Distances) -> tuple[MergeTraffic, ...]:
    """What merges do, query by query."""
    ids, merges, found = problem.nodes.ids, plan.merges, []
    straight = partials(problem, plan.joins, plan.replicas, NO_MERGES) if len(merges) else sent
    levels = merges.levels()
    for number in np.unique(merges.query).tolist():
        mine = merges.query == number
        figures = []
        for one in (straight, sent):
            rows = one.query == number
            node, to, amount = one.node[rows], one.to[rows], one.sent[rows]
            reaches = float(amount[to == problem.queries[number].sink].sum())
            figures.append((reaches, float(amount @ distances.between(node, to))))
        hosts = tuple(ids[int(node)].as_py() for node in np.unique(merges.to[mine]))
        (a, b), (c, d) = figures
        found.append(MergeTraffic(problem.queries[number].id, hosts, int(levels[mine].max()), a, c, b, d))
    return tuple(found)
