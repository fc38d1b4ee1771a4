"""Statement: a query's text with every name resolved, and its conditions sorted by what they are good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from nova.query.dialect import NovaSql
from nova.query.windows import Interval, Tumbling

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
ROLES = ("source", "time", "value")
"""Columns that every tuple has, whatever its input calls them."""
MOST_STREAMS = 6


@dataclass(frozen=True)
class Schema:
    """What is known about the tuples of a stream."""

    columns: Mapping[str, float | None]
    """Columns beside source, time and value, with the number of their values where it is known."""
    attributes: Mapping[str, float] = field(default_factory=dict)
    """Attributes of the stream's sources, with the number of their values."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What the input calls source, time and value → their name here."""
    known: bool = True
    """Whether the columns are known; else every name is taken as one."""
    made: bool = False
    """Whether another join of the same query makes the stream: its tuples lie in their windows already."""


@dataclass(frozen=True)
class Key:
    """An equality between what was joined before and the stream that comes in."""

    left: exp.Expr
    right: exp.Expr


@dataclass(frozen=True)
class Join:
    """One more stream joined to those before it."""

    kind: JoinKind
    alias: str
    keys: tuple[Key, ...]
    window: Tumbling | Interval
    residual: tuple[exp.Expr, ...]
    same: tuple[tuple[str, str], ...] = ()
    """Pairs of streams whose times the text wants in the same `window`."""
    intervals: tuple[Interval, ...] = ()
    """All that the residual conditions say about how far apart the times of two streams are, where it has two ends."""


@dataclass(frozen=True)
class Group:
    """GROUP BY: a window on a time column, and keys."""

    window: Tumbling
    time: exp.Expr | None
    """Time column that the window is on; None: the join's own window."""
    keys: tuple[exp.Expr, ...]
    closed: bool = False
    """Whether a tuple at the very end of a window belongs to it, too."""


@dataclass(frozen=True)
class Statement:
    """A query, analysed. Columns in expressions carry the alias of their stream as table."""

    sql: str
    streams: Mapping[str, str]
    """Alias → stream, in the order they are joined."""
    schemas: Mapping[str, Schema]
    """By alias."""
    filters: Mapping[str, tuple[exp.Expr, ...]]
    """By alias: conditions on that stream alone, to be checked at the source."""
    joins: tuple[Join, ...]
    where: tuple[exp.Expr, ...]
    """Conditions for after all joins."""
    select: tuple[tuple[str, exp.Expr], ...]
    group: Group | None
    having: exp.Expr | None
    layers: tuple[exp.Select, ...] = ()
    """SELECTs around it, from the inside out, each over the groups of one window."""


def short_sql(left: str, right: str, on: Sequence[str], window_ms: float) -> str:
    """What `left`, `right`, `on` and `window` say, as SQL."""
    a, b = (exp.to_identifier(name, quoted=True).sql(dialect=NovaSql) for name in (left, right))
    columns = [exp.to_identifier(name, quoted=True).sql(dialect=NovaSql) for name in on]
    length = f"INTERVAL '{round(window_ms * 1000)}' MICROSECOND"
    conditions = [f"TUMBLE({a}.time, {length}) = TUMBLE({b}.time, {length})", *(f"{a}.{c} = {b}.{c}" for c in columns)]
    joined = f"{a} JOIN {b} ON {' AND '.join(conditions)}"
    return f"SELECT {a}.value AS left_value, {b}.value AS right_value FROM {joined}"  # nosec B608


def aliases_in(node: exp.Expr) -> set[str]:
    """The streams that an expression looks at."""
    return {column.table for column in node.find_all(exp.Column) if column.table}
