"""Every kind of event in any order, with snapshots and crashes between them: the durable controller does what one does
that never crashes, bit by bit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, rule

from controller.running import with_rules
from controller.test_controller_machine import Running
from nova.controller import Controller, Event, NodeAdded
from nova.controller.codec import Step
from nova.journal.replay import identical, replay, tables_of
from nova.journal.store import Store
from nova.model.options import Options
from nova.model.plan import read
from nova.optimizer import optimize
from nova.placement.check import check
from nova.placement.resolve import resolve
from nova.scenario import load


class Durable(Running):
    """The machine that draws events, with a store beside the controller."""

    @initialize(
        seed=st.integers(0, 3),
        options=st.sampled_from([{}, {"partition": "grid"}, {"max_replicas": 2}, {"utilisation": 0.8}]),
    )
    def start(self, seed: int, options: dict[str, Any]) -> None:
        problem = with_rules(seed)
        plan = optimize(problem, Options(**options))
        self.running = Controller.from_plan(problem, plan)
        self.count = 0
        memory = Path("/dev/shm")
        self.scratch = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        Store.create(self.scratch / "state", Controller.from_plan(problem, plan))
        self.store = Store(self.scratch / "state")

    def happen(self, *events: Event) -> None:
        changes = self.running.handle(events)
        outcome = self.store.apply(Step(events))
        assert outcome.changes == changes

    @rule()
    def snapshot(self) -> None:
        self.store.snapshot()

    @rule(lost=st.booleans())
    def crash(self, lost: bool) -> None:
        """What was submitted but not committed is gone; all else is there."""
        if lost:
            name = self.fresh("lost")
            self.store.submit(Step((NodeAdded(node=name, capacity=1e6, coordinates=(1.0, 1.0)),)))
        self.store.close()
        self.store = Store(self.scratch / "state")
        assert self.store.warnings == []
        assert identical(tables_of(self.store.controller), tables_of(self.running))
        assert self.store.controller.waiting_list() == self.running.waiting_list()

    def valid(self) -> None:
        """The controller's own promises are tested where it is."""

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            if not self.store.usable:
                return
            current = self.store.export()
            assert replay(self.store.folder).equal
            file = current / "scenario" / "scenario.yaml"
            if file.exists():
                problem = load(file).problem
                plan = read(current / "plan", problem, resolve(problem))
                check(problem, plan)
                assert plan.digest == problem.digest
        finally:
            self.store.close()
            shutil.rmtree(self.scratch)


TestDurable = Durable.TestCase
TestDurable.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
