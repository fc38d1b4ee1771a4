"""The approaches that are compared: Nova's variants and the baselines, each with one name, label and colour."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from nova.baselines import BASELINES, place
from nova.baselines.placement import Placement, straight
from nova.costspace import embed
from nova.evaluation.metrics import Distances, Measured
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.placement.resolve import resolve
from nova.synthetic import draw

Row: TypeAlias = dict[str, Any]
"""One line of a table of figures: an approach, an experiment's outcome."""


@dataclass(frozen=True)
class Look:
    """How an approach appears in tables and drawings."""

    label: str
    colour: str
    marker: str = "o"
    ours: bool = False
    rule: str = ""
    """Where it runs joins, in a few words; none for what is no approach."""


LOOKS: dict[str, Look] = {
    "nova": Look("Nova", "#0b6e99", "o", True, rule="near sources and sink, split where no host has the room"),
    "nova-window": Look("Nova, window slices", "#0b6e99", "o", True, rule="as Nova, split by whole windows"),
    "nova-grid": Look("Nova, grid", "#56b4e9", "s", True, rule="as Nova, split into grids of parts"),
    "nova-paper": Look(
        "Nova, paper's settings", "#7b4fa3", "D", True, rule="as Nova with the paper's settings: way without waiting"
    ),
    "nova-inf": Look("Nova, no capacity limits", "#009e73", "v", True),
    "nova-replanned": Look("Nova, replanned", "#56b4e9", "s", True),
    "nova-measured": Look("Nova, measurements known", "#56b4e9", "s", True),
    "sink": Look("Sink-based", "#5b6675", "x", rule="all at the sink"),
    "source": Look("Source-based", "#e69f00", "^", rule="where the larger input is born"),
    "top-c": Look("Top-c", "#cc79a7", "P", rule="where most capacity is left"),
    "top-c-largest": Look("Top-c, largest first", "#a05080", "p", rule="the same, the largest join first"),
    "tree": Look("Tree", "#8c564b", "<", rule="where routes meet on a spanning tree"),
    "cl-sf": Look("Cl-SF", "#d55e00", ">", rule="at the head of the sources' cluster, else at the sink"),
    "cl-tree-sf": Look("Cl-Tree-SF", "#b8a100", "h", rule="where routes between cluster heads meet"),
    "optimum": Look("Optimum", "#000000", "*", rule="by a solver, in whole windows"),
    "estimated": Look("estimated", "#a9c8d6"),
    "measured": Look("measured", "#0b6e99"),
}


def look(name: str) -> Look:
    """The look of an approach; a name of its own, in grey, for what is none."""
    return LOOKS.get(name, Look(name, "#9aa4b1"))


def label(name: str) -> str:
    """The approach as tables call it."""
    return look(name).label


def paper_options(problem: Problem, options: Options) -> Options:
    """The settings of the paper's experiments: grid with σ = 0.4, C_min half the median capacity, Eq. 1's objective."""
    capacity = problem.nodes.capacity[problem.nodes.hosts]
    c_min = float(np.median(capacity)) / 2 if len(capacity) and np.isfinite(capacity).all() else 0.0
    return replace(options, objective="paper", partition="grid", sigma=0.4, c_min=c_min, waiting=0.0)


VARIANTS: dict[str, Callable[[Problem, Options], Options]] = {
    "nova": lambda _, options: options,
    "nova-window": lambda _, options: replace(options, partition="window"),
    "nova-grid": lambda _, options: replace(options, partition="grid"),
    "nova-paper": paper_options,
}
"""Nova's own ways, as changes to the options given."""
COMPARED = ("nova", "nova-paper", *(name for name in BASELINES if name != "optimum"))
"""What stands side by side unless somebody asks for more: first what `nova plan` chooses."""


def known() -> list[str]:
    """Every approach that can be asked for."""
    return [*VARIANTS, *BASELINES]


def check_names(names: Sequence[str]) -> list[str]:
    """The names as given; an unknown one is told, with those known."""
    unknown = [name for name in names if name not in known()]
    if unknown:
        raise InvalidInput(f"no approach {', '.join(map(repr, unknown))}; there are {', '.join(known())}")
    return list(names)


def embedded(problem: Problem, options: Options) -> tuple[Problem, CostSpace]:
    """The problem with its cost space on the nodes, so that all approaches share one and Phase I runs once."""
    space = embed(problem, options)
    nodes = replace(problem.nodes, coordinates=space.coordinates, heights=space.heights)
    return replace(problem, nodes=nodes), space


def reach(problem: Problem, placement: Placement) -> Distances:
    """What the ways of a placement take: measured times where the problem has them, else the cost space's."""
    if problem.latency is None:
        return placement.distances
    return placement.over(Measured(problem.latency, len(problem.nodes), placement.plan.space))


def run(name: str, problem: Problem, space: CostSpace, options: Options) -> tuple[Placement, float]:
    """(the placement, seconds it took). `problem` carries the cost space's coordinates; see `embedded`.

    Nova places what does not fit evenly and reports it, like every baseline: a comparison needs a plan from all.
    """
    options = replace(options, allow_overload=True)
    started = time.perf_counter()
    if name in VARIANTS:
        from nova.optimizer import optimize

        plan = optimize(problem, VARIANTS[name](problem, options))
        seconds = time.perf_counter() - started
        return straight(replace(plan, approach=name)), seconds
    if name == "optimum":
        options = replace(options, partition="window")  # slices are what it is the optimum of
    placement = place(name, problem, resolve(problem), space, options)
    return placement, time.perf_counter() - started


@cache
def warm_up(names: tuple[str, ...]) -> None:
    """Place a small draw by each approach: afterwards its kernels are compiled, and times are those of its work."""
    problem, space = embedded(draw(60), Options())
    for name in names:
        run(name, problem, space, Options())
