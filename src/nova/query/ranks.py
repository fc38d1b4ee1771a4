"""Ranks: OVER in a query that reads streams row by row, as a query around the groups of a window.

    SELECT …, row_number() OVER (PARTITION BY window_start, k ORDER BY price DESC) FROM TABLE(TUMBLE(TABLE bids, …))

The rows of a window are groups of all columns that the text looks at, with their number; these are complete at the sink
at the same moment, so the ranks are given there, to each row as often as it came.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql, fault
from nova.query.layers import read_by
from nova.query.spellings import window_of
from nova.query.statement import ROLES, Schema
from nova.query.windows import is_window

_COUNT, _COPY = "_n", "_copy"
_WINDOWLESS = (
    "OVER needs the window, as its rows never end: PARTITION BY TUMBLE_START(x.time, INTERVAL '10' SECOND), …, or "
    "window_start of TUMBLE or HOP in FROM or ON"
)


def ranked(sql: str, select: exp.Select, streams: Mapping[str, Schema]) -> exp.Select:
    """A text whose innermost SELECT has ranks: that SELECT as one around groups; any other text as it is."""
    below = read_by(select)
    if below is not None:
        select.args["from_"].this.set("this", ranked(sql, below, streams))
        return select
    group = select.args.get("group")
    own = any(item.find(exp.Window) is not None for item in select.expressions)
    if not own or select.args.get("from_") is None or not (group is None or _marked(group)):
        return select
    return _around_rows(sql, select, streams)


def _marked(group: exp.Expr) -> bool:
    """Whether a GROUP BY only tells the window that rows lie in."""
    return bool(group.args.get("all") and group.expressions)


def _around_rows(sql: str, select: exp.Select, streams: Mapping[str, Schema]) -> exp.Select:
    window = next((found for part in select.find_all(exp.Expr) if (found := window_of(part)) is not None), None)
    if (group := select.args.get("group")) is not None:
        window = group.expressions[0]
    if window is None and not any(is_window(part) for part in select.walk()):
        over = next(part for item in select.expressions for part in item.find_all(exp.Window))
        raise fault(sql, over, _WINDOWLESS)
    items = [one for item in select.expressions for one in _named(sql, item, select, streams)]
    keys: dict[tuple[str, str], exp.Column] = {}

    def put(node: exp.Expr) -> exp.Expr:
        """What a part of an item is over the groups."""
        if window_of(node) is not None:
            if window_of(node) != window:
                raise fault(sql, node, "the rows have another window than this")
            last = node.expression.name if isinstance(node, exp.Dot) else str(node.this).rpartition("_")[2]
            return exp.column(f"window_{last.lower()}")
        if not isinstance(node, exp.Column):
            return node
        if node.name.lower() in BOUNDS:
            return exp.column(node.name.lower())
        place = node.table.lower(), node.name.lower()
        keys.setdefault(place, node.copy())
        return exp.column(f"_k{list(keys).index(place)}")

    items = [item.transform(put) for item in items]
    edges = [exp.column(name) for name in BOUNDS]
    base = select.copy()
    named = [exp.alias_(key.copy(), f"_k{number}") for number, key in enumerate(keys.values())]
    base.set("expressions", [*edges, *named, exp.alias_(exp.Count(this=exp.Star()), _COUNT)])
    bound = exp.column("window_start") if window is None else window.copy()
    base.set("group", exp.Group(expressions=[bound, *(key.copy() for key in keys.values())]))
    times = exp.func("array_repeat", exp.Literal.number(0), exp.cast(exp.column(_COUNT), "int"))
    each = exp.select(exp.Star(), exp.alias_(exp.func("explode", times), _COPY)).from_(_inside(base))
    return exp.select(*items).from_(_inside(each))


def _named(sql: str, item: exp.Expr, select: exp.Select, streams: Mapping[str, Schema]) -> list[exp.Expr]:
    """An item with its name; `*` as the columns of the only stream and its window."""
    if not isinstance(item, exp.Star):
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            raise fault(sql, item, "name the columns whose rows are ranked")
        name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else item.sql(dialect=NovaSql)
        return [exp.alias_(item.this if isinstance(item, exp.Alias) else item, name, quoted=True)]
    table = select.args["from_"].this
    schema = next((one for name, one in streams.items() if name.lower() == table.name.lower()), None)
    if select.args.get("joins") or schema is None or not schema.known or any(item.args.values()):
        raise fault(sql, item, "name the columns whose rows are ranked")
    called = {role: name for name, role in schema.roles.items()}
    names = [called.get(role, role) for role in ROLES] + [name for name in schema.columns if name not in schema.roles]
    bounds = BOUNDS if select.args.get("group") is not None else ()
    return [exp.alias_(exp.column(name, quoted=True), name, quoted=True) for name in (*names, *bounds)]


def _inside(select: exp.Select) -> exp.Subquery:
    return exp.Subquery(this=select)
