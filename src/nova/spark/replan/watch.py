"""Watch: events from a growing file drive a run, by way of the re-optimization controller.

Each line that was handled stands in the run's own record before anything follows from it. The controller is a pure
function of the run's first plan and these lines, so a run that was killed has it again by handling them again; plans
that had been handed in are not handed in twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nova.controller import Controller
from nova.controller.codec import Step, event_to_json, parse_step
from nova.controller.events import Event, NodeAdded, NodeRemoved, QueryAdded, SourceAdded
from nova.controller.events.queries import planned_shares
from nova.model import plan as plans
from nova.model.errors import Fault, InvalidInput
from nova.model.merges import mergeable_queries
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.placement.resolve import resolve
from nova.spark.job.folder import RunFolder
from nova.spark.replan.handover import put, switch_of
from nova.spark.replan.newcomers import NOBODY, Newcomers, NewSource


class Watch:
    """The events of one run. `catch_up` first, then `poll` now and then."""

    def __init__(self, events: Path, run: RunFolder, problem: Problem) -> None:
        self.events, self.run = events, run
        first = plans.read(run.plan(run.FIRST), problem, resolve(problem))
        rehearse(problem, first)
        self.controller = Controller.from_plan(problem, first)
        self._nodes = frozenset(problem.nodes.ids.to_pylist())
        self._sources = frozenset(
            zip(
                np.array(problem.streams)[problem.sources.stream].tolist(), problem.sources.ids.to_pylist(), strict=True
            )
        )
        self._merges = first.merge_rows(problem)
        self.newcomers = NOBODY
        self.handled = 0
        """Lines of the file that were handled."""
        self.refused: list[str] = []
        """What was wrong with lines, since this start."""
        self._read = 0
        """Bytes of the file that were handled."""

    def catch_up(self) -> None:
        """Handle again what was handled before the run was stopped or killed."""
        record = self.run.watched
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()
        text = record.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):  # a line that was cut short has had no effect
            with record.open("r+b") as file:
                file.truncate(len(whole))
        before = b"" if not self.events.exists() else self.events.read_bytes()[: len(whole)]
        if before != whole:
            raise InvalidInput(
                [
                    Fault(
                        str(self.events),
                        f"does not begin with the {whole.count(10)} lines that this "
                        "run has handled: go on with that file, or start afresh with --fresh",
                    )
                ]
            )
        plans_of = {switch_of(self.run.plan(name)).event for name in self.run.plan_names()}
        for line in _lines(whole):
            self._handle(line, known=plans_of)
        self.refused.clear()  # reported at that time

    def poll(self) -> int:
        """Handle the lines that the file has got since; returns how many."""
        if not self.events.exists():
            return 0
        with self.events.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        lines = _lines(text[: text.rfind(b"\n") + 1])
        for line in lines:
            with self.run.watched.open("ab") as record:
                record.write(line)
                record.flush()
                os.fsync(record.fileno())
            self._handle(line, known=set())
        return len(lines)

    def planned(self, query: str) -> dict[str, float]:
        """What the plan of a query goes by now, by name as in `selectivity`; nothing of a query that was removed."""
        names = self.controller.state.names
        return planned_shares(names, query) if query in names.query_rows else {}

    def tell(self, event: Event) -> bool:
        """Append an event of the run's own to the file, where others have written whole lines; else it has to wait.
        Returns whether it is written. It is handled when it is read again, like all others."""
        with self.events.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if file.read() not in (b"", b"\n"):
                return False
            file.write(json.dumps(event_to_json(event)).encode() + b"\n")
        return True

    def _handle(self, line: bytes, known: set[int | None]) -> None:
        """One line: a step of the controller, and a plan for the run where it changes anything."""
        self.handled += 1
        self._read += len(line)
        number = self.handled
        if not line.strip():
            return
        try:
            step = parse_step(line, str(self.events), number)
            self._refuse(step)
            changes = self.controller.handle(step.events, step.file, step.line)
            self._welcome(step.events)
        except InvalidInput as error:
            self.refused.append(str(error))
            return
        moved = self._merged_elsewhere()
        if (changes or moved) and number not in known:
            put(self.controller.plan(), self.controller.problem(), self.run, step.time, number, self.newcomers)

    def _merged_elsewhere(self) -> bool:
        """Whether partial aggregates take other ways than before: a host that only merges may be gone."""
        problem = self.controller.problem()
        if not mergeable_queries(problem).any():
            return False
        before, self._merges = self._merges, self.controller.plan().merge_rows(problem)
        return self._merges != before

    def _welcome(self, events: tuple[Event, ...]) -> None:
        """Number the nodes and sources that the scenario does not have; who comes back has a number already."""
        nodes = {
            event.node: event.capacity
            for event in events
            if isinstance(event, NodeAdded) and event.node not in self._nodes
        }
        known = self._sources | {(source.stream, source.id) for source in self.newcomers.sources}
        sources = tuple(
            NewSource(stream, event.source, event.node, event.rate * factor)
            for event in events
            if isinstance(event, SourceAdded)
            for stream, factor in self._with_copies(event.stream)
            if (stream, event.source) not in known
        )
        if nodes or sources:
            self.newcomers = Newcomers(dict(self.newcomers.nodes) | nodes, self.newcomers.sources + sources)

    def _with_copies(self, stream: str) -> Iterator[tuple[str, float]]:
        """A stream, and what queries make of it by filtering or copying, each with the tuples that travel for each that
        is born."""
        names = self.controller.state.names
        yield stream, 1.0
        for row, derived in names.derived.items():
            if names.streams[derived.base] == stream:
                yield names.streams[row], derived.factor

    def _refuse(self, step: Step) -> None:
        """Raise where a step is nothing that a run can follow."""
        faults = []
        for event in step.events:
            if isinstance(event, QueryAdded):
                message = "a run answers the queries of its scenario: start another run for this one"
                faults.append(Fault(step.file, message, step.line, "query", event.query))
            elif isinstance(event, SourceAdded) and (event.stream, event.source) not in self._sources:
                message = "a query of several joins reads this stream, which takes no new sources while it runs"
                if self._chained(event.stream):
                    faults.append(Fault(step.file, message, step.line, "source", event.source))
        if faults:
            raise InvalidInput(faults)

    def _chained(self, stream: str) -> bool:
        """Whether a join reads a stream whose results another join reads, or that reads another's."""
        names = self.controller.state.names
        row = names.stream_rows.get(stream, -1)
        readers = names.readers_of(row) if row >= 0 else []
        return any(names.rule(one).makes is not None or names.parts_of(one) for one in readers)


def rehearse(problem: Problem, plan: Plan) -> None:
    """Let the busiest host fail once, on paper: kernels are compiled before the first event, not when it comes."""
    if len(plan.replicas):
        host = int(np.bincount(plan.replicas.node).argmax())
        Controller.from_plan(problem, plan).handle(NodeRemoved(node=problem.nodes.ids[host].as_py()))


def _lines(text: bytes) -> list[bytes]:
    return [line + b"\n" for line in text.split(b"\n")[:-1]]
