"""Analysis: from a query's text to its statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql, SqlFault, aggregates_in, fault, is_aggregate, is_view, parse
from nova.query.groupjoins import group_join
from nova.query.layers import bounds_of, check_layers, split
from nova.query.names import Names, listed, one_of
from nova.query.ranks import ranked
from nova.query.spellings import plain
from nova.query.statement import (
    MOST_STREAMS,
    ROLES,
    Group,
    Join,
    JoinKind,
    Key,
    Schema,
    Statement,
    aliases_in,
)
from nova.query.windows import Interval, Tumbling, differences, is_window, window_in, windows_in


def analyse(sql: str, streams: Mapping[str, Schema]) -> Statement:
    """A query's text with its names resolved. Raises `SqlFault`."""
    tree, layers = split(sql, ranked(sql, plain(sql, parse(sql)), streams))
    joined = group_join(sql, tree, streams)
    if joined is not None:
        made = _Analysis(sql, joined.base, streams).statement()
        assert made.group is not None
        check_layers(sql, layers, list(joined.names), set(joined.bounds))
        return replace(made, group=replace(made.group, closed=joined.closed), layers=(joined.layer, *layers))
    statement = _Analysis(sql, tree, streams).statement()
    if layers and statement.group is None:
        message = "a query in brackets groups by a window, such as GROUP BY TUMBLE(x.time, INTERVAL '10' SECOND), x.k"
        raise fault(sql, tree, message)
    check_layers(sql, layers, [name for name, _ in statement.select], bounds_of(statement.select))
    return replace(statement, layers=layers)


class _Analysis:
    def __init__(self, sql: str, tree: exp.Select, streams: Mapping[str, Schema]) -> None:
        self.sql, self.tree = sql, tree
        self.names = Names(sql, streams)
        self.before: dict[str, list[exp.Expr]] = {}
        """By alias of a query in brackets: its conditions."""
        self.group: Group | None = None

    def wrong(self, node: object, message: str) -> SqlFault:
        return fault(self.sql, node, message)

    def statement(self) -> Statement:
        tree = self.tree
        source = tree.args.get("from_")
        if source is None:
            raise SqlFault("FROM is missing: name the streams to read")
        first = self._stream(source.this)
        joins = [self._join_kind(join) for join in tree.args.get("joins") or ()]
        for (kind, alias), join in zip(joins, tree.args.get("joins") or (), strict=True):
            if not kind or not alias:
                raise self.wrong(join, "INNER, LEFT, RIGHT or FULL JOIN expected")
        if len(self.names.streams) > MOST_STREAMS:
            raise self.wrong(tree.args["joins"][-1], f"a query joins at most {MOST_STREAMS} streams")
        self._bounds()
        self.names.missing = {
            alias for alias in self.names.streams if not self._kept(alias, joins, list(self.names.streams))
        }
        filters: dict[str, list[exp.Expr]] = {alias: list(self.before.get(alias, ())) for alias in self.names.streams}
        pools: list[list[exp.Expr]] = [[] for _ in joins]
        after: list[exp.Expr] = []
        inner = all(kind == "inner" for kind, _ in joins)
        order = [first, *(alias for _, alias in joins)]
        for number, join in enumerate(tree.args.get("joins") or ()):
            for part in self._using(join, order[: number + 1], order[number + 1]) + self._conjuncts(
                join.args.get("on")
            ):
                self._sort(part, joins, order, number, filters, pools)
        where = tree.args.get("where")
        for part in self._conjuncts(where.this if where else None):
            seen = aliases_in(part)
            if inner:
                at = max((order.index(alias) for alias in seen), default=0)
                self._sort(part, joins, order, max(at - 1, 0), filters, pools) if joins else filters[first].append(part)
            elif len(seen) == 1 and self._kept(next(iter(seen)), joins, order):
                filters[next(iter(seen))].append(part)
            else:
                after.append(part)
        made = [
            self._join(kind, alias, order[: number + 1], pools[number], join)
            for number, ((kind, alias), join) in enumerate(zip(joins, tree.args.get("joins") or (), strict=True))
        ]
        select = self._select()
        self.group = self._group(made, select)
        having = self._having(select)
        self._check_output(select)
        return Statement(
            self.sql,
            self.names.streams,
            self.names.schemas,
            {alias: tuple(parts) for alias, parts in filters.items()},
            tuple(made),
            tuple(after),
            tuple(select),
            self.group,
            having,
        )

    # streams and joins

    def _stream(self, table: object) -> str:
        if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Select):
            return self._view(table, table.this)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.wrong(table, f"the name of a stream expected; the streams are {listed(self.names.known)}")
        if table.args.get("db"):
            raise self.wrong(table, "streams have one name, without a point")
        if more := [name for name, value in table.args.items() if value and name not in ("this", "alias")]:
            clause = {"sample": "TABLESAMPLE", "pivots": "PIVOT", "version": "FOR SYSTEM_TIME"}.get(
                more[0], more[0].upper()
            )
            raise self.wrong(table, f"a stream and its alias expected; {clause} is not part of the dialect")
        name, alias = one_of(table.name, self.names.known) or table.name, table.alias or table.name
        if name not in self.names.known:
            raise self.wrong(table, f"no such stream; the streams are {listed(self.names.known)}")
        self.names.add(table, alias, name, self.names.known[name])
        return alias

    def _view(self, below: exp.Subquery, inner: exp.Select) -> str:
        """A query in brackets that is joined: its stream, with columns and conditions of its own."""
        if not is_view(inner) or inner.args.get("joins") or inner.args.get("from_") is None:
            raise self.wrong(
                below, "a query in brackets that is joined reads one stream, with columns and WHERE; else name streams"
            )
        alias = below.alias
        if not alias or below.args["alias"].args.get("columns"):
            raise self.wrong(below, "give the query in brackets a name with AS, and name its columns inside")
        own = _Analysis(self.sql, inner, self.names.known)
        stream = own._stream(inner.args["from_"].this)
        self.names.add(below, alias, own.names.streams[stream], own.names.schemas[stream])

        def renamed(part: exp.Expr) -> exp.Expr:
            for column in part.find_all(exp.Column):
                column.set("table", exp.to_identifier(alias))
            return part

        where = inner.args.get("where")
        inside = own.before.get(stream, []) + own._conjuncts(where.this if where else None)
        self.before[alias] = [renamed(part.copy()) for part in inside]
        self.names.views[alias] = {name: renamed(part.copy()) for name, part in own._select()}
        return alias

    def _join_kind(self, join: exp.Join) -> tuple[JoinKind, str]:
        side, kind = join.side.upper(), join.kind.upper()
        if (
            join.args.get("method")
            or kind not in ("", "INNER", "OUTER", "CROSS")
            or side not in ("", "LEFT", "RIGHT", "FULL")
        ):
            raise self.wrong(join, "INNER, LEFT, RIGHT or FULL JOIN expected")
        kinds: dict[str, JoinKind] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
        return kinds[side], self._stream(join.this)

    def _using(self, join: exp.Join, before: list[str], alias: str) -> list[exp.Expr]:
        """`USING (column, …)` as equalities."""
        parts: list[exp.Expr] = []
        for name in join.args.get("using") or ():
            column = name.name
            owners = [one for one in before if self.names.column_of(one, column) is not None]
            if len(owners) != 1 or self.names.column_of(alias, column) is None:
                raise self.wrong(name, f"{column} is not a column of both sides")
            left, right = (exp.column(column, table=one) for one in (owners[0], alias))
            parts.append(exp.EQ(this=self.names.resolved(left), expression=self.names.resolved(right)))
        return parts

    def _conjuncts(self, condition: exp.Expr | None) -> list[exp.Expr]:
        """The parts of a condition that must all hold, names resolved."""
        if condition is None:
            return []
        condition = self.names.resolved(condition)
        if found := aggregates_in(condition):
            raise self.wrong(found[0], "aggregates stand in SELECT and HAVING")
        parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
        flat: list[exp.Expr] = []
        for part in parts:
            inner = part.unnest() if isinstance(part, exp.Paren) else part
            flat += self._conjuncts(inner) if isinstance(inner, exp.And) else [part]
        return flat

    def _sort(
        self,
        part: exp.Expr,
        joins: list[tuple[JoinKind, str]],
        order: list[str],
        number: int,
        filters: dict[str, list[exp.Expr]],
        pools: list[list[exp.Expr]],
    ) -> None:
        """A condition of join `number` to where it is checked: at one stream's sources, or in the join."""
        seen, (kind, alias) = aliases_in(part), joins[number]
        unknown = seen - set(order[: number + 2])
        if unknown:
            raise self.wrong(part, f"{min(unknown)} is joined later: name it in a condition of its own join")
        if len(seen) == 1 and not windows_in(part):
            only = next(iter(seen))
            own = only == alias and kind in ("inner", "left")
            other = only != alias and kind in ("inner", "right") and self._kept(only, joins[:number], order)
            if own or other:
                filters[only].append(part)
                return
        pools[number].append(part)

    def _kept(self, alias: str, joins: list[tuple[JoinKind, str]], order: list[str]) -> bool:
        """Whether no join adds rows in which this stream's columns are null."""
        for number, (kind, one) in enumerate(joins):
            before = alias in order[: number + 1]
            if kind == "full" or (kind == "right" and before) or (kind == "left" and one == alias):
                return False
        return True

    def _join(self, kind: JoinKind, alias: str, before: list[str], pool: list[exp.Expr], at: exp.Join) -> Join:
        keys: list[Key] = []
        residual: list[exp.Expr] = []
        tumbling: Tumbling | None = None
        same: list[tuple[str, str]] = []
        bounds: dict[tuple[str, str], list[int | None]] = {}
        for part in pool:
            bare = part.unnest() if isinstance(part, exp.Paren) else part
            if isinstance(bare, exp.EQ):
                sides = bare.this, bare.expression
                windows = [window_in(self.sql, side) for side in sides]
                if all(windows):
                    if windows[0] != windows[1]:
                        raise self.wrong(bare, "the windows of both sides must be the same")
                    seen = [aliases_in(side) for side in sides]
                    if not any(one == {alias} for one in seen) or not any(one <= set(before) for one in seen):
                        raise self.wrong(bare, f"a window of {alias} = the same window of a stream before it expected")
                    if tumbling is not None and tumbling != windows[0]:
                        raise self.wrong(bare, "a join has one window")
                    tumbling = windows[0]
                    same.append((min(seen[0]), min(seen[1])))
                    continue
                if any(windows):
                    raise self.wrong(bare, "a window equals only the same window of another stream")
                seen = [aliases_in(side) for side in sides]
                if seen[0] and seen[1] and (seen[0] == {alias}) != (seen[1] == {alias}):
                    mine = 0 if seen[0] == {alias} else 1
                    if alias not in seen[1 - mine] and not any(differences(self.sql, bare)):
                        keys.append(Key(sides[1 - mine], sides[mine]))
                        continue
            if windows_in(part):
                raise self.wrong(part, "a window stands in GROUP BY, or equals the same window of another stream")
            for pair, low, high in differences(self.sql, bare):
                known = bounds.setdefault(pair, [None, None])
                if low is not None:
                    known[0] = low if known[0] is None else max(known[0], low)
                if high is not None:
                    known[1] = high if known[1] is None else min(known[1], high)
            residual.append(part)
        intervals: list[Interval] = []
        for (first, second), (low, high) in bounds.items():
            if low is not None and high is not None:
                if low > high:
                    raise self.wrong(
                        at, f"no times satisfy this: {first}.time − {second}.time ≥ {low} µs and ≤ {high} µs"
                    )
                intervals.append(Interval(first, second, low, high))
        window = tumbling or next((one for one in intervals if alias in (one.first, one.second)), None)
        if window is None:
            raise self.wrong(
                at,
                "a join of streams needs a window: TUMBLE(x.time, INTERVAL '1' SECOND) = TUMBLE(y.time, INTERVAL '1' "
                "SECOND), or x.time BETWEEN y.time - INTERVAL '5' SECOND AND y.time + INTERVAL '5' SECOND",
            )
        return Join(kind, alias, tuple(keys), window, tuple(residual), tuple(same), tuple(intervals))

    # windows

    def _bounds(self) -> None:
        """Other names of window_start and window_end: `window.start`, `window(…).start`, `TUMBLE_START(…)`."""
        clauses = [self.tree.args.get("group"), *(self.tree.args.get("joins") or ()), self.tree.args.get("where")]
        there = [
            window_in(self.sql, self.names.resolved(one))
            for part in clauses
            if part is not None
            for one in windows_in(part)
        ]
        for node in list(self.tree.walk()):
            window: exp.Expr | None = None
            if isinstance(node, exp.Column) and node.table.lower() == "window" and "window" not in self.names.streams:
                end = node.name.lower()
            elif isinstance(node, exp.Dot) and is_window(node.this):
                window, end = node.this, node.expression.name.lower()
            elif isinstance(node, exp.Anonymous):
                name, _, end = str(node.this).lower().rpartition("_")
                if name not in ("tumble", "hop"):
                    continue
                window = exp.Anonymous(this=name, expressions=[one.copy() for one in node.expressions])
            else:
                continue
            if end not in ("start", "end"):
                continue
            if window is not None and window_in(self.sql, self.names.resolved(window)) not in there:
                raise self.wrong(
                    node, "GROUP BY or ON has another window than this; select window_start and window_end"
                )
            bound = exp.column(f"window_{end}")
            if starts := [part.meta["start"] for part in node.walk() if "start" in part.meta]:
                bound.this.meta["start"] = min(starts)
            item = isinstance(node, exp.Column) and node.arg_key == "expressions" and node.parent is self.tree
            node.replace(exp.Alias(this=bound, alias=exp.to_identifier(end)) if item else bound)

    # output

    def _select(self) -> list[tuple[str, exp.Expr]]:
        items: list[tuple[str, exp.Expr]] = []
        for item in self.tree.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                named = one_of(item.table, self.names.streams) if isinstance(item, exp.Column) else None
                if isinstance(item, exp.Column) and named is None:
                    raise self.wrong(item, f"no such stream here: {listed(self.names.streams)}")
                star = item.this if isinstance(item, exp.Column) else item
                without = {self._excepted(one, named) for one in star.args.get("except_") or ()}
                if more := [name for name, value in star.args.items() if value and name != "except_"]:
                    raise self.wrong(item, f"* {more[0].strip('_').upper()} is not part of the dialect; * EXCEPT is")
                for alias in self.names.streams if named is None else [named]:
                    if not self.names.schemas[alias].known:
                        raise self.wrong(item, f"the columns of {alias} are not known: declare them as its `columns`")
                    names = self.names.views.get(alias, [*ROLES, *self.names.schemas[alias].columns])
                    items += [
                        (
                            name if len(self.names.owners(name)) == 1 else f"{alias}_{name}",
                            self.names.viewed(alias, name)
                            if alias in self.names.views
                            else exp.column(name, table=alias),
                        )
                        for name in names
                        if (alias, name) not in without
                    ]
            else:
                inner = self.names.resolved(item.this if isinstance(item, exp.Alias) else item, bounds=True)
                named_so = isinstance(item, exp.Alias | exp.Column)
                items.append((item.alias_or_name if named_so else item.sql(dialect=NovaSql), inner))
        names_seen: set[str] = set()
        for name, expression in items:
            if name.lower() in names_seen:
                raise self.wrong(
                    expression, f"two columns of the result are called {name}: give one another name with AS"
                )
            names_seen.add(name.lower())
        return items

    def _excepted(self, name: exp.Expr, named: str | None) -> tuple[str, str]:
        """The stream and the column that * EXCEPT leaves out."""
        owners = [named] if named is not None else self.names.owners(name.name)
        found = self.names.column_of(owners[0], name.name) if len(owners) == 1 else None
        if found is None:
            raise self.wrong(name, f"a column of one of {listed(self.names.streams)} expected")
        return owners[0], found

    def _group(self, joins: list[Join], select: list[tuple[str, exp.Expr]]) -> Group | None:
        clause = self.tree.args.get("group")
        aggregated = [one for _, part in select for one in aggregates_in(part)]
        if clause is None:
            if aggregated:
                raise self.wrong(
                    aggregated[0], "aggregates need GROUP BY with a window: the sum of a stream never ends"
                )
            return None
        for name, value in clause.args.items():
            if value and name != "expressions":
                raise self.wrong(clause, f"GROUP BY {name.upper()} is not part of the dialect: list a window and keys")
        window: Tumbling | None = None
        time: exp.Expr | None = None
        keys: list[exp.Expr] = []
        last = joins[-1].window if joins else None
        for item in clause.expressions:
            if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
                words = {"GROUPINGSETS": "GROUPING SETS"}
                name = words.get(type(item).__name__.upper(), type(item).__name__.upper())
                raise self.wrong(item, f"{name} is not part of the dialect: list a window and keys")
            if isinstance(item, exp.Anonymous) and str(item.this).lower() in ("session", "session_window", "cumulate"):
                raise self.wrong(item, f"{item.this} is not part of the dialect: windows are TUMBLE, HOP and window")
            chosen = dict(select).get(item.name) if isinstance(item, exp.Column) and not item.table else None
            owned = isinstance(item, exp.Column) and self.names.owners(item.name)
            part = chosen if chosen is not None and not owned else self.names.resolved(item, bounds=True)
            if isinstance(part, exp.Column) and not part.table and part.name in BOUNDS:
                if not isinstance(last, Tumbling):
                    raise self.wrong(item, "window_start and window_end need TUMBLE or HOP in the join or in GROUP BY")
                window = window or last
                continue
            found = window_in(self.sql, part)
            if found is not None:
                if window is not None:
                    raise self.wrong(item, "GROUP BY has one window")
                window, time = found, part.expressions[0]
                continue
            if bad := [*aggregates_in(part), *windows_in(part)]:
                raise self.wrong(bad[0], "a key is made of columns; a window stands by itself")
            keys.append(part)
        if window is None:
            raise self.wrong(
                clause,
                "GROUP BY needs a window, such as TUMBLE(x.time, INTERVAL '10' SECOND): groups of a stream never end",
            )
        return Group(window, time, tuple(keys))

    def _having(self, select: list[tuple[str, exp.Expr]]) -> exp.Expr | None:
        having = self.tree.args.get("having")
        if having is None:
            return None
        if self.group is None:
            raise self.wrong(having, "HAVING needs GROUP BY")
        names = dict(select)
        condition = having.this.copy()
        for column in list(condition.find_all(exp.Column)):
            if not column.table and column.name in names and not self.names.owners(column.name):
                replacement = exp.Paren(this=names[column.name].copy())
                condition = replacement if column is condition else condition
                column.replace(replacement) if column.parent else None
        resolved = self.names.resolved(condition, bounds=True)
        self._grouped(resolved)
        return resolved

    def _check_output(self, select: list[tuple[str, exp.Expr]]) -> None:
        """Window bounds and columns of the output exist, and are grouped where rows are."""
        for _, part in select:
            if found := windows_in(part):
                raise self.wrong(found[0], "a window stands in GROUP BY or ON; select window_start and window_end")
            if self.group is not None:
                self._grouped(part)
            elif any(not column.table for column in part.find_all(exp.Column)):
                windows = [join.get("on") for join in (one.args for one in self.tree.args.get("joins") or ())]
                if not any(on is not None and windows_in(on) for on in windows):
                    raise self.wrong(part, "window_start and window_end need TUMBLE or HOP in the join or in GROUP BY")

    def _grouped(self, part: exp.Expr) -> None:
        """Whether an expression is made of keys, aggregates and the window's bounds."""
        assert self.group is not None
        if part in self.group.keys or is_aggregate(part):
            if is_aggregate(part) and (inner := [one for one in aggregates_in(part) if one is not part]):
                raise self.wrong(inner[0], "an aggregate of an aggregate")
            return
        if isinstance(part, exp.Column):
            if part.table:
                raise self.wrong(part, f"{part.name} is neither grouped by nor inside an aggregate")
            return
        for child in part.iter_expressions():
            self._grouped(child)
