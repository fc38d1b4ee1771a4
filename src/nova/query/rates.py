"""Rates along a query's graph: what each operator lets through, stated by the user or estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from sqlglot import exp

from nova.model.operators import Estimate, join_name, origin_of
from nova.query.statement import Join, Key, Statement, aliases_in
from nova.query.windows import Interval, Tumbling

KNOWN_EQUAL = 0.1
"""Share of tuples that an equality lets through where nobody knows how many values there are (System R's guess)."""
RANGE = 1 / 3
PATTERN = 0.25
MISSING = 0.05
"""Share of values that are null."""


def passing(statement: Statement, alias: str, stated: Mapping[str, float]) -> Estimate:
    """Share of a stream's tuples that pass its filters."""
    filters = statement.filters[alias]
    if alias in stated:
        return Estimate(stated[alias], origin_of(stated, alias), f"{stated[alias]:g} of {alias} passes")
    share = math.prod(_share(part, statement) for part in filters)
    return Estimate(share, "estimated", f"{share:.3g} of {alias} passes") if filters else Estimate(1.0, "given")


def matching(statement: Statement, join: Join, stated: Mapping[str, float], number: int = 0) -> Estimate:
    """Share of the pairs of tuples in one window that join. `number`: which join of several it is, from 1 in the order
    they are made; 0: it is the only one, or the order is not known yet."""
    name = next((one for one in (join_name(number), "join") if one in stated), None)
    if name is not None:
        return Estimate(stated[name], origin_of(stated, name), f"{stated[name]:g} of the pairs in a window join")
    share, why = 1.0, []
    for key in independent(join, statement):
        count = distinct_values(key, statement)
        part = KNOWN_EQUAL if count is None else 1 / count
        share *= part
        why.append(f"{key.left.sql()} = {key.right.sql()}: " + (f"{part:g}" if count is None else f"1 of {count:g}"))
    for condition in join.residual:
        if not _on_times(condition):
            part = _share(condition, statement)
            share *= part
            why.append(f"{condition.sql()}: {part:.3g}")
    return Estimate(share, "estimated", "; ".join(why) or "every pair in a window joins")


def independent(join: Join, statement: Statement) -> list[Key]:
    """The equalities of a join that tell what the others do not: where rows of an earlier join have a.k = b.k already,
    c.k = b.k says no more than c.k = a.k."""
    classes: list[list[Key]] = []
    for key in join.keys:
        alike = [one for one in classes if any(key.left == other.left or key.right == other.right for other in one)]
        classes = [one for one in classes if one not in alike] + [[*chain(*alike), key]]
    return [
        key
        for one in classes
        for key in one[: sum(_different({getattr(k, side) for k in one}, statement) for side in ("left", "right")) - 1]
    ]


def _different(parts: set[exp.Expr], statement: Statement) -> int:
    """How many values some expressions over one side of a join may have at once, all equal to one of the other side.
    What an earlier join made has them equal already."""
    aliases = {alias for part in parts for alias in aliases_in(part)}
    made = len(aliases) > 1 or any(statement.schemas[alias].made for alias in aliases)
    return 1 if made else len(parts)


def distinct_values(key: Key, statement: Statement) -> float | None:
    """How many values the sides of an equality have, the side with more counted; None where nobody knows."""
    counts = [_values(side, statement) for side in (key.left, key.right)]
    return max((count for count in counts if count is not None), default=None)


def window_s(window: Tumbling | Interval, made: int = 0) -> float:
    """Seconds of the other stream that a tuple is compared with, each window it lies in counted. `made`: how many sides
    are rows of an earlier join, each of which lies in one sliding window already."""
    if isinstance(window, Interval):
        return (window.high_us - window.low_us) / 1e6
    return window.size_us / 1e6 * (window.size_us / window.slide_us) * (window.slide_us / window.size_us) ** made


def groups(statement: Statement, rate: float, stated: Mapping[str, float]) -> Estimate:
    """Groups per second that leave the aggregate, given the rows per second that enter it."""
    group = statement.group
    assert group is not None
    # rows that a join has made carry one of its sliding windows; rows that have only a time lie in each around it
    rows = rate * (group.window.slide_us if group.time is None else group.window.size_us) / 1e6
    per_second = 1e6 / group.window.slide_us
    if "group" in stated:
        number = min(stated["group"], rows)
        return Estimate(number * per_second, origin_of(stated, "group"), f"{stated['group']:g} groups a window")
    counts = [_values(key, statement) for key in group.keys]
    if all(count is not None for count in counts):
        number = min(math.prod(count for count in counts if count is not None), rows)
        return Estimate(
            number * per_second, "estimated", f"at most {number:.3g} groups a window, from the keys' values"
        )
    number = rows * KNOWN_EQUAL
    return Estimate(number * per_second, "estimated", f"{number:.3g} groups a window: a tenth of its rows")


def _on_times(condition: exp.Expr) -> bool:
    """Whether a condition only compares event times, as a window does."""
    columns = list(condition.find_all(exp.Column))
    return bool(columns) and all(column.name == "time" for column in columns)


def _values(node: exp.Expr, statement: Statement) -> float | None:
    """How many values an expression has; None where nobody knows."""
    if not isinstance(node, exp.Column):
        return None
    schema = statement.schemas[node.table]
    return schema.columns.get(node.name) or schema.attributes.get(node.name) or None


def _share(node: exp.Expr, statement: Statement) -> float:
    """Share of tuples for which a condition holds, by its shape."""
    match node:
        case exp.Paren():
            return _share(node.this, statement)
        case exp.And():
            return _share(node.this, statement) * _share(node.expression, statement)
        case exp.Or():
            a, b = _share(node.this, statement), _share(node.expression, statement)
            return a + b - a * b
        case exp.Not():
            return 1 - _share(node.this, statement)
        case exp.Boolean():
            return 1.0 if node.this else 0.0
        case exp.EQ():
            known = [count for side in (node.this, node.expression) if (count := _values(side, statement)) is not None]
            return 1 / max(known) if known else KNOWN_EQUAL
        case exp.NEQ():
            return 1 - _share(exp.EQ(this=node.this, expression=node.expression), statement)
        case exp.In():
            known_values = _values(node.this, statement)
            each = 1 / known_values if known_values else KNOWN_EQUAL
            return min(1.0, each * len(node.expressions))
        case exp.Between() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
            return RANGE
        case exp.Like() | exp.ILike() | exp.RegexpLike():
            return PATTERN
        case exp.Is():
            return MISSING
        case _:
            return 0.5
