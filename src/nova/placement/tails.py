"""How a placement is felt, roughly: mean, p90 and p99 of its results, to choose among placements of like cost.

A result takes the way of its later tuple, which half of the time comes from the left source, its service, a wait whose
distribution `nova.model.waiting` knows, and the way on to the sink. `nova.evaluation.prediction`
knows more (pairs within windows, batches) and takes longer; for an order of placements this is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova.model.problem import Floats
from nova.model.waiting import waiting_ms, waiting_quantile

LEVELS = (np.arange(64) + 0.5) / 64
"""Shares of a row's results whose waits stand for all."""
QUANTILES = (0.9, 0.99)


def felt_figures(ways_ms: Floats, load: Floats, limit: Floats, results: Floats, scv: float) -> Floats:
    """Mean, p90 and p99 in ms over rows of `results` results/s each, at hosts of `load` of `limit` tuples/s; zeros
    where there are no results to feel. `ways_ms` has two rows: by way of the left source, and of the right one."""
    if not results.sum() > 0:
        return np.zeros(1 + len(QUANTILES))
    fixed = ways_ms + 1000.0 / limit
    mean = float(results @ (fixed.mean(axis=0) + waiting_ms(load, limit, scv, 0.0)) / results.sum())
    waits = waiting_quantile(LEVELS[:, None], load, limit, scv)  # type: ignore[arg-type]
    latency = (fixed[:, None] + waits).ravel()
    order = np.argsort(latency, kind="stable")
    reached = np.cumsum(np.tile(results, 2 * len(LEVELS))[order])
    at = np.searchsorted(reached, np.array(QUANTILES) * reached[-1])
    return np.array([mean, *latency[order[at]]])


def least_regret(figures: Sequence[Floats]) -> int:
    """Which of several placements falls least behind the best of them in any one figure; the first of equals."""
    table = np.stack(figures)
    behind = (table / np.maximum(table.min(axis=0), 1e-300)).max(axis=1)
    return int(np.argmin(np.round(behind, 6)))
