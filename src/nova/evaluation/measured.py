"""Measured against estimated: one plan read through the cost space, a measured matrix, and a series of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.costspace.accuracy import tiv
from nova.evaluation.metrics import Distances, Measured, Metrics, evaluate
from nova.model.plan import Plan
from nova.model.problem import Latency, Problem

Routed = Callable[[Distances], Distances]
"""Ways of an approach over given hops; `Placement.over` for baselines, the hops themselves for straight ways."""


@dataclass(frozen=True)
class Reading:
    """The figures of a plan under one view of the network."""

    name: str
    metrics: Metrics
    links_measured: float
    """Share of the plan's straight links (source → host, host → sink) that were measured; the rest is told by the cost
    space. 0 for the estimate itself."""
    tiv_share: float
    """Share of measured triples in which a relay beats the direct way; NaN for the estimate."""

    def as_dict(self) -> dict[str, Any]:
        """The reading as plain values."""
        return {
            "view": self.name,
            "links_measured": self.links_measured,
            "tiv_share": self.tiv_share,
            **self.metrics.as_dict(),
        }


def readings(
    problem: Problem,
    plan: Plan,
    measured: Mapping[str, Latency] | Sequence[Latency],
    routed: Routed | None = None,
    seed: int = 0,
) -> list[Reading]:
    """Read a plan through its cost space, then through each measured matrix, in order.

    A sequence is a series whose matrices are named by their position. Pairs without a measurement fall back to the cost
    space, and are counted. `routed` turns hops into ways for approaches whose tuples do not travel straight.
    """
    ways: Routed = (lambda hops: hops) if routed is None else routed
    views = measured if isinstance(measured, Mapping) else {str(i): latency for i, latency in enumerate(measured)}
    found = [Reading("estimated", evaluate(problem, plan, ways(plan.space)), 0.0, float("nan"))]
    for name, latency in views.items():
        hops = Measured(latency, len(problem.nodes), plan.space)
        share = tiv(len(problem.nodes), latency.first, latency.second, latency.rtt_ms, seed)
        found.append(Reading(name, evaluate(problem, plan, ways(hops)), measured_share(plan, hops), share))
    return found


def measured_share(plan: Plan, hops: Measured) -> float:
    """Share of the links between sources, hosts and sinks that were measured; NaN for a plan without replicas."""
    boxes, joins = plan.replicas, plan.joins
    if not len(boxes):
        return float("nan")
    ends = (joins.left_node, joins.right_node, joins.sink)
    return float(sum(hops.known(boxes.node, end[boxes.join]).mean() for end in ends) / len(ends))
