"""RunFolder: everything a run keeps, so that it can be stopped, killed and continued.

lock                held by the process that runs
run.json            what the run was started with
plans/00000, …      the plans, in the order they came in; put there under their final name in one step
jobs/<query>/       Spark's checkpoint, the schedule of plans, how far the windows have come
clock/              when the clock of a replay began, see `nova.spark.sources.clock`
events.jsonl        events that were handled, where events drive the run
results/            results, where they go to files
dead-letters/       tuples that could not be used, see `nova.spark.dead_letters`
buried/             how many of a recorded stream's tuples were put there before it was played, by reason
schemas/            columns of the streams' files

Ids in these names are written as `nova.files.name_of` has them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from nova.files import name_of, write_safely
from nova.model.errors import Fault, InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.reading import read_json, read_text, recall
from nova.routing.flow import Flow
from nova.spark.dead_letters import LetterBox
from nova.spark.sources.lines import Lines, located


class RunFolder:
    """Paths and the memory of a run."""

    FIRST: ClassVar[str] = "00000"

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.written: dict[str, Lines] = {}
        """How the text files of streams are written, told as they are opened."""
        self._held: TextIO | None = None

    @property
    def plans(self) -> Path:
        return self.path / "plans"

    @property
    def watched(self) -> Path:
        """Events that were handled, where events drive the run."""
        return self.path / "events.jsonl"

    @property
    def measured(self) -> Path:
        """Events that tell what the run has measured of its queries, one a line."""
        return self.path / "measured.jsonl"

    def put_measured(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Write them down, where there are any."""
        lines = [json.dumps(event) + "\n" for event in events]
        if lines:
            write_safely(self.measured, "".join(lines))

    @property
    def results(self) -> Path:
        return self.path / "results"

    def plan(self, name: str) -> Path:
        return self.plans / name

    def plan_names(self) -> list[str]:
        """Plans in the order they came in."""
        return sorted(path.name for path in self.plans.glob("[0-9]*") if (path / "plan.json").exists())

    def job(self, query: str) -> Path:
        return self.path / "jobs" / name_of(query)

    def made(self, query: str) -> Path:
        """What a join makes for a later one of the same run."""
        return self.path / "made" / name_of(query)

    def letters(self, query: str) -> LetterBox:
        """The dead letters of a query."""
        return LetterBox(self.path / "dead-letters", query, lambda letters: located(letters, self.written))

    def bury(self, stream: str, counts: Mapping[str, int]) -> None:
        """Note how many tuples of a recorded stream were put with the dead letters before it is played, by reason."""
        file = self._buried(stream)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_safely(file, json.dumps(dict(counts)))

    def buried(self, *streams: str) -> Counter[str]:
        """What `bury` noted of these streams."""
        files = {self._buried(stream) for stream in streams}
        return sum((Counter(recall(file, dict[str, int])) for file in files if file.exists()), Counter())

    def _buried(self, stream: str) -> Path:
        return self.path / "buried" / f"{name_of(stream)}.json"

    def schema(self, stream: str, tell: Callable[[], str]) -> str:
        """The schema of a stream's files: as it was told when the run began, so that files that came since do not make
        it another."""
        file = self.path / "schemas" / f"{name_of(stream)}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_safely(file, tell())
        return read_text(file, "a run")

    def beginning(self) -> str:
        """A new file for the moment at which the clock of this start of the run begins."""
        folder = self.path / "clock"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        return str(folder / f"{time.time_ns()}.json")

    def lock(self) -> None:
        """Make the folder this process's own until `unlock` or the end of the process; refuse where another has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        held = (self.path / "lock").open("a+")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held.seek(0)
            pid = held.read().strip() or "unknown"
            held.close()
            raise InvalidInput(
                [Fault(str(self.path), f"another process runs in this folder (process {pid})")]
            ) from None
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        self._held = held

    def unlock(self) -> None:
        """Let others have the folder."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def open(self, digest: str, plan: Plan, problem: Problem) -> None:
        """Make the folder, or go on with it where the same scenario ran here before."""
        self.adopt(digest)
        if not self.plan(self.FIRST).exists():
            draft = self.plans / ".first"
            plan.write(draft, problem)
            draft.rename(self.plan(self.FIRST))

    def adopt(self, digest: str) -> None:
        """The same for a site, which keeps no plans."""
        memory = self._read()
        if memory and memory["scenario"] != digest:
            raise InvalidInput(
                [
                    Fault(
                        str(self.path),
                        "another scenario ran in this folder: give a new one with -o, or start afresh with --fresh",
                    )
                ]
            )
        if not memory:
            self._write({"scenario": digest, "flows": {}})

    def mode(self) -> str | None:
        """The mode in which the queries ran here; None where none has."""
        flows = self._read().get("flows", {})
        return next((flow.get("mode", "batch") for flow in flows.values()), None)

    def remember(self, query: str, flow: Flow, lateness_ms: int, mode: str = "batch") -> None:
        """Note how a query's tuples travel; refuse to continue a run whose state would no longer fit."""
        memory = self._read()
        told: dict[str, Any] = {
            "window_us": flow.window_us,
            "on": list(flow.on),
            "cells": flow.cells,
            "lateness_ms": lateness_ms,
            "left": [f"{column.name} {column.type}" for column in flow.left],
            "right": [f"{column.name} {column.type}" for column in flow.right],
        }
        if mode != "batch":
            told["mode"] = mode
        before = memory["flows"].get(query)
        if before is not None and before != told:
            changed = [name for name in {**before, **told} if before.get(name) != told.get(name)]
            raise InvalidInput(
                [
                    Fault(
                        str(self.path),
                        f"query {query!r} ran here with other {', '.join(changed)}: give "
                        "a new folder with -o, or start afresh with --fresh",
                    )
                ]
            )
        memory["flows"][query] = told
        self._write(memory)

    def _read(self) -> dict[str, Any]:
        file = self.path / "run.json"
        if not file.exists():
            return {}
        memory = read_json(file, "a run")
        flows = memory.get("flows")
        if (
            not isinstance(memory.get("scenario"), str)
            or not isinstance(flows, dict)
            or not all(isinstance(flow, dict) for flow in flows.values())
        ):
            message = "not what a run wrote: give a new folder with -o, or start afresh with --fresh"
            raise InvalidInput([Fault(str(file), message)])
        return memory

    def _write(self, memory: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_safely(self.path / "run.json", json.dumps(memory, indent=1))
