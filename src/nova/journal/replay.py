"""Replay: the plan once more from the journal, beside the plans that are stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from nova.controller.controller import Controller
from nova.journal import snapshot
from nova.journal.errors import Damaged
from nova.journal.identity import Identity
from nova.journal.journal import read
from nova.journal.running import Running, thawed
from nova.journal.store import CURRENT
from nova.model.errors import Fault, InvalidInput
from nova.model.reading import read_json
from nova.model.tables import read_parquet

Tables = tuple[pa.Table, pa.Table]
"""Replicas and coordinates of a plan, with ids."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A stored plan, and whether replaying gives the same, bit by bit."""

    stored: str
    sequence: int
    """The step that it was stored after."""
    equal: bool | None
    """None where the journal no longer reaches back to that step."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay."""

    controller: Controller
    first: int
    """The step of the snapshot it began with."""
    last: int
    compared: list[Comparison]

    @property
    def equal(self) -> bool:
        """Whether no stored plan is different."""
        return all(one.equal is not False for one in self.compared)


def replay(folder: str | Path) -> Replayed:
    """Go through the journal from the oldest snapshot that is kept, without changing the folder."""
    folder = Path(folder)
    key = Identity.read(folder).key
    running = _oldest(folder, key)
    records, _ = read(folder, key, running.sequence)
    first = running.sequence
    stored = _stored(folder, key, first)
    compared = [Comparison(name, sequence, None) for sequence, name, _ in stored if sequence < first]
    compared += _compare(running, stored)
    for record in records:
        running.repeat(record)
        compared += _compare(running, stored)
    # what was stored after a step that the journal does not have cannot be right
    compared += [Comparison(name, sequence, False) for sequence, name, _ in stored if sequence > running.sequence]
    return Replayed(running.controller, first, running.sequence, compared)


def _oldest(folder: Path, key: bytes) -> Running:
    for path in snapshot.paths(folder):
        try:
            return thawed(path, key)
        except FileNotFoundError:
            continue  # a writer has made a newer one, and removed this
    raise Damaged(snapshot.path_of(folder, 0), 0, "snapshot", "there is no snapshot")


def _stored(folder: Path, key: bytes, first: int) -> list[tuple[int, str, Tables]]:
    """The exported plan and the snapshots after the first, each with the step that it was stored after."""
    found: list[tuple[int, str, Tables]] = []
    plan = folder / CURRENT / "plan"
    if plan.is_dir():
        file = plan / "plan.json"
        summary = read_json(file, "a plan").get("summary")
        sequence = summary.get("sequence") if isinstance(summary, dict) else None
        if not isinstance(sequence, int):
            raise InvalidInput([Fault(str(file), "the number of a step expected", None, "summary.sequence", sequence)])
        tables = (
            read_parquet(plan / "replicas.parquet", "a plan"),
            read_parquet(plan / "coordinates.parquet", "a plan"),
        )
        found.append((sequence, str(plan), tables))
    for path in snapshot.paths(folder):
        if snapshot.sequence_of(path) > first:
            found.append((snapshot.sequence_of(path), str(path), tables_of(thawed(path, key).controller)))
    return found


def _compare(running: Running, stored: list[tuple[int, str, Tables]]) -> list[Comparison]:
    here = [(name, tables) for sequence, name, tables in stored if sequence == running.sequence]
    if not here:
        return []
    now = tables_of(running.controller)
    return [Comparison(name, running.sequence, identical(tables, now)) for name, tables in here]


def tables_of(controller: Controller) -> Tables:
    """The plan of a controller as tables."""
    problem, plan = controller.problem(), controller.plan()
    return plan.table(problem), plan.coordinates(problem)


def identical(first: Tables, second: Tables) -> bool:
    """Whether all columns are equal, numbers bit by bit."""
    return all(
        one.column_names == other.column_names
        and len(one) == len(other)
        and all(_same(one[name], other[name]) for name in one.column_names)
        for one, other in zip(first, second, strict=True)
    )


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(one.type) and one.type == other.type:
        return bool(np.array_equal(one.to_numpy().view(np.int64), other.to_numpy().view(np.int64)))
    return bool(one.equals(other))
