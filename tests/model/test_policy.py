"""What fits: round numbers fit exactly, and a node's other work takes room."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from handmade import problem
from nova.model.errors import Infeasible
from nova.model.options import Options, Partition
from nova.model.policy import usable
from nova.model.problem import Problem
from nova.optimizer import optimize


def with_busy(busy: list[float]) -> Problem:
    small = problem()
    return dataclasses.replace(small, nodes=dataclasses.replace(small.nodes, busy=np.array(busy, float)))


def test_other_work_takes_room() -> None:
    """Half of 100 tuples/s may be used and 20 are busy: 30 are left; a host of 30 that is busy with 20 has none."""
    room = usable(with_busy([0, 0, 0, 20, 20, 0]).nodes, Options(utilisation=0.5))
    assert room[3] == pytest.approx(30.0)
    assert room[4] == 0.0
    assert room[5] == 0.0  # the sink hosts nothing


def test_a_plan_keeps_clear_of_other_work() -> None:
    """The sub-joins need 30 and 25 tuples/s; h1 has 100 less 60, h2 30: each gets one. Less is refused."""
    plan = optimize(with_busy([10, 10, 10, 60, 0, 0]), Options(partition="grid"))
    assert sorted(plan.replicas.node.tolist()) == [3, 4]
    with pytest.raises(Infeasible):
        optimize(with_busy([10, 10, 10, 90, 15, 0]))


@pytest.mark.parametrize("partition", ["auto", "grid"])
def test_exact_fits_fit(partition: Partition) -> None:
    """Joins of 30 and 25 tuples/s on hosts of 30 and 25, and both on a host of 55: whole, nothing cut off."""
    for capacity in ((1, 1, 1, 30, 25, 9), (1, 1, 1, 25, 30, 9), (1, 1, 1, 55, 1, 9)):
        plan = optimize(problem(capacity), Options(partition=partition))
        assert len(plan.replicas) == 2
        assert plan.summary["max_utilisation"] == pytest.approx(1.0)
