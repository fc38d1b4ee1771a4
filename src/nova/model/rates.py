"""Result rates: how many tuples/s each sub-join makes, as stated, as estimated from its query, or at most."""

from __future__ import annotations

import numpy as np

from nova.model.options import Options
from nova.model.policy import BY_RESULTS, DENSE, usable
from nova.model.problem import Floats, Key, Problem, Query
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
    mean = float(made.mean()) if len(made) else 0.0
    return 1.0 - BY_RESULTS + BY_RESULTS * made / mean if mean > 0 else np.ones(len(made))


def counts(problem: Problem, joins: SubJoins, options: Options) -> Floats:
    """How much each sub-join counts in the cost that a plan is made and judged by: its `importance` in small problems
    that are placed by felt latency, 1 by distance, in slices, in chains, and where too many pairs are to be priced."""
    hosts = int(np.count_nonzero(usable(problem.nodes, options) > 0))
    dense, alone = len(joins) * hosts <= DENSE, not (joins.makes >= 0).any()
    if options.waiting > 0 and options.partition != "window" and dense and alone:
        return importance(problem, joins)
    return np.ones(len(joins))


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
