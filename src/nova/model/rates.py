"""Result rates: how many tuples/s each sub-join makes, as stated, as estimated from its query, or at most."""

from __future__ import annotations

import numpy as np

from nova.model.options import Options
from nova.model.policy import BY_RESULTS, DENSE, usable
from nova.model.problem import Floats, Key, Problem, Query
from nova.model.replicas import Replicas
from nova.model.skew import KeyAxis
from nova.model.subjoins import SubJoins


def pair_rates(problem: Problem, joins: SubJoins) -> Floats:
    """Result tuples/s of each sub-join if every pair of a window matched; in queries of one stream, every tuple."""
    windows = np.array([query.window_ms for query in problem.queries], dtype=np.float64)
    single = np.array([query.pipeline.single for query in problem.queries], dtype=np.bool_)
    if not len(joins):
        return np.empty(0)
    pairs = joins.left_rate * joins.right_rate * windows[joins.query] / 1000.0
    return np.where(single[joins.query], joins.left_rate, pairs)


def known_rates(problem: Problem, joins: SubJoins) -> Floats:
    """Result tuples/s of each sub-join: as stated, else as its query or the values of its key tell; NaN where neither
    does."""
    every = pair_rates(problem, joins)
    told = np.array([_told(query) for query in problem.queries]).reshape(-1, 2)[joins.query]
    estimated = np.minimum(every * told[:, 0], told[:, 1])
    return np.where(np.isnan(joins.output_rate), estimated, np.minimum(joins.output_rate, every))


def result_rates(problem: Problem, joins: SubJoins) -> Floats:
    """The same, and every pair of a window where nobody knows."""
    known = known_rates(problem, joins)
    return np.where(np.isnan(known), pair_rates(problem, joins), known)


def importance(problem: Problem, joins: SubJoins) -> Floats:
    """How much each sub-join's latency counts, 1 on average: the share `BY_RESULTS` by results/s, the rest alike."""
    made = result_rates(problem, joins)
    mean = float(made.sum() / joins.part.sum()) if len(made) else 0.0
    return (1.0 - BY_RESULTS) * joins.part + BY_RESULTS * made / mean if mean > 0 else joins.part.copy()


def counts(problem: Problem, joins: SubJoins, options: Options) -> Floats:
    """How much each sub-join counts in the cost that a plan is made and judged by: its `importance` in small problems
    that are placed by felt latency, 1 by distance, in slices, in chains, and where too many pairs are to be priced."""
    return importance(problem, joins) if _by_results(problem, joins, options) else joins.part.copy()


def _by_results(problem: Problem, joins: SubJoins, options: Options) -> bool:
    """Whether sub-joins count by their results."""
    hosts = int(np.count_nonzero(usable(problem.nodes, options) > 0))
    dense, alone = len(joins) * hosts <= DENSE, not (joins.makes >= 0).any()
    return options.waiting > 0 and options.partition != "window" and dense and alone


def replica_counts(problem: Problem, joins: SubJoins, replicas: Replicas, options: Options) -> Floats:
    """How much each replica counts in that cost: of what its sub-join counts by its results, as many as the replica
    makes, of the rest as it takes tuples."""
    counted, share = counts(problem, joins, options)[replicas.join], replicas.volume
    made = result_shares(problem, joins, replicas)
    if np.array_equal(share, made) or not _by_results(problem, joins, options):
        return counted * share
    return (1.0 - BY_RESULTS) * share + np.maximum(counted - (1.0 - BY_RESULTS), 0.0) * made


def result_shares(problem: Problem, joins: SubJoins, replicas: Replicas) -> Floats:
    """Part of its sub-join's results that each replica makes, in [0, 1]: its volume, but that a heavy key of share s
    makes s² of all pairs of tuples, and all others together few."""
    share = replicas.volume
    for number, query in enumerate(problem.queries):
        axis = KeyAxis.of(query)
        if axis and len(mine := np.flatnonzero(joins.query[replicas.join] == number)):
            low, high = (_reached(query, axis, edge[mine]) for edge in (replicas.key_from, replicas.key_to))
            share[mine] *= (high - low) / (replicas.key_to - replicas.key_from)[mine]
    return share


def result_parts(query: Query, axis: KeyAxis) -> Floats:
    """Share of a query's results that each range of its key axis makes: each heavy key, and all others together."""
    shares = np.diff([*axis.edges, 1.0])
    every = _told(query)[0]
    if np.isnan(every):  # nobody knows: as many as there are tuples
        return shares
    pairs = shares**2
    pairs[-1] = max(every - float(pairs[:-1].sum()), 0.0)
    return np.asarray(pairs / pairs.sum())


def _reached(query: Query, axis: KeyAxis, edge: Floats) -> Floats:
    """Share of the results that keys below an edge of the axis make."""
    made = np.concatenate([[0.0], np.cumsum(result_parts(query, axis))])
    return np.asarray(np.interp(edge, [*axis.edges, 1.0], made))


def _told(query: Query) -> tuple[float, float]:
    """Share of the pairs in a window that match, NaN where nobody knows, and result tuples/s at most."""
    if query.output is not None:
        return query.output.share.value, query.output.most
    return np.nan if query.key is None else chance(query.key), np.inf


def chance(key: Key) -> float:
    """Chance that two tuples have the same key: heavy keys meet themselves, all others are equally common. NaN where
    nobody knows how many there are."""
    if not np.isfinite(key.cardinality):
        return float("nan")
    heavy = np.array(key.heavy)
    others = max(key.cardinality - len(heavy), 1.0)
    return float((heavy**2).sum() + max(1.0 - heavy.sum(), 0.0) ** 2 / others)
