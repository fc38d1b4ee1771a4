"""A cluster of processes: every plan gives the plain join's results, none before its way allows, and a slow node is
slow by either means."""

from __future__ import annotations

import numpy as np
import pytest

import on_a_line
from nova.model.plan import Plan
from nova_lab.cluster.cluster import Cluster, Outcome, Workload, cluster, ordered
from nova_lab.cluster.sensors import BEGIN_MS, Tuples
from nova_lab.cluster.shares import Cgroups, cgroups

SECONDS, RATE = 2.0, 200.0
HALVES = [(0, 3, 0, 0.5, 0, 1, 0, 1), (0, 4, 0.5, 1, 0, 1, 0, 1)]
"""Half of the left tuples meet the right ones on node 3, half on node 4."""
SLOW = 150.0
"""Tuples/s of a node that gets 300 or more."""


def workload() -> Workload:
    """One pair of sources, on nodes 1 and 2; about one partner per tuple."""
    problem = on_a_line.problem([1000.0, 1000.0], (RATE, RATE), window_ms=100.0)
    draw = np.random.default_rng(5)
    count = round(SECONDS * RATE)

    def side(source: int) -> Tuples:
        time_us = 1000 * BEGIN_MS + np.arange(count) * round(1e6 / RATE) + 100 * source
        return Tuples(np.full(count, source), time_us, draw.normal(size=count), draw.integers(20, size=count))

    return Workload(problem, (side(0), side(1)), SECONDS)


def played(on: Cluster, plan: Plan, **speeds: object) -> Outcome:
    work = workload()
    expected = work.joined(plan)
    outcome = on.run(work, plan, plan.space, len(expected), **speeds)  # type: ignore[arg-type]
    assert len(expected) > 300
    assert np.array_equal(ordered(outcome.results), expected)
    return outcome


def test_results_are_the_plain_joins_and_none_comes_before_its_way_allows(two: Cluster) -> None:
    outcome = played(two, on_a_line.plan_of(workload().problem, HALVES))
    assert outcome.delivered == 3 * SECONDS * RATE  # the right tuples go to both hosts
    # the later tuple of a result travels 20 or 10 ms to node 3 and 30 to the sink, or 30 or 20 to node 4 and 40
    assert outcome.latency_ms.min() >= 40.0
    assert set(outcome.cpu_cores) == {3, 4}


def test_a_slow_node_is_slow_behind_a_gate(two: Cluster) -> None:
    assert two.means == "gate"
    outcome = played(two, on_a_line.plan_of(workload().problem, HALVES), speed=np.full(5, SLOW))
    served = np.count_nonzero(outcome.age_s <= SECONDS)
    assert served < 0.75 * len(outcome.results)  # half of the tuples at most were let in by then
    assert np.quantile(outcome.latency_ms, 0.9) > 500.0


@pytest.mark.slow
@pytest.mark.skipif(isinstance(cgroups(), str), reason=f"cgroups: {cgroups()}")
def test_a_slow_node_is_slow_by_its_share_of_a_core() -> None:
    plan = on_a_line.plan_of(workload().problem, HALVES)
    with cluster(2) as made:
        assert isinstance(made.limits, Cgroups)
        core_s = made.cost(workload(), plan, plan.space)
        assert 0 < core_s < 0.1
        outcome = played(made, plan, speed=np.full(5, SLOW / 4), core_s=core_s)
    assert np.count_nonzero(outcome.age_s <= SECONDS) < 0.75 * len(outcome.results)
