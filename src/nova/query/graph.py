"""Graph: the operators of a query with the rates between them."""

from __future__ import annotations

from collections.abc import Mapping

from nova.model.operators import Estimate, Operator, OperatorGraph, Tree
from nova.query import rates
from nova.query.dialect import NovaSql
from nova.query.layers import own_parts
from nova.query.order import aliases_of, link
from nova.query.statement import Join, Statement


def build_graph(
    query: str, statement: Statement, given: Mapping[str, float], stated: Mapping[str, float], tree: Tree | None = None
) -> OperatorGraph:
    """The operators of a statement, joins in the order of the tree, or as they are written.

    `given` holds the tuples/s of each stream, `stated` what the user says about selectivities: by alias, `join`,
    `group`.
    """
    made: list[Operator] = []

    def add(operator: Operator) -> int:
        made.append(operator)
        return len(made) - 1

    heads: dict[str, int] = {}
    for alias, stream in statement.streams.items():
        rate = Estimate(given[stream], "given", "sum of its sources")
        name = stream if alias == stream else f"{stream} AS {alias}"
        head = add(Operator("source", name, (), rate, "source", stream))
        if statement.filters[alias]:
            share = rates.passing(statement, alias, stated)
            text = " AND ".join(part.sql() for part in statement.filters[alias])
            through = Estimate(made[head].rate.value * share.value, share.origin, share.why)
            head = add(Operator("filter", text, (head,), through, "source"))
        heads[alias] = head

    def joined(join: Join, left: int, right: int) -> int:
        rate = made[left].rate.value, made[right].rate.value
        number = 1 + sum(one.kind == "join" for one in made)
        share = rates.matching(statement, join, stated, number if len(statement.joins) > 1 else 0)
        seconds = rates.window_s(join.window, sum(made[side].kind == "join" for side in (left, right)))
        results = rate[0] * rate[1] * seconds * share.value
        if join.kind in ("left", "full"):
            results = max(results, rate[0])
        if join.kind in ("right", "full"):
            results = max(results, rate[1])
        conditions = [f"{key.left.sql()} = {key.right.sql()}" for key in join.keys]
        conditions += [part.sql() for part in join.residual]
        text = f"{join.kind} join on {' AND '.join(conditions) or 'true'} in {join.window}"
        why = f"{rate[0]:.4g} × {rate[1]:.4g} × {seconds:g} s × {share.value:.3g} ({share.why})"
        return add(Operator("join", text, (left, right), Estimate(results, share.origin, why)))

    def grown(part: Tree) -> int:
        if isinstance(part, str):
            return heads[part]
        left, right = grown(part[0]), grown(part[1])
        found = link(statement, aliases_of(part[0]), aliases_of(part[1]))
        assert found is not None
        return joined(found.join, left, right)

    if tree is not None and len(statement.joins) > 1:
        head = grown(tree)
    else:
        head = next(iter(heads.values()))
        for join in statement.joins:
            head = joined(join, head, heads[join.alias])
    if statement.where:
        text = " AND ".join(part.sql() for part in statement.where)
        share_after = 0.5 ** len(statement.where)
        through = Estimate(made[head].rate.value * share_after, "estimated", f"{share_after:g} of the rows pass")
        head = add(Operator("filter", text, (head,), through))
    if statement.group is not None:
        out = rates.groups(statement, made[head].rate.value, stated)
        keys = ", ".join([str(statement.group.window), *(key.sql() for key in statement.group.keys)])
        head = add(Operator("aggregate", f"{_columns(statement)} by {keys}", (head,), out))
        if statement.having is not None:
            through = Estimate(out.value * rates.RANGE, "estimated", f"{rates.RANGE:.2g} of the groups pass")
            head = add(Operator("filter", statement.having.sql(), (head,), through, "sink"))
    else:
        head = add(Operator("project", _columns(statement), (head,), made[head].rate))
    for layer in statement.layers:
        text = " ".join(part.sql(dialect=NovaSql) for part in own_parts(layer))
        head = add(Operator("project", text, (head,), made[head].rate, "sink"))
    add(Operator("sink", "results", (head,), made[head].rate, "sink"))
    return OperatorGraph(query, tuple(made))


def _columns(statement: Statement) -> str:
    return ", ".join(
        part.sql() if part.sql() == name or part.sql().endswith(f".{name}") else f"{part.sql()} AS {name}"
        for name, part in statement.select
    )
