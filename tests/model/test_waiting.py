"""Time at a host: textbook values, shape, and that kernels and numpy agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.jit import kernel
from nova.model import waiting

rates = st.floats(0.1, 1e6)
shares = st.floats(0.0, 1.2)


def test_textbook_values() -> None:
    """Half full M/D/1 at 100 tuples/s: 10 ms of service, 5 ms of waiting. Even spacing: no waiting."""
    assert waiting.sojourn_ms(0.0, 100.0) == 10.0
    assert waiting.waiting_ms(50.0, 100.0) == 5.0
    assert waiting.sojourn_ms(50.0, 100.0) == 15.0
    assert waiting.waiting_ms(50.0, 100.0, 0.0) == 0.0
    assert waiting.waiting_ms(50.0, 100.0, 1.0, 9.0) == pytest.approx(
        95.0
    )  # pairs of ten: nine more of 10 ms, half on average


def test_an_unlimited_host_takes_no_time_and_a_full_one_a_finite_time() -> None:
    assert waiting.sojourn_ms(1e9, np.inf) == 0.0
    assert 0 < waiting.sojourn_ms(50.0, 50.0) < 20 * 120


@given(rates, shares, shares)
def test_rises_with_load_and_is_convex(capacity: float, a: float, b: float) -> None:
    low, high = sorted((a * capacity, b * capacity))
    s = [float(waiting.sojourn_ms(load, capacity)) for load in (low, (low + high) / 2, high)]
    assert s[0] <= s[1] * (1 + 1e-12)
    assert s[1] <= s[2] * (1 + 1e-12)
    assert s[1] <= (s[0] + s[2]) / 2 * (1 + 1e-9)


@given(rates, st.floats(0.0, 1.1), st.floats(0.0, 4.0))
def test_slope_is_the_derivative(capacity: float, share: float, scv: float) -> None:
    load, step = share * capacity, 1e-7 * capacity
    rise = waiting.sojourn_ms(load + step, capacity, scv) - waiting.sojourn_ms(load, capacity, scv)
    if not abs(share - waiting.KNEE) < 1e-5:
        assert rise / step == pytest.approx(
            waiting.sojourn_slope(load, capacity, scv), rel=1e-3, abs=1e-4 * 1000 / capacity**2
        )


@kernel
def _in_a_kernel(load: float, capacity: float) -> tuple[float, float, float]:
    return (
        waiting.sojourn_ms(load, capacity),
        waiting.sojourn_slope(load, capacity, 2.0, 3.0),
        waiting.waiting_quantile(0.99, load, capacity),
    )


@given(rates, shares)
def test_kernels_run_the_same_code(capacity: float, share: float) -> None:
    load = share * capacity
    expected = (
        waiting.sojourn_ms(load, capacity),
        waiting.sojourn_slope(load, capacity, 2.0, 3.0),
        waiting.waiting_quantile(0.99, load, capacity),
    )
    assert _in_a_kernel(load, capacity) == pytest.approx(expected)


@given(rates, st.floats(0.05, 0.98), st.floats(0.5, 0.999))
def test_quantile_inverts_the_tail(capacity: float, share: float, q: float) -> None:
    load = share * capacity
    t = waiting.waiting_quantile(q, load, capacity)
    exceeds = waiting.waiting_exceeds(t, load, capacity)
    assert exceeds == pytest.approx(min(1 - q, share))


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.85])
def test_agrees_with_a_simulated_queue(rho: float) -> None:
    """Lindley's recursion over 400,000 Poisson arrivals: mean within 5 %, 99th percentile within 20 %."""
    rng = np.random.default_rng(1)
    gaps = rng.exponential(1000.0 / (100.0 * rho), 400_000)
    wait, waits = 0.0, np.empty(len(gaps))
    for i, gap in enumerate(gaps):
        wait = max(0.0, wait + 10.0 - gap)
        waits[i] = wait
    assert waits.mean() == pytest.approx(waiting.waiting_ms(100 * rho, 100.0), rel=0.05)
    assert np.percentile(waits, 99) == pytest.approx(waiting.waiting_quantile(0.99, 100 * rho, 100.0), rel=0.2)


def test_a_slice_drains_late_by_what_its_host_is_too_slow() -> None:
    """A window of 1 s at 300 tuples/s on a host of 100 tuples/s takes 3 s: 2 s late. A host that keeps up is not."""
    assert waiting.drain_ms(1000.0, 300.0, 100.0) == 2000.0
    assert waiting.drain_ms(1000.0, 80.0, 100.0) == 0.0
