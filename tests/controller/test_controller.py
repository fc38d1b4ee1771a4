"""Each kind of event does what it says, changes only what it must, and leaves a valid plan."""

from __future__ import annotations

import math

import pytest

from controller.running import controller, keeps_its_promises, now, with_rules
from nova.controller import (
    CapacityChanged,
    Controller,
    Deploy,
    LatencyMeasured,
    Move,
    NodeAdded,
    NodeMoved,
    NodeRemoved,
    PairAllowed,
    PairWithdrawn,
    QueryAdded,
    QueryRemoved,
    RateChanged,
    Repartition,
    SinkMoved,
    SourceAdded,
    SourceRemoved,
    Undeploy,
)
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.optimizer import optimize
from nova.synthetic import draw


@pytest.fixture
def running() -> Controller:
    return controller(60, seed=1)


@pytest.fixture
def ruled() -> Controller:
    problem = with_rules()
    return Controller.from_plan(problem, optimize(problem))


def busiest(running: Controller) -> str:
    """The node with most replicas."""
    plan, problem = running.plan(), running.problem()
    return str(problem.nodes.ids[int(max(plan.replicas.node, key=list(plan.replicas.node).count))])


def test_a_fresh_controller_runs_the_plan_it_was_given(running):
    keeps_its_promises(running)
    assert running.plan().summary["steps"] == 0
    assert running.waiting_list() == []


def test_a_node_that_hosts_is_removed(running):
    host = busiest(running)
    before = now(running)
    changes = running.handle(NodeRemoved(node=host))
    keeps_its_promises(running)
    after = now(running)
    assert host not in running.problem().nodes.ids.to_pylist()
    touched = {(c.query, c.left, c.right) for c in changes}
    assert all(before[key] == after.get(key) for key in before if key not in touched)
    assert any(host in c.reason for c in changes)
    assert not any(part[0] == host for parts in after.values() for part in parts)


def test_an_idle_worker_comes_and_goes(running):
    before = now(running)
    far = NodeAdded(node="far", capacity=10.0, coordinates=(900.0, 900.0))
    assert running.handle(far) == []
    assert running.handle(NodeRemoved(node="far")) == []
    assert now(running) == before


def test_a_large_worker_beside_the_sink_gets_work(running):
    sink = running.problem().nodes.coordinates[running.problem().queries[0].sink]
    cost = running.cost()
    changes = running.handle(NodeAdded(node="new", capacity=1e6, coordinates=tuple(sink.tolist())))
    keeps_its_promises(running)
    assert changes
    assert running.cost() < cost
    assert all("new" in c.reason or "new added" in c.reason for c in changes)


def test_a_node_known_by_its_round_trips_is_placed_in_the_cost_space(running):
    problem = running.problem()
    at = problem.nodes.coordinates
    ids = problem.nodes.ids.to_pylist()
    there = at[0] + (at[1] - at[0]) * 0.3
    rtts = {ids[k]: float(math.dist(there, at[k])) for k in (2, 5, 9, 14, 20, 33)}
    running.handle(NodeAdded(node="new", capacity=5.0, rtts=rtts))
    found = running.problem().nodes.coordinates[running.problem().nodes.ids.to_pylist().index("new")]
    assert math.dist(found, there) < 0.5


def test_a_rate_that_doubles_moves_only_its_own_joins_or_those_that_give_way(running):
    problem = running.problem()
    source = problem.sources.ids[0].as_py()
    stream = problem.streams[int(problem.sources.stream[0])]
    changes = running.handle(RateChanged(stream=stream, source=source, rate=4 * float(problem.sources.rate[0])))
    keeps_its_promises(running)
    assert running.problem().sources.rate[0] == 4 * problem.sources.rate[0]
    for change in changes:
        own = source == (change.left if stream == problem.streams[0] else change.right)
        assert own or "gives way" in change.reason or "room on" in change.reason or "back on" in change.reason


def test_a_rate_that_no_longer_fits_waits_and_runs_again_when_it_falls(running):
    problem = running.problem()
    source, stream = problem.sources.ids[0].as_py(), problem.streams[int(problem.sources.stream[0])]
    changes = running.handle(RateChanged(stream=stream, source=source, rate=1e9))
    assert any(isinstance(c, Undeploy) and "does not fit" in c.reason for c in changes)
    (waiting,) = running.waiting_list()
    assert source in (waiting.left, waiting.right)
    assert waiting.tuples_per_s > 1e9
    keeps_its_promises(running)
    running.handle(RateChanged(stream=stream, source=source, rate=1.0))
    assert running.waiting_list() == []
    keeps_its_promises(running)


def test_capacity_lost_sends_replicas_elsewhere(running):
    host = busiest(running)
    changes = running.handle(CapacityChanged(node=host, capacity=0.0))
    keeps_its_promises(running)
    assert changes
    assert not any(part[0] == host for parts in now(running).values() for part in parts)


def test_a_source_comes_with_the_joins_its_rules_say(ruled):
    changes = ruled.handle(
        SourceAdded(
            stream="left",
            source="new",
            node=ruled.state.names.nodes[3],
            rate=2.0,
            attributes={"region": "3", "site": "none"},
            partners={"join": ("r1",)},
        )
    )
    keeps_its_promises(ruled)
    plan, problem = ruled.plan(), ruled.problem()
    pairs = {
        (problem.queries[q].id, problem.sources.ids[a].as_py(), problem.sources.ids[b].as_py())
        for q, a, b in zip(plan.joins.query.tolist(), plan.joins.left.tolist(), plan.joins.right.tolist(), strict=True)
    }
    mine = {pair for pair in pairs if "new" in pair}
    right = problem.sources_of(1)
    assert len([p for p in mine if p[0] == "all"]) == len(right)
    assert len([p for p in mine if p[0] == "region"]) == (problem.queries[1].matrix.right == 3).sum()
    assert not [p for p in mine if p[0] == "long"]
    assert {(c.query, c.left, c.right) for c in changes if isinstance(c, Deploy)} >= mine


def test_a_source_leaves_with_its_joins(ruled):
    name = next(iter(ruled.state.names.source_rows[0]))
    changes = ruled.handle(SourceRemoved(stream="left", source=name))
    keeps_its_promises(ruled)
    assert not any(name in key for key in now(ruled))
    assert any(isinstance(c, Undeploy) for c in changes)


def test_a_pair_is_withdrawn_and_allowed_again(running):
    key = next(iter(now(running)))
    query, left, right = key
    changes = running.handle(PairWithdrawn(query=query, left=left, right=right))
    assert any(isinstance(c, Undeploy) for c in changes)
    assert key not in now(running)
    keeps_its_promises(running)
    assert running.handle(PairWithdrawn(query=query, left=left, right=right)) == []
    changes = running.handle(PairAllowed(query=query, left=left, right=right, output_rate=3.0))
    assert any(isinstance(c, Deploy) for c in changes)
    assert key in now(running)
    keeps_its_promises(running)
    assert running.handle(PairAllowed(query=query, left=left, right=right)) == []


def test_queries_come_and_go(ruled):
    before = set(now(ruled))
    ruled.handle(QueryAdded(query="more", left="right", right="left", sink=ruled.state.names.nodes[2], on=("region",)))
    keeps_its_promises(ruled)
    assert {key for key in now(ruled) if key[0] == "more"} == {
        ("more", right, left) for query, left, right in before if query == "region"
    }
    ruled.handle(QueryRemoved(query="more"))
    keeps_its_promises(ruled)
    assert set(now(ruled)) == before


def test_a_sink_dies_and_another_takes_over(running):
    keys = set(now(running))
    query = running.problem().queries[0]
    sink = running.problem().nodes.ids[query.sink].as_py()
    running.handle(NodeRemoved(node=sink))
    keeps_its_promises(running)
    assert now(running) == {}
    assert {w.reason for w in running.waiting_list()} == {"its query has no sink"}
    changes = running.handle(SinkMoved(query=query.id, sink="n0"))
    keeps_its_promises(running)
    assert all(isinstance(c, Deploy) for c in changes)
    assert set(now(running)) | {(w.query, w.left, w.right) for w in running.waiting_list()} == keys


def test_a_sink_moves_and_joins_follow(running):
    query = running.problem().queries[0]
    at = running.problem().nodes.coordinates
    far = int(abs(at - at[query.sink]).sum(axis=1).argmax())
    changes = running.handle(SinkMoved(query=query.id, sink=running.problem().nodes.ids[far].as_py()))
    keeps_its_promises(running)
    assert any(isinstance(c, Move | Repartition) for c in changes)


def test_a_site_of_hundreds_goes_dark_in_one_step():
    running = controller(600, seed=3, load=0.3)
    problem = running.problem()
    sink = problem.queries[0].sink
    order = abs(problem.nodes.coordinates - problem.nodes.coordinates[5]).sum(axis=1).argsort()
    dark = [problem.nodes.ids[int(row)].as_py() for row in order[:200] if row != sink]
    changes = running.handle([NodeRemoved(node=name) for name in dark])
    keeps_its_promises(running)
    assert changes
    assert len(running.problem().nodes) == 600 - len(dark)
    assert running.step == 2


def test_a_measured_round_trip_pulls_a_node_nearer(running):
    a, b = running.state.names.nodes[0], running.state.names.nodes[1]
    at = running.problem().nodes.coordinates
    before = math.dist(at[0], at[1])
    running.handle(LatencyMeasured(from_node=a, to_node=b, rtt_ms=before / 2))
    at = running.problem().nodes.coordinates
    assert math.dist(at[0], at[1]) < before
    keeps_its_promises(running)


def test_a_mobile_node_takes_its_work_along_or_loses_it(running):
    host = busiest(running)
    running.handle(NodeMoved(node=host, coordinates=(500.0, 500.0)))
    keeps_its_promises(running)
    assert not any(part[0] == host for parts in now(running).values() for part in parts)


def test_changes_hold_from_the_next_window(running):
    changes = running.handle(NodeRemoved(node=busiest(running), time=10_500.0))
    assert {(c.from_window, c.from_ms) for c in changes} == {(11, 11_000.0)}
    changes = running.handle(NodeRemoved(node=busiest(running)))
    assert {(c.from_window, c.from_ms) for c in changes} == {(None, None)}


@pytest.mark.parametrize(
    ("event", "field", "says"),
    [
        (NodeRemoved(node="nobody"), "node", "no such node"),
        (NodeAdded(node="n0", capacity=1.0, coordinates=(0.0, 0.0)), "node", "already"),
        (NodeAdded(node="n", capacity=-1.0, coordinates=(0.0, 0.0)), "capacity", "≥ 0"),
        (NodeAdded(node="n", capacity=math.nan, coordinates=(0.0, 0.0)), "capacity", "≥ 0"),
        (NodeAdded(node="n", capacity=1.0, coordinates=(0.0, math.nan)), "coordinates", "finite"),
        (NodeAdded(node="n", capacity=1.0, coordinates=(0.0,)), "coordinates", "2 numbers"),
        (NodeAdded(node="n", capacity=1.0), "coordinates", "either"),
        (NodeAdded(node="n", capacity=1.0, rtts={"nobody": 1.0}), "rtts.nobody", "no such node"),
        (RateChanged(stream="left", source="nobody", rate=1.0), "source", "no such source"),
        (RateChanged(stream="middle", source="l0", rate=1.0), "stream", "no such stream"),
        (RateChanged(stream="left", source="l0", rate=math.inf), "rate", "finite"),
        (RateChanged(stream="left", source="l0", rate=-2.0), "rate", "≥ 0"),
        (CapacityChanged(node="n0", bandwidth=math.nan), "bandwidth", "≥ 0"),
        (LatencyMeasured(from_node="n0", to_node="n0", rtt_ms=1.0), "to", "itself"),
        (LatencyMeasured(from_node="n0", to_node="n1", rtt_ms=0.0), "rtt_ms", "never 0"),
        (PairAllowed(query="nothing", left="l0", right="r0"), "query", "no such query"),
        (QueryAdded(query="join", left="left", right="right", sink="n0"), "query", "already"),
        (QueryRemoved(query="nothing"), "query", "no such query"),
        (SinkMoved(query="join", sink="nobody"), "sink", "no such node"),
    ],
)
def test_a_bad_event_is_refused_with_its_number_and_field_and_leaves_no_trace(running, event, field, says):
    before, problem = now(running), running.problem()
    good = CapacityChanged(node=busiest(running), capacity=0.0)
    with pytest.raises(InvalidInput) as refused:
        running.handle([good, event])
    fault = refused.value.faults[0]
    assert (fault.row, fault.field) == (2, field)
    assert says in fault.message
    assert now(running) == before
    assert running.problem().digest == problem.digest
    assert running.step == 1


def test_steps_use_more_than_utilisation_wishes_where_joins_would_not_run_else() -> None:
    """Too large for whole plans beside each step: hosts that go leave too little within the wish, and enough beyond."""
    running = controller(300, seed=3, load=0.3, utilisation=0.6)
    wished = running.fullest()
    for _ in range(60):
        running.handle(NodeRemoved(node=busiest(running)))
    assert running.waiting_list() == []
    assert running.fullest() > max(0.6, wished)
    keeps_its_promises(running)


def test_steps_keep_to_utilisation_where_it_says_so() -> None:
    running = controller(300, seed=3, load=0.3, utilisation=0.6, partition="grid")
    for _ in range(20):
        running.handle(NodeRemoved(node=busiest(running)))
        assert running.fullest() <= 0.6 * (1 + 1e-6)


def test_a_plan_that_needs_more_than_utilisation_goes_on_with_it() -> None:
    """What the plan may use, steps may use: no rate that still fits makes anything leave its host for the wish."""
    problem = draw(300, 5, seed=1, load=0.6)
    plan = optimize(problem, Options(utilisation=0.5))
    assert plan.summary.max_utilisation > 0.8
    running = Controller.from_plan(problem, plan)
    source = problem.sources.ids[0].as_py()
    running.handle(RateChanged(stream="left", source=source, rate=float(problem.sources.rate[0]) * 1.01))
    assert running.waiting_list() == []
    keeps_its_promises(running)
