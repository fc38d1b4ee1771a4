"""Tally: what Spark's tasks count while they work, and how the driver gets it.

Counts are for people (rates, utilisation, latency). Only `last_window` decides anything: where a plan may switch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from nova.model.problem import Floats, Ints
from nova.routing.position import Longs
from nova.routing.routes import SideName
from nova.spark.dead_letters import Letter

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class Arrived:
    """Tuples of one side of a batch."""

    side: SideName
    source: Ints
    """Rows in the source table."""
    time: Longs
    """Event times in µs since 1970."""
    share: Floats
    """Place of each tuple in its stream, in [0, 1)."""
    key: Floats | None = None
    """Place of each tuple's join key in its hash space; None where the query joins on no column."""


@dataclass(frozen=True)
class Sample:
    """Some of the results of a task, each standing for `weight` of them."""

    left_source: list[str]
    right_source: list[str]
    left_time: Longs
    right_time: Longs
    node: Ints
    weight: float


@dataclass
class Tally:
    """Counts of one batch, or of many."""

    tuples: Counter[str] = field(default_factory=Counter)
    """Tuples that came in and can be used, by side."""
    dead: Counter[str] = field(default_factory=Counter)
    """Tuples that cannot be used and are left out, by reason."""
    letters: list[Letter] = field(default_factory=list)
    """They themselves, as far as they are kept."""
    copies: Counter[int] = field(default_factory=Counter)
    """Tuples sent to each node (row), once per meeting there."""
    buckets: Counter[int] = field(default_factory=Counter)
    """Copies by the end of their bucket (µs): what lies behind the watermark was late."""
    results: Counter[int] = field(default_factory=Counter)
    """Results of each node (row)."""
    ages: Counter[int] = field(default_factory=Counter)
    """Results by the event time of their later tuple (ms)."""
    last_window: int | None = None
    """Highest window that a tuple was routed for."""
    left_end: int | None = None
    """Latest end of a bucket (µs) on the left: where the watermark of that side comes from."""
    right_end: int | None = None
    last_time: int | None = None
    """Latest event time seen (µs)."""
    first_time: int | None = None
    """Earliest event time seen (µs)."""
    began_s: float | None = None
    """When the work on the batch began (s since 1970)."""
    routed_s: float | None = None
    """When its last tuple was routed."""
    joining_s: float | None = None
    """When its first packets were joined."""
    joined_s: float | None = None
    """When its last ones were."""
    arrived: list[Arrived] = field(default_factory=list)
    """All tuples, only where hosts are emulated."""
    sampled: list[Sample] = field(default_factory=list)
    """Some of the results, likewise."""

    def add(self, other: Tally) -> None:
        """Take in another tally."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            elif isinstance(mine, list):
                mine.extend(theirs)
            elif theirs is not None:
                better = min if each.name in ("first_time", "began_s", "joining_s") else max
                setattr(self, each.name, theirs if mine is None else better(mine, theirs))


class _Sum(AccumulatorParam[Any]):
    def zero(self, value: Tally) -> Tally:  # noqa: ARG002
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802
        value1.add(value2)
        return value1


class Till:
    """Where tasks put their tallies and the driver takes them out, batch by batch."""

    def __init__(self, context: SparkContext) -> None:
        self._sum = context.accumulator(Tally(), _Sum())

    def put(self, tally: Tally) -> None:
        """In a task: hand in what was counted."""
        self._sum.add(tally)

    def take(self) -> Tally:
        """On the driver, after an action: everything since the last time."""
        taken: Tally = self._sum.value
        self._sum.value = Tally()
        return taken
