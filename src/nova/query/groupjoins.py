"""Joins of groups: queries in brackets that group by a window, joined on that window, as one query that groups by it.

    SELECT … FROM (SELECT … FROM bids GROUP BY window, auction) l
             JOIN (SELECT … FROM bids GROUP BY window) r ON l.window_start = r.window_start AND …

Where all of them read the same, one query makes the finest groups that any of them needs. The groups of a window are
complete at the sink at the same moment, so the join runs there, in a layer over them: once for each window. A stream
itself may be one of the sides; its tuples are groups of all columns that the text looks at, with their number.

Where they read different streams, tuples are joined on the window and on what the text says of the keys, and then
grouped by the keys of all sides. A pair of groups is joined exactly where a pair of their tuples is; but each tuple
shows up once for each partner, so what is asked of a side beside its keys must not depend on how often: min, max and
DISTINCT. Everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlglot import exp

from nova.query.dialect import BOUNDS, NovaSql, SqlFault, aggregates_in, fault, is_aggregate
from nova.query.layers import GROUPS, by_window, check_clauses, check_layer, read_by
from nova.query.spellings import is_view, window_of

if TYPE_CHECKING:
    from nova.query.statement import Schema

End: TypeAlias = Literal["window_start", "window_end"]
_START, _END, _COUNT = "_w0", "_w1", "_n"
_EDGES: dict[str, str] = dict(zip(BOUNDS, (_START, _END), strict=True))
_AGAIN: dict[type[exp.Expr], type[exp.AggFunc]] = {
    exp.Count: exp.Sum,
    exp.Sum: exp.Sum,
    exp.Min: exp.Min,
    exp.Max: exp.Max,
}
"""Aggregates of fine groups, and what makes those of coarser ones of them."""


@dataclass(frozen=True)
class GroupJoin:
    """A join of groups as one query that groups by a window, and a layer over its groups."""

    base: exp.Select
    layer: exp.Select
    names: tuple[str, ...]
    """Columns of the layer."""
    bounds: frozenset[str]
    """Those of them that are bounds of the window, in lower case."""
    closed: bool
    """Whether a tuple at the very end of a window belongs to it, too: the layer looks at both windows of such a
    tuple."""


def group_join(
    sql: str, select: exp.Select, streams: Mapping[str, Schema], length_us: Callable[[exp.Expr], int]
) -> GroupJoin | None:
    """A SELECT that joins queries with groups, rewritten; None where it joins none. `length_us`: an INTERVAL in µs.
    Raises `SqlFault` where a rewriting would not give the same rows."""
    below = [one.this for one in (select.args.get("from_"), *(select.args.get("joins") or ())) if one is not None]
    grouped = [one for one in below if _selects(one) is not None and not is_view(_selects(one))]
    if len(below) < 2 or not grouped:
        return None
    return _Rewriting(sql, select, streams, length_us).made()


def _selects(node: object) -> exp.Select:
    found = node.this if isinstance(node, exp.Subquery) else None
    return found if isinstance(found, exp.Select) else None  # type: ignore[return-value]


@dataclass
class _Leaf:
    """A query that reads streams and groups by a window."""

    select: exp.Select
    window: exp.Expr | None
    """TUMBLE(…) or HOP(…); None: the window of the join that it reads."""
    keys: list[exp.Expr]
    where: exp.Expr | None

    @property
    def single(self) -> str:
        """The stream that it reads; empty where it joins several."""
        table = self.select.args["from_"].this
        return table.name if isinstance(table, exp.Table) and not self.select.args.get("joins") else ""


@dataclass
class _Source:
    """One side of the join."""

    alias: str
    node: exp.Expr
    leaf: _Leaf | None
    """None: a stream itself."""
    chain: list[exp.Select] = field(default_factory=list)
    """SELECTs around the leaf, from the inside out."""
    names: list[str] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    """By name in lower case: which bound of the window a column is."""


class _Rewriting:
    def __init__(
        self, sql: str, select: exp.Select, streams: Mapping[str, Schema], length_us: Callable[[exp.Expr], int]
    ) -> None:
        self.sql, self.select, self.streams, self.length_us = sql, select.copy(), streams, length_us
        self.joins: list[exp.Join] = list(self.select.args["joins"])
        self.sources = [self._source(one.this) for one in (self.select.args["from_"], *self.joins)]
        for number, one in enumerate(self.sources):
            if one.alias.lower() in (other.alias.lower() for other in self.sources[:number]):
                raise self.wrong(one.node, f"two queries are called {one.alias}: give one another name with AS")
        self.keys: list[exp.Expr] = []
        self.aggregates: list[exp.Expr] = []

    def wrong(self, node: object, message: str, token: str = "") -> SqlFault:  # nosec B107
        return fault(self.sql, node, message, token)

    def made(self) -> GroupJoin:
        self._expand_stars()
        self._check_joins()
        first = next(one.leaf for one in self.sources if one.leaf is not None)
        like = all(one.leaf is None or _reads(one.leaf) == _reads(first) for one in self.sources)
        raw = [one for one in self.sources if one.leaf is None]
        if like and all(one.node.name.lower() == first.single.lower() for one in raw):
            return self._of_one_input(first, raw)
        for one in raw:
            raise self.wrong(
                one.node, "a stream is joined with groups of the same stream; else group it by its columns and window"
            )
        return self._of_streams()

    # what is read

    def _source(self, node: exp.Expr) -> _Source:
        inner = _selects(node)
        if inner is None:
            if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
                raise self.wrong(node, "a stream, or a query in brackets that groups by a window, expected")
            return _Source(node.alias or node.name, node, None)
        if not node.alias or node.args["alias"].args.get("columns"):
            raise self.wrong(node, "give the query in brackets a name with AS, and name its columns inside")
        chain: list[exp.Select] = []
        while (below := read_by(inner)) is not None:
            check_clauses(self.sql, inner, below)
            chain.insert(0, inner)
            inner = below
        check_clauses(self.sql, inner, None)
        if inner.args.get("group") is None:
            message = "a query in brackets that is joined with groups groups by a window, too, or is a stream's name"
            raise self.wrong(node, message)
        leaf = self._leaf(inner)
        found = _Source(node.alias, node, leaf, chain)
        for item in leaf.select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                raise self.wrong(item, "name the columns: * of groups is not known")
            end = self._end(leaf, item.this if isinstance(item, exp.Alias) else item)
            name = _name(item)
            found.names.append(name)
            if end is not None:
                found.ends[name.lower()] = end
        for layer in chain:
            names, _ = check_layer(self.sql, layer, found.names, set(found.ends))
            found.ends = _through(layer, found.ends)
            found.names = names
        return found

    def _leaf(self, select: exp.Select) -> _Leaf:
        leaf = _Leaf(select, None, [], None)
        if name := leaf.single:  # with one stream its name says nothing, so that texts can be compared
            called = {name.lower(), (select.args["from_"].this.alias or name).lower()}
            for column in select.find_all(exp.Column):
                if column.table.lower() in called:
                    column.set("table", None)
        where = select.args.get("where")
        leaf.where = None if where is None else where.this
        group = select.args["group"]
        if more := [clause for clause, value in group.args.items() if value and clause != "expressions"]:
            raise self.wrong(
                group, f"GROUP BY {more[0].upper()} is not part of the dialect: list a window and keys", "GROUP"
            )
        outputs = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        bounded = False
        for part in group.expressions:
            if isinstance(part, exp.Anonymous) and str(part.this).upper() in ("TUMBLE", "HOP", "WINDOW"):
                if leaf.window is not None:
                    raise self.wrong(part, "GROUP BY has one window")
                leaf.window = part
            elif isinstance(part, exp.Column) and not part.table and part.name.lower() in BOUNDS:
                bounded = True
            else:
                other = outputs.get(part.name.lower()) if isinstance(part, exp.Column) and not part.table else None
                if other is not None and other != part:
                    raise self.wrong(part, f"{part.name} is computed in SELECT: write in GROUP BY what it is")
                leaf.keys.append(part)
        if leaf.window is None and not (bounded and select.args.get("joins")):
            raise self.wrong(group, "GROUP BY needs a window, such as TUMBLE(x.time, INTERVAL '10' SECOND)", "GROUP")
        return leaf

    def _end(self, leaf: _Leaf, part: exp.Expr) -> End | None:
        """Which bound of its window an expression of a leaf is."""
        if isinstance(part, exp.Paren):
            return self._end(leaf, part.this)
        if isinstance(part, exp.Column):
            table, name = part.table.lower(), part.name.lower()
            if not table and name in BOUNDS:
                return name  # type: ignore[return-value]
            return f"window_{name}" if table == "window" and name in ("start", "end") else None  # type: ignore[return-value]
        window = window_of(part)
        if window is None:
            return None
        if window != leaf.window:
            raise self.wrong(part, "GROUP BY has another window than this; select window_start and window_end")
        last = part.expression.name if isinstance(part, exp.Dot) else str(part.this).rpartition("_")[2]
        return f"window_{last.lower()}"  # type: ignore[return-value]

    # the text around

    def _owner(self, column: exp.Column) -> _Source:
        """Whose column it is."""
        if column.table:
            for one in self.sources:
                if one.alias.lower() == column.table.lower():
                    if one.leaf is not None and column.name.lower() not in map(str.lower, one.names):
                        raise self.wrong(column, f"no such column; {one.alias} has {', '.join(one.names)}")
                    return one
            every = ", ".join(one.alias for one in self.sources)
            raise self.wrong(column, f"nothing is called {column.table} here; there are {every}")
        name = column.name.lower()
        owners = [one for one in self.sources if one.leaf is not None and name in map(str.lower, one.names)]
        owners += [one for one in self.sources if one.leaf is None and self._has(one, name, bool(owners))]
        if len(owners) != 1:
            raise self.wrong(
                column,
                "say whose column it is, as in " + f"{owners[0].alias}.{column.name}" if owners else "no such column",
            )
        return owners[0]

    def _has(self, raw: _Source, name: str, others: bool) -> bool:
        """Whether a stream has such a column; where that is not known, if nobody else has."""
        schema = self._schema(raw)
        if not schema.known:
            return not others
        return name in map(str.lower, ("source", "time", "value", *schema.roles, *schema.columns))

    def _schema(self, raw: _Source) -> Schema:
        for name, schema in self.streams.items():
            if name.lower() == raw.node.name.lower():
                return schema
        raise self.wrong(raw.node, f"no such stream; the streams are {', '.join(self.streams)}")

    def _expand_stars(self) -> None:
        """`*` and `x.*` as the columns that they are, and a name for every column of the output."""
        counts: dict[str, int] = {}
        for one in self.sources:
            for name in one.names:
                counts[name.lower()] = counts.get(name.lower(), 0) + 1
        items: list[exp.Expr] = []
        for item in self.select.expressions:
            star = isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
            if not star:
                named = item if isinstance(item, exp.Alias) else None
                items.append(named or exp.alias_(item.copy(), _name(item), quoted=True, copy=False))
                continue
            inside = item.this if isinstance(item, exp.Column) else item
            of = [one for one in self.sources if item.alias_or_name in ("", "*") or not item.table]
            if isinstance(item, exp.Column) and item.table:
                of = [one for one in self.sources if one.alias.lower() == item.table.lower()]
            if not of or any(one.leaf is None for one in of) or any(inside.args.values()):
                raise self.wrong(item, "name the columns: * stands for those of queries in brackets")
            for one in of:
                items += [
                    exp.alias_(
                        exp.column(name, table=one.alias, quoted=True),
                        name if counts[name.lower()] == 1 else f"{one.alias}_{name}",
                        quoted=True,
                    )
                    for name in one.names
                ]
        seen: set[str] = set()
        for item in items:
            if item.alias.lower() in seen:
                raise self.wrong(item, f"two columns are called {item.alias}: give one another name with AS")
            seen.add(item.alias.lower())
        self.select.set("expressions", items)

    def _check_joins(self) -> None:
        """Each side meets another one in the same window, and what is asked of the pairs looks at one window."""
        for number, join in enumerate(self.joins, 1):
            side, kind = join.side.upper(), join.kind.upper()
            if join.args.get("method") or side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER", "CROSS"):
                raise self.wrong(join, "groups are joined by INNER or LEFT JOIN")
            if join.args.get("using"):
                raise self.wrong(join.args["using"][0], "ON expected where groups are joined")
            if self.sources[number].leaf is None or self.sources[0].leaf is None:
                continue
            where = self.select.args.get("where") if side == "" else None
            parts = _conjuncts(join.args.get("on")) + _conjuncts(None if where is None else where.this)
            before = self.sources[:number]
            if not any(self._one_window(part, self.sources[number], before) for part in parts):
                raise self.wrong(
                    join.this if not isinstance(join.this, exp.Subquery) else join,
                    f"groups are joined within one window: add ON {self.sources[number].alias}.window_start = "
                    f"{before[0].alias}.window_start, by the names that the queries inside give it",
                )
        for part in self._own_parts():
            for column in part.find_all(exp.Column):
                if isinstance(part, exp.Group | exp.Having) and self._output(column):
                    continue
                self._owner(column)
        bounds = self._is_bound
        for one in (one for part in self._own_parts() for one in part.find_all(exp.Window)):
            if not any(bounds(key) for key in one.args.get("partition_by") or ()):
                raise self.wrong(one, by_window("PARTITION BY", self._bound_names()))
        group = self.select.args.get("group")
        found = [one for part in self._own_parts() for one in aggregates_in(part)]
        found = [one for one in found if not isinstance(one.parent, exp.Window)]
        if group is not None and not any(bounds(key) for key in group.expressions):
            raise self.wrong(group, by_window("GROUP BY", self._bound_names()), "GROUP")
        if group is None and found:
            raise self.wrong(found[0], by_window("GROUP BY", self._bound_names()))

    def _own_parts(self) -> list[exp.Expr]:
        parts = [*self.select.expressions, *(join.args["on"] for join in self.joins if join.args.get("on"))]
        return parts + [self.select.args[name] for name in ("where", "group", "having") if self.select.args.get(name)]

    def _output(self, column: exp.Column) -> bool:
        return not column.table and column.name.lower() in {item.alias.lower() for item in self.select.expressions}

    def _optional(self, source: _Source) -> bool:
        """Whether a row may be without this side."""
        number = self.sources.index(source)
        return number > 0 and self.joins[number - 1].side.upper() == "LEFT"

    def _is_bound(self, part: exp.Expr) -> bool:
        """Whether a column of the text is a bound of its row's window, and never null."""
        if not isinstance(part, exp.Column) or (
            self._output(part) and not any(part.name.lower() in map(str.lower, one.names) for one in self.sources)
        ):
            return False
        owner = self._owner(part)
        return part.name.lower() in owner.ends and not self._optional(owner)

    def _bound_names(self) -> set[str]:
        return {f"{one.alias}.{name}" for one in self.sources for name in one.ends if not self._optional(one)}

    def _one_window(self, part: exp.Expr, source: _Source, before: list[_Source]) -> bool:
        """Whether a condition says that a side lies in the same window as one before it."""
        if not isinstance(part, exp.EQ) or not all(isinstance(side, exp.Column) for side in part.unnest_operands()):
            return False
        sides = [(self._owner(side), side.name.lower()) for side in part.unnest_operands()]  # type: ignore[arg-type]
        ends = [owner.ends.get(name) for owner, name in sides]
        owners = [owner for owner, _ in sides]
        return (
            ends[0] is not None
            and ends[0] == ends[1]
            and any(one is source for one in owners)
            and any(one is other for one in owners for other in before)
        )

    def _outcome(self) -> tuple[tuple[str, ...], frozenset[str]]:
        names = tuple(item.alias for item in self.select.expressions)
        bounds = frozenset(item.alias.lower() for item in self.select.expressions if self._is_bound(item.this))
        return names, bounds

    # all of one input

    def _of_one_input(self, first: _Leaf, raw: list[_Source]) -> GroupJoin:
        names, bounds = self._outcome()
        leaves = [one.leaf for one in self.sources if one.leaf is not None]
        if raw and (len(self.sources) > 2 or self.joins[0].side):
            raise self.wrong(raw[0].node, "a stream is joined with one query that groups it, by INNER JOIN")
        time = None if first.window is None else first.window.expressions[0]
        looked = {one.alias: self._looked_at(one) for one in raw}
        for one in raw:
            self._tie_to_window(one, first)
        for part in [key for leaf in leaves for key in leaf.keys] + [one for few in looked.values() for one in few]:
            _number(self.keys, part)
        if raw and time is not None:
            _number(self.keys, time)
        filtered = bool(raw) or any(leaf.where != first.where for leaf in leaves)
        for one in self.sources:
            text = (
                self._tuples(looked[one.alias])
                if one.leaf is None
                else self._over_groups(one.leaf, filtered, time if raw else None)
            )
            if one.chain:
                one.chain[0].args["from_"].this.set("this", text)
                text = one.chain[-1]
            one.node.replace(exp.Subquery(this=text, alias=exp.TableAlias(this=exp.to_identifier(one.alias))))
        return GroupJoin(self._base(first, None if filtered else first.where), self.select, names, bounds, bool(raw))

    def _looked_at(self, raw: _Source) -> list[exp.Expr]:
        """The columns of a stream that the text looks at."""
        found: dict[str, exp.Expr] = {}
        for part in self._own_parts():
            for column in part.find_all(exp.Column):
                if isinstance(part, exp.Group | exp.Having) and self._output(column):
                    continue
                if self._owner(column) is raw:
                    bare = exp.Column(this=column.this.copy())
                    found.setdefault(column.name.lower(), bare)
        return list(found.values())

    def _tie_to_window(self, raw: _Source, leaf: _Leaf) -> None:
        """Add that a tuple meets the groups of its own window, where the text's conditions on its time imply that."""
        assert leaf.window is not None
        lengths = [self.length_us(one) for one in leaf.window.expressions[1:]]
        size = lengths[-1] if str(leaf.window.this).upper() == "HOP" else lengths[0]
        where = self.select.args.get("where")
        parts = [part for join in self.joins for part in _conjuncts(join.args.get("on"))]
        parts += _conjuncts(None if where is None else where.this)
        for other in (one for one in self.sources if one.leaf is not None):
            low = high = False
            for part in parts:
                for after, offset in self._relative(part, raw, other, size):
                    low |= after and offset >= 0
                    high |= not after and offset <= size
            if low and high:
                end = next(iter(other.ends.items()))
                tied = exp.EQ(
                    this=exp.column(_EDGES[end[1]], table=raw.alias), expression=exp.column(end[0], table=other.alias)
                )
                condition = tied if where is None else exp.and_(where.this, tied, copy=False)
                self.select.set("where", exp.Where(this=condition))
                return
        raise self.wrong(
            raw.node,
            f"a stream is joined with groups of its own windows: add WHERE {raw.alias}.time >= window_start AND "
            f"{raw.alias}.time < window_end, by the names that the query inside gives them",
        )

    def _relative(self, part: exp.Expr, raw: _Source, other: _Source, size: int) -> list[tuple[bool, int]]:
        """What a condition says of a tuple's time: (whether it is not before, else not after, µs from the start of
        the other side's window)."""
        if isinstance(part, exp.Between):
            low = exp.GTE(this=part.this.copy(), expression=part.args["low"].copy())
            high = exp.LTE(this=part.this.copy(), expression=part.args["high"].copy())
            return (
                []
                if part.args.get("symmetric")
                else [
                    *self._relative(low, raw, other, size),
                    *self._relative(high, raw, other, size),
                ]
            )
        if not isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE):
            return []
        for mine, theirs, turned in ((part.this, part.expression, False), (part.expression, part.this, True)):
            mine = mine.unnest()
            if isinstance(mine, exp.Column) and self._owner(mine) is raw and self._is_time(raw, mine.name):
                offset = self._offset(theirs.unnest(), other, size)
                if offset is not None:
                    return [(isinstance(part, exp.GT | exp.GTE) != turned, offset)]
        return []

    def _is_time(self, raw: _Source, name: str) -> bool:
        roles = {one.lower(): role for one, role in self._schema(raw).roles.items()}
        columns = {one.lower() for one in self._schema(raw).columns}
        return roles.get(name.lower(), name.lower() if name.lower() not in columns else "") == "time"

    def _offset(self, node: exp.Expr, other: _Source, size: int) -> int | None:
        """A bound of a window, plus or minus a fixed time, in µs from the window's start."""
        if isinstance(node, exp.Column):
            end = other.ends.get(node.name.lower()) if self._owner(node) is other else None
            return None if end is None else (0 if end == "window_start" else size)
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            inner = self._offset(node.this.unnest(), other, size)
            length = self.length_us(node.expression)
            return None if inner is None else inner + (length if isinstance(node, exp.Add) else -length)
        return None

    def _tuples(self, columns: list[exp.Expr]) -> exp.Select:
        """A stream's tuples, of the groups of its columns: each as often as it came."""
        items = [
            exp.alias_(exp.column(f"_k{self.keys.index(one)}"), one.name, quoted=True, copy=False) for one in columns
        ]
        count = self._aggregate(exp.Count(this=exp.Star()))
        copies = exp.func("explode", exp.func("array_repeat", exp.Literal.number(0), exp.cast(count, "int")))
        edges = [exp.column(_START), exp.column(_END)]
        return exp.select(*items, *edges, exp.alias_(copies, _COUNT)).from_(_groups())

    def _over_groups(self, leaf: _Leaf, filtered: bool, time: exp.Expr | None) -> exp.Select:
        """A leaf as a query over the finest groups. `filtered`: its conditions are part of its aggregates. `time`: the
        windows have both ends, and this is the time that must lie before the later one."""
        coarse = any(key not in leaf.keys for key in self.keys)
        condition = leaf.where if filtered else None

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                whole = self._aggregate(_where(node, condition))
                return self._merged(node, whole) if coarse else whole
            if node in leaf.keys:
                return exp.column(f"_k{self.keys.index(node)}")
            if (end := self._end(leaf, node)) is not None:
                return exp.column(_EDGES[end])
            if isinstance(node, exp.Column):
                raise self.wrong(node, f"{node.name} is neither grouped by nor inside an aggregate")
            return node

        items = []
        for item in leaf.select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            items.append(exp.alias_(_transformed(inner, replaced), _name(item), quoted=True, copy=False))
        found = exp.select(*items).from_(_groups())
        if time is not None:
            found = found.where(
                exp.LT(this=exp.column(f"_k{self.keys.index(time)}"), expression=exp.column(_END)), copy=False
            )
        if condition is not None:
            came = self._aggregate(_where(exp.Count(this=exp.Star()), condition))
            found = found.where(exp.GT(this=came, expression=exp.Literal.number(0)), copy=False)
        having = leaf.select.args.get("having")
        kept = None if having is None else _transformed(_outputs_in(leaf, having.this), replaced)
        if coarse:
            keys = [exp.column(f"_k{self.keys.index(key)}") for key in leaf.keys]
            found = found.group_by(exp.column(_START), exp.column(_END), *keys, copy=False)
            return found if kept is None else found.having(kept, copy=False)
        return found if kept is None else found.where(kept, copy=False)

    def _aggregate(self, part: exp.Expr) -> exp.Column:
        return exp.column(f"_a{_number(self.aggregates, part)}")

    def _merged(self, whole: exp.Expr, column: exp.Expr) -> exp.Expr:
        """An aggregate of coarse groups, of those of fine ones."""
        bare = whole.this if isinstance(whole, exp.Filter) else whole
        again = _AGAIN.get(type(bare))
        if again is None or isinstance(bare.this, exp.Distinct) or bare.expressions:
            raise self.wrong(
                whole,
                "where groups of different keys are joined, those with fewer keys have count, sum, min and max alone",
            )
        return again(this=column)

    def _base(self, leaf: _Leaf, where: exp.Expr | None) -> exp.Select:
        """The query that makes the finest groups."""
        window = exp.column("window_start") if leaf.window is None else leaf.window.copy()
        base = _base_of(self.keys, self.aggregates, window)
        base.set("from_", leaf.select.args["from_"].copy())
        base.set("joins", [join.copy() for join in leaf.select.args.get("joins") or ()])
        base.set("where", None if where is None else exp.Where(this=where.copy()))
        return base

    # different streams

    def _of_streams(self) -> GroupJoin:
        names, bounds = self._outcome()
        if left := [join for join in self.joins if join.side]:
            raise self.wrong(left[0], "groups of different streams are joined by INNER JOIN")
        tuples: dict[tuple[str, str], exp.Expr] = {}
        """By side and name: what a column is, over the tuples; those that are made of keys alone."""
        rows: dict[tuple[str, str], exp.Expr] = {}
        """The same of all columns, over the groups of pairs."""
        checks: list[exp.Expr] = []
        for one in self.sources:
            checks += self._side(one, tuples, rows)
        joins, filters = [], []
        where = self.select.args.get("where")
        last = _conjuncts(None if where is None else where.this)
        for number, join in enumerate(self.joins, 1):
            parts = _conjuncts(join.args.get("on")) + (last if number == len(self.joins) else [])
            checks += [_transformed(part, lambda node: self._put(node, rows)) for part in parts]
            known = [part for part in parts if self._of(part, tuples)]
            pushed = [_transformed(part, lambda node: self._put(node, tuples)) for part in known]
            joins.append(exp.Join(this=self._table(self.sources[number]), on=exp.and_(*self._windows(number), *pushed)))
        for one in self.sources:
            if one.leaf is not None and one.leaf.where is not None:
                filters.append(_qualified(one.leaf.where, one.alias))
        base = _base_of(self.keys, self.aggregates, exp.column("window_start"))
        base.set("from_", exp.From(this=self._table(self.sources[0])))
        base.set("joins", joins)
        base.set("where", exp.Where(this=exp.and_(*filters)) if filters else None)
        layer = exp.Select()
        layer.set("from_", exp.From(this=_groups()))
        layer.set(
            "expressions",
            [
                exp.alias_(_transformed(item.this, lambda node: self._put(node, rows)), item.alias, quoted=True)
                for item in self.select.expressions
            ],
        )
        layer.set("where", exp.Where(this=exp.and_(*checks)) if checks else None)
        for clause in ("group", "having"):
            if (own := self.select.args.get(clause)) is not None:
                layer.set(clause, _transformed(own, lambda node: self._put(node, rows, outputs=True)))
        return GroupJoin(base, layer, names, bounds, False)

    def _side(
        self,
        one: _Source,
        tuples: dict[tuple[str, str], exp.Expr],
        rows: dict[tuple[str, str], exp.Expr],
    ) -> list[exp.Expr]:
        """Take in what the columns of a side are; returns what its HAVING asks of the groups of pairs."""
        leaf = one.leaf
        if leaf is None or one.chain or not leaf.single or leaf.window is None:
            raise self.wrong(
                one.node,
                "where groups of different streams are joined, each query in brackets reads one stream and groups it "
                "by a window",
            )
        numbers = [_number(self.keys, _qualified(key, one.alias)) for key in leaf.keys]

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                self._refuse_counting(node)
                return self._aggregate(_qualified(node, one.alias))
            if node in leaf.keys:
                return exp.column(f"_k{numbers[leaf.keys.index(node)]}")
            if (end := self._end(leaf, node)) is not None:
                return exp.column(_EDGES[end])
            if isinstance(node, exp.Column):
                raise self.wrong(node, f"{node.name} is neither grouped by nor inside an aggregate")
            return node

        for item in leaf.select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            place = one.alias.lower(), _name(item).lower()
            rows[place] = _transformed(inner, replaced)
            edges = any(self._end(leaf, part) is not None for part in inner.walk())
            if not aggregates_in(inner) and not edges:
                tuples[place] = _qualified(inner, one.alias)
        having = leaf.select.args.get("having")
        return [] if having is None else [_transformed(_outputs_in(leaf, having.this), replaced)]

    def _refuse_counting(self, aggregate: exp.Expr) -> None:
        """Refuse an aggregate that depends on how often a row comes."""
        bare = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        if not isinstance(bare, exp.Min | exp.Max) and not isinstance(bare.this, exp.Distinct):
            raise self.wrong(
                aggregate,
                "where groups of different streams are joined, they have min, max and DISTINCT aggregates alone: a "
                "tuple comes once for each partner",
            )

    def _windows(self, number: int) -> list[exp.Expr]:
        """That a side lies in the same window as those before it which the text names."""
        source = self.sources[number]
        found: list[exp.Expr] = []
        where = self.select.args.get("where")
        parts = [part for join in self.joins for part in _conjuncts(join.args.get("on"))]
        parts += _conjuncts(None if where is None else where.this)
        for other in self.sources[:number]:
            if any(self._one_window(part, source, [other]) for part in parts):
                sides = [_qualified(_window(one), one.alias) for one in (other, source)]
                found.append(exp.EQ(this=sides[0], expression=sides[1]))
        return found

    def _of(self, part: exp.Expr, known: Mapping[tuple[str, str], exp.Expr]) -> bool:
        """Whether a condition looks at known columns alone, and at some."""
        places = [self._place(column) for column in part.find_all(exp.Column)]
        return bool(places) and all(place in known for place in places)

    def _place(self, column: exp.Column) -> tuple[str, str]:
        return self._owner(column).alias.lower(), column.name.lower()

    def _put(self, node: exp.Expr, known: Mapping[tuple[str, str], exp.Expr], *, outputs: bool = False) -> exp.Expr:
        """What stands for a column of the text."""
        if not isinstance(node, exp.Column) or (outputs and self._output(node)):
            return node
        found = known[self._place(node)].copy()
        return found if isinstance(found, exp.Column) else exp.Paren(this=found)

    def _table(self, source: _Source) -> exp.Expr:
        assert source.leaf is not None
        table: exp.Expr = source.leaf.select.args["from_"].this.copy()
        table.set("alias", exp.TableAlias(this=exp.to_identifier(source.alias)))
        return table


def _reads(leaf: _Leaf) -> tuple[object, ...]:
    """What makes two leaves read the same: streams and windows."""
    if leaf.single:
        return leaf.single.lower(), leaf.window
    return leaf.select.args["from_"], tuple(leaf.select.args.get("joins") or ()), leaf.window, leaf.where


def _window(source: _Source) -> exp.Expr:
    assert source.leaf is not None
    assert source.leaf.window is not None
    return source.leaf.window


def _base_of(keys: list[exp.Expr], aggregates: list[exp.Expr], window: exp.Expr) -> exp.Select:
    """A query that groups by a window and keys, without what it reads."""
    base = exp.Select()
    ends = [exp.alias_(exp.column(name), edge) for name, edge in _EDGES.items()]
    named = [exp.alias_(key.copy(), f"_k{number}") for number, key in enumerate(keys)]
    made = [exp.alias_(part.copy(), f"_a{number}") for number, part in enumerate(aggregates)]
    base.set("expressions", [*ends, *named, *made])
    base.set("group", exp.Group(expressions=[window, *(key.copy() for key in keys)]))
    return base


def _groups() -> exp.Table:
    return exp.Table(this=exp.to_identifier(GROUPS, quoted=True))


def _name(item: exp.Expr) -> str:
    """The name of a column of the output."""
    if isinstance(item, exp.Column) and item.table.lower() != "window":
        return str(item.name)
    return str(item.alias or (item.name if isinstance(item, exp.Column) else item.sql(dialect=NovaSql)))


def _number(parts: list[exp.Expr], part: exp.Expr) -> int:
    """The place of a part among others, where it is put if it is new."""
    if part not in parts:
        parts.append(part.copy())
    return parts.index(part)


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    bare = condition.unnest() if isinstance(condition, exp.Paren) else condition
    return [one for part in bare.flatten() for one in _conjuncts(part)] if isinstance(bare, exp.And) else [condition]


def _transformed(part: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy in which the outermost parts that a change knows are others; what is put in is not looked at again."""
    new = change(part)
    if new is not part:
        return new.copy()
    copy = part.copy()
    for child, own in zip(list(part.iter_expressions()), list(copy.iter_expressions()), strict=True):
        own.replace(_transformed(child, change))
    return copy


def _qualified(part: exp.Expr, alias: str) -> exp.Expr:
    """A copy whose columns are those of a stream."""
    copy = part.copy()
    for column in copy.find_all(exp.Column):
        if not isinstance(column.this, exp.Star):
            column.set("table", exp.to_identifier(alias))
    return copy


def _outputs_in(leaf: _Leaf, condition: exp.Expr) -> exp.Expr:
    """A condition of HAVING with the names of the output replaced by what they are."""
    outputs = {item.alias.lower(): item.this for item in leaf.select.expressions if isinstance(item, exp.Alias)}

    def named(node: exp.Expr) -> exp.Expr:
        if is_aggregate(node) or not isinstance(node, exp.Column) or node.table or node in leaf.keys:
            return node
        inside = outputs.get(node.name.lower())
        return node if inside is None else exp.Paren(this=inside.copy())

    return _transformed(condition, named)


def _where(aggregate: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """An aggregate of the rows that satisfy a condition."""
    if condition is None:
        return aggregate.copy()
    if isinstance(aggregate, exp.Filter):
        both = exp.and_(condition.copy(), aggregate.expression.this.copy())
        return exp.Filter(this=aggregate.this.copy(), expression=exp.Where(this=both))
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition.copy()))


def _through(layer: exp.Select, ends: Mapping[str, End]) -> dict[str, End]:
    """Which bounds of the window the columns of a layer are."""
    found: dict[str, End] = {}
    for item in layer.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            found |= ends
            continue
        inside = item.this if isinstance(item, exp.Alias) else item
        end = ends.get(inside.name.lower()) if isinstance(inside, exp.Column) else None
        if end is not None:
            found[item.alias_or_name.lower()] = end
    return found
