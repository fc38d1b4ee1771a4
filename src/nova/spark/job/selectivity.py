"""Selectivity: what a run lets through its filters, joins and groups, in the terms in which plans are made.

Feeding it back (`selectivity_measured`, see `nova.controller.events`) makes a plan go by what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nova.model.problem import Problem
from nova.routing.routes import SideName

CAME, PASSED = "came", "passed"
"""What Spark counts of each side before its filters."""


@dataclass
class Selectivity:
    """Counts of one query since the start of the run."""

    filters: Mapping[SideName, str]
    """By side, the name in the query's text of a stream that has filters."""
    span_s: float
    """Seconds of the other stream that a tuple is compared with; 0: the query joins nothing."""
    came: Counter[str] = field(default_factory=Counter)
    """By side, tuples before the filters."""
    passed: Counter[str] = field(default_factory=Counter)
    joined: int | None = 0
    """Joined rows that satisfy all conditions; None: the sink does not tell how many it got."""
    groups: int = 0
    """Groups of the windows that are over, and how many these windows are."""
    windows: int = 0

    def note(self, observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what Spark has counted in a batch."""
        for side, counts in observed.items():
            self.came[side] += int(counts[CAME])
            self.passed[side] += int(counts[PASSED])

    def shares(self, event_s: float) -> dict[str, float]:
        """Values by name as in a query's `selectivity`; nothing for what has not been seen. `event_s`: seconds of event
        time that the tuples span."""
        told = {alias: self.passed[side] / self.came[side] for side, alias in self.filters.items() if self.came[side]}
        pairs = self.passed["left"] * self.passed["right"] * self.span_s
        if pairs > 0 and event_s > 0 and self.joined is not None:
            told["join"] = min(self.joined * event_s / pairs, 1.0)
        if self.windows:
            told["group"] = self.groups / self.windows
        return told


def selectivity_of(problem: Problem, number: int) -> Selectivity:
    """What is to be counted of a query."""
    query = problem.queries[number]
    around = query.pipeline
    known = dict(around.shares)
    sides: tuple[tuple[SideName, int], ...] = (("left", query.left), ("right", query.right))
    filters: dict[SideName, str] = {}
    for side, row in sides:
        alias = problem.streams[row].rpartition(".")[2]
        if row in problem.derived and alias in known and not (around.single and side == "right"):
            filters[side] = alias
    outer = bool(around.keeps) and around.match is not None
    return Selectivity(filters, 0.0 if outer or query.makes is not None else around.span_s)
