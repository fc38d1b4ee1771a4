"""Phase II, steps 1 and 2: expand streams into sources and queries into one sub-join per joinable pair."""

from __future__ import annotations

import numpy as np

from nova.model.problem import Dense, Equal, Ints, JoinMatrix, Pairs, Problem, Query
from nova.model.subjoins import SubJoins


def resolve(problem: Problem) -> SubJoins:
    """The sub-joins of all queries, in query order, then by left and right source."""
    pairs = [_pairs(problem, query) for query in problem.queries]
    left = np.concatenate([p.left for p in pairs]) if pairs else np.empty(0, np.int32)
    right = np.concatenate([p.right for p in pairs]) if pairs else np.empty(0, np.int32)
    output = np.concatenate([p.output_rate for p in pairs]) if pairs else np.empty(0)
    counts = [len(p.left) for p in pairs]
    query = np.repeat(np.arange(len(pairs), dtype=np.int32), counts)
    makes = None
    if any(one.makes is not None for one in problem.queries):
        made = zip(problem.queries, counts, strict=True)
        parts = [np.full(n, -1, np.int32) if q.makes is None else problem.sources_of(q.makes) for q, n in made]
        makes = np.concatenate(parts)
    return SubJoins.between(problem, query, left, right, output, makes)


def _pairs(problem: Problem, query: Query) -> Pairs:
    return pairs_of(query.matrix, problem.sources_of(query.left), problem.sources_of(query.right))


def pairs_of(matrix: JoinMatrix, lefts: Ints, rights: Ints) -> Pairs:
    """The entries of a join matrix between these rows of the source table."""
    match matrix:
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
