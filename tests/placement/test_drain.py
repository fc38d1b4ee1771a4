"""Where something must be sliced: large sub-joins on hosts that keep up with them, and nothing refused that fits."""

from __future__ import annotations

import numpy as np
import pytest

from nova.evaluation.prediction import predict
from nova.model.load import node_loads
from nova.model.options import Options
from nova.optimizer import optimize
from nova.placement.drain import Task
from nova.synthetic import draw


def task(demand: list[float], limit: list[float]) -> Task:
    joins, hosts = len(demand), len(limit)
    return Task(
        np.full((joins, hosts), 10.0),
        np.array(demand),
        np.full(joins, 1000.0),
        np.array(limit),
        np.zeros(hosts),
        2.0,
        1.0,
        0.0,
    )


def test_large_joins_get_the_hosts_that_keep_up() -> None:
    """Four windows late would be the join of 100 tuples/s on the host of 20; the one of 19 is not."""
    flow = task([19.0, 100.0], [110.0, 20.0]).divide(np.array([105.0, 19.0]), np.zeros(2, np.bool_))
    assert flow[0, 1] == 100.0
    assert flow[1, 0] > 13.0


def test_what_divides_freely_does_not_mind_small_hosts() -> None:
    """A key's ranges come steadily, so the host's service time alone decides."""
    one = task([100.0], [50.0, 60.0])
    flow = one.divide(np.array([50.0, 60.0]), np.ones(1, np.bool_))
    assert flow.tolist() == [[40.0], [60.0]]


def test_cost_by_hand() -> None:
    """Legs of 10 ms; a host of 100 tuples/s at 50: 10 ms of service and 5 of waiting. Windows of 100 tuples/s are
    250 ms late on hosts of 80. Who else is at a host that drains half of the time waits for 62 ms, and five times as
    long where it is idle for a fifth of its time only."""
    whole = task([50.0], [100.0]).cost(np.array([0]), np.array([0]), np.ones(1), np.array([50.0]), np.array([False]))
    assert whole == pytest.approx(10.0 + 2.0 * 15.0)
    halves = task([100.0], [80.0, 80.0])
    parts = (np.array([0, 0]), np.array([0, 1]), np.array([0.5, 0.5]), np.array([50.0, 50.0]))
    steady, bursts = (halves.cost(*parts, np.full(2, sliced)) for sliced in (False, True))
    assert bursts - steady == pytest.approx(2.0 * 250.0)
    slow = task([125.0, 30.0], [100.0])
    there = (np.array([0, 1]), np.array([0, 0]), np.array([0.4, 1.0]), np.array([50.0, 30.0]))
    alone, met = (slow.cost(*there, np.array([sliced, False])) for sliced in (False, True))
    assert met - alone == pytest.approx(2.0 * (0.4 * 250.0 + 0.5 * 0.5 * 250.0 / 0.2))


@pytest.mark.parametrize("load", [0.8, 0.97])
def test_full_networks_are_placed_and_late_by_seconds(load: float) -> None:
    problem = draw(150, seed=5, load=load)
    plan = optimize(problem)
    assert (node_loads(plan.joins, plan.replicas, 150) <= problem.nodes.capacity * (1 + 1e-6)).all()
    if load < 0.9:
        assert predict(problem, plan).felt.p99_ms <= 5000.0


def test_replicas_at_most_hold_for_slices_too() -> None:
    problem = draw(150, seed=5, load=0.7)
    plan = optimize(problem, Options(max_replicas=4))
    assert np.bincount(plan.replicas.join).max() <= 4
