"""Layers: SELECTs around a query that groups by windows, each over the groups of one window.

All groups of a window are complete at the same moment, at the sink. So what is asked of them there (an aggregate of
aggregates, a rank) is asked once per window, in Spark's own SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from nova.query.dialect import BOUNDS, CLAUSES, NovaSql, aggregates_in, fault

GROUPS = "_nova_groups"
"""What the groups of a window are called in the text of the layers."""
_SELECT = {"expressions", "from_", "joins", "where", "group", "having", "kind", "hint", "match"}
_BRACKETS = (
    "a query in brackets stands in FROM or JOIN: alone, and groups by a window, or reads one stream, with columns and "
    "WHERE"
)
_REFUSED: dict[type[exp.Expr], str] = {
    exp.Subquery: _BRACKETS,
    exp.Select: _BRACKETS,
    exp.Window: "OVER stands in a query without GROUP BY, or around one: SELECT … OVER (PARTITION BY w …) FROM (SELECT "
    "window_start AS w, … GROUP BY TUMBLE(…), …)",
    exp.Placeholder: "a value expected, not a placeholder",
    exp.Parameter: "a value expected, not a parameter",
}
_NAMES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL",
    "qualify": "QUALIFY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "into": "INTO",
}

_ENDLESS = dict.fromkeys(
    ("order", "limit", "offset", "sort"),
    ", as a stream has no end: rank the rows of a window, row_number() OVER (PARTITION BY window_start ORDER BY …)",
)
"""Clauses that need all rows, and what to write instead."""


def split(sql: str, select: exp.Select) -> tuple[exp.Select, tuple[exp.Select, ...]]:
    """The SELECT that reads streams, and those around it, from the inside out. Raises `SqlFault` where a clause is not
    of the dialect."""
    around: list[exp.Select] = []
    while (below := read_by(select)) is not None:
        check_clauses(sql, select, below)
        around.append(select)
        select = below
    check_clauses(sql, select, None)
    return select, tuple(reversed(around))


def read_by(select: exp.Select) -> exp.Select | None:
    """The query in brackets that a query reads from instead of streams."""
    source = select.args.get("from_")
    found = source.this.this if source is not None and isinstance(source.this, exp.Subquery) else None
    return found if isinstance(found, exp.Select) and not select.args.get("joins") else None


def check_clauses(sql: str, select: exp.Select, below: exp.Select | None) -> None:
    """Raise where a SELECT has clauses or parts that are not of the dialect; `below` is the query that it reads."""
    for name, value in select.args.items():
        if value and name not in _SELECT:
            at = value[0] if isinstance(value, list) else value
            clause = _NAMES.get(name, name.upper())
            why = _ENDLESS.get(name, "")
            raise fault(sql, at, f"{clause} is not part of the dialect{why}; the clauses are {CLAUSES}", clause)
    inside = [one.this for one in (select.args.get("from_"), *(select.args.get("joins") or ())) if one is not None]
    for node in select.walk(prune=lambda one: any(one is below for below in inside)):
        if node is select or any(node is one for one in inside) or (below is not None and isinstance(node, exp.Window)):
            continue
        if type(node) in _REFUSED:
            raise fault(sql, node, _REFUSED[type(node)])


def bounds_of(inner: Sequence[tuple[str, exp.Expr]]) -> set[str]:
    """Columns of a query that are bounds of its window, in lower case."""
    return {
        name.lower() for name, part in inner if isinstance(part, exp.Column) and not part.table and part.name in BOUNDS
    }


def check_layers(sql: str, layers: Sequence[exp.Select], names: list[str], bounds: set[str]) -> None:
    """Raise `SqlFault` where a layer names what is not there, or looks at more than one window. `layers` from the
    inside out; `names` are the columns of the query inside, `bounds` those of them that are bounds of the window."""
    for layer in layers:
        names, bounds = check_layer(sql, layer, names, bounds)


def layers_sql(layers: Sequence[exp.Select]) -> str:
    """The layers as one text over the table `GROUPS`; empty where there are none."""
    if not layers:
        return ""
    whole = layers[-1].copy()
    innermost = whole
    for _ in layers[1:]:
        innermost = innermost.args["from_"].this.this
    if not any(table.name == GROUPS for table in innermost.find_all(exp.Table)):  # a join of groups names them itself
        below = innermost.args["from_"].this
        table = exp.Table(this=exp.to_identifier(GROUPS, quoted=True), alias=below.args.get("alias"))
        innermost.args["from_"].set("this", table)
    text: str = whole.sql(dialect=NovaSql)
    return text


def own_parts(layer: exp.Select) -> list[exp.Expr]:
    """The expressions of a layer, without what it reads from."""
    found = list(layer.expressions)
    for name in ("where", "group", "having"):
        if (clause := layer.args.get(name)) is not None:
            found.append(clause)
    return found


def check_layer(sql: str, layer: exp.Select, names: list[str], bounds: set[str]) -> tuple[list[str], set[str]]:
    """Check one layer; returns its own columns, and those of them that are bounds of the window."""
    called = layer.args["from_"].this.alias.lower()
    known = {name.lower() for name in names}
    chosen = {item.alias.lower() for item in layer.expressions if isinstance(item, exp.Alias)}
    for part in own_parts(layer):
        for column in part.find_all(exp.Column):
            if isinstance(column.this, exp.Star):
                continue
            if column.table and column.table.lower() != called:
                raise fault(sql, column, f"nothing is called {column.table} here; there is {called or 'no name'}")
            own = column.name.lower() in chosen and not column.table and isinstance(part, exp.Having | exp.Group)
            if column.name.lower() not in known and not own:
                raise fault(sql, column, f"no such column; the query inside has {', '.join(names)}")
    over = [one for part in own_parts(layer) for one in part.find_all(exp.Window)]
    for one in over:
        if not _has_bound(one.args.get("partition_by") or (), bounds):
            raise fault(sql, one, by_window("PARTITION BY", bounds))
    group = layer.args.get("group")
    aggregated = [
        one for part in own_parts(layer) for one in aggregates_in(part) if not isinstance(one.parent, exp.Window)
    ]
    if group is not None and not _has_bound(group.expressions, bounds):
        raise fault(sql, group, by_window("GROUP BY", bounds), "GROUP")
    if group is None and aggregated:
        raise fault(sql, aggregated[0], by_window("GROUP BY", bounds))
    made: list[str] = []
    kept: set[str] = set()
    for item in layer.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            made += names
            kept |= bounds
            continue
        name = item.alias_or_name or item.sql(dialect=NovaSql)
        made.append(name)
        inside = item.this if isinstance(item, exp.Alias) else item
        if _has_bound([inside], bounds):
            kept.add(name.lower())
    for number, name in enumerate(made):
        if name.lower() in {one.lower() for one in made[:number]}:
            raise fault(sql, layer.expressions[0], f"two columns are called {name}: give one another name with AS")
    return made, kept


def _has_bound(parts: Iterable[exp.Expr], bounds: set[str]) -> bool:
    return any(isinstance(part, exp.Column) and part.name.lower() in bounds for part in parts)


def by_window(clause: str, bounds: set[str]) -> str:
    if not bounds:
        return f"{clause} needs the window, as its groups never end: select window_start in the query inside"
    return f"{clause} needs the window, as its groups never end: add {' or '.join(sorted(bounds))}"
