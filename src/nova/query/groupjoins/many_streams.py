"""Joins of groups of different streams: tuples are joined on the window and on what the text says of the keys, and
then grouped by the keys of all sides. A pair of groups is joined exactly where a pair of their tuples is; but each
tuple shows up once for each partner, so what is asked of a side beside its keys must not depend on how often: min, max
and DISTINCT."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova.query.dialect import aggregates_in, is_aggregate
from nova.query.groupjoins.parts import (
    EDGES,
    base_of,
    conjuncts,
    groups,
    name_of,
    number_in,
    qualified,
    transformed,
)
from nova.query.groupjoins.sides import Side, end_of, outputs_in, own_window
from nova.query.groupjoins.text import JoinText


class PairedGroups:
    """A join of groups of different streams."""

    def __init__(self, text: JoinText) -> None:
        self.text = text
        self.keys: list[exp.Expr] = []
        self.aggregates: list[exp.Expr] = []

    def made(self) -> tuple[exp.Select, exp.Select]:
        """The query that groups pairs, and the layer over its groups."""
        if left := [join for join in self.text.joins if join.side]:
            raise self.text.wrong(left[0], "groups of different streams are joined by INNER JOIN")
        tuples: dict[tuple[str, str], exp.Expr] = {}
        """By side and name: what a column is, over the tuples; those that are made of keys alone."""
        rows: dict[tuple[str, str], exp.Expr] = {}
        """The same of all columns, over the groups of pairs."""
        checks: list[exp.Expr] = []
        for one in self.text.sides:
            checks += self._side(one, tuples, rows)
        joins, filters = [], []
        where = self.text.select.args.get("where")
        last = conjuncts(None if where is None else where.this)
        for number, join in enumerate(self.text.joins, 1):
            parts = conjuncts(join.args.get("on")) + (last if number == len(self.text.joins) else [])
            checks += [transformed(part, lambda node: self._put(node, rows)) for part in parts]
            known = [part for part in parts if self._of(part, tuples)]
            pushed = [transformed(part, lambda node: self._put(node, tuples)) for part in known]
            joins.append(
                exp.Join(this=self._table(self.text.sides[number]), on=exp.and_(*self._windows(number), *pushed))
            )
        for one in self.text.sides:
            if one.leaf is not None and one.leaf.where is not None:
                filters.append(qualified(one.leaf.where, one.alias))
        base = base_of(self.keys, self.aggregates, exp.column("window_start"))
        base.set("from_", exp.From(this=self._table(self.text.sides[0])))
        base.set("joins", joins)
        base.set("where", exp.Where(this=exp.and_(*filters)) if filters else None)
        layer = exp.Select()
        layer.set("from_", exp.From(this=groups()))
        layer.set(
            "expressions",
            [
                exp.alias_(transformed(item.this, lambda node: self._put(node, rows)), item.alias, quoted=True)
                for item in self.text.select.expressions
            ],
        )
        layer.set("where", exp.Where(this=exp.and_(*checks)) if checks else None)
        for clause in ("group", "having"):
            if (own := self.text.select.args.get(clause)) is not None:
                layer.set(clause, transformed(own, lambda node: self._put(node, rows, outputs=True)))
        return base, layer

    def _side(
        self,
        one: Side,
        tuples: dict[tuple[str, str], exp.Expr],
        rows: dict[tuple[str, str], exp.Expr],
    ) -> list[exp.Expr]:
        """Take in what the columns of a side are; returns what its HAVING asks of the groups of pairs."""
        leaf = one.leaf
        if leaf is None or one.chain or not leaf.single or leaf.window is None:
            raise self.text.wrong(
                one.node,
                "where groups of different streams are joined, each query in brackets reads one stream and groups it "
                "by a window",
            )
        numbers = [number_in(self.keys, qualified(key, one.alias)) for key in leaf.keys]

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                self._refuse_counting(node)
                return exp.column(f"_a{number_in(self.aggregates, qualified(node, one.alias))}")
            if node in leaf.keys:
                return exp.column(f"_k{numbers[leaf.keys.index(node)]}")
            if (end := end_of(self.text.sql, leaf, node)) is not None:
                return exp.column(EDGES[end])
            if isinstance(node, exp.Column):
                raise self.text.wrong(node, f"{node.name} is neither grouped by nor inside an aggregate")
            return node

        for item in leaf.select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            place = one.alias.lower(), name_of(item).lower()
            rows[place] = transformed(inner, replaced)
            edges = any(end_of(self.text.sql, leaf, part) is not None for part in inner.walk())
            if not aggregates_in(inner) and not edges:
                tuples[place] = qualified(inner, one.alias)
        having = leaf.select.args.get("having")
        return [] if having is None else [transformed(outputs_in(leaf, having.this), replaced)]

    def _refuse_counting(self, aggregate: exp.Expr) -> None:
        """Refuse an aggregate that depends on how often a row comes."""
        bare = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        if not isinstance(bare, exp.Min | exp.Max) and not isinstance(bare.this, exp.Distinct):
            raise self.text.wrong(
                aggregate,
                "where groups of different streams are joined, they have min, max and DISTINCT aggregates alone: a "
                "tuple comes once for each partner",
            )

    def _windows(self, number: int) -> list[exp.Expr]:
        """That a side lies in the same window as those before it which the text names."""
        source = self.text.sides[number]
        found: list[exp.Expr] = []
        where = self.text.select.args.get("where")
        parts = [part for join in self.text.joins for part in conjuncts(join.args.get("on"))]
        parts += conjuncts(None if where is None else where.this)
        for other in self.text.sides[:number]:
            if any(self.text.in_one_window(part, source, [other]) for part in parts):
                sides = [qualified(own_window(one), one.alias) for one in (other, source)]
                found.append(exp.EQ(this=sides[0], expression=sides[1]))
        return found

    def _of(self, part: exp.Expr, known: Mapping[tuple[str, str], exp.Expr]) -> bool:
        """Whether a condition looks at known columns alone, and at some."""
        places = [self._place(column) for column in part.find_all(exp.Column)]
        return bool(places) and all(place in known for place in places)

    def _place(self, column: exp.Column) -> tuple[str, str]:
        return self.text.owner(column).alias.lower(), column.name.lower()

    def _put(self, node: exp.Expr, known: Mapping[tuple[str, str], exp.Expr], *, outputs: bool = False) -> exp.Expr:
        """What stands for a column of the text."""
        if not isinstance(node, exp.Column) or (outputs and self.text.is_output(node)):
            return node
        found = known[self._place(node)].copy()
        return found if isinstance(found, exp.Column) else exp.Paren(this=found)

    def _table(self, source: Side) -> exp.Expr:
        assert source.leaf is not None
        table: exp.Expr = source.leaf.select.args["from_"].this.copy()
        table.set("alias", exp.TableAlias(this=exp.to_identifier(source.alias)))
        return table
