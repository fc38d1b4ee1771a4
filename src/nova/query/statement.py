"""Statement: a query's text with every name resolved, and its conditions sorted by what they are good for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql, SqlFault, aggregates_in, fault, is_aggregate, parse
from nova.query.groupjoins import group_join
from nova.query.layers import bounds_of, check_layers, split
from nova.query.spellings import is_view, plain

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
ROLES = ("source", "time", "value")
"""Columns that every tuple has, whatever its input calls them."""
MOST_STREAMS = 6
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}


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
class Tumbling:
    """Windows of one length side by side, from 1970 on; or sliding ones, where `slide_us` is shorter."""

    size_us: int
    slide_us: int

    def __str__(self) -> str:
        size = f"{self.size_us / 1e6:g} s"
        return (
            f"windows of {size}"
            if self.size_us == self.slide_us
            else f"windows of {size} every {self.slide_us / 1e6:g} s"
        )


@dataclass(frozen=True)
class Interval:
    """low ≤ time of the first alias − time of the second ≤ high, in µs."""

    first: str
    second: str
    low_us: int
    high_us: int

    def __str__(self) -> str:
        return f"{self.first}.time − {self.second}.time within {self.low_us / 1e6:g} … {self.high_us / 1e6:g} s"


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


def analyse(sql: str, streams: Mapping[str, Schema]) -> Statement:
    """A query's text with its names resolved. Raises `SqlFault`."""
    tree, layers = split(sql, plain(sql, parse(sql)))
    joined = group_join(sql, tree, streams, _Analysis(sql, tree, streams)._length)
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


class _Analysis:
    def __init__(self, sql: str, tree: exp.Select, streams: Mapping[str, Schema]) -> None:
        self.sql, self.tree, self.known = sql, tree, streams
        self.streams: dict[str, str] = {}
        self.schemas: dict[str, Schema] = {}
        self.views: dict[str, dict[str, exp.Expr]] = {}
        """By alias of a query in brackets: what its columns are, over those of its stream."""
        self.before: dict[str, list[exp.Expr]] = {}
        """By alias of a query in brackets: its conditions."""
        self.group: Group | None = None
        self.missing: set[str] = set()
        """Streams that a row of the join may be without."""

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
        if len(self.streams) > MOST_STREAMS:
            raise self.wrong(tree.args["joins"][-1], f"a query joins at most {MOST_STREAMS} streams")
        self._bounds()
        self.missing = {alias for alias in self.streams if not self._kept(alias, joins, list(self.streams))}
        filters: dict[str, list[exp.Expr]] = {alias: list(self.before.get(alias, ())) for alias in self.streams}
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
            self.streams,
            self.schemas,
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
            raise self.wrong(table, f"the name of a stream expected; the streams are {_names(self.known)}")
        if table.args.get("db"):
            raise self.wrong(table, "streams have one name, without a point")
        if more := [name for name, value in table.args.items() if value and name not in ("this", "alias")]:
            clause = {"sample": "TABLESAMPLE", "pivots": "PIVOT", "version": "FOR SYSTEM_TIME"}.get(
                more[0], more[0].upper()
            )
            raise self.wrong(table, f"a stream and its alias expected; {clause} is not part of the dialect")
        name, alias = _one_of(table.name, self.known) or table.name, table.alias or table.name
        if name not in self.known:
            raise self.wrong(table, f"no such stream; the streams are {_names(self.known)}")
        if alias.lower() in map(str.lower, self.streams):
            raise self.wrong(table, f"two streams are called {alias}: give one of them another name with AS")
        self.streams[alias], self.schemas[alias] = name, self.known[name]
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
        own = _Analysis(self.sql, inner, self.known)
        stream = own._stream(inner.args["from_"].this)
        if alias.lower() in map(str.lower, self.streams):
            raise self.wrong(below, f"two streams are called {alias}: give one of them another name with AS")

        def renamed(part: exp.Expr) -> exp.Expr:
            for column in part.find_all(exp.Column):
                column.set("table", exp.to_identifier(alias))
            return part

        where = inner.args.get("where")
        inside = own.before.get(stream, []) + own._conjuncts(where.this if where else None)
        self.streams[alias], self.schemas[alias] = own.streams[stream], own.schemas[stream]
        self.before[alias] = [renamed(part.copy()) for part in inside]
        self.views[alias] = {name: renamed(part.copy()) for name, part in own._select()}
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
            owners = [one for one in before if self._column_of(one, column) is not None]
            if len(owners) != 1 or self._column_of(alias, column) is None:
                raise self.wrong(name, f"{column} is not a column of both sides")
            left, right = (exp.column(column, table=one) for one in (owners[0], alias))
            parts.append(exp.EQ(this=self._resolved(left), expression=self._resolved(right)))
        return parts

    def _conjuncts(self, condition: exp.Expr | None) -> list[exp.Expr]:
        """The parts of a condition that must all hold, names resolved."""
        if condition is None:
            return []
        condition = self._resolved(condition)
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
        if len(seen) == 1 and not _windows_in(part):
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
                windows = [self._window(side) for side in sides]
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
                    if alias not in seen[1 - mine] and not any(self._differences(bare)):
                        keys.append(Key(sides[1 - mine], sides[mine]))
                        continue
            if _windows_in(part):
                raise self.wrong(part, "a window stands in GROUP BY, or equals the same window of another stream")
            for pair, low, high in self._differences(bare):
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

    def _differences(self, part: exp.Expr) -> Iterator[tuple[tuple[str, str], int | None, int | None]]:
        """What a comparison tells of the difference of two streams' times: ((first, second), low µs, high µs)."""
        if isinstance(part, exp.Between):
            yield from self._differences(exp.GTE(this=part.this, expression=part.args["low"]))
            yield from self._differences(exp.LTE(this=part.this, expression=part.args["high"]))
            return
        if not isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ):
            return
        sides = part.this.unnest(), part.expression.unnest()
        for one, other in (sides, sides[::-1]):
            if isinstance(one, exp.Sub) and isinstance(other, exp.Interval):  # x − y ≤ t is x ≤ y + t
                later = exp.Add(this=one.expression.copy(), expression=other.copy())
                sides = (one.this, later) if one is sides[0] else (later, one.this)
                break
        left, right = map(self._moment, sides)
        if left is None or right is None or left[0] == right[0]:
            return
        (first, plus), (second, minus) = left, right
        bound = minus - plus  # first − second <op> bound
        if first > second:
            pair, low, high = (first, second), bound, bound
            lower, upper = isinstance(part, exp.GT | exp.GTE | exp.EQ), isinstance(part, exp.LT | exp.LTE | exp.EQ)
        else:
            pair, low, high = (second, first), -bound, -bound
            lower, upper = isinstance(part, exp.LT | exp.LTE | exp.EQ), isinstance(part, exp.GT | exp.GTE | exp.EQ)
        yield pair, low if lower else None, high if upper else None

    def _moment(self, node: exp.Expr) -> tuple[str, int] | None:
        """An event time plus a fixed time: the stream and the µs."""
        if isinstance(node, exp.Paren):
            return self._moment(node.this)
        if isinstance(node, exp.Column):
            return (node.table, 0) if node.name == "time" and node.table else None
        if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
            return self._moment(exp.Add(this=node.expression.copy(), expression=node.this.copy()))
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            inner = self._moment(node.this)
            length = self._length(node.expression)
            return None if inner is None else (inner[0], inner[1] + (length if isinstance(node, exp.Add) else -length))
        return None

    # windows

    def _bounds(self) -> None:
        """Other names of window_start and window_end: `window.start`, `window(…).start`, `TUMBLE_START(…)`."""
        clauses = [self.tree.args.get("group"), *(self.tree.args.get("joins") or ()), self.tree.args.get("where")]
        there = [self._window(self._resolved(one)) for part in clauses if part is not None for one in _windows_in(part)]
        for node in list(self.tree.walk()):
            window: exp.Expr | None = None
            if isinstance(node, exp.Column) and node.table.lower() == "window" and "window" not in self.streams:
                end = node.name.lower()
            elif isinstance(node, exp.Dot) and _is_window(node.this):
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
            if window is not None and self._window(self._resolved(window)) not in there:
                raise self.wrong(
                    node, "GROUP BY or ON has another window than this; select window_start and window_end"
                )
            bound = exp.column(f"window_{end}")
            if starts := [part.meta["start"] for part in node.walk() if "start" in part.meta]:
                bound.this.meta["start"] = min(starts)
            item = isinstance(node, exp.Column) and node.arg_key == "expressions" and node.parent is self.tree
            node.replace(exp.Alias(this=bound, alias=exp.to_identifier(end)) if item else bound)

    def _window(self, node: exp.Expr) -> Tumbling | None:
        """TUMBLE(time, size), HOP(time, slide, size) or window(time, size[, slide]); None for anything else."""
        if not _is_window(node):
            return None
        assert isinstance(node, exp.Anonymous)
        name, arguments = str(node.this).upper(), node.expressions
        counts = {"TUMBLE": (2,), "HOP": (3,), "WINDOW": (2, 3)}[name]
        usage = {
            "TUMBLE": "TUMBLE(time, INTERVAL '10' SECOND)",
            "HOP": "HOP(time, INTERVAL '1' SECOND, INTERVAL '10' SECOND): slide, then size",
            "WINDOW": "window(time, '10 seconds') or window(time, '10 seconds', '1 second'): size, then slide",
        }[name]
        if len(arguments) not in counts:
            raise self.wrong(node, f"{usage} expected")
        if self._moment(arguments[0]) is None or not isinstance(arguments[0], exp.Column):
            raise self.wrong(arguments[0], f"the event time of a stream expected: {usage}")
        lengths = [self._length(argument) for argument in arguments[1:]]
        size = lengths[-1] if name == "HOP" else lengths[0]
        slide = lengths[0] if name == "HOP" else lengths[-1]
        if size <= 0 or slide <= 0 or size % slide:
            raise self.wrong(node, f"a window is a whole multiple of its slide, and both are above 0: {usage}")
        return Tumbling(size, slide)

    def _length(self, node: exp.Expr) -> int:
        """An INTERVAL, or a text such as '10 seconds', in µs."""
        if isinstance(node, exp.Interval):
            amount, unit = node.this, node.args.get("unit")
            text = f"{amount.name if amount is not None else ''} {unit.name if unit is not None else ''}"
        elif isinstance(node, exp.Literal) and node.is_string:
            text = node.name
        else:
            raise self.wrong(node, "a length of time expected, such as INTERVAL '10' SECOND")
        words = text.upper().split()
        try:
            value = sum(
                float(number) * _UNITS.get(name.removesuffix("S"), float("nan"))
                for number, name in zip(words[::2], words[1::2], strict=True)
            )
        except ValueError:
            value = float("nan")
        if not words:
            value = float("nan")
        if value != value or value != round(value):
            units = ", ".join(_UNITS)
            raise self.wrong(node, f"a number and one of {units} expected, in whole microseconds")
        return round(value)

    # output

    def _select(self) -> list[tuple[str, exp.Expr]]:
        items: list[tuple[str, exp.Expr]] = []
        for item in self.tree.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                named = _one_of(item.table, self.streams) if isinstance(item, exp.Column) else None
                if isinstance(item, exp.Column) and named is None:
                    raise self.wrong(item, f"no such stream here: {_names(self.streams)}")
                star = item.this if isinstance(item, exp.Column) else item
                without = {self._excepted(one, named) for one in star.args.get("except_") or ()}
                if more := [name for name, value in star.args.items() if value and name != "except_"]:
                    raise self.wrong(item, f"* {more[0].strip('_').upper()} is not part of the dialect; * EXCEPT is")
                for alias in self.streams if named is None else [named]:
                    if not self.schemas[alias].known:
                        raise self.wrong(item, f"the columns of {alias} are not known: declare them as its `columns`")
                    names = self.views.get(alias, [*ROLES, *self.schemas[alias].columns])
                    items += [
                        (
                            name if len(self._owners(name)) == 1 else f"{alias}_{name}",
                            self._viewed(alias, name) if alias in self.views else exp.column(name, table=alias),
                        )
                        for name in names
                        if (alias, name) not in without
                    ]
            else:
                inner = self._resolved(item.this if isinstance(item, exp.Alias) else item, bounds=True)
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
        owners = [named] if named is not None else self._owners(name.name)
        found = self._column_of(owners[0], name.name) if len(owners) == 1 else None
        if found is None:
            raise self.wrong(name, f"a column of one of {_names(self.streams)} expected")
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
            owned = isinstance(item, exp.Column) and self._owners(item.name)
            part = chosen if chosen is not None and not owned else self._resolved(item, bounds=True)
            if isinstance(part, exp.Column) and not part.table and part.name in BOUNDS:
                if not isinstance(last, Tumbling):
                    raise self.wrong(item, "window_start and window_end need TUMBLE or HOP in the join or in GROUP BY")
                window = window or last
                continue
            found = self._window(part)
            if found is not None:
                if window is not None:
                    raise self.wrong(item, "GROUP BY has one window")
                window, time = found, part.expressions[0]
                continue
            if bad := [*aggregates_in(part), *_windows_in(part)]:
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
            if not column.table and column.name in names and not self._owners(column.name):
                replacement = exp.Paren(this=names[column.name].copy())
                condition = replacement if column is condition else condition
                column.replace(replacement) if column.parent else None
        resolved = self._resolved(condition, bounds=True)
        self._grouped(resolved)
        return resolved

    def _check_output(self, select: list[tuple[str, exp.Expr]]) -> None:
        """Window bounds and columns of the output exist, and are grouped where rows are."""
        for _, part in select:
            if found := _windows_in(part):
                raise self.wrong(found[0], "a window stands in GROUP BY or ON; select window_start and window_end")
            if self.group is not None:
                self._grouped(part)
            elif any(not column.table for column in part.find_all(exp.Column)):
                windows = [join.get("on") for join in (one.args for one in self.tree.args.get("joins") or ())]
                if not any(on is not None and _windows_in(on) for on in windows):
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

    # names

    def _owners(self, name: str) -> list[str]:
        return [alias for alias in self.streams if self._column_of(alias, name) is not None]

    def _column_of(self, alias: str, name: str) -> str | None:
        """The name here of a stream's column; None where it has no such column."""
        schema = self.schemas[alias]
        if (view := self.views.get(alias)) is not None:
            role = schema.roles.get(_one_of(name, schema.roles) or "", "")
            return _one_of(name, view) or (role if view.get(role) == exp.column(role, table=alias) else None)
        found = _one_of(name, dict.fromkeys((*schema.roles, *ROLES, *schema.columns, *schema.attributes)))
        if found is None:
            return None if schema.known else name
        return schema.roles.get(found, found)

    def _columns(self, alias: str) -> list[str]:
        """Names that a text may use for the columns of a stream."""
        schema = self.schemas[alias]
        return list(self.views.get(alias, dict.fromkeys((*ROLES, *schema.columns, *schema.attributes))))

    def _viewed(self, alias: str, name: str) -> exp.Expr:
        """What a column of a query in brackets is; where the join has no row of it, null."""
        part = self.views[alias][name].copy()
        if isinstance(part, exp.Column):
            return part
        if alias in self.missing:
            there = exp.Not(this=exp.Is(this=exp.column("time", table=alias), expression=exp.Null()))
            return exp.Paren(this=exp.Case(ifs=[exp.If(this=there, true=part)]))
        return exp.Paren(this=part)

    def _resolved(self, node: exp.Expr, *, bounds: bool = False) -> exp.Expr:
        """A copy in which every column carries the alias of its stream."""
        copy = node.copy()
        for column in list(copy.find_all(exp.Column)):
            name, alias = column.name, column.table
            if isinstance(column.this, exp.Star):
                continue
            if not alias:
                owners = self._owners(name)
                if not owners and bounds and name in BOUNDS:
                    continue
                if len(owners) > 1:
                    raise self.wrong(
                        column, f"{name} is a column of {_names(owners)}: say which, as {owners[0]}.{name}"
                    )
                alias = owners[0] if owners else ""
            else:
                called = _one_of(alias, self.streams)
                if called is None:
                    raise self.wrong(column, f"no stream is called {alias} here; there are {_names(self.streams)}")
                alias = called
            found = self._column_of(alias, name) if alias else None
            if found is None:
                every = [alias] if alias else list(self.streams)
                names = dict.fromkeys(one for a in every for one in self._columns(a))
                raise self.wrong(column, f"no such column; there are {_names(names)}")
            if alias in self.views:
                inside = self._viewed(alias, found)
                copy = inside if column is copy else copy
                column.replace(inside)
                continue
            starts = [part.meta["start"] for part in column.walk() if "start" in part.meta]
            column.set("this", exp.to_identifier(found))
            column.set("table", exp.to_identifier(alias))
            if starts:
                column.this.meta["start"] = min(starts)
        return copy


def _is_window(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("TUMBLE", "HOP", "WINDOW")


def _windows_in(node: exp.Expr) -> list[exp.Expr]:
    return [part for part in node.walk() if _is_window(part)]


def _one_of(name: str, names: Iterable[str]) -> str | None:
    """The name as it is written among others: itself, or the only one that differs in upper and lower case alone."""
    every = list(names)
    if name in every:
        return name
    like = [one for one in every if one.lower() == name.lower()]
    return like[0] if len(like) == 1 else None


def _names(names: object) -> str:
    return ", ".join(map(str, names))  # type: ignore[call-overload]


__all__ = [
    "short_sql",
    "Schema",
    "Statement",
    "Join",
    "Group",
    "Tumbling",
    "Interval",
    "Key",
    "analyse",
    "aliases_in",
]
