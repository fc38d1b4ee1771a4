"""Phase II, steps 1 and 2: expand streams into sources and queries into one sub-join per joinable pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.problem import Dense, Equal, Floats, Ints, Pairs, Problem, Query


@dataclass(frozen=True)
class SubJoins:
    """One row per pair of sources that the join matrix allows."""

    query: Ints
    left: Ints
    """Row of the left source."""
    right: Ints
    left_node: Ints
    right_node: Ints
    sink: Ints
    """Row of the node that gets the results."""
    left_rate: Floats
    right_rate: Floats
    output_rate: Floats
    """Result tuples/s; NaN where nobody said."""

    def __len__(self) -> int:
        return len(self.query)

    @property
    def demand(self) -> Floats:
        """C_r: tuples/s that reach an unsplit join."""
        return self.left_rate + self.right_rate

    @staticmethod
    def between(problem: Problem, query: Ints, left: Ints, right: Ints, output_rate: Floats) -> SubJoins:
        """Sub-joins of these rows of queries and sources."""
        sources = problem.sources
        return SubJoins(
            query=query,
            left=left,
            right=right,
            left_node=sources.node[left],
            right_node=sources.node[right],
            sink=np.array([q.sink for q in problem.queries], dtype=np.int32)[query],
            left_rate=sources.rate[left],
            right_rate=sources.rate[right],
            output_rate=output_rate,
        )

    def take(self, rows: np.typing.NDArray[np.integer]) -> SubJoins:
        """The given rows as a table of their own."""
        return SubJoins(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


def resolve(problem: Problem) -> SubJoins:
    """The sub-joins of all queries, in query order, then by left and right source."""
    pairs = [_pairs(problem, query) for query in problem.queries]
    left = np.concatenate([p.left for p in pairs]) if pairs else np.empty(0, np.int32)
    right = np.concatenate([p.right for p in pairs]) if pairs else np.empty(0, np.int32)
    output = np.concatenate([p.output_rate for p in pairs]) if pairs else np.empty(0)
    counts = [len(p.left) for p in pairs]
    query = np.repeat(np.arange(len(pairs), dtype=np.int32), counts)
    return SubJoins.between(problem, query, left, right, output)


def _pairs(problem: Problem, query: Query) -> Pairs:
    lefts, rights = problem.sources_of(query.left), problem.sources_of(query.right)
    match query.matrix:
        case Pairs() as pairs:
            return pairs
        case Dense():
            left = np.repeat(np.arange(len(lefts)), len(rights))
            right = np.tile(np.arange(len(rights)), len(lefts))
        case Equal(left=left_codes, right=right_codes):
            left, right = _equal_pairs(left_codes, right_codes)
    return Pairs(lefts[left], rights[right], np.full(len(left), np.nan))


def _equal_pairs(left: Ints, right: Ints) -> tuple[np.typing.NDArray[np.intp], np.typing.NDArray[np.intp]]:
    """All (i, j) with left[i] == right[j] ≥ 0, without ever forming the matrix."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    start = np.searchsorted(ordered, left, "left")
    count = np.where(left >= 0, np.searchsorted(ordered, left, "right") - start, 0)
    rows = np.repeat(np.arange(len(left)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, order[start[rows] + within]
