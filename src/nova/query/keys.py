"""Keys: what a planner needs to know of a two-way join's equality: by what it divides, and how much comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from nova.model.operators import Estimate, Output, Pipeline
from nova.model.problem import Key
from nova.query.lower import copies, window_us
from nova.query.rates import KNOWN_EQUAL, distinct_values, groups, independent, matching, window_s
from nova.query.statement import Statement

AFTER = 0.5
"""Share of the joined rows that each condition on both streams lets through, where nobody knows better."""


def key_of(statement: Statement, pipeline: Pipeline) -> Key | None:
    """The key of the tuples that the join asks to be equal, as it travels; None where it asks only for attributes of
    sources, or for nothing."""
    if not statement.joins:
        return None
    names = tuple(f"_key{number}" for number in range(len(pipeline.left.keys)))
    if not names:
        return None
    counts = [distinct_values(key, statement) for key in independent(statement.joins[0], statement)]
    known = [count for count in counts if count is not None]
    return Key(names, math.prod(known) if len(known) == len(counts) else math.inf)


def output_of(statement: Statement, pipeline: Pipeline, stated: Mapping[str, float], number: int = 0) -> Output:
    """What the join sends to the sink for each pair of tuples in one of the windows it is cut into: rows, or partial
    aggregates where those are made at the hosts. `number`: which join of several it is."""
    if not statement.joins:
        merged = pipeline.group is not None and bool(pipeline.group.merge)
        most = groups(statement, math.inf, stated).value if merged else math.inf
        share = KNOWN_EQUAL if merged and math.isinf(most) else 1.0
        return Output(Estimate(share, "estimated", f"{share:g} of the tuples that pass"), most)
    join, copied = statement.joins[0], copies(statement)
    match = matching(statement, join, stated, number)
    cut = math.prod(copied.values()) * window_us(statement) / 1e6
    share = match.value * min(window_s(join.window) / cut, 1.0) * AFTER ** len(statement.where)
    most = math.inf
    if statement.group is not None and pipeline.group is not None and pipeline.group.merge:
        most = groups(statement, math.inf, stated).value
        share *= KNOWN_EQUAL if math.isinf(most) else 1.0
    return Output(Estimate(share, match.origin, match.why), most)
