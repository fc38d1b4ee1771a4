"""Result rates, and how much sub-joins count by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nova.model import rates
from nova.model.options import Options
from nova.model.policy import BY_RESULTS
from nova.model.rates import counts, importance, result_rates
from nova.placement.resolve import resolve
from nova.synthetic import draw


def test_sub_joins_count_by_their_results_in_part() -> None:
    problem = draw(30, 3, 1)
    joins = resolve(problem)
    rate = np.where(np.arange(len(joins)) == 0, 5.0, 1.0)
    counted = importance(problem, replace(joins, output_rate=rate))
    assert counted.mean() == pytest.approx(1.0)
    assert (counted >= 1 - BY_RESULTS).all()
    assert counted[0] - counted[1] == pytest.approx(BY_RESULTS * 4.0 / rate.mean())


def test_sub_joins_without_results_count_alike() -> None:
    problem = draw(30, 3, 1)
    joins = resolve(problem)
    none = replace(joins, output_rate=np.zeros(len(joins)))
    assert not result_rates(problem, none).any()
    assert importance(problem, none).tolist() == [1.0] * len(joins)


def test_no_sub_joins_have_no_importance() -> None:
    problem = draw(30, 3, 1)
    assert len(importance(problem, resolve(problem).take(np.empty(0, np.int64)))) == 0


def test_only_small_problems_placed_by_felt_latency_count_by_results(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(30, 3, 1)
    joins = resolve(problem)
    assert counts(problem, joins, Options()).tolist() == importance(problem, joins).tolist()
    alike = [1.0] * len(joins)
    assert counts(problem, joins, Options(waiting=0.0)).tolist() == alike
    assert counts(problem, joins, Options(partition="window")).tolist() == alike
    monkeypatch.setattr(rates, "DENSE", 1)
    assert counts(problem, joins, Options()).tolist() == alike
