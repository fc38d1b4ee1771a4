"""Stages: a join of several streams as two-way joins, each a statement of its own that reads what others make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from nova.model.operators import Tree
from nova.query.dialect import fault
from nova.query.order import aliases_of, link, window_start
from nova.query.statement import Group, Join, Key, Schema, Statement
from nova.query.windows import Interval, Tumbling


@dataclass(frozen=True)
class Stage:
    """A two-way join of a query."""

    statement: Statement
    """Its streams are those of the text, or, called `⋈` and a number, what the stage of that number makes."""
    streams: frozenset[str] = frozenset()
    """All streams of the text that are joined once it is done."""
    time: str = ""
    """What the next join takes as event time, over joined rows; empty for the last stage."""
    spread_us: int = 0
    """How far the times of the streams in its input may lie apart."""


def stages_of(statement: Statement, tree: Tree) -> list[Stage]:
    """The two-way joins of a tree, those that others read first; the last one has the text's output.

    A stream that a stage makes has the columns `<alias>_<column>` of all that later stages need.
    """
    if len(statement.joins) <= 1:
        return [Stage(statement, frozenset(statement.streams))]
    sliding = {join.window for join in statement.joins if isinstance(join.window, Tumbling)}
    mixed = len(sliding) > 1 or any(isinstance(join.window, Interval) for join in statement.joins)
    if mixed and any(one.size_us != one.slide_us for one in sliding):
        message = "sliding windows are the same in every join of a query, or there are none"
        raise fault(statement.sql, exp.Null(), message, "HOP")
    found: list[Stage] = []
    _Builder(statement, found).build(tree, _output(statement), statement.group, statement.having, "")
    return found


def _output(statement: Statement) -> tuple[tuple[str, exp.Expr], ...]:
    """The columns of the result; bounds of windows told by a stream's time, as the last join may be any."""
    last = next((join for join in reversed(statement.joins) if isinstance(join.window, Tumbling)), None)
    if statement.group is not None or last is None:
        return statement.select
    window = last.window
    assert isinstance(window, Tumbling)
    if window.size_us != window.slide_us:
        return statement.select
    start = window_start(_moment(last), window)

    def bound(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table:
            return node
        length = exp.Interval(this=exp.Literal.string(str(window.size_us)), unit=exp.Var(this="MICROSECOND"))
        return start.copy() if node.name == "window_start" else exp.Add(this=start.copy(), expression=length)

    return tuple((name, part.transform(bound)) for name, part in statement.select)


def _moment(join: Join) -> exp.Expr:
    """A time of a joined row that tells its window, also where one side is missing."""
    own = exp.column("time", table=join.alias)
    if join.kind in ("inner", "right"):
        return own
    other = exp.column("time", table=next(one for one in join.same[0] if one != join.alias))
    return other if join.kind == "left" else exp.Coalesce(this=other, expressions=[own])


class _Builder:
    def __init__(self, statement: Statement, found: list[Stage]) -> None:
        self.whole, self.found = statement, found

    def build(
        self,
        tree: Tree,
        select: tuple[tuple[str, exp.Expr], ...],
        group: Group | None,
        having: exp.Expr | None,
        time: str,
    ) -> str:
        """Add the stages of a tree, last its own with this output; returns the name of the stream it is. `time`: the
        stream whose event time is that of the rows."""
        if isinstance(tree, str):
            return tree
        sides = aliases_of(tree[0]), aliases_of(tree[1])
        found = link(self.whole, *sides)
        assert found is not None
        join = found.join
        if group is not None and group.time is None:
            group = self._by_time(group)
        parts = [part for _, part in select] + [part for key in join.keys for part in (key.left, key.right)]
        parts += join.residual
        parts += [] if group is None else [*group.keys, *([group.time] if group.time is not None else [])]
        parts += [having] if having is not None else []
        where = () if time else self.whole.where
        parts += where
        parts += [exp.column("time", table=time)] if time else []
        begun = len(self.found)
        names = [
            self.build(child, self._carried(parts, side), None, None, end)
            for child, side, end in zip(tree, sides, found.ends, strict=True)
        ]
        inside = _Inside({alias: name for name, side in zip(names, sides, strict=True) for alias in side})
        window = join.window
        if isinstance(window, Interval):
            window = replace(window, first=inside.names[window.first], second=inside.names[window.second])
        keys = tuple(Key(inside.of(key.left), inside.of(key.right)) for key in join.keys)
        statement = replace(
            self.whole,
            streams={name: self.whole.streams.get(name, name) for name in names},
            schemas={name: self._schema(name, side, parts) for name, side in zip(names, sides, strict=True)},
            filters={name: self.whole.filters.get(name, ()) for name in names},
            joins=(Join(join.kind, names[1], keys, window, tuple(map(inside.of, join.residual))),),
            where=tuple(map(inside.of, where)),
            select=tuple((name, inside.of(part)) for name, part in select),
            group=None
            if group is None
            else replace(
                group,
                keys=tuple(map(inside.of, group.keys)),
                time=None if group.time is None else inside.of(group.time),
            ),
            having=None if having is None else inside.of(having),
        )
        spread = sum(apart_us(stage.statement.joins[0]) for stage in self.found[begun:])
        self.found.append(
            Stage(statement, sides[0] | sides[1], time and self._time(time, window, statement, inside), spread)
        )
        return f"⋈{len(self.found)}"

    def _by_time(self, group: Group) -> Group:
        """A group by the join's own window as one by the window of a stream's time; sliding ones stay."""
        if group.window.size_us != group.window.slide_us:
            return group
        last = next(join for join in reversed(self.whole.joins) if join.window == group.window)
        return replace(group, time=_moment(last))

    def _carried(self, parts: Iterable[exp.Expr], side: frozenset[str]) -> tuple[tuple[str, exp.Expr], ...]:
        """The columns of some streams that expressions look at; attributes of sources travel with the sources."""
        needed = {(c.table, c.name) for part in parts for c in part.find_all(exp.Column) if c.table in side}
        return tuple(
            (f"{alias}_{name}", exp.column(name, table=alias))
            for alias, name in sorted(needed)
            if not self._attribute(alias, name)
        )

    def _attribute(self, alias: str, name: str) -> bool:
        schema = self.whole.schemas[alias]
        return name not in schema.columns and name in schema.attributes

    def _schema(self, name: str, side: frozenset[str], parts: Iterable[exp.Expr]) -> Schema:
        if name in self.whole.schemas:
            return self.whole.schemas[name]
        columns = {
            label: self.whole.schemas[part.table].columns.get(part.name)
            for label, part in self._carried(parts, side)
            if isinstance(part, exp.Column)
        }
        attributes = {
            f"{alias}_{one}": count for alias in side for one, count in self.whole.schemas[alias].attributes.items()
        }
        return Schema(columns, attributes, made=True)

    def _time(self, alias: str, window: Tumbling | Interval, statement: Statement, inside: _Inside) -> str:
        """The event time of a joined row: that of a stream, or in sliding windows the one that tells its window."""
        if isinstance(window, Tumbling) and window.size_us != window.slide_us:
            return "left_time"
        name = inside.names[alias]
        side = "left" if name == next(iter(statement.streams)) else "right"
        if name != alias:
            return f"`{side}_{alias}_time`"
        copied = side == "right" and isinstance(window, Interval)
        return f"{side}__time" if copied else f"{side}_time"


class _Inside:
    """Expressions over the streams of the text as expressions over those of a stage."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def of(self, part: exp.Expr) -> exp.Expr:
        return part.transform(self._column)

    def _column(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or not node.table or self.names[node.table] == node.table:
            return node
        found = exp.column(f"{node.table}_{node.name}", table=self.names[node.table])
        found.this.meta.update(node.this.meta)
        return found


def apart_us(join: Join) -> int:
    """How far the times of a joined pair lie apart at most, in µs."""
    window = join.window
    return max(abs(window.low_us), abs(window.high_us)) if isinstance(window, Interval) else window.size_us
