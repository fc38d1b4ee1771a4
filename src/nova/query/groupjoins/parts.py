"""Parts of the texts that are made: expressions, and queries over the groups of a window."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql
from nova.query.layers import GROUPS

START, END = "_w0", "_w1"
EDGES: dict[str, str] = dict(zip(BOUNDS, (START, END), strict=True))
"""What the bounds of a window are called among the columns of groups."""


def base_of(keys: list[exp.Expr], aggregates: list[exp.Expr], window: exp.Expr) -> exp.Select:
    """A query that groups by a window and keys, without what it reads."""
    base = exp.Select()
    ends = [exp.alias_(exp.column(name), edge) for name, edge in EDGES.items()]
    named = [exp.alias_(key.copy(), f"_k{number}") for number, key in enumerate(keys)]
    made = [exp.alias_(part.copy(), f"_a{number}") for number, part in enumerate(aggregates)]
    base.set("expressions", [*ends, *named, *made])
    base.set("group", exp.Group(expressions=[window, *(key.copy() for key in keys)]))
    return base


def groups() -> exp.Table:
    return exp.Table(this=exp.to_identifier(GROUPS, quoted=True))


def name_of(item: exp.Expr) -> str:
    """The name of a column of the output."""
    if isinstance(item, exp.Column) and item.table.lower() != "window":
        return str(item.name)
    return str(item.alias or (item.name if isinstance(item, exp.Column) else item.sql(dialect=NovaSql)))


def number_in(parts: list[exp.Expr], part: exp.Expr) -> int:
    """The place of a part among others, where it is put if it is new."""
    if part not in parts:
        parts.append(part.copy())
    return parts.index(part)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    bare = condition.unnest() if isinstance(condition, exp.Paren) else condition
    return [one for part in bare.flatten() for one in conjuncts(part)] if isinstance(bare, exp.And) else [condition]


def transformed(part: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy in which the outermost parts that a change knows are others; what is put in is not looked at again."""
    new = change(part)
    if new is not part:
        return new.copy()
    copy = part.copy()
    for child, own in zip(list(part.iter_expressions()), list(copy.iter_expressions()), strict=True):
        own.replace(transformed(child, change))
    return copy


def qualified(part: exp.Expr, alias: str) -> exp.Expr:
    """A copy whose columns are those of a stream."""
    copy = part.copy()
    for column in copy.find_all(exp.Column):
        if not isinstance(column.this, exp.Star):
            column.set("table", exp.to_identifier(alias))
    return copy


def where_too(aggregate: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """An aggregate of the rows that satisfy a condition."""
    if condition is None:
        return aggregate.copy()
    if isinstance(aggregate, exp.Filter):
        both = exp.and_(condition.copy(), aggregate.expression.this.copy())
        return exp.Filter(this=aggregate.this.copy(), expression=exp.Where(this=both))
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition.copy()))
