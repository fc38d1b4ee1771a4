"""The approaches that Nova is compared with, behind one interface: `place(name, problem, joins, space, options)`.

None of them but `optimum` respects capacities; what they overload is named in the plan. Joins stay whole.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Protocol, cast

from nova.baselines.placement import Placement
from nova.model.chain import linked
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

BASELINES: dict[str, str] = {
    "sink": "Every join at its sink.",
    "source": "Every join at the source with the higher rate.",
    "top-c": "Join by join at the node with the most capacity left.",
    "top-c-largest": "Top-c, the largest joins first.",
    "tree": "Routes along a minimum spanning tree, joins where they meet.",
    "cl-sf": "Fuzzy clusters: joins at the common cluster head, else at the sink.",
    "cl-tree-sf": "A spanning tree over the cluster heads, joins where routes meet.",
    "optimum": "The exact optimum within capacities; small problems only.",
}
"""Names of the baselines and what they do, in the order of the paper."""


class Place(Protocol):
    """What each module of this package offers."""

    def __call__(self, problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement: ...


def baseline(name: str) -> Place:
    """The function that places joins the way `name` says."""
    if name not in BASELINES:
        raise InvalidInput(f"no approach {name!r}; there are {', '.join(BASELINES)}")
    return cast(Place, import_module(f"nova.baselines.{name.replace('-', '_')}").place)


def place(name: str, problem: Problem, joins: SubJoins, space: CostSpace, options: Options = Options()) -> Placement:
    """Place the sub-joins by the named baseline."""
    placed = baseline(name)(problem, joins, space, options)
    plan = placed.plan
    return replace(placed, plan=replace(plan, joins=linked(problem, plan.joins, plan.replicas)))


__all__ = ["BASELINES", "Place", "Placement", "baseline", "place"]
