"""The simulation keeps its books, and agrees with the metrics where nothing queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skewed
from nova.evaluation.metrics import evaluate, source_latency
from nova.evaluation.prediction import predict
from nova.evaluation.simulation import percentiles, simulate
from nova.model.errors import InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.rates import result_rates
from nova.optimizer import optimize
from on_a_line import grid, plan_of, problem, slices

cuts = st.lists(st.floats(0.05, 0.95), max_size=3, unique=True).map(lambda c: [0.0, *sorted(c), 1.0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A sub-join split by a grid or by slices over workers of random capacity, several boxes perhaps on one host."""
    workers = draw(st.lists(st.floats(1.0, 200.0), min_size=1, max_size=4))
    rates = (draw(st.floats(0.5, 80.0)), draw(st.floats(0.5, 80.0)))
    given_problem = problem(workers, rates, window_ms=draw(st.sampled_from([50.0, 700.0, 1000.0])))
    nodes = st.integers(3, 2 + len(workers))
    if draw(st.booleans()):
        borders = draw(cuts)
        boxes = slices([draw(nodes) for _ in borders[1:]], borders)
    else:
        left, right = draw(cuts), draw(cuts)
        boxes = grid([draw(nodes) for _ in range((len(left) - 1) * (len(right) - 1))], left, right)
    return given_problem, plan_of(given_problem, boxes)


@settings(max_examples=60)
@given(case=cases(), seed=st.integers(0, 5), arrivals=st.sampled_from(["poisson", "regular", "bursty"]))
def test_nothing_is_lost_and_nothing_is_faster_than_the_network(case, seed, arrivals):
    given_problem, plan = case
    run = simulate(given_problem, plan, 5.0, seed=seed, arrivals=arrivals)
    assert run.delivered == run.served + run.backlog + run.in_flight
    assert run.delivered >= run.emitted  # each tuple is needed somewhere
    assert run.node_arrived.sum() == run.served + run.backlog
    assert (run.node_backlog >= 0).all()
    assert (run.node_peak_backlog >= run.node_backlog).all()
    assert (run.utilisation <= 1.0 + 1e-12).all()
    assert run.timeline.backlog[-1] == run.backlog
    assert run.timeline.served.sum() == run.served
    between = plan.space.between
    network = between(given_problem.sources.node[run.source], run.node) + between(run.node, np.zeros_like(run.node))
    service_ms = 1000.0 / given_problem.nodes.capacity[run.node]
    assert (run.tuple_ms >= network + service_ms - 1e-6).all()
    fastest = between(plan.replicas.node, np.zeros_like(plan.replicas.node)).min()
    assert (run.result_ms >= fastest - 1e-6).all()


@settings(max_examples=40)
@given(case=cases(), seed=st.integers(0, 5))
def test_results_are_the_pairs_of_the_windows_whatever_the_split(case, seed):
    """Without output rates every pair of one window is one result, in one replica only."""
    given_problem, plan = case
    whole = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    split, unsplit = (simulate(given_problem, p, 4.0, seed=seed) for p in (plan, whole))
    assert len(split.result_ms) == len(unsplit.result_ms)
    assert split.emitted == unsplit.emitted == unsplit.delivered


@settings(max_examples=25)
@given(case=cases())
def test_latency_without_queues_is_that_of_the_metrics(case):
    given_problem, plan = case
    free = problem([np.inf] * (len(given_problem.nodes) - 3), tuple(given_problem.sources.rate))
    run = simulate(free, plan, 400.0, seed=1, arrivals="regular")
    expected = source_latency(free, plan, plan.space).weighted
    for s in range(2):
        # shares of a finite run are shares of the rates up to chance: the ways differ by at most their spread
        mine = run.tuple_ms[run.source == s]
        spread = np.ptp(mine)
        assert mine.mean() == pytest.approx(expected[s], abs=1e-6 + 6 * spread / np.sqrt(len(mine)))


def test_an_unsplit_join_without_queues_agrees_exactly_with_the_metrics():
    free = problem([np.inf, np.inf], joins=3)
    plan = plan_of(free, [(j, v, 0, 1, 0, 1, 0, 1) for j, v in enumerate([3, 4, 3])])
    run = simulate(free, plan, 10.0)
    figures = evaluate(free, plan)
    mean = np.mean([run.tuple_ms[run.source == s].mean() for s in range(6)])
    assert mean == pytest.approx(figures.latency_mean_ms)
    assert run.backlog == 0


@settings(max_examples=30)
@given(rates=st.tuples(st.floats(1.0, 60.0), st.floats(1.0, 60.0)), seed=st.integers(0, 5))
def test_regular_arrivals_below_capacity_keep_the_queue_bounded(rates, seed):
    given_problem = problem([sum(rates) * 1.05], rates)
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    short, long = (simulate(given_problem, plan, t, seed=seed, arrivals="regular") for t in (20.0, 80.0))
    # two evenly spaced streams never bring more than one tuple each above the mean
    assert short.node_peak_backlog[3] <= 4
    assert long.node_peak_backlog[3] <= 4


def test_overload_grows_the_backlog_by_the_excess():
    given_problem = problem([50.0], (40.0, 20.0))
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    run = simulate(given_problem, plan, 100.0, arrivals="regular")
    assert run.backlog == pytest.approx(10 * 100, rel=0.02)
    assert run.utilisation[3] == pytest.approx(1.0, abs=0.01)
    assert run.offered[3] == pytest.approx(1.2, rel=0.01)
    assert run.served_per_s == pytest.approx(50.0, rel=0.01)
    assert run.tuple_ms.max() > 15_000
    assert (np.diff(run.timeline.backlog) >= -1).all()


def test_the_queue_is_that_of_m_d_1():
    """Poisson arrivals at one constant server: mean waiting time ρ / (2 μ (1 − ρ)) (Pollaczek–Khinchine)."""
    mu, rho = 100.0, 0.8
    given_problem = problem([mu], (mu * rho / 2, mu * rho / 2))
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    run = simulate(given_problem, plan, 5000.0, seed=3)
    between = plan.space.between
    network = between(given_problem.sources.node[run.source], run.node) + between(run.node, np.zeros_like(run.node))
    waited_s = (run.tuple_ms - network).mean() / 1000.0 - 1.0 / mu
    assert waited_s == pytest.approx(rho / (2 * mu * (1 - rho)), rel=0.05)


def test_bursts_wait_as_batches_do():
    """M[X]/D/1: the batch adds (E[X²]/E[X] − 1)/(2μ(1 − ρ)) to the wait; bursts of geometric size, 4 on average, add
    6/(2μ(1 − ρ))."""
    given_problem = problem([100.0], rates=(30.0, 20.0))
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    run = simulate(given_problem, plan, 4000.0, seed=2, arrivals="bursty")
    assert run.emitted == pytest.approx(50.0 * 4000.0, rel=0.02)
    left = run.tuple_ms[run.source == 0]
    expected = 10.0 + (0.5 + 6.0) / (2 * 0.1 * 0.5)  # service, then waiting, in ms
    assert left.mean() - (20.0 + 30.0) == pytest.approx(expected, rel=0.06)


def test_window_slices_burst_where_a_grid_flows():
    """Four hosts with room for a quarter of the join (and for a 2 × 2 grid's half): slices let a whole window queue."""
    given_problem = problem([33.0] * 4, (30.0, 30.0))
    even = [0.0, 0.25, 0.5, 0.75, 1.0]
    burst = simulate(given_problem, plan_of(given_problem, slices([3, 4, 5, 6], even)), 120.0, arrivals="regular")
    flow = simulate(
        given_problem, plan_of(given_problem, grid([3, 4, 5, 6], [0, 0.5, 1], [0, 0.5, 1])), 120.0, arrivals="regular"
    )
    assert burst.delivered == burst.emitted  # slices send every tuple once
    assert flow.delivered == 2 * flow.emitted  # a 2 × 2 grid sends each to two hosts
    assert burst.offered[3] < flow.offered[3]
    # yet a window of 60 tuples meets a server of 33 tuples/s: it takes 1.8 s, 0.8 s longer than the window lasted
    assert percentiles(burst.window_ms)["p50"] > 700
    assert percentiles(flow.window_ms)["p50"] < 500
    assert percentiles(burst.tuple_ms)["p99"] > percentiles(flow.tuple_ms)["p99"]


def test_stated_output_rates_are_met():
    given_problem = problem([np.inf], (40.0, 20.0), output=7.0)
    run = simulate(given_problem, plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)]), 1000.0, arrivals="regular")
    assert run.results_per_s == pytest.approx(7.0, rel=0.05)


def test_very_many_results_are_sampled_and_counted(monkeypatch):
    given_problem = problem([np.inf], (40.0, 20.0))
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    every = simulate(given_problem, plan, 50.0)
    monkeypatch.setattr("nova.evaluation.simulation.model.MAX_RESULTS", 4000)
    some = simulate(given_problem, plan, 50.0)
    assert len(some.result_ms) == pytest.approx(4000, rel=0.1)
    assert some.results == pytest.approx(every.results, rel=0.1)
    assert some.result_ms.mean() == pytest.approx(every.result_ms.mean(), rel=0.05)


def test_same_seed_same_run():
    given_problem = problem([50.0], (40.0, 20.0), output=3.0)
    plan = plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)])
    one, two, other = (simulate(given_problem, plan, 10.0, seed=s) for s in (1, 1, 2))
    assert one.summary() == two.summary()
    assert one.summary() != other.summary()


def test_a_node_without_capacity_never_finishes():
    given_problem = problem([0.0], (4.0, 2.0))
    run = simulate(given_problem, plan_of(given_problem, [(0, 3, 0, 1, 0, 1, 0, 1)]), 10.0)
    assert run.served == 0
    assert np.isinf(percentiles(run.tuple_ms)["p50"])
    assert run.results == 0


def test_measured_distances_replace_the_cost_space():
    class Far:
        def between(self, a, b):
            return np.where(np.asarray(a) == np.asarray(b), 0.0, 500.0)

    free = problem([np.inf])
    run = simulate(free, plan_of(free, [(0, 3, 0, 1, 0, 1, 0, 1)]), 5.0, distances=Far())
    assert np.allclose(run.tuple_ms, 1000.0)


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf")])
def test_a_duration_must_be_positive(duration):
    free = problem([1.0])
    with pytest.raises(InvalidInput, match="duration"):
        simulate(free, plan_of(free, [(0, 3, 0, 1, 0, 1, 0, 1)]), duration)


def test_a_heavy_key_is_felt_as_predicted() -> None:
    """Its tuples match each other, whichever boxes of its grid they are in, and those of other keys seldom."""
    skew = skewed.problem({"a": 0.6})
    plan = optimize(skew)
    felt = predict(skew, plan).felt
    run = simulate(skew, plan, 60.0, seed=1)
    assert run.results == pytest.approx(60.0 * result_rates(skew, plan.joins).sum(), rel=0.05)
    assert run.result_ms.mean() == pytest.approx(felt.mean_ms, rel=0.05)
    assert np.percentile(run.result_ms, 99) == pytest.approx(felt.p99_ms, rel=0.15)
