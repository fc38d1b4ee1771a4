"""Selectivity: what a run lets through its filters, joins and groups, in the terms in which plans are made.

Feeding it back (`selectivity_measured`, see `nova.controller.events`) makes a plan go by what was measured.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nova.model.problem import Problem
from nova.routing.routes import SideName

CAME, PASSED = "came", "passed"
"""What Spark counts of each side before its filters."""
ENOUGH_TUPLES = 1000
"""Of each side, before a running plan is told of a share."""
ENOUGH_WINDOWS = 5
"""Windows that must have gone by before that."""
ENOUGH_ROWS = 50
"""A share is told to a running plan where so many tuples or rows went through, or by the plan would have: fewer may be
chance."""
FAR = 1.5
"""A share this many times what a plan goes by, or less than one part in so many of it, is told to the plan."""


@dataclass(frozen=True)
class Counts:
    """What went into and out of the operators of a query."""

    came: Counter[str] = field(default_factory=Counter)
    """By side, tuples before the filters."""
    passed: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    """Pairs that satisfy all conditions of the join."""
    groups: int = 0
    """Groups of the windows that are over, and how many these windows are."""
    windows: int = 0
    first_us: int | None = None
    """The span of the tuples' event times (µs since 1970)."""
    last_us: int | None = None

    @property
    def event_s(self) -> float:
        """Seconds of event time that the tuples span."""
        return 0.0 if self.first_us is None or self.last_us is None else (self.last_us - self.first_us) / 1e6

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.came + other.came,
            self.passed + other.passed,
            self.joined + other.joined,
            self.groups + other.groups,
            self.windows + other.windows,
            min((t for t in (self.first_us, other.first_us) if t is not None), default=None),
            max((t for t in (self.last_us, other.last_us) if t is not None), default=None),
        )

    def since(self, earlier: Counts) -> Counts:
        """What has been added to earlier counts."""
        return Counts(
            self.came - earlier.came,
            self.passed - earlier.passed,
            self.joined - earlier.joined,
            self.groups - earlier.groups,
            self.windows - earlier.windows,
            self.first_us if earlier.last_us is None else earlier.last_us,
            self.last_us,
        )


NOTHING = Counts()


@dataclass
class Selectivity:
    """Counts of one query since the start of the run."""

    filters: Mapping[SideName, str]
    """By side, the name in the query's text of a stream that has filters."""
    span_s: float
    """Seconds of the other stream that a tuple is compared with; 0: the query joins nothing."""
    window_s: float = 0.0
    """Length of its windows."""
    sides: tuple[SideName, ...] = ("left", "right")
    """Those that bring tuples."""
    seen: Counts = NOTHING
    """In the batches that Spark has reported."""
    _told: Counts = NOTHING
    """What a running plan has been told of."""
    _open: dict[int, Counts] = field(default_factory=dict)
    """By number, batches that Spark has not reported yet: tasks, sink and report tell their parts one after another,
    and shares are of whole batches only."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def span(self, batch: int, first_us: int | None, last_us: int | None) -> None:
        """Event times (µs) of the tuples of a batch."""
        self._put(batch, lambda known: replace(known, first_us=first_us, last_us=last_us))

    def joined(self, batch: int, rows: int) -> None:
        """So many pairs of a batch satisfy all conditions."""
        self._put(batch, lambda known: replace(known, joined=rows))

    def closed(self, batch: int, groups: int, windows: int) -> None:
        """With a batch windows are over, with so many groups in all."""
        self._put(batch, lambda known: replace(known, groups=groups, windows=windows))

    def _put(self, batch: int, told: Callable[[Counts], Counts]) -> None:
        with self._lock:
            self._open[batch] = told(self._open.get(batch, NOTHING))

    def note(self, batch: int, observed: Mapping[str, Mapping[str, Any]]) -> None:
        """A batch is complete: take in what Spark has counted in it, and all that was told of it."""
        came, passed = (Counter({side: int(one[name]) for side, one in observed.items()}) for name in (CAME, PASSED))
        with self._lock:
            for number in sorted(number for number in self._open if number <= batch):
                self.seen += self._open.pop(number)
            self.seen += Counts(came, passed)

    def shares(self) -> dict[str, float]:
        """Values by name as in a query's `selectivity`; nothing for what has not been seen."""
        return self._shares(self.seen)

    def far(self, planned: Mapping[str, float]) -> dict[str, float]:
        """Of what was seen since a plan was last told, the shares that are far from what it goes by, where enough was
        seen. `planned`: what it goes by, by name; NaN where it goes by a guess."""
        new = self.seen.since(self._told)
        if new.event_s < ENOUGH_WINDOWS * self.window_s or min(new.came[side] for side in self.sides) < ENOUGH_TUPLES:
            return {}
        rows = {alias: new.passed[side] for side, alias in self.filters.items()}
        rows |= {"join": new.joined, "group": new.groups}
        found = {}
        for name, share in self._shares(new).items():
            if name not in planned or (name == "group" and new.windows < ENOUGH_WINDOWS):
                continue
            near = share / FAR <= planned[name] <= share * FAR
            by_plan = rows[name] * planned[name] / share if share > 0 else float("inf")
            if not near and not max(rows[name], by_plan) < ENOUGH_ROWS:
                found[name] = share
        return found

    def tell(self) -> None:
        """A plan goes by all that was seen so far: from here on it is measured afresh."""
        self._told = self.seen

    def _shares(self, counts: Counts) -> dict[str, float]:
        told = {
            alias: counts.passed[side] / counts.came[side] for side, alias in self.filters.items() if counts.came[side]
        }
        pairs = counts.passed["left"] * counts.passed["right"] * self.span_s
        if pairs > 0 and counts.event_s > 0:
            told["join"] = min(counts.joined * counts.event_s / pairs, 1.0)
        if counts.windows:
            told["group"] = counts.groups / counts.windows
        return told


def selectivity_of(problem: Problem, number: int) -> Selectivity:
    """What is to be counted of a query."""
    query = problem.queries[number]
    around = query.pipeline
    known = dict(around.shares)
    sides: tuple[SideName, ...] = ("left",) if around.single else ("left", "right")
    filters: dict[SideName, str] = {}
    for side in sides:
        row = query.left if side == "left" else query.right
        alias = problem.streams[row].rpartition(".")[2]
        if row in problem.derived and alias in known:
            filters[side] = alias
    return Selectivity(filters, around.span_s, query.window_ms / 1000, sides)
