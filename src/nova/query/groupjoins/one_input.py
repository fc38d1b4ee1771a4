"""Joins of groups that all read the same: one query makes the finest groups that any of them needs, and the join of
their groups is a layer over them, once for each window. A stream itself may be one of the sides; its tuples are groups
of all columns that the text looks at, with their number."""

from __future__ import annotations

from sqlglot import exp

from nova.query.dialect import is_aggregate
from nova.query.groupjoins.parts import (
    EDGES,
    END,
    START,
    base_of,
    conjuncts,
    groups,
    name_of,
    number_in,
    transformed,
    where_too,
)
from nova.query.groupjoins.sides import Leaf, Side, end_of, outputs_in
from nova.query.groupjoins.text import JoinText
from nova.query.windows import length_us

_COUNT = "_n"
_AGAIN: dict[type[exp.Expr], type[exp.AggFunc]] = {
    exp.Count: exp.Sum,
    exp.Sum: exp.Sum,
    exp.Min: exp.Min,
    exp.Max: exp.Max,
}
"""Aggregates of fine groups, and what makes those of coarser ones of them."""


class FinestGroups:
    """A join of groups of one input."""

    def __init__(self, text: JoinText, first: Leaf) -> None:
        self.text, self.first = text, first
        self.raw = [one for one in text.sides if one.leaf is None]
        self.keys: list[exp.Expr] = []
        self.aggregates: list[exp.Expr] = []

    def made(self) -> tuple[exp.Select, exp.Select]:
        """The query that groups, and the layer over its groups."""
        text, first, raw = self.text, self.first, self.raw
        leaves = [one.leaf for one in self.text.sides if one.leaf is not None]
        if raw and (len(self.text.sides) > 2 or self.text.joins[0].side):
            raise self.text.wrong(raw[0].node, "a stream is joined with one query that groups it, by INNER JOIN")
        time = None if first.window is None else first.window.expressions[0]
        looked = {one.alias: self._looked_at(one) for one in raw}
        for one in raw:
            self._tie_to_window(one, first)
        for part in [key for leaf in leaves for key in leaf.keys] + [one for few in looked.values() for one in few]:
            number_in(self.keys, part)
        if raw and time is not None:
            number_in(self.keys, time)
        filtered = bool(raw) or any(leaf.where != first.where for leaf in leaves)
        for one in self.text.sides:
            below = (
                self._tuples(looked[one.alias])
                if one.leaf is None
                else self._over_groups(one.leaf, filtered, time if raw else None)
            )
            if one.chain:
                one.chain[0].args["from_"].this.set("this", below)
                below = one.chain[-1]
            one.node.replace(exp.Subquery(this=below, alias=exp.TableAlias(this=exp.to_identifier(one.alias))))
        return self._base(first, None if filtered else first.where), text.select

    def _looked_at(self, raw: Side) -> list[exp.Expr]:
        """The columns of a stream that the text looks at."""
        found: dict[str, exp.Expr] = {}
        for part in self.text.parts():
            for column in part.find_all(exp.Column):
                if isinstance(part, exp.Group | exp.Having) and self.text.is_output(column):
                    continue
                if self.text.owner(column) is raw:
                    bare = exp.Column(this=column.this.copy())
                    found.setdefault(column.name.lower(), bare)
        return list(found.values())

    def _tie_to_window(self, raw: Side, leaf: Leaf) -> None:
        """Add that a tuple meets the groups of its own window, where the text's conditions on its time imply that."""
        assert leaf.window is not None
        lengths = [length_us(self.text.sql, one) for one in leaf.window.expressions[1:]]
        size = lengths[-1] if str(leaf.window.this).upper() == "HOP" else lengths[0]
        where = self.text.select.args.get("where")
        parts = [part for join in self.text.joins for part in conjuncts(join.args.get("on"))]
        parts += conjuncts(None if where is None else where.this)
        for other in (one for one in self.text.sides if one.leaf is not None):
            low = high = False
            for part in parts:
                for after, offset in self._relative(part, raw, other, size):
                    low |= after and offset >= 0
                    high |= not after and offset <= size
            if low and high:
                end = next(iter(other.ends.items()))
                tied = exp.EQ(
                    this=exp.column(EDGES[end[1]], table=raw.alias), expression=exp.column(end[0], table=other.alias)
                )
                condition = tied if where is None else exp.and_(where.this, tied, copy=False)
                self.text.select.set("where", exp.Where(this=condition))
                return
        raise self.text.wrong(
            raw.node,
            f"a stream is joined with groups of its own windows: add WHERE {raw.alias}.time >= window_start AND "
            f"{raw.alias}.time < window_end, by the names that the query inside gives them",
        )

    def _relative(self, part: exp.Expr, raw: Side, other: Side, size: int) -> list[tuple[bool, int]]:
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
            if isinstance(mine, exp.Column) and self.text.owner(mine) is raw and self._is_time(raw, mine.name):
                offset = self._offset(theirs.unnest(), other, size)
                if offset is not None:
                    return [(isinstance(part, exp.GT | exp.GTE) != turned, offset)]
        return []

    def _is_time(self, raw: Side, name: str) -> bool:
        roles = {one.lower(): role for one, role in self.text.schema(raw).roles.items()}
        columns = {one.lower() for one in self.text.schema(raw).columns}
        return roles.get(name.lower(), name.lower() if name.lower() not in columns else "") == "time"

    def _offset(self, node: exp.Expr, other: Side, size: int) -> int | None:
        """A bound of a window, plus or minus a fixed time, in µs from the window's start."""
        if isinstance(node, exp.Column):
            end = other.ends.get(node.name.lower()) if self.text.owner(node) is other else None
            return None if end is None else (0 if end == "window_start" else size)
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            inner = self._offset(node.this.unnest(), other, size)
            length = length_us(self.text.sql, node.expression)
            return None if inner is None else inner + (length if isinstance(node, exp.Add) else -length)
        return None

    def _tuples(self, columns: list[exp.Expr]) -> exp.Select:
        """A stream's tuples, of the groups of its columns: each as often as it came."""
        items = [
            exp.alias_(exp.column(f"_k{self.keys.index(one)}"), one.name, quoted=True, copy=False) for one in columns
        ]
        count = self._aggregate(exp.Count(this=exp.Star()))
        copies = exp.func("explode", exp.func("array_repeat", exp.Literal.number(0), exp.cast(count, "int")))
        edges = [exp.column(START), exp.column(END)]
        return exp.select(*items, *edges, exp.alias_(copies, _COUNT)).from_(groups())

    def _over_groups(self, leaf: Leaf, filtered: bool, time: exp.Expr | None) -> exp.Select:
        """A leaf as a query over the finest groups. `filtered`: its conditions are part of its aggregates. `time`: the
        windows have both ends, and this is the time that must lie before the later one."""
        coarse = any(key not in leaf.keys for key in self.keys)
        condition = leaf.where if filtered else None

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                whole = where_too(node, condition)
                return self._merged(whole) if coarse else self._aggregate(whole)
            if node in leaf.keys:
                return exp.column(f"_k{self.keys.index(node)}")
            if (end := end_of(self.text.sql, leaf, node)) is not None:
                return exp.column(EDGES[end])
            if isinstance(node, exp.Column):
                raise self.text.wrong(node, f"{node.name} is neither grouped by nor inside an aggregate")
            return node

        items = []
        for item in leaf.select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            items.append(exp.alias_(transformed(inner, replaced), name_of(item), quoted=True, copy=False))
        found = exp.select(*items).from_(groups())
        if time is not None:
            found = found.where(
                exp.LT(this=exp.column(f"_k{self.keys.index(time)}"), expression=exp.column(END)), copy=False
            )
        if condition is not None:
            came = self._aggregate(where_too(exp.Count(this=exp.Star()), condition))
            found = found.where(exp.GT(this=came, expression=exp.Literal.number(0)), copy=False)
        having = leaf.select.args.get("having")
        kept = None if having is None else transformed(outputs_in(leaf, having.this), replaced)
        if coarse:
            keys = [exp.column(f"_k{self.keys.index(key)}") for key in leaf.keys]
            found = found.group_by(exp.column(START), exp.column(END), *keys, copy=False)
            return found if kept is None else found.having(kept, copy=False)
        return found if kept is None else found.where(kept, copy=False)

    def _aggregate(self, part: exp.Expr) -> exp.Column:
        return exp.column(f"_a{number_in(self.aggregates, part)}")

    def _merged(self, whole: exp.Expr) -> exp.Expr:
        """An aggregate of coarse groups, of those of fine ones."""
        bare = whole.this if isinstance(whole, exp.Filter) else whole

        def fine(kind: type[exp.AggFunc]) -> exp.Expr:
            made = kind(this=bare.this.copy())
            return exp.Filter(this=made, expression=whole.expression.copy()) if bare is not whole else made

        plain = not isinstance(bare.this, exp.Distinct) and not bare.expressions
        if isinstance(bare, exp.Avg) and plain:
            total, count = (exp.Sum(this=self._aggregate(fine(kind))) for kind in (exp.Sum, exp.Count))
            return exp.Paren(this=exp.Div(this=total, expression=count, typed=False, safe=True))
        again = _AGAIN.get(type(bare))
        if again is None or not plain:
            raise self.text.wrong(
                whole,
                "where groups of different keys are joined, those with fewer keys have count, sum, avg, min and max "
                "alone",
            )
        return again(this=self._aggregate(whole))

    def _base(self, leaf: Leaf, where: exp.Expr | None) -> exp.Select:
        """The query that makes the finest groups."""
        window = exp.column("window_start") if leaf.window is None else leaf.window.copy()
        base = base_of(self.keys, self.aggregates, window)
        base.set("from_", leaf.select.args["from_"].copy())
        base.set("joins", [join.copy() for join in leaf.select.args.get("joins") or ()])
        base.set("where", None if where is None else exp.Where(this=where.copy()))
        return base
