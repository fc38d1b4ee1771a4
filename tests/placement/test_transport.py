"""The transport optimum equals the linear program's, and its prices prove it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from nova.placement.transport import transport


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(1, 8), st.floats(0.2, 1.4), st.integers(0, 2**32 - 1))
def test_equals_the_linear_program(joins, hosts, load, seed):
    rng = np.random.default_rng(seed)
    cost, demand, room = rng.uniform(1, 100, (joins, hosts)), rng.uniform(1, 50, joins), rng.uniform(0, 80, hosts)
    room *= demand.sum() / (load * room.sum())
    flow, price = transport(cost, demand, room, np.argsort(demand).astype(np.int32))
    assert (flow >= 0).all()
    assert (flow.sum(axis=1) <= room * (1 + 1e-9)).all()
    assert (flow.sum(axis=0) <= demand * (1 + 1e-9)).all()
    if load > 1:
        assert flow.sum() == pytest.approx(room.sum())
        return
    assert flow.sum(axis=0) == pytest.approx(demand)
    ours = ((flow.T / demand[:, None]) * cost).sum()
    each = np.kron(np.eye(joins), np.ones(hosts))
    loads = np.kron(demand, np.eye(hosts))
    optimum = linprog(cost.ravel(), A_ub=loads, b_ub=room * (1 + 1e-9), A_eq=each, b_eq=np.ones(joins)).fun
    assert ours == pytest.approx(optimum, rel=1e-6)
    dual = (cost + demand[:, None] * price).min(axis=1).sum() - price @ room
    assert dual == pytest.approx(ours, rel=1e-6)


def test_without_hosts_nothing_is_placed() -> None:
    flow, price = transport(np.empty((2, 0)), np.array([1.0, 2.0]), np.empty(0), np.array([0, 1], np.int32))
    assert flow.shape == (0, 2)
    assert len(price) == 0
