"""Placement: a baseline's plan, with the routes its tuples take where these are not straight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from nova.evaluation.metrics import Distances, flows, node_limit, node_load, overloaded
from nova.model.options import Options
from nova.model.plan import Plan, Summary
from nova.model.problem import Floats, Ints, Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins


@dataclass(frozen=True)
class Placement:
    """A plan with its routes."""

    plan: Plan
    distances: Distances
    """ms between nodes along the routes that the approach uses, every hop counted: the cost space itself where tuples
    travel straight, a `Routes` where they go through a tree."""
    relay_load: Floats
    """Tuples/s of input and results that pass through each node on their way: nodes that a route begins or ends at
    are not charged for it. Zero everywhere for straight routes."""

    def over(self, distances: Distances) -> Distances:
        """ms along the same routes when hops take what `distances` says, such as measured round-trip times."""
        routes = getattr(self.distances, "over", None)
        return distances if routes is None else cast(Distances, routes(distances))


def whole(problem: Problem, joins: SubJoins, space: CostSpace, options: Options, approach: str, hosts: Ints) -> Plan:
    """The plan that runs sub-join i, unsplit, on node `hosts[i]`; the nodes this overloads are named in it."""
    replicas = Replicas.whole(np.arange(len(joins)), hosts)
    return finished(problem, Plan(joins, replicas, space, options, approach, digest=problem.digest))


def finished(problem: Problem, plan: Plan) -> Plan:
    """The plan with its figures, and its overloaded nodes named."""
    load = node_load(flows(problem, plan), len(problem.nodes))
    over = overloaded(load, node_limit(problem))
    return Plan(
        plan.joins,
        plan.replicas,
        plan.space,
        plan.options,
        plan.approach,
        np.flatnonzero(over).astype(np.int32),
        plan.digest,
        Summary.of(problem, plan.joins, plan.replicas, load, int(over.sum())),
    )


def straight(plan: Plan) -> Placement:
    """A placement whose tuples travel straight through the cost space."""
    return Placement(plan, plan.space, np.zeros(len(plan.space)))
