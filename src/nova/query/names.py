"""Names: the streams and queries in brackets that a text reads, and whose column each name is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from nova.query.dialect import BOUNDS, SqlFault, fault
from nova.query.statement import ROLES, Schema


class Names:
    """What names mean in one SELECT."""

    def __init__(self, sql: str, known: Mapping[str, Schema]) -> None:
        self.sql, self.known = sql, known
        self.streams: dict[str, str] = {}
        """Alias → stream, as they are read."""
        self.schemas: dict[str, Schema] = {}
        """By alias."""
        self.views: dict[str, dict[str, exp.Expr]] = {}
        """By alias of a query in brackets: what its columns are, over those of its stream."""
        self.missing: set[str] = set()
        """Streams that a row of the join may be without."""

    def wrong(self, node: object, message: str) -> SqlFault:
        return fault(self.sql, node, message)

    def add(self, node: exp.Expr, alias: str, stream: str, schema: Schema) -> None:
        """Take in one more stream under a name of its own."""
        if alias.lower() in map(str.lower, self.streams):
            raise self.wrong(node, f"two streams are called {alias}: give one of them another name with AS")
        self.streams[alias], self.schemas[alias] = stream, schema

    def owners(self, name: str) -> list[str]:
        """The streams that have such a column."""
        return [alias for alias in self.streams if self.column_of(alias, name) is not None]

    def column_of(self, alias: str, name: str) -> str | None:
        """The name here of a stream's column; None where it has no such column."""
        schema = self.schemas[alias]
        if (view := self.views.get(alias)) is not None:
            role = schema.roles.get(one_of(name, schema.roles) or "", "")
            return one_of(name, view) or (role if view.get(role) == exp.column(role, table=alias) else None)
        found = one_of(name, dict.fromkeys((*schema.roles, *ROLES, *schema.columns, *schema.attributes)))
        if found is None:
            return None if schema.known else name
        return schema.roles.get(found, found)

    def columns(self, alias: str) -> list[str]:
        """Names that a text may use for the columns of a stream."""
        schema = self.schemas[alias]
        return list(self.views.get(alias, dict.fromkeys((*ROLES, *schema.columns, *schema.attributes))))

    def viewed(self, alias: str, name: str) -> exp.Expr:
        """What a column of a query in brackets is; where the join has no row of it, null."""
        part = self.views[alias][name].copy()
        if isinstance(part, exp.Column):
            return part
        if alias in self.missing:
            there = exp.Not(this=exp.Is(this=exp.column("time", table=alias), expression=exp.Null()))
            return exp.Paren(this=exp.Case(ifs=[exp.If(this=there, true=part)]))
        return exp.Paren(this=part)

    def resolved(self, node: exp.Expr, *, bounds: bool = False) -> exp.Expr:
        """A copy in which every column carries the alias of its stream."""
        copy = node.copy()
        for column in list(copy.find_all(exp.Column)):
            name, alias = column.name, column.table
            if isinstance(column.this, exp.Star):
                continue
            if not alias:
                owners = self.owners(name)
                if not owners and bounds and name in BOUNDS:
                    continue
                if len(owners) > 1:
                    raise self.wrong(
                        column, f"{name} is a column of {listed(owners)}: say which, as {owners[0]}.{name}"
                    )
                alias = owners[0] if owners else ""
            else:
                called = one_of(alias, self.streams)
                if called is None:
                    raise self.wrong(column, f"no stream is called {alias} here; there are {listed(self.streams)}")
                alias = called
            found = self.column_of(alias, name) if alias else None
            if found is None:
                every = [alias] if alias else list(self.streams)
                names = dict.fromkeys(one for a in every for one in self.columns(a))
                raise self.wrong(column, f"no such column; there are {listed(names)}")
            if alias in self.views:
                inside = self.viewed(alias, found)
                copy = inside if column is copy else copy
                column.replace(inside)
                continue
            starts = [part.meta["start"] for part in column.walk() if "start" in part.meta]
            column.set("this", exp.to_identifier(found))
            column.set("table", exp.to_identifier(alias))
            if starts:
                column.this.meta["start"] = min(starts)
        return copy


def one_of(name: str, names: Iterable[str]) -> str | None:
    """The name as it is written among others: itself, or the only one that differs in upper and lower case alone."""
    every = list(names)
    if name in every:
        return name
    like = [one for one in every if one.lower() == name.lower()]
    return like[0] if len(like) == 1 else None


def listed(names: object) -> str:
    """Names for a message."""
    return ", ".join(map(str, names))  # type: ignore[call-overload]
