"""Any events in any order: after each, the plan is valid, and what changed is what the controller said."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from controller.running import Placement, keeps_its_promises, with_measurements, with_rules
from nova.controller import (
    CapacityChanged,
    Change,
    Controller,
    Deploy,
    Event,
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
from nova.model.options import Options
from nova.optimizer import optimize

place = st.tuples(st.floats(0, 100), st.floats(-50, 50))
amount = st.sampled_from([0.0, 1.0, 7.0, 30.0, 75.0, 300.0])


class Running(RuleBasedStateMachine):
    """A controller, and a copy of its plan that only follows the changes it tells."""

    @initialize(
        seed=st.integers(0, 3),
        options=st.sampled_from(
            [
                {},
                {"partition": "grid"},
                {"partition": "window"},
                {"max_replicas": 2},
                {"bandwidth_budget": 60.0},
                {"c_min": 5.0},
                {"objective": "paper"},
                {"utilisation": 0.8},
                {"sigma": 0.4},
                {"allow_overload": True},
                {"partition": "window", "max_replicas": 3},
                {"partition": "window", "bandwidth_budget": 40.0},
            ]
        ),
        measured=st.booleans(),
    )
    def start(self, seed: int, options: dict[str, Any], measured: bool) -> None:
        problem = with_rules(seed)
        if measured:
            problem = with_measurements(problem)
        self.running = Controller.from_plan(problem, optimize(problem, Options(**options)))
        self.copy = keeps_its_promises(self.running)
        self.count = 0

    def happen(self, *events: Event) -> None:
        for change in self.running.handle(events):
            follow(self.copy, change)
        assert {key: parts for key, parts in self.copy.items() if parts} == keeps_its_promises(self.running)

    def pick(self, data: st.DataObject, names: Any) -> Any:
        return data.draw(st.sampled_from(sorted(names)))

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}-{self.count}"

    @rule(at=place, capacity=amount, hosts=st.booleans())
    def node_added(self, at: tuple[float, float], capacity: float, hosts: bool) -> None:
        self.happen(NodeAdded(node=self.fresh("n"), capacity=capacity, hosts=hosts, coordinates=at))

    @rule(data=st.data())
    def node_measured(self, data: st.DataObject) -> None:
        names = self.running.state.names.node_rows
        if len(names) > 3:
            rtts = {self.pick(data, names): data.draw(st.floats(0.5, 90)) for _ in range(3)}
            self.happen(NodeAdded(node=self.fresh("n"), capacity=50.0, rtts=rtts))

    @rule(data=st.data(), how_many=st.integers(1, 6))
    def site_goes_dark(self, data: st.DataObject, how_many: int) -> None:
        names = sorted(self.running.state.names.node_rows)
        if len(names) > how_many + 4:
            gone = data.draw(st.lists(st.sampled_from(names), min_size=how_many, max_size=how_many, unique=True))
            self.happen(*[NodeRemoved(node=name) for name in gone])

    @rule(data=st.data(), at=place, capacity=amount, rate=amount)
    def much_at_once(self, data: st.DataObject, at: tuple[float, float], capacity: float, rate: float) -> None:
        """A node is replaced by another, on which a new source begins, while others change."""
        names = self.running.state.names
        if len(names.node_rows) > 8 and names.source_rows[0]:
            gone, other = data.draw(
                st.lists(st.sampled_from(sorted(names.node_rows)), min_size=2, max_size=2, unique=True)
            )
            new = self.fresh("n")
            self.happen(
                CapacityChanged(node=other, capacity=capacity),
                NodeRemoved(node=gone),
                NodeAdded(node=new, capacity=capacity, coordinates=at),
                SourceAdded(stream="left", source=self.fresh("s"), node=new, rate=rate, attributes={"region": "3"}),
                NodeMoved(node=other, coordinates=at),
            )

    @rule(data=st.data(), at=place)
    def node_moved(self, data: st.DataObject, at: tuple[float, float]) -> None:
        self.happen(NodeMoved(node=self.pick(data, self.running.state.names.node_rows), coordinates=at))

    @rule(data=st.data(), capacity=amount, hosts=st.sampled_from([None, None, True, False]))
    def capacity_changed(self, data: st.DataObject, capacity: float, hosts: bool | None) -> None:
        name = self.pick(data, self.running.state.names.node_rows)
        self.happen(CapacityChanged(node=name, capacity=capacity, hosts=hosts))

    @rule(data=st.data(), rtt=st.floats(0.5, 200))
    def latency_measured(self, data: st.DataObject, rtt: float) -> None:
        a, b = self.pick(data, self.running.state.names.node_rows), self.pick(data, self.running.state.names.node_rows)
        if a != b:
            self.happen(LatencyMeasured(from_node=a, to_node=b, rtt_ms=rtt))

    @rule(data=st.data(), side=st.integers(0, 1), rate=amount, region=st.sampled_from(["0", "3", "far"]))
    def source_added(self, data: st.DataObject, side: int, rate: float, region: str) -> None:
        names = self.running.state.names
        others = sorted(names.source_rows[1 - side])
        partners = {"join": tuple(others[:2])} if "join" in names.query_rows and others else None
        self.happen(
            SourceAdded(
                stream=names.streams[side],
                source=self.fresh("s"),
                node=self.pick(data, names.node_rows),
                rate=rate,
                attributes={"region": region},
                partners=partners,
            )
        )

    def some_source(self, data: st.DataObject) -> tuple[str, str] | None:
        side = data.draw(st.integers(0, 1))
        names = self.running.state.names
        known = names.source_rows[side]
        return (names.streams[side], self.pick(data, known)) if known else None

    @rule(data=st.data())
    def source_removed(self, data: st.DataObject) -> None:
        found = self.some_source(data)
        if found is not None:
            self.happen(SourceRemoved(stream=found[0], source=found[1]))

    @rule(data=st.data(), rate=amount)
    def rate_changed(self, data: st.DataObject, rate: float) -> None:
        found = self.some_source(data)
        if found is not None:
            self.happen(RateChanged(stream=found[0], source=found[1], rate=rate))

    @rule(data=st.data(), allow=st.booleans())
    def pair(self, data: st.DataObject, allow: bool) -> None:
        names = self.running.state.names
        if not names.query_rows:
            return
        query = self.pick(data, names.query_rows)
        streams = names.rule(names.query_rows[query]).streams
        if all(names.source_rows[stream] for stream in streams):
            left, right = (self.pick(data, names.source_rows[stream]) for stream in streams)
            kind = PairAllowed if allow else PairWithdrawn
            self.happen(kind(query=query, left=left, right=right))

    @rule(data=st.data(), on=st.sampled_from([None, ("region",)]), window=st.sampled_from([1000.0, 1e7]))
    def query_added(self, data: st.DataObject, on: tuple[str, ...] | None, window: float) -> None:
        names = self.running.state.names
        if on is not None and "region" not in names.query_rows:
            on = None
        self.happen(
            QueryAdded(
                query=self.fresh("q"),
                left="right",
                right="left",
                sink=self.pick(data, names.node_rows),
                on=on,
                window_ms=window,
            )
        )

    @rule(data=st.data())
    def query_removed(self, data: st.DataObject) -> None:
        if self.running.state.names.query_rows:
            self.happen(QueryRemoved(query=self.pick(data, self.running.state.names.query_rows)))

    @rule(data=st.data())
    def sink_moved(self, data: st.DataObject) -> None:
        names = self.running.state.names
        if names.query_rows:
            self.happen(SinkMoved(query=self.pick(data, names.query_rows), sink=self.pick(data, names.node_rows)))


def follow(plan: Placement, change: Change) -> None:
    """Do to a plan what a change says; fails where it does not fit."""
    parts = plan.setdefault((change.query, change.left, change.right), [])
    match change:
        case Deploy():
            parts.append((change.node, *change.shares))
        case Undeploy():
            parts.remove((change.node, *change.shares))
        case Move():
            parts.remove((change.from_node, *change.shares))
            parts.append((change.node, *change.shares))
        case Repartition():
            for part in change.before:
                parts.remove((part.node, *part.shares))
            parts += [(part.node, *part.shares) for part in change.after]
    parts.sort(key=str)


TestRunning = Running.TestCase
TestRunning.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
