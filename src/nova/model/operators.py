"""Operators: the graph of a query, from its sources to its sink, with the rate on every edge.

A two-way join of whole streams is the smallest graph with something to place: source, source, join, sink.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["source", "filter", "copy", "project", "join", "aggregate", "sink"]
Tree: TypeAlias = "str | tuple[Tree, Tree]"
"""The alias of a stream, or a join of two trees."""
Origin: TypeAlias = Literal["given", "stated", "measured", "estimated"]
"""Where a figure comes from: the tables of the scenario, the query's `selectivity`, a run, or keys and windows."""


@dataclass(frozen=True)
class Estimate:
    """A figure that says where it comes from."""

    value: float
    origin: Origin
    why: str = ""


class Selectivities(dict[str, float]):
    """What is known of a query's selectivities: by alias the share of tuples that pass, `join`, `group`."""

    def __init__(self, values: Mapping[str, float], origins: Mapping[str, Origin]) -> None:
        super().__init__(values)
        self.origins = dict(origins)
        """By name, where a value comes from; stated where it is not named."""


def origin_of(known: Mapping[str, float], name: str) -> Origin:
    """Where a selectivity comes from."""
    return known.origins.get(name, "stated") if isinstance(known, Selectivities) else "stated"


@dataclass(frozen=True)
class Output:
    """What a join makes of the pairs of tuples in its windows."""

    share: Estimate
    """Result tuples for each pair."""
    most: float = math.inf
    """Tuples/s that one sub-join sends at most: groups, where it sends aggregates."""


HANDED_ON = Output(Estimate(0.0, "given", "another join reads its results"))
"""What a join sends to the sink whose results are the input of another one."""


@dataclass(frozen=True)
class Operator:
    """One operator and the stream that leaves it."""

    kind: Kind
    text: str
    """What it does, in words or SQL."""
    inputs: tuple[int, ...]
    """Rows of the operators it reads from."""
    rate: Estimate
    """Tuples/s that leave it."""
    pinned: Literal["source", "sink", ""] = ""
    """Where it has to run; free operators are placed."""
    stream: str = ""
    """The stream that a source brings."""


@dataclass(frozen=True)
class OperatorGraph:
    """The operators of one query, inputs before those who read them; the last one is the sink."""

    query: str
    operators: tuple[Operator, ...]

    @property
    def free(self) -> tuple[int, ...]:
        """Rows of the operators that are placed."""
        return tuple(row for row, one in enumerate(self.operators) if not one.pinned)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All (from, to)."""
        return tuple((source, row) for row, one in enumerate(self.operators) for source in one.inputs)


@dataclass(frozen=True)
class Side:
    """What happens to the tuples of one stream at their source's node, before they travel. Texts are Spark's SQL over
    the columns source, time, value and the stream's own."""

    where: str | None = None
    """Tuples that pass."""
    keys: tuple[str, ...] = ()
    """What must be equal to the other side's keys, one by one."""
    columns: tuple[str, ...] | None = None
    """Columns beside source, time and value that travel; None: all."""
    times: str | None = None
    """An array of times, one for each copy of the tuple: a copy joins in the window of its time. None: the event time
    alone."""


AS_BORN = Side()
"""Every tuple travels as it is."""


@dataclass(frozen=True)
class Grouping:
    """Aggregates of the joined rows: partial ones where rows are born, merged and finished at the sink."""

    window: str
    """Array of the starts (µs) of the windows a row belongs to, in Spark's SQL."""
    size_us: int
    slack_us: int
    """How long after a window's end rows of it may still be born, in event time of the join's windows."""
    keys: tuple[tuple[str, str], ...]
    """Name and expression of each key."""
    partial: tuple[tuple[str, str], ...]
    """Name and aggregate over rows; where one aggregate cannot be merged: name and expression, row by row."""
    merge: tuple[tuple[str, str], ...]
    """The same names, from partial ones; nothing where rows are kept."""
    final: tuple[tuple[str, str], ...]
    """Name and aggregate over merged partials or kept rows."""
    by_join: bool = False
    """Whether its windows are the join's own: a row lies in one of them."""
    slide_us: int = 0
    """From the start of a window to that of the next one."""
    having: str | None = None
    """Over keys, finals, window_start and window_end."""


@dataclass(frozen=True)
class Pipeline:
    """What happens around a two-way join: before it at the sources, after it at the hosts and at the sink."""

    left: Side = AS_BORN
    right: Side = AS_BORN
    single: bool = False
    """Whether the query reads one stream. It is planned as a join with a shadow of that stream that sends nothing, each
    source with itself: what is placed is what its tuples go through."""
    on: tuple[str, ...] = ()
    """Columns whose values must be equal where the tuples of both sides carry them: what `on` means in short."""
    keeps: tuple[Literal["left", "right"], ...] = ()
    """Sides of which a tuple that joins nothing is a result, too, with nulls for the other side: outer joins."""
    match: str | None = None
    """Where a side is kept: what a pair must satisfy beside keys and window to join, over the columns of results."""
    waits_us: int = 0
    """How long after a tuple's time, in event time of the join's windows, it may still find a partner."""
    first_us: int | None = None
    """Where the right side is copied and kept: its copy in the window of its time plus this stands for all of them.
    None: every copy stands for itself."""
    where: str | None = None
    """Joined rows that stay, over the columns of results."""
    select: tuple[tuple[str, str], ...] = ()
    """Name and expression of each column of the result; none: the join's own columns."""
    group: Grouping | None = None
    layers: str = ""
    """What is asked of the groups of a window once they are complete, in Spark's SQL over the table `_nova_groups`."""
    lateness_ms: float = 0.0
    """How far copies lie from the event time of their tuple at most."""
    sql: str = ""
    """The text it was made from; empty for `left`, `right`, `on`."""
    order: Tree | None = None
    """In which order that text's streams are joined, where there are more than two."""
    span_s: float = 0.0
    """Seconds of the other stream that a tuple is compared with, each window that both lie in counted."""
    shares: tuple[tuple[str, float], ...] = ()
    """By alias, the share of tuples that pass, and `join` and `group` as in `selectivity`; so that the query can be
    written down again as it was planned."""
    origins: tuple[tuple[str, Origin], ...] = ()
    """Where each of these comes from, unless it is stated."""
    columns: tuple[tuple[str, tuple[tuple[str, float | None], ...]], ...] = ()
    """By stream, the columns of its tuples where they are known, and how many values each has where that is."""


NOTHING_AROUND = Pipeline()
"""A join of whole streams."""


def join_name(number: int) -> str:
    """Under which name `selectivity` has the share of one of several joins, counted from 1."""
    return f"join.{number}"
