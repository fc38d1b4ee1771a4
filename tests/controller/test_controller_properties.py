"""What holds whatever happens: undoing restores, events that do not touch commute, the same events give the same plan,
and small changes of the network move nothing."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from controller.running import controller, keeps_its_promises, now, with_measurements
from nova.controller import (
    CapacityChanged,
    Controller,
    Event,
    LatencyMeasured,
    NodeAdded,
    NodeMoved,
    NodeRemoved,
    PairAllowed,
    PairWithdrawn,
    RateChanged,
    SourceAdded,
    SourceRemoved,
)
from nova.controller.schema import GONE
from nova.model.options import Options, Stability
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources
from nova.optimizer import optimize
from nova.synthetic import draw
from nova_lab.bench.drawn_events import Drawing

STILL = Stability(effort=0)
"""Moves only what must move."""
PARTITIONS = ("auto", "grid", "window")


@st.composite
def come_and_go(draw_from: st.DrawFn, running: Controller) -> tuple[Event, Event]:
    """Something that comes, and the event that it goes."""
    match draw_from(st.sampled_from(["node", "source", "pair", "rate"])):
        case "node":
            at = draw_from(st.tuples(st.floats(0, 100), st.floats(-50, 50)))
            capacity = draw_from(st.sampled_from([5.0, 80.0, 1000.0]))
            return NodeAdded(node="new", capacity=capacity, coordinates=at), NodeRemoved(node="new")
        case "source":
            node = draw_from(st.sampled_from(sorted(running.state.names.node_rows)))
            partner = draw_from(st.sampled_from(sorted(running.state.names.source_rows[1])))
            rate = draw_from(st.sampled_from([1.0, 20.0, 60.0]))
            return (
                SourceAdded(stream="left", source="new", node=node, rate=rate, partners={"join": (partner,)}),
                SourceRemoved(stream="left", source="new"),
            )
        case "rate":
            source = draw_from(st.sampled_from(sorted(running.state.names.source_rows[0])))
            rate = float(running.state.sources["rate"][running.state.names.source("left", source)])
            return (
                RateChanged(stream="left", source=source, rate=rate * 0.5),
                RateChanged(stream="left", source=source, rate=rate),
            )
        case _:
            left = draw_from(st.sampled_from(sorted(running.state.names.source_rows[0])))
            right = draw_from(st.sampled_from(sorted(running.state.names.source_rows[1])))
            if ("join", left, right) in now(running):
                return PairAllowed(query="join", left=left, right=right), PairAllowed(
                    query="join", left=left, right=right
                )
            return (
                PairAllowed(query="join", left=left, right=right),
                PairWithdrawn(query="join", left=left, right=right),
            )


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 5), partition=st.sampled_from(PARTITIONS))
def test_what_comes_and_goes_leaves_the_plan_elsewhere_as_it_was(data, seed, partition):
    running = controller(50, seed, STILL, partition=partition)
    before = now(running)
    comes, goes = data.draw(come_and_go(running))
    running.handle(comes)
    running.handle(goes)
    assert now(running) == before


@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 5), partition=st.sampled_from(PARTITIONS))
def test_with_mending_only_what_is_told_changes_and_the_plan_is_about_as_good(data, seed, partition):
    running = controller(50, seed, partition=partition)
    before, cost = now(running), running.cost()
    comes, goes = data.draw(come_and_go(running))
    told = {(c.query, c.left, c.right) for event in (comes, goes) for c in running.handle(event)}
    after = now(running)
    assert {key: parts for key, parts in after.items() if key not in told} == {
        key: parts for key, parts in before.items() if key not in told
    }
    assert after.keys() == before.keys()
    assert running.cost() <= cost * 1.1  # of fifteen sub-joins, one that stays where it went is several per cent


def two_sites(seed: int) -> Problem:
    """Two networks of their own, ten seconds apart, in one problem; with enough room that none overflows into the
    other."""
    here, there = draw(40, 2, seed, load=0.2), draw(40, 2, seed + 100, load=0.2)
    n, m = len(here.nodes), len(here.sources)
    both = (here, there)
    nodes, sources = (
        pa.array(
            [f"{site}-{name}" for site, p in zip("ab", both, strict=True) for name in getattr(p, of).ids.to_pylist()]
        )
        for of in ("nodes", "sources")
    )
    return Problem(
        nodes=Nodes(
            nodes,
            *(np.concatenate([getattr(p.nodes, name) for p in both]) for name in ("capacity", "bandwidth", "hosts")),
            np.concatenate([here.nodes.coordinates, there.nodes.coordinates + 10_000.0]),
        ),
        streams=("left", "right"),
        sources=Sources(
            sources,
            np.concatenate([p.sources.stream for p in both]),
            np.concatenate([here.sources.node, there.sources.node + n]).astype(np.int32),
            np.concatenate([p.sources.rate for p in both]),
        ),
        queries=tuple(
            Query(
                f"{site}-join",
                0,
                1,
                p.queries[0].sink + shift,
                Pairs(
                    (p.queries[0].matrix.left + rows).astype(np.int32),
                    (p.queries[0].matrix.right + rows).astype(np.int32),
                    p.queries[0].matrix.output_rate,
                ),
            )
            for site, p, shift, rows in (("a", here, 0, 0), ("b", there, n, m))
        ),
    )


@st.composite
def happening(draw_from: st.DrawFn, problem: Problem, site: str) -> Event:
    """Something at one site that lets the index stay as it is."""
    nodes = [name for name in problem.nodes.ids.to_pylist() if name.startswith(site)]
    sources = [name for name in problem.sources.ids.to_pylist() if name.startswith(f"{site}-l")]
    factor = draw_from(st.sampled_from([0.25, 0.5, 1.5]))
    if draw_from(st.booleans()):
        source = draw_from(st.sampled_from(sources))
        row = problem.sources.ids.to_pylist().index(source)
        return RateChanged(stream="left", source=source, rate=float(problem.sources.rate[row]) * factor)
    node = draw_from(st.sampled_from(nodes))
    row = problem.nodes.ids.to_pylist().index(node)
    return CapacityChanged(node=node, capacity=max(1.0, float(problem.nodes.capacity[row]) * factor))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 3), partition=st.sampled_from(PARTITIONS))
def test_events_on_different_sub_joins_commute(data, seed, partition):
    # By distance: where waiting counts, small problems follow fresh plans, which are searched over both sites at once.
    problem = two_sites(seed)
    plan = optimize(problem, Options(partition=partition, waiting=0.0))
    here = data.draw(st.lists(happening(problem, "a"), min_size=1, max_size=4))
    there = data.draw(st.lists(happening(problem, "b"), min_size=1, max_size=4))
    order = data.draw(st.permutations([0] * len(here) + [1] * len(there)))
    plans = []
    for which in ([0] * len(here) + [1] * len(there), order):
        running = Controller.from_plan(problem, plan)
        queues = [iter(here), iter(there)]
        for site in which:
            running.handle(next(queues[site]))
        keeps_its_promises(running)
        plans.append(now(running))
    assert plans[0] == plans[1]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_same_events_give_the_same_plan_bit_by_bit(partition):
    problem = draw(300, 5, seed=4, load=0.6)
    plan = optimize(problem, Options(partition=partition))
    first, second = Controller.from_plan(problem, plan), Controller.from_plan(problem, plan)
    drawing = Drawing(problem, seed=2)
    for _ in range(300):
        event = drawing.next()
        assert first.handle(event) == second.handle(event)
    one, two = first.plan(), second.plan()
    assert first.problem().digest == second.problem().digest
    for name in (
        "join",
        "node",
        "left_from",
        "left_to",
        "right_from",
        "right_to",
        "slice_from",
        "slice_to",
        "key_from",
        "key_to",
    ):
        assert getattr(one.replicas, name).tobytes() == getattr(two.replicas, name).tobytes()


def test_jitter_of_a_few_ms_moves_nothing():
    running = controller(120, seed=2)
    at = running.problem().nodes.coordinates.copy()
    random = np.random.default_rng(0)
    for row, name in enumerate(running.state.names.nodes):
        for _ in range(3):
            shifted = at[row] + random.uniform(-3.0, 3.0, size=2)
            assert running.handle(NodeMoved(node=name, coordinates=tuple(shifted.tolist()))) == []


def test_small_steps_in_one_direction_are_noticed_in_the_end():
    running = controller(60, seed=1)
    plan = running.plan()
    host = int(plan.replicas.node[0])
    name = running.problem().nodes.ids[host].as_py()
    at = running.problem().nodes.coordinates[host]
    told = []
    for step in range(1, 60):
        told += running.handle(NodeMoved(node=name, coordinates=(float(at[0]) + 4.0 * step, float(at[1]))))
    assert any(name in c.reason for c in told)
    keeps_its_promises(running)


def test_a_measured_round_trip_that_differs_by_a_few_ms_moves_nothing():
    """With measurements as a matrix, as small scenarios have them."""
    problem = with_measurements(draw(40, 2, seed=3, load=0.5))
    assert problem.latency is not None
    first, second, rtt = problem.latency.first, problem.latency.second, problem.latency.rtt_ms
    running = Controller.from_plan(problem, optimize(problem))
    ids = problem.nodes.ids.to_pylist()
    random = np.random.default_rng(1)
    for k in random.choice(len(first), 200, replace=False).tolist():
        event = LatencyMeasured(
            from_node=ids[first[k]], to_node=ids[second[k]], rtt_ms=float(max(0.1, rtt[k] + random.uniform(-4, 4)))
        )
        assert running.handle(event) == []
    keeps_its_promises(running)


def test_a_move_has_to_gain_more_than_it_costs():
    """A better host appears, by a little: the dearer a migration, the less moves."""
    moved = {}
    for migration_ms in (0.0, 1.0, math.inf):
        running = controller(60, seed=1, stability=Stability(migration_ms=migration_ms, hysteresis=0.0))
        problem = running.problem()
        plan = running.plan()
        host = problem.nodes.coordinates[int(plan.replicas.node[0])]
        sink = problem.nodes.coordinates[problem.queries[0].sink]
        gap = float(np.linalg.norm(sink - host))
        near = host + (sink - host) * min(1.0, 0.5 / max(gap, 1e-9))
        changes = running.handle(NodeAdded(node="new", capacity=1e6, coordinates=tuple(near.tolist())))
        moved[migration_ms] = len(changes)
        keeps_its_promises(running)
    assert moved[0.0] >= moved[1.0] >= moved[math.inf] == 0
    assert moved[0.0] > 0


def test_a_long_run_does_not_grow():
    """As many nodes and sources come as go: every thousand events they are what they were, and so are the tables."""
    running = controller(300, seed=5)
    drawing = Drawing(running.problem(), seed=3)
    for _ in range(3000):
        running.handle(drawing.next())
    keeps_its_promises(running)
    state = running.state
    for table, most in ((state.nodes, 450), (state.sources, 300), (state.joins, 200), (state.replicas, 1000)):
        assert table.end - len(table.free) <= table.end <= most, table.rows.dtype.names
    assert len(state.index.node) <= 2 * 450
    assert len(state.backlog.queue) <= 2 * len(state.backlog) + 64
    evicted = {int(row) for rows in state.evicted.values() for row in rows}
    assert evicted == set(
        np.flatnonzero((state.replicas["evicted_from"] >= 0) & (state.replicas["next"] != GONE)).tolist()
    )
