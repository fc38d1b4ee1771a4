"""The prediction agrees with two simulations, and behaves as latencies must."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discrete_events
from nova.datasets.instances import load
from nova.evaluation.approaches import embedded, run
from nova.evaluation.prediction import predict
from nova.evaluation.simulation import percentiles, simulate
from nova.model.felt import mean_way
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Dense, Problem
from nova.model.queue import LEVELS, WEIGHTS, md1_quantiles, md1_waits
from nova.placement.resolve import resolve
from nova.synthetic import draw
from on_a_line import grid, plan_of, problem, slices

WHOLE = [(0, 3, 0, 1, 0, 1, 0, 1)]


def simulated(given: Problem, plan: Plan, seconds: float, runs: int = 3) -> dict[str, float]:
    told = [percentiles(simulate(given, plan, seconds, seed=50 + k).result_ms) for k in range(runs)]
    return {name: float(np.mean([one[name] for one in told])) for name in told[0]}


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95])
def test_the_queue_is_that_of_m_d_1(rho):
    """Lindley's recursion over two million arrivals."""
    steps = np.cumsum(1.0 - np.random.default_rng(3).exponential(1 / rho, 2_000_000))
    waits = steps - np.minimum.accumulate(np.minimum(steps, 0.0))
    levels = np.array([0.5, 0.9, 0.99])
    exact = md1_quantiles(np.array([rho]), levels)[0]
    assert exact == pytest.approx(np.quantile(waits, levels), rel=0.06, abs=0.02)
    read_off = md1_waits(np.array([rho]))[0]
    assert read_off @ WEIGHTS == pytest.approx(rho / (2 * (1 - rho)), rel=1e-2)
    assert read_off[LEVELS < 0.99] == pytest.approx(np.quantile(waits, LEVELS[LEVELS < 0.99]), rel=0.1, abs=0.05)


@given(a=st.floats(0.0, 0.995), b=st.floats(0.0, 0.995))
def test_waits_never_fall_as_load_rises(a, b):
    low, high = md1_waits(np.array([min(a, b), max(a, b)]))
    assert (low <= high * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "boxes",
    [WHOLE, grid([3, 4], [0, 0.4, 1], [0, 1]), [(0, 3, 0, 1, 0, 1, 0, 1, 0, 0.5), (0, 4, 0, 1, 0, 1, 0, 1, 0.5, 1)]],
    ids=["whole", "grid", "keys"],
)
def test_three_ways_to_the_same_latency(boxes):
    """The prediction, `simulate`, and a simulation that shares no code with either."""
    drawn = problem([90.0, 80.0], rates=(40.0, 24.0), window_ms=400.0)
    plan = plan_of(drawn, boxes)
    told = discrete_events.results_ms(drawn, plan, 150.0, seed=1)
    felt, ours = predict(drawn, plan).felt, simulated(drawn, plan, 300.0)
    assert ours["mean"] == pytest.approx(np.mean(told), rel=0.05)
    assert ours["p90"] == pytest.approx(np.quantile(told, 0.9), rel=0.1)
    assert felt.mean_ms == pytest.approx(ours["mean"], rel=0.05)
    assert felt.p50_ms == pytest.approx(ours["p50"], rel=0.05)
    assert felt.p90_ms == pytest.approx(ours["p90"], rel=0.08)
    assert felt.p99_ms == pytest.approx(ours["p99"], rel=0.15)


def test_bursts_are_those_of_the_other_simulation():
    drawn = problem([200.0], rates=(30.0, 24.0), window_ms=300.0)
    plan = plan_of(drawn, WHOLE)
    told = discrete_events.results_ms(drawn, plan, 300.0, seed=4, burst=4.0)
    ours = simulate(drawn, plan, 600.0, seed=4, arrivals="bursty").result_ms
    assert np.mean(ours) == pytest.approx(np.mean(told), rel=0.1)
    assert np.quantile(ours, 0.9) == pytest.approx(np.quantile(told, 0.9), rel=0.15)


def test_slices_wait_for_their_bursts_and_say_so():
    drawn = problem([45.0, 45.0], rates=(40.0, 20.0))
    plan = plan_of(drawn, slices([3, 4], [0, 0.5, 1]))
    prediction, ours = predict(drawn, plan), simulated(drawn, plan, 480.0)
    felt, sliced = prediction.felt, prediction.sliced
    assert felt.mean_ms == pytest.approx(ours["mean"], rel=0.1)
    assert felt.p99_ms == pytest.approx(ours["p99"], rel=0.15)
    assert sliced is not None
    assert (sliced.replicas, sliced.share) == (2, 1.0)
    assert sliced.waiting_ms == pytest.approx(felt.waiting_ms)
    assert predict(drawn, plan_of(drawn, WHOLE)).sliced is None


def test_other_work_waits_in_the_same_line():
    drawn = problem([100.0], rates=(20.0, 20.0))
    loaded = replace(drawn, nodes=replace(drawn.nodes, busy=np.array([0.0, 0.0, 0.0, 40.0])))
    plan = plan_of(drawn, WHOLE)
    felt, ours = predict(loaded, plan).felt, simulated(loaded, plan, 300.0)
    assert felt.waiting_ms > 2 * predict(drawn, plan).felt.waiting_ms
    assert felt.mean_ms == pytest.approx(ours["mean"], rel=0.05)
    run = simulate(loaded, plan, 300.0)
    assert run.delivered == run.emitted == run.served + run.backlog + run.in_flight
    assert run.offered[3] == pytest.approx(0.8, rel=0.03)


def test_parts_of_the_latency_agree_with_the_simulation():
    drawn = problem([75.0], rates=(20.0, 30.0), window_ms=60.0)
    plan = plan_of(drawn, WHOLE)
    felt, parts = predict(drawn, plan).felt, simulate(drawn, plan, 900.0).result_parts
    assert felt.network_ms == pytest.approx(parts["network"], rel=0.02)
    assert felt.service_ms == pytest.approx(parts["service"])
    assert felt.waiting_ms == pytest.approx(parts["waiting"], rel=0.15)


def test_a_tuple_that_many_sub_joins_want_comes_as_a_batch():
    """A dense join matrix on one host: each tuple arrives once per sub-join, at once."""
    drawn = problem([700.0], rates=(20.0, 15.0), joins=3, window_ms=250.0)
    drawn = replace(drawn, queries=(replace(drawn.queries[0], matrix=Dense()),))
    boxes = [(j, 3, 0, 1, 0, 1, 0, 1) for j in range(len(resolve(drawn)))]
    plan = plan_of(drawn, boxes)
    felt, ours = predict(drawn, plan).felt, simulated(drawn, plan, 60.0)
    assert felt.waiting_ms > 1.0
    assert felt.mean_ms == pytest.approx(ours["mean"], rel=0.05)
    assert felt.p99_ms == pytest.approx(ours["p99"], rel=0.15)


@settings(max_examples=30)
@given(
    capacity=st.floats(10.0, 500.0),
    rates=st.tuples(st.floats(1.0, 100.0), st.floats(1.0, 100.0)),
    growth=st.floats(1.0, 3.0),
    window=st.sampled_from([20.0, 300.0, 5000.0]),
)
def test_percentiles_rise_with_load_and_parts_sum(capacity, rates, growth, window):
    low, high = (
        predict(drawn, plan_of(drawn, WHOLE)).felt
        for drawn in (
            problem([capacity], rates, window_ms=window),
            problem([capacity], (rates[0] * growth, rates[1] * growth), window_ms=window),
        )
    )
    for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "waiting_ms"):
        assert getattr(low, name) <= getattr(high, name) * (1 + 1.1e-3)  # a bin of the histogram
    assert low.p50_ms <= low.p90_ms <= low.p99_ms
    assert low.mean_ms == pytest.approx(low.network_ms + low.service_ms + low.waiting_ms)
    assert (low.unsettled == 1.0) == (sum(rates) >= 0.99 * capacity) == np.isinf(low.mean_ms)


@given(near=st.floats(0, 100), apart=st.floats(0, 400), window=st.floats(10, 1000))
def test_the_mean_way_is_that_of_random_pairs(near, apart, window):
    u = np.random.default_rng(0).random((2, 20_000)) * window
    gap = np.abs(u[0] - u[1])
    later_is_near = u[0] > u[1]
    way = np.where(later_is_near, np.maximum(near, near + apart - gap), near + apart)
    told = mean_way(np.array([near]), np.array([near + apart]), np.array([window]))[0]
    assert told == pytest.approx(way.mean(), rel=0.03, abs=0.5)


def test_one_sub_join_and_all_of_them():
    drawn = draw(80, 3, seed=2, load=0.4)
    plan = run("top-c-largest", *embedded(drawn, Options()), Options())[0].plan
    prediction = predict(drawn, plan)
    each = [prediction.of_join(j) for j in range(len(plan.joins))]
    assert np.mean([one.mean_ms for one in each]) == pytest.approx(prediction.felt.mean_ms)  # output rates are equal
    assert max(one.p99_ms for one in each) >= prediction.felt.p99_ms >= min(one.p99_ms for one in each)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["fit-5", "planetlab-3"])
@pytest.mark.parametrize("way", ["utilisation", "top-c-largest"])
def test_prediction_and_simulation_agree_on_instances(shared, name, way):
    drawn, space = embedded(load(shared / "instances" / f"{name}.json").problem, Options())
    plan = run("nova" if way == "utilisation" else way, drawn, space, Options(utilisation=0.75))[0].plan
    felt, ours = predict(drawn, plan).felt, simulated(drawn, plan, 60.0, runs=2)
    assert felt.unsettled == 0
    assert felt.mean_ms == pytest.approx(ours["mean"], rel=0.05)
    assert felt.p99_ms == pytest.approx(ours["p99"], rel=0.15)
