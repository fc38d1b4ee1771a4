"""Result rates, and how much sub-joins count by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nova.model.policy import BY_RESULTS
from nova.model.rates import importance, result_rates
from nova.placement.resolve import resolve
from nova.synthetic import draw


def test_sub_joins_count_by_their_results_in_part() -> None:
    problem = draw(30, 3, 1)
    joins = resolve(problem)
    rate = np.where(np.arange(len(joins)) == 0, 5.0, 1.0)
    counts = importance(problem, replace(joins, output_rate=rate))
    assert counts.mean() == pytest.approx(1.0)
    assert (counts >= 1 - BY_RESULTS).all()
    assert counts[0] - counts[1] == pytest.approx(BY_RESULTS * 4.0 / rate.mean())


def test_sub_joins_without_results_count_alike() -> None:
    problem = draw(30, 3, 1)
    joins = resolve(problem)
    none = replace(joins, output_rate=np.zeros(len(joins)))
    assert not result_rates(problem, none).any()
    assert importance(problem, none).tolist() == [1.0] * len(joins)


def test_no_sub_joins_have_no_importance() -> None:
    problem = draw(30, 3, 1)
    assert len(importance(problem, resolve(problem).take(np.empty(0, np.int64)))) == 0
