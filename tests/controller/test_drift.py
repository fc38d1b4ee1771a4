"""Drift: a fresh plan has none, a bad one has as much as it costs more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nova.controller.drift import drift
from nova.evaluation.metrics import evaluate
from nova.model.options import Options
from nova.model.problem import Latency
from nova.model.replicas import Replicas
from nova.optimizer import optimize
from nova.synthetic import draw


def test_a_fresh_plan_has_not_drifted() -> None:
    problem = draw(60, level=2, seed=3, load=0.4)
    plan = optimize(problem, Options(seed=1))
    found = drift(problem, plan)
    assert found.gain_ms == found.gain == found.excess == 0
    assert found.moves.changes == []
    assert found.moves.moved_tuples_per_s == 0


@pytest.mark.parametrize("objective", ["latency", "paper"])
def test_a_plan_on_the_wrong_hosts_would_gain_what_it_costs_more(objective: str) -> None:
    problem = draw(60, level=None, seed=3)
    fresh = optimize(problem, Options(objective=objective))  # type: ignore[arg-type]
    far = int(np.argmax(np.linalg.norm(fresh.space.coordinates - fresh.space.coordinates.mean(axis=0), axis=1)))
    rows = np.arange(len(fresh.joins))
    bad = replace(fresh, replicas=Replicas.whole(rows, np.full(len(rows), far)))
    found = drift(problem, bad)
    costs = [getattr(evaluate(problem, plan), f"cost_{objective}_ms") for plan in (bad, fresh)]
    assert found.costs == pytest.approx(costs)
    assert found.excess == pytest.approx(costs[0] / costs[1] - 1)
    assert found.gain_ms == pytest.approx(
        evaluate(problem, bad).latency_mean_ms - evaluate(problem, fresh).latency_mean_ms
    )
    assert found.gain == pytest.approx(found.gain_ms / evaluate(problem, bad).latency_mean_ms)
    assert (
        found.moves.count("moved") == found.moves.sub_joins_changed == int(np.count_nonzero(fresh.replicas.node != far))
    )
    figures = found.as_dict()
    assert figures["moves"]["moved_tuples_per_s"] > 0
    assert "changes" not in figures["moves"]


def test_measured_latencies_judge_both() -> None:
    """The cost space says that all is well; measurements say that the host in use is far away."""
    problem = draw(40, level=None, seed=1)
    plan = optimize(problem)
    host = int(plan.replicas.node[0])
    others = np.setdiff1d(np.arange(len(problem.nodes)), [host])
    first, second = np.minimum(others, host), np.maximum(others, host)
    latency = Latency(first.astype(np.int32), second.astype(np.int32), np.full(len(others), 900.0))
    changed = replace(problem, latency=latency)
    found = drift(changed, plan)
    assert found.running.latency_mean_ms > evaluate(changed, plan).latency_mean_ms
    assert found.gain_ms > 10
