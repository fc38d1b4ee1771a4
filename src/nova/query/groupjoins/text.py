"""The text around a join of groups: its sides, whose column each name is, and that pairs lie in one window."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova.query.dialect import SqlFault, aggregates_in, fault
from nova.query.groupjoins.parts import conjuncts, name_of
from nova.query.groupjoins.sides import Side, side_of
from nova.query.layers import by_window
from nova.query.statement import Schema


class JoinText:
    """A SELECT that joins groups."""

    def __init__(self, sql: str, select: exp.Select, streams: Mapping[str, Schema]) -> None:
        self.sql, self.select, self.streams = sql, select.copy(), streams
        self.joins: list[exp.Join] = list(self.select.args["joins"])
        self.sides = [side_of(sql, one.this) for one in (self.select.args["from_"], *self.joins)]
        for number, one in enumerate(self.sides):
            if one.alias.lower() in (other.alias.lower() for other in self.sides[:number]):
                raise self.wrong(one.node, f"two queries are called {one.alias}: give one another name with AS")
        self._expand_stars()
        self._check()

    def wrong(self, node: object, message: str, token: str = "") -> SqlFault:  # nosec B107
        return fault(self.sql, node, message, token)

    def owner(self, column: exp.Column) -> Side:
        """Whose column it is."""
        if column.table:
            for one in self.sides:
                if one.alias.lower() == column.table.lower():
                    if one.leaf is not None and column.name.lower() not in map(str.lower, one.names):
                        raise self.wrong(column, f"no such column; {one.alias} has {', '.join(one.names)}")
                    return one
            every = ", ".join(one.alias for one in self.sides)
            raise self.wrong(column, f"nothing is called {column.table} here; there are {every}")
        name = column.name.lower()
        owners = [one for one in self.sides if one.leaf is not None and name in map(str.lower, one.names)]
        owners += [one for one in self.sides if one.leaf is None and self._has(one, name, bool(owners))]
        if len(owners) != 1:
            raise self.wrong(
                column,
                "say whose column it is, as in " + f"{owners[0].alias}.{column.name}" if owners else "no such column",
            )
        return owners[0]

    def _has(self, raw: Side, name: str, others: bool) -> bool:
        """Whether a stream has such a column; where that is not known, if nobody else has."""
        schema = self.schema(raw)
        if not schema.known:
            return not others
        return name in map(str.lower, ("source", "time", "value", *schema.roles, *schema.columns))

    def schema(self, raw: Side) -> Schema:
        """What is known about a stream that is a side itself."""
        for name, schema in self.streams.items():
            if name.lower() == raw.node.name.lower():
                return schema
        raise self.wrong(raw.node, f"no such stream; the streams are {', '.join(self.streams)}")

    def _expand_stars(self) -> None:
        """`*` and `x.*` as the columns that they are, and a name for every column of the output."""
        counts: dict[str, int] = {}
        for one in self.sides:
            for name in one.names:
                counts[name.lower()] = counts.get(name.lower(), 0) + 1
        items: list[exp.Expr] = []
        for item in self.select.expressions:
            star = isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
            if not star:
                named = item if isinstance(item, exp.Alias) else None
                items.append(named or exp.alias_(item.copy(), name_of(item), quoted=True, copy=False))
                continue
            inside = item.this if isinstance(item, exp.Column) else item
            of = [one for one in self.sides if item.alias_or_name in ("", "*") or not item.table]
            if isinstance(item, exp.Column) and item.table:
                of = [one for one in self.sides if one.alias.lower() == item.table.lower()]
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

    def _check(self) -> None:
        """Each side meets another one in the same window, and what is asked of the pairs looks at one window."""
        for number, join in enumerate(self.joins, 1):
            side, kind = join.side.upper(), join.kind.upper()
            if join.args.get("method") or side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER", "CROSS"):
                raise self.wrong(join, "groups are joined by INNER or LEFT JOIN")
            if join.args.get("using"):
                raise self.wrong(join.args["using"][0], "ON expected where groups are joined")
            if self.sides[number].leaf is None or self.sides[0].leaf is None:
                continue
            where = self.select.args.get("where") if side == "" else None
            parts = conjuncts(join.args.get("on")) + conjuncts(None if where is None else where.this)
            before = self.sides[:number]
            if not any(self.in_one_window(part, self.sides[number], before) for part in parts):
                raise self.wrong(
                    join.this if not isinstance(join.this, exp.Subquery) else join,
                    f"groups are joined within one window: add ON {self.sides[number].alias}.window_start = "
                    f"{before[0].alias}.window_start, by the names that the queries inside give it",
                )
        for part in self.parts():
            for column in part.find_all(exp.Column):
                if isinstance(part, exp.Group | exp.Having) and self.is_output(column):
                    continue
                self.owner(column)
        bounds = self._is_bound
        for one in (one for part in self.parts() for one in part.find_all(exp.Window)):
            if not any(bounds(key) for key in one.args.get("partition_by") or ()):
                raise self.wrong(one, by_window("PARTITION BY", self._bound_names()))
        group = self.select.args.get("group")
        found = [one for part in self.parts() for one in aggregates_in(part)]
        found = [one for one in found if not isinstance(one.parent, exp.Window)]
        if group is not None and not any(bounds(key) for key in group.expressions):
            raise self.wrong(group, by_window("GROUP BY", self._bound_names()), "GROUP")
        if group is None and found:
            raise self.wrong(found[0], by_window("GROUP BY", self._bound_names()))

    def parts(self) -> list[exp.Expr]:
        """What it asks for and of what, without the queries in brackets."""
        parts = [*self.select.expressions, *(join.args["on"] for join in self.joins if join.args.get("on"))]
        return parts + [self.select.args[name] for name in ("where", "group", "having") if self.select.args.get(name)]

    def is_output(self, column: exp.Column) -> bool:
        """Whether a name may be that of a column of the output."""
        return not column.table and column.name.lower() in {item.alias.lower() for item in self.select.expressions}

    def _optional(self, source: Side) -> bool:
        """Whether a row may be without this side."""
        number = self.sides.index(source)
        return number > 0 and self.joins[number - 1].side.upper() == "LEFT"

    def _is_bound(self, part: exp.Expr) -> bool:
        """Whether a column of the text is a bound of its row's window, and never null."""
        if not isinstance(part, exp.Column) or (
            self.is_output(part) and not any(part.name.lower() in map(str.lower, one.names) for one in self.sides)
        ):
            return False
        owner = self.owner(part)
        return part.name.lower() in owner.ends and not self._optional(owner)

    def _bound_names(self) -> set[str]:
        return {f"{one.alias}.{name}" for one in self.sides for name in one.ends if not self._optional(one)}

    def in_one_window(self, part: exp.Expr, source: Side, before: list[Side]) -> bool:
        """Whether a condition says that a side lies in the same window as one before it."""
        if not isinstance(part, exp.EQ) or not all(isinstance(side, exp.Column) for side in part.unnest_operands()):
            return False
        sides = [(self.owner(side), side.name.lower()) for side in part.unnest_operands()]  # type: ignore[arg-type]
        ends = [owner.ends.get(name) for owner, name in sides]
        owners = [owner for owner, _ in sides]
        return (
            ends[0] is not None
            and ends[0] == ends[1]
            and any(one is source for one in owners)
            and any(one is other for one in owners for other in before)
        )

    def outcome(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Columns of the output, and those of them that are bounds of the window, in lower case."""
        names = tuple(item.alias for item in self.select.expressions)
        bounds = frozenset(item.alias.lower() for item in self.select.expressions if self._is_bound(item.this))
        return names, bounds
