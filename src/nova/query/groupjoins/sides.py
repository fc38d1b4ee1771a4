"""Sides of a join of groups: streams, and queries in brackets that group a stream by a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from nova.query.dialect import BOUNDS, fault, is_aggregate
from nova.query.groupjoins.parts import name_of, transformed
from nova.query.layers import check_clauses, check_layer, read_by
from nova.query.spellings import window_of

End: TypeAlias = Literal["window_start", "window_end"]


@dataclass
class Leaf:
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

    @property
    def reads(self) -> tuple[object, ...]:
        """What makes two of them read the same: streams and windows."""
        if self.single:
            return self.single.lower(), self.window
        return self.select.args["from_"], tuple(self.select.args.get("joins") or ()), self.window, self.where


@dataclass
class Side:
    """One side of the join."""

    alias: str
    node: exp.Expr
    leaf: Leaf | None
    """None: a stream itself."""
    chain: list[exp.Select] = field(default_factory=list)
    """SELECTs around the leaf, from the inside out."""
    names: list[str] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    """By name in lower case: which bound of the window a column is."""


def side_of(sql: str, node: exp.Expr) -> Side:
    """What a FROM or JOIN names, as a side of the join. Raises `SqlFault`."""
    inner = select_in(node)
    if inner is None:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise fault(sql, node, "a stream, or a query in brackets that groups by a window, expected")
        return Side(node.alias or node.name, node, None)
    if not node.alias or node.args["alias"].args.get("columns"):
        raise fault(sql, node, "give the query in brackets a name with AS, and name its columns inside")
    chain: list[exp.Select] = []
    while (below := read_by(inner)) is not None:
        check_clauses(sql, inner, below)
        chain.insert(0, inner)
        inner = below
    check_clauses(sql, inner, None)
    if inner.args.get("group") is None:
        message = "a query in brackets that is joined with groups groups by a window, too, or is a stream's name"
        raise fault(sql, node, message)
    leaf = _leaf(sql, inner)
    found = Side(node.alias, node, leaf, chain)
    for item in leaf.select.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise fault(sql, item, "name the columns: * of groups is not known")
        end = end_of(sql, leaf, item.this if isinstance(item, exp.Alias) else item)
        name = name_of(item)
        found.names.append(name)
        if end is not None:
            found.ends[name.lower()] = end
    for layer in chain:
        names, _ = check_layer(sql, layer, found.names, set(found.ends))
        found.ends = ends_through(layer, found.ends)
        found.names = names
    return found


def _leaf(sql: str, select: exp.Select) -> Leaf:
    """A SELECT that reads streams and groups by a window."""
    leaf = Leaf(select, None, [], None)
    if name := leaf.single:  # with one stream its name says nothing, so that texts can be compared
        called = {name.lower(), (select.args["from_"].this.alias or name).lower()}
        for column in select.find_all(exp.Column):
            if column.table.lower() in called:
                column.set("table", None)
    where = select.args.get("where")
    leaf.where = None if where is None else where.this
    group = select.args["group"]
    if more := [clause for clause, value in group.args.items() if value and clause != "expressions"]:
        raise fault(
            sql, group, f"GROUP BY {more[0].upper()} is not part of the dialect: list a window and keys", "GROUP"
        )
    outputs = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    bounded = False
    for part in group.expressions:
        if isinstance(part, exp.Anonymous) and str(part.this).upper() in ("TUMBLE", "HOP", "WINDOW"):
            if leaf.window is not None:
                raise fault(sql, part, "GROUP BY has one window")
            leaf.window = part
        elif isinstance(part, exp.Column) and not part.table and part.name.lower() in BOUNDS:
            bounded = True
        else:
            other = outputs.get(part.name.lower()) if isinstance(part, exp.Column) and not part.table else None
            if other is not None and other != part:
                raise fault(sql, part, f"{part.name} is computed in SELECT: write in GROUP BY what it is")
            leaf.keys.append(part)
    if leaf.window is None and not (bounded and select.args.get("joins")):
        raise fault(sql, group, "GROUP BY needs a window, such as TUMBLE(x.time, INTERVAL '10' SECOND)", "GROUP")
    return leaf


def end_of(sql: str, leaf: Leaf, part: exp.Expr) -> End | None:
    """Which bound of its window an expression of a leaf is."""
    if isinstance(part, exp.Paren):
        return end_of(sql, leaf, part.this)
    if isinstance(part, exp.Column):
        table, name = part.table.lower(), part.name.lower()
        if not table and name in BOUNDS:
            return name  # type: ignore[return-value]
        return f"window_{name}" if table == "window" and name in ("start", "end") else None  # type: ignore[return-value]
    window = window_of(part)
    if window is None:
        return None
    if window != leaf.window:
        raise fault(sql, part, "GROUP BY has another window than this; select window_start and window_end")
    last = part.expression.name if isinstance(part, exp.Dot) else str(part.this).rpartition("_")[2]
    return f"window_{last.lower()}"  # type: ignore[return-value]


def select_in(node: object) -> exp.Select | None:
    """The SELECT of a query in brackets; None where it is none."""
    found = node.this if isinstance(node, exp.Subquery) else None
    return found if isinstance(found, exp.Select) else None


def own_window(source: Side) -> exp.Expr:
    """The window that a side groups by."""
    assert source.leaf is not None
    assert source.leaf.window is not None
    return source.leaf.window


def outputs_in(leaf: Leaf, condition: exp.Expr) -> exp.Expr:
    """A condition of HAVING with the names of the output replaced by what they are."""
    outputs = {item.alias.lower(): item.this for item in leaf.select.expressions if isinstance(item, exp.Alias)}

    def named(node: exp.Expr) -> exp.Expr:
        if is_aggregate(node) or not isinstance(node, exp.Column) or node.table or node in leaf.keys:
            return node
        inside = outputs.get(node.name.lower())
        return node if inside is None else exp.Paren(this=inside.copy())

    return transformed(condition, named)


def ends_through(layer: exp.Select, ends: Mapping[str, End]) -> dict[str, End]:
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
