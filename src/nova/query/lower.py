"""Lower: two-way joins with everything around them, as the texts that Spark evaluates before and after a join.

Sliding windows and interval joins become tumbling ones: a tuple is copied into every window in which it can find
partners, and conditions on times are checked on the pair. So whoever routes, places and joins knows one kind of window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from sqlglot import exp

from nova.model.operators import Grouping, Pipeline, Side
from nova.query.dialect import NovaSql, aggregates_in, fault
from nova.query.layers import layers_sql
from nova.query.rates import window_s
from nova.query.stages import Stage, apart_us
from nova.query.statement import ROLES, Group, JoinKind, Statement
from nova.query.windows import Interval, Tumbling

SHORTEST_US = 1_000_000
"""Windows that an interval join is cut into are at least this long: shorter ones only make copies dearer."""
STARTS, ENDS = "window_start", "window_end"
MADE_OF = " ⋈ "
"""Between the names of the two sources whose join is a source to another join."""
KEPT: dict[JoinKind, tuple[Literal["left", "right"], ...]] = {
    "inner": (),
    "left": ("left",),
    "right": ("right",),
    "full": ("left", "right"),
}
"""Sides whose tuples are results even where they join nothing."""
_ORIGINAL = "_time"
"""Event time of a tuple that was copied into other windows."""


def refuse_unplanned(statement: Statement) -> None:
    """Raise where another join than the last one is an outer join: its graph can be shown, not placed."""
    for join in statement.joins[:-1]:
        if join.kind != "inner":
            kind = join.kind.upper()
            message = f"of several joins, the last one may be an outer join; this {kind} JOIN has others after it"
            error = fault(statement.sql, exp.Null(), message, kind)
            error.unplanned = True
            raise error


def window_us(statement: Statement) -> int:
    """Length of the windows that the join is cut into; those of one stream are its groups' or a second long."""
    if not statement.joins:
        return statement.group.window.slide_us if statement.group is not None else SHORTEST_US
    window = statement.joins[0].window
    return max(window.high_us - window.low_us, SHORTEST_US) if isinstance(window, Interval) else window.slide_us


def copies(statement: Statement) -> dict[str, float]:
    """Into how many windows a tuple of each alias is copied, on average; in an interval join only the right side is."""
    if not statement.joins:
        return dict.fromkeys(statement.streams, 1.0)
    window, right = statement.joins[0].window, statement.joins[0].alias
    if isinstance(window, Tumbling):
        every = window.size_us / window.slide_us
        return {alias: 1.0 if statement.schemas[alias].made else every for alias in statement.streams}
    more = (window.high_us - window.low_us) / window_us(statement)
    return {alias: 1 + more if alias == right else 1.0 for alias in statement.streams}


def lower(stages: Sequence[Stage]) -> list[Pipeline]:
    """What happens around each join of a query. Rows of a join that another one reads become tuples again."""
    found: list[Pipeline] = []
    for stage in stages:
        made = [int(name[1:]) - 1 for name, schema in stage.statement.schemas.items() if schema.made]
        behind = max((found[one].lateness_ms * 1000 + _disorder_us(stages[one]) for one in made), default=0.0)
        one = _lowered(stage.statement, stage.spread_us, behind)
        if stage.time:
            source = f"concat(left_source, '{MADE_OF}', right_source)"
            one = _with_time(one, stage.time)
            one = replace(one, select=(("source", source), ("time", stage.time), ("value", "0D"), *one.select))
        else:
            one = replace(one, layers=layers_sql(stage.statement.layers))
        found.append(one)
    return found


def _with_time(pipeline: Pipeline, time: str) -> Pipeline:
    """Where the time of joined rows is a column of a stream that another join makes, that column travels."""
    if not time.startswith("`"):
        return pipeline
    side, _, name = time.strip("`").partition("_")
    own = pipeline.left if side == "left" else pipeline.right
    own = replace(own, columns=tuple(sorted({*(own.columns or ()), name})))
    return replace(pipeline, left=own) if side == "left" else replace(pipeline, right=own)


def _disorder_us(stage: Stage) -> float:
    """How much later than in order the rows of a join come beyond the disorder of its own input: they wait for a
    bucket's end, and carry the time of one of its streams."""
    copied = _copied_us(stage.statement.joins[0].window, window_us(stage.statement))
    return 2 * (
        window_us(stage.statement) + SHORTEST_US + copied + stage.spread_us + apart_us(stage.statement.joins[0])
    )


def _copied_us(window: Tumbling | Interval, length: int) -> int:
    """How far copies lie from the event time of their tuple at most."""
    if isinstance(window, Interval):
        return abs(window.low_us) + abs(window.high_us) + length
    return window.size_us if window.size_us > window.slide_us else 0


def _lowered(statement: Statement, spread_us: int, behind_us: float) -> Pipeline:
    """What happens around one join. `spread_us`: how far apart the times within one tuple of its input are;
    `behind_us`: how much more than the text's own streams its input is out of order."""
    if not statement.joins:
        return _alone(statement)
    join = statement.joins[0]
    left, right = statement.streams
    sides = {left: "left", right: "right"}
    window, length = join.window, window_us(statement)
    times: dict[str, str | None] = {left: None, right: None}
    first_us = None
    if isinstance(window, Interval):
        low, high = (window.low_us, window.high_us) if right == window.second else (-window.high_us, -window.low_us)
        first_us = low
        times[right] = _times(f"unix_micros(time) + {low}L", f"unix_micros(time) + {high}L", length)
    elif window.size_us > window.slide_us:
        oldest = f"unix_micros(time) - {window.size_us - window.slide_us}L"
        every = _times(oldest, "unix_micros(time)", length)
        times = {alias: None if statement.schemas[alias].made else every for alias in sides}
    lateness = _copied_us(window, length)
    output = [*(part for _, part in statement.select), *join.residual, *statement.where]
    if statement.group is not None:
        output += [*statement.group.keys, *([statement.group.time] if statement.group.time is not None else [])]
        output += [statement.having] if statement.having is not None else []
    made = {}
    for alias in sides:
        needed = {c.name for part in output for c in part.find_all(exp.Column) if c.table == alias} - set(ROLES)
        for name in sorted(needed):
            _carried(statement, alias, name)
        keys = tuple(
            _at_source(key.left if alias == left else key.right) for key in join.keys if _tuple_key(statement, key)
        )
        made[sides[alias]] = Side(
            _all(_at_source(part) for part in statement.filters[alias]),
            keys,
            tuple(sorted(needed)),
            times[alias],
        )
    after = _After(sides, times, window)
    keeps = KEPT[join.kind]
    match = _all(after.text(part) for part in join.residual)
    where = _all(after.text(part) for part in statement.where)
    waits = 2 * lateness + length
    slack = lateness + (waits if keeps else length) + spread_us
    group = None if statement.group is None else _grouping(statement, statement.group, after, slack)
    select = tuple(
        (name, after.text(part) if group is None else _finished(part, statement)) for name, part in statement.select
    )
    return Pipeline(
        made["left"],
        made["right"],
        keeps=keeps,
        match=match if keeps else None,
        waits_us=waits if keeps else 0,
        first_us=first_us,
        where=where if keeps else _all(part for part in (match, where) if part is not None),
        select=select,
        group=group,
        lateness_ms=(lateness + behind_us) / 1000,
        span_s=window_s(window, sum(schema.made for schema in statement.schemas.values())),
        sql=statement.sql,
    )


def _alone(statement: Statement) -> Pipeline:
    """What happens to the tuples of one stream."""
    alias = next(iter(statement.streams))
    parts = [part for _, part in statement.select] + ([statement.having] if statement.having is not None else [])
    group = statement.group
    parts += [] if group is None else [*group.keys, *([group.time] if group.time is not None else [])]
    needed = {c.name for part in parts for c in part.find_all(exp.Column) if c.table == alias} - set(ROLES)
    for name in sorted(needed):
        _carried(statement, alias, name)
    side = Side(_all(_at_source(part) for part in statement.filters[alias]), (), tuple(sorted(needed)))
    after = _After({alias: "left"}, {alias: None}, Tumbling(SHORTEST_US, SHORTEST_US))
    made = None if group is None else _grouping(statement, group, after, window_us(statement))
    select = tuple(
        (name, after.text(part) if made is None else _finished(part, statement)) for name, part in statement.select
    )
    return Pipeline(side, Side(columns=()), single=True, select=select, group=made, sql=statement.sql)


def attribute_keys(statement: Statement) -> tuple[tuple[str, str], ...]:
    """Attributes of the left and of the right sources that the join asks to be equal: they make the join matrix. Names
    are the same but where a join makes the stream. Each source of one stream goes with itself."""
    if not statement.joins:
        return (("id", "id"),)
    found = []
    for key in statement.joins[0].keys:
        left, right = key.left, key.right
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            schemas = statement.schemas[left.table], statement.schemas[right.table]
            known = left.name in schemas[0].attributes and right.name in schemas[1].attributes
            if known and (left.name == right.name or schemas[0].made or schemas[1].made):
                found.append((left.name, right.name))
    return tuple(dict.fromkeys(found))


def _tuple_key(statement: Statement, key: object) -> bool:
    """Whether an equality is checked on tuples: always, but where only the sources have the attribute."""
    left, right = key.left, key.right  # type: ignore[attr-defined]
    if (left.name, right.name) in attribute_keys(statement):
        carried = [one.name in statement.schemas[one.table].columns for one in (left, right)]
        return all(carried)
    for side in (left, right):
        for column in side.find_all(exp.Column):
            _carried(statement, column.table, column.name, column)
    return True


def _carried(statement: Statement, alias: str, name: str, at: object = None) -> None:
    """Refuse a name that only the sources have where a tuple's column is needed."""
    schema = statement.schemas[alias]
    if name not in schema.columns and name in schema.attributes:
        where = at if isinstance(at, exp.Expr) else exp.column(name)
        message = (
            f"{name} is an attribute of the sources of {alias}, not a column of its tuples: it may only equal the "
            "attribute of the same name of the other stream"
        )
        raise fault(statement.sql, where, message, name)


def _times(low: str, high: str, length: int) -> str:
    """One time for each window from that of `low` to that of `high` (µs), at the tuple's own place within a window."""
    first, last = (f"({t} - pmod({t}, {length}L))" for t in (low, high))
    within = f"pmod(unix_micros(time), {length}L)"
    return f"transform(sequence({first}, {last}, {length}L), w -> timestamp_micros(w + {within}))"


def _at_source(part: exp.Expr) -> str:
    """An expression over the columns of one stream."""
    return spark_sql(
        part.transform(lambda node: exp.column(node.name, quoted=True) if isinstance(node, exp.Column) else node)
    )


def spark_sql(part: exp.Expr) -> str:
    """An expression as Spark reads it."""
    text: str = part.sql(dialect=NovaSql)
    return text


def _all(conditions: object) -> str | None:
    parts = [f"({one})" for one in conditions]  # type: ignore[attr-defined]
    return " AND ".join(parts) or None


class _After:
    """Expressions over joined rows."""

    def __init__(self, sides: Mapping[str, str], times: Mapping[str, str | None], window: Tumbling | Interval) -> None:
        self.sides, self.times, self.window = sides, times, window

    def text(self, part: exp.Expr) -> str:
        return spark_sql(part.transform(self._column))

    def _column(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if not node.table:
            assert isinstance(self.window, Tumbling)
            start = exp.column(STARTS, quoted=True)
            if node.name == STARTS:
                return start
            return exp.Add(this=start, expression=_micros(self.window.size_us))
        name = _ORIGINAL if node.name == "time" and self.times[node.table] is not None else node.name
        return exp.column(f"{self.sides[node.table]}_{name}", quoted=True)


def _micros(length: int) -> exp.Expr:
    return exp.Interval(this=exp.Literal.string(str(length)), unit=exp.Var(this="MICROSECOND"))


def _grouping(statement: Statement, group: Group, after: _After, slack_us: int) -> Grouping:
    aggregates = _aggregates(statement)
    keys = tuple((f"_key{k}", after.text(key)) for k, key in enumerate(group.keys))
    if group.time is None:
        starts = "array(unix_micros(window_start))"
    else:
        t, size, slide = f"unix_micros({after.text(group.time)})", group.window.size_us, group.window.slide_us
        first = f"({t} - 1L)" if group.closed else t
        starts = f"sequence({first} - pmod({first}, {slide}L) - {size - slide}L, {t} - pmod({t}, {slide}L), {slide}L)"
    pieces = [_decomposed(one) for one in aggregates]
    partial: list[tuple[str, str]] = []
    merge: list[tuple[str, str]] = []
    final: list[tuple[str, str]] = []
    if None in pieces:
        rows = list(dict.fromkeys(column for one in aggregates for column in one.find_all(exp.Column)))
        partial = [(f"_row{k}", after.text(column)) for k, column in enumerate(rows)] or [("_row", "1")]
        kept = {column: exp.column(f"_row{k}") for k, column in enumerate(rows)}
        final = [(f"_agg{k}", spark_sql(_with(one, kept))) for k, one in enumerate(aggregates)]
        pieces = []
    for number, whole in enumerate(pieces):
        assert whole is not None
        argument, parts, result = whole
        text = "*" if argument is None else after.text(argument)
        names = [f"_agg{number}_{k}" for k in range(len(parts))]
        partial += [(name, over.format(text)) for name, (over, _) in zip(names, parts, strict=True)]
        merge += [(name, again.format(name)) for name, (_, again) in zip(names, parts, strict=True)]
        final.append((f"_agg{number}", result.format(*(again for _, again in merge[-len(names) :]))))
    having = None if statement.having is None else _finished(statement.having, statement)
    return Grouping(
        starts,
        group.window.size_us,
        slack_us,
        keys,
        tuple(partial),
        tuple(merge),
        tuple(final),
        group.time is None,
        group.window.slide_us,
        having,
    )


def _aggregates(statement: Statement) -> list[exp.Expr]:
    """The different aggregates of the output and of HAVING."""
    parts = [part for _, part in statement.select] + ([statement.having] if statement.having is not None else [])
    return list(dict.fromkeys(one for part in parts for one in aggregates_in(part)))


_SPREAD = (
    "named_struct('n', count({0}), 'mean', coalesce(avg(CAST({0} AS DOUBLE)), 0D), "
    "'squares', coalesce(var_pop(CAST({0} AS DOUBLE)) * count({0}), 0D))",
    "aggregate(collect_list({0}), named_struct('n', 0L, 'mean', 0D, 'squares', 0D), (a, b) -> named_struct("
    "'n', a.n + b.n, "
    "'mean', CASE WHEN a.n + b.n = 0 THEN 0D ELSE (a.n * a.mean + b.n * b.mean) / (a.n + b.n) END, "
    "'squares', CASE WHEN a.n + b.n = 0 THEN 0D ELSE a.squares + b.squares + "
    "(b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / (a.n + b.n) END))",
)
"""Count, mean and sum of squared deviations, and how two of them make one (Chan, Golub, LeVeque)."""
_SAMPLE = "CASE WHEN {0}.n > 1 THEN {0}.squares / ({0}.n - 1) END"
_POPULATION = "CASE WHEN {0}.n > 0 THEN {0}.squares / {0}.n END"


def _decomposed(aggregate: exp.Expr) -> tuple[exp.Expr | None, list[tuple[str, str]], str] | None:
    """What an aggregate is over (None: rows), its partial aggregates, each with how it is merged, and how they make the
    whole; None: not decomposable."""
    if isinstance(aggregate, exp.Filter):  # as null counts for nothing in any of them
        bare, condition = aggregate.this, aggregate.expression.this
        over = exp.Literal.number(1) if isinstance(bare.this, exp.Star) else bare.this
        if not isinstance(over, exp.Expr) or isinstance(over, exp.Distinct):
            return None
        aggregate = bare.copy()
        aggregate.set("this", exp.Case(ifs=[exp.If(this=condition.copy(), true=over.copy())]))
    if isinstance(aggregate.this, exp.Distinct) or aggregate.expressions:
        return None
    over = None if isinstance(aggregate.this, exp.Star) else aggregate.this
    match aggregate:
        case exp.Count():
            return over, [("count({0})", "sum({0})")], "{0}"
        case exp.Sum():
            return over, [("sum({0})", "sum({0})")], "{0}"
        case exp.Min():
            return over, [("min({0})", "min({0})")], "{0}"
        case exp.Max():
            return over, [("max({0})", "max({0})")], "{0}"
        case exp.Avg():
            return over, [("sum(CAST({0} AS DOUBLE))", "sum({0})"), ("count({0})", "sum({0})")], "{0} / {1}"
        case exp.Stddev() | exp.StddevSamp():
            return over, [_SPREAD], f"sqrt({_SAMPLE})"
        case exp.StddevPop():
            return over, [_SPREAD], f"sqrt({_POPULATION})"
        case exp.Variance():
            return over, [_SPREAD], _SAMPLE
        case exp.VariancePop():
            return over, [_SPREAD], _POPULATION
    return None


def _with(part: exp.Expr, columns: Mapping[exp.Column, exp.Column]) -> exp.Expr:
    """An expression with other columns in place of its own."""
    return part.transform(lambda node: columns.get(node, node) if isinstance(node, exp.Column) else node)


def _finished(part: exp.Expr, statement: Statement) -> str:
    """An expression over keys, aggregates and the window's bounds."""
    assert statement.group is not None
    keys, aggregates = statement.group.keys, _aggregates(statement)

    def replaced(node: exp.Expr) -> exp.Expr:
        if node in keys:
            return exp.column(f"_key{keys.index(node)}", quoted=True)
        if node in aggregates:
            return exp.column(f"_agg{aggregates.index(node)}", quoted=True)
        return node

    return spark_sql(part.transform(replaced))
