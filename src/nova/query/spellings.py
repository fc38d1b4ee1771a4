"""Spellings: other ways to write what the dialect says, rewritten before a text is analysed.

WITH and queries in brackets that only choose, compute and filter are merged into what reads them; windows of table
functions (`TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), …))`, `TUMBLE(bids, at, …)`) become windows of GROUP BY and ON;
SELECT DISTINCT with a bound of the window becomes GROUP BY; GROUP BY 1 names what is selected first, and GROUP BY
TUMBLE_START(…) the window.
"""

from __future__ import annotations

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql, fault, is_view


def plain(sql: str, select: exp.Select) -> exp.Select:
    """A SELECT as the dialect writes it. Raises `SqlFault`."""
    whole = _plain(sql, _without_with(sql, select))
    for call in whole.find_all(exp.Anonymous):
        unit = call.expressions[0] if str(call.this).lower() in _OF_UNITS and call.expressions else None
        if isinstance(unit, exp.Column) and not unit.table and unit.name.upper() in _UNITS:
            unit.replace(exp.Var(this=unit.name))
    return whole


_OF_UNITS = frozenset(["date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"])
"""Functions whose first argument may be a unit of time."""
_UNITS = frozenset(
    ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"]
)


def _without_with(sql: str, select: exp.Select) -> exp.Select:
    """Every name of WITH replaced by its query in brackets."""
    clause = select.args.get("with_")
    if clause is None:
        return select
    if clause.args.get("recursive"):
        raise fault(sql, clause, "RECURSIVE is not part of the dialect", "RECURSIVE")
    queries: dict[str, exp.Select] = {}

    def named(tree: exp.Expr) -> None:
        for table in list(tree.find_all(exp.Table)):
            found = queries.get(table.name.lower()) if isinstance(table.this, exp.Identifier) else None
            if found is not None and not table.args.get("db"):
                alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
                table.replace(exp.Subquery(this=found.copy(), alias=alias.copy()))

    for one in clause.expressions:
        if not isinstance(one.this, exp.Select) or one.args["alias"].args.get("columns"):
            raise fault(sql, one, "name AS (SELECT …) expected, its columns named inside")
        named(one.this)
        queries[one.alias.lower()] = one.this
    select.set("with_", None)
    named(select)
    return select


def _plain(sql: str, select: exp.Select, *, inside: bool = False) -> exp.Select:
    """A SELECT and all queries in brackets that it reads from, the inner ones first. `inside`: it stands in brackets;
    then a view leaves the windows of table functions to what reads it."""
    source = select.args.get("from_")
    for one in [source, *(select.args.get("joins") or ())]:
        below = None if one is None else one.this
        if isinstance(below, exp.Subquery) and isinstance(below.this, exp.Select):
            below.set("this", _plain(sql, below.this, inside=True))
    below = None if source is None else source.this
    if isinstance(below, exp.Subquery) and isinstance(below.this, exp.Select) and not select.args.get("joins"):
        _refuse_columns(sql, below)
        if is_view(below.this):
            select = _merged(sql, select, below.this, below.alias)
    _distinct_groups(sql, select)
    _numbered_groups(sql, select)
    if not (inside and is_view(select)):
        _table_windows(sql, select)
    return select


def _refuse_columns(sql: str, below: exp.Subquery) -> None:
    alias = below.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise fault(sql, alias, "a name alone expected here; name columns inside the brackets, with AS")


def _merged(sql: str, outer: exp.Select, inner: exp.Select, called: str) -> exp.Select:
    """One query for a query around a view of streams: its columns replaced by what they are."""
    items: dict[str, exp.Expr] = {}
    star = False
    for item in inner.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            star = True
        else:
            items[item.alias_or_name.lower()] = item.this if isinstance(item, exp.Alias) else item
    chosen = {item.alias.lower() for item in outer.expressions if isinstance(item, exp.Alias)}

    def replaced(part: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        for column in list(part.find_all(exp.Column)):
            name = column.name.lower()
            if isinstance(column.this, exp.Star) or (aliases and not column.table and name in chosen - items.keys()):
                continue
            if column.table and column.table.lower() not in (called.lower(), "window"):
                raise fault(sql, column, f"nothing is called {column.table} here; there is {called or 'no name'}")
            found = items.get(name)
            if found is None:
                if not star and name not in BOUNDS and column.table.lower() != "window":
                    raise fault(sql, column, f"no such column; the query inside has {', '.join(items)}")
                if column.table.lower() == called.lower():
                    column.set("table", None)
                continue
            simple = isinstance(found, exp.Column | exp.Literal | exp.Anonymous)
            new = found.copy() if simple else exp.Paren(this=found.copy())
            part = new if column is part else part
            column.replace(new)
        return part

    made: list[exp.Expr] = []
    for item in outer.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            made += [one.copy() for one in inner.expressions]
            continue
        named = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else item.sql(dialect=NovaSql)
        new = replaced(item.this if isinstance(item, exp.Alias) else item)
        made.append(exp.Alias(this=new.copy(), alias=exp.to_identifier(named, quoted=True)))
    whole = outer.copy()
    whole.set("expressions", made)
    whole.set("from_", inner.args["from_"].copy() if inner.args.get("from_") is not None else None)
    whole.set("joins", [join.copy() for join in inner.args.get("joins") or ()])
    conditions = [one.args["where"].this.copy() for one in (inner,) if one.args.get("where") is not None]
    if outer.args.get("where") is not None:
        conditions.append(replaced(outer.args["where"].this.copy()))
    whole.set("where", exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None)
    for name in ("group", "having"):
        if whole.args.get(name) is not None:
            whole.set(name, replaced(whole.args[name], aliases=True))
    return whole


def _table_windows(sql: str, select: exp.Select) -> None:
    """Windows of table functions as those of GROUP BY and ON: TABLE(TUMBLE(TABLE x, DESCRIPTOR(at), size))."""
    windows: dict[str, exp.Expr] = {}
    for one in [select.args.get("from_"), *(select.args.get("joins") or ())]:
        table = read = None if one is None else one.this
        if isinstance(read, exp.Subquery) and isinstance(read.this, exp.Select) and read.this.args.get("from_"):
            table = read.this.args["from_"].this
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Anonymous):
            name, window = _table_window(sql, table)
            alias = (read.alias if read is not None else "") or table.alias or name.name
            time = window.expressions[0]
            if isinstance(read, exp.Subquery):
                _without_bounds(read.this, time)
            time.set("table", exp.to_identifier(alias))
            windows[alias.lower()] = window
            table.set("this", name)
    if not windows:
        return
    first = next(iter(windows.values()))

    def bound(column: exp.Expr) -> exp.Expr | None:
        """The window whose bound a column is."""
        if not isinstance(column, exp.Column) or column.name.lower() not in BOUNDS:
            return None
        return windows.get(column.table.lower()) if column.table else first

    used: set[int] = set()
    for join in select.args.get("joins") or ():
        for equal in list(join.find_all(exp.EQ)):
            sides = bound(equal.this), bound(equal.expression)
            if sides[0] is not None and sides[1] is not None:
                used |= {id(side) for side in sides}
                equal.set("this", sides[0].copy())
                equal.set("expression", sides[1].copy())
    group = select.args.get("group")
    if group is not None:
        kept = [part for part in group.expressions if bound(part) is None]
        of = next((found for part in group.expressions if (found := bound(part)) is not None), None)
        if of is not None:
            used.add(id(of))
            group.set("expressions", [of.copy(), *kept])
    elif any(item.find(exp.Window) is not None for item in select.expressions):
        used.add(id(first))
        select.set("group", exp.Group(expressions=[first.copy()], all=True))  # see `nova.query.ranks`
    for window in windows.values():
        if id(window) not in used:
            message = (
                "the window of a table function is grouped by or joined: GROUP BY window_start, window_end, or ON "
            )
            raise fault(sql, window, message + "l.window_start = r.window_start; without that, name the stream alone")
    for column in list(select.find_all(exp.Column)):
        if bound(column) is not None and column.table:
            column.set("table", None)


def _without_bounds(view: exp.Select, time: exp.Expr) -> None:
    """Leave it to what reads a view to know the bounds of its windows; it needs the time for that."""
    items = [item for item in view.expressions if item.alias_or_name.lower() not in BOUNDS]
    stars = any(isinstance(item, exp.Star) or isinstance(item.this, exp.Star) for item in items)
    if not stars and not any(item == time for item in items):
        items.append(time.copy())
    view.set("expressions", items)


def _table_window(sql: str, table: exp.Table) -> tuple[exp.Identifier, exp.Expr]:
    """The stream of a table function, and its window: TUMBLE(time, size) or HOP(time, slide, size)."""
    usage = "TABLE(TUMBLE(TABLE x, DESCRIPTOR(time), INTERVAL '10' SECOND)), or HOP with slide, then size, expected"
    inside = table.this
    if str(inside.this).upper() == "TABLE" and inside.expressions:
        inside = inside.expressions[0]
    if not isinstance(inside, exp.Anonymous) or str(inside.this).upper() not in ("TUMBLE", "HOP"):
        raise fault(sql, table.this, usage)
    stream, time, *lengths = [*inside.expressions, None, None][: max(len(inside.expressions), 2)]
    if isinstance(time, exp.Anonymous) and str(time.this).upper() == "DESCRIPTOR" and len(time.expressions) == 1:
        time = time.expressions[0]
    if not isinstance(stream, exp.Column) or stream.table or not isinstance(time, exp.Column) or not lengths:
        raise fault(sql, table.this, usage)
    window = inside.copy()
    window.set("expressions", [time.copy(), *(one.copy() for one in lengths if one is not None)])
    return stream.this.copy(), window


def _numbered_groups(sql: str, select: exp.Select) -> None:
    """GROUP BY with numbers and names of what is selected, and with bounds of a window in its place."""
    group = select.args.get("group")
    if group is None:
        return
    parts = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
    named = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    found: list[exp.Expr] = []
    for item in group.expressions:
        if isinstance(item, exp.Literal) and item.is_int:
            if not 0 < int(item.name) <= len(parts):
                raise fault(sql, group, f"GROUP BY {item.name}: the number of a column expected, 1 to {len(parts)}")
            part = parts[int(item.name) - 1].copy()
        else:
            chosen = named.get(item.name.lower()) if isinstance(item, exp.Column) and not item.table else None
            part = chosen.copy() if chosen is not None and window_of(chosen) is not None else item
        window = window_of(part)
        if window is None or window not in found:
            found.append(part if window is None else window)
    group.set("expressions", found)


def window_of(part: exp.Expr) -> exp.Expr | None:
    """The window whose bound a call is: TUMBLE_START(…), window(…).start; None for anything else."""
    if isinstance(part, exp.Dot) and isinstance(part.this, exp.Anonymous) and str(part.this.this).lower() == "window":
        return part.this.copy() if part.expression.name.lower() in ("start", "end") else None
    if isinstance(part, exp.Anonymous):
        name, _, end = str(part.this).lower().rpartition("_")
        if name in ("tumble", "hop") and end in ("start", "end"):
            return exp.Anonymous(this=name.upper(), expressions=[one.copy() for one in part.expressions])
    return None


def _distinct_groups(sql: str, select: exp.Select) -> None:
    """SELECT DISTINCT as GROUP BY all that is selected."""
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") is not None or select.args.get("group") is not None:
        return
    parts = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
    if not any(isinstance(part, exp.Column) and part.name.lower() in BOUNDS for part in parts):
        message = "DISTINCT needs window_start or window_end among its columns: the rows of a stream never end"
        raise fault(sql, distinct, message, "DISTINCT")
    select.set("distinct", None)
    select.set("group", exp.Group(expressions=[part.copy() for part in parts]))
