"""Skew: heavy keys placed on their own (SharesSkew).

A key that has a large share of the tuples keeps its join from dividing by key: ranges would be as uneven as the keys
are. So such a sub-join is also placed in *parts*: each heavy key, which no range divides, whole or by grid; and all
other keys together, whole or by ranges. Only the heavy key's tuples are broadcast then, not all. Parts are placed like
sub-joins, by the same rules; their boxes are then ranges of the key axis of their sub-join again (`nova.model.skew`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova.model.options import Options
from nova.model.policy import alone
from nova.model.problem import Floats, Ints, Key, Problem, Query
from nova.model.rates import known_rates, result_shares
from nova.model.replicas import SHARES, Replicas
from nova.model.skew import KeyAxis
from nova.model.subjoins import SubJoins


@dataclass(frozen=True)
class Parts:
    """Sub-joins in parts: those whose query has no heavy keys in one."""

    problem: Problem
    """With a query for each kind of part."""
    joins: SubJoins
    """One row per part."""
    join: Ints
    """The sub-join that each is a part of."""
    low: Floats
    """Range of the sub-join's key axis that each part is."""
    high: Floats

    @staticmethod
    def of(problem: Problem, joins: SubJoins, options: Options) -> Parts | None:
        """None where no heavy key may have hosts of its own."""
        if options.partition not in ("auto", "key"):
            return None
        queries, first, edges = list(problem.queries), {}, {}
        for number, query in enumerate(problem.queries):
            apart = alone(query)
            if apart and (joins.query == number).any():
                first[number] = len(queries)
                edges[number] = (*KeyAxis.of(query).edges[: apart + 1], 1.0)
                queries += _queries(query, edges[number])
        if not first:
            return None
        pieces = np.array([len(edges[number]) - 1 if number in edges else 1 for number in range(len(problem.queries))])
        count = pieces[joins.query]
        join = np.repeat(np.arange(len(joins)), count).astype(np.int32)
        place = np.arange(len(join)) - np.repeat(np.cumsum(count) - count, count)
        kind = joins.query[join].copy()
        low, high = np.zeros(len(join)), np.ones(len(join))
        for number, begin in first.items():
            mine = joins.query[join] == number
            cuts = np.array(edges[number])
            low[mine], high[mine] = cuts[place[mine]], cuts[place[mine] + 1]
            kind[mine] = begin + place[mine]
        zero, one = np.zeros(len(join)), np.ones(len(join))
        boxes = Replicas(join, np.zeros(len(join), np.int32), zero, one, zero, one, zero, one, low, high)
        made = known_rates(problem, joins)[join] * result_shares(problem, joins, boxes)
        some = joins.take(join)
        some = replace(
            some,
            query=kind.astype(np.int32),
            left_rate=some.left_rate * (high - low),
            right_rate=some.right_rate * (high - low),
            output_rate=np.where(count[join] > 1, made, some.output_rate),
            part=high - low,
        )
        return Parts(replace(problem, queries=tuple(queries)), some, join, low, high)

    def divided(self, replicas: Replicas) -> Replicas:
        """Replicas of the sub-joins as replicas of their parts."""
        begin = np.searchsorted(self.join, np.arange(int(self.join.max(initial=-1)) + 2))
        count = np.diff(begin)[replicas.join]
        row = np.repeat(np.arange(len(replicas)), count)
        part = np.repeat(begin[replicas.join], count) + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        low, length = self.low[part], self.high[part] - self.low[part]
        start, end = (np.clip((edge[row] - low) / length, 0, 1) for edge in (replicas.key_from, replicas.key_to))
        some = start < end
        return replace(
            replicas.take(row[some]), join=part[some].astype(np.int32), key_from=start[some], key_to=end[some]
        )

    def together(self, replicas: Replicas, merged: bool) -> Replicas:
        """Replicas of the parts as replicas of the sub-joins. Ranges that follow each other on one host become one
        where they may be `merged`."""
        low, high = self.low[replicas.join], self.high[replicas.join]
        start, end = (
            np.where(edge == 1.0, high, low + (high - low) * edge) for edge in (replicas.key_from, replicas.key_to)
        )
        found = replace(replicas, join=self.join[replicas.join], key_from=start, key_to=end)
        same = [found.join, found.node, *(getattr(found, name) for name in SHARES[:6])]
        found = found.take(np.lexsort((found.key_from, *reversed(same))))
        same = [found.join, found.node, *(getattr(found, name) for name in SHARES[:6])]
        follows = np.zeros(len(found), np.bool_)
        if merged and len(found):
            follows[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in same])
            follows[1:] &= found.key_from[1:] == found.key_to[:-1]
        first = np.flatnonzero(~follows)
        found = replace(found.take(first), key_to=found.key_to[np.append(first[1:], len(found)) - 1])
        order = (found.right_from, found.left_from, found.key_from, found.slice_from, found.join)
        return found.take(np.lexsort(order))

    def lacking(self, parts: Ints, missing: Floats) -> tuple[Ints, Floats]:
        """Sub-joins of which some parts have no place, and the tuples/s that these take in."""
        found, which = np.unique(self.join[parts], return_inverse=True)
        return found.astype(np.int32), np.bincount(which, missing, len(found)).astype(np.float64)


def _queries(query: Query, edges: tuple[float, ...]) -> list[Query]:
    """A query for each part: of one key, which no range divides, and of all other keys."""
    key, count = query.key, len(edges) - 2
    assert key is not None
    rest = 1.0 - edges[-2]
    others = Key(
        key.columns,
        max(key.cardinality - count, 1.0),
        tuple(min(share / rest, 1.0) for share in key.heavy[count:]),
        key.values[count:],
    )
    plain = replace(query, output=None)
    return [replace(plain, key=None)] * count + [replace(plain, key=others)]
