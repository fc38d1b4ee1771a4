"""The working folder of a run: everything a killed run needs to continue, and nothing else.

    run.json            what is being computed; another task in the same folder is refused
    ids.arrow           ids in the order of the state's rows
    cells/00012.arrow   pairs of one cell: rows of its one or two blocks, and RTT
    sample.arrow        fitted and held-out pairs that tell convergence and accuracy
    state-0007.npy      coordinates and heights after so many epochs; the two newest are kept
    convergence.jsonl   one line per epoch
    tables/…            blocks of rows that tasks are changing; made anew by a run that continues
Files appear under their names only when they are complete. All workers have to see the folder.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pyarrow as pa

from nova.files import appearing
from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Floats
from nova.model.reading import noted, ordinary, read_bytes, recall

IDS = "ids.arrow"
KEPT = 2
"""States kept: the newest, and one before it in case the newest is damaged."""


@dataclass(frozen=True)
class _Marker:
    """What is being computed in a folder, and whether its ids, cells and sample are complete."""

    task: dict[str, Any]
    prepared: bool


@dataclass(frozen=True)
class Work:
    """The folder, and how its files are written and read."""

    folder: Path

    def claim(self, task: dict[str, Any]) -> bool:
        """Take the folder for `task` (plain values). True where an earlier run of the same task prepared it already."""
        marker = self.folder / "run.json"
        if marker.exists():
            found = recall(marker, _Marker, "an embedding")
            if found.task == task:
                return found.prepared
            raise InvalidInput(
                [
                    Fault(
                        str(self.folder),
                        "holds the unfinished run of another task; delete the folder, or name another one with --work",
                    )
                ]
            )
        if self.folder.exists() and any(self.folder.iterdir()):
            raise InvalidInput(
                [Fault(str(self.folder), "is not empty, and no working folder; name another one with --work")]
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mark(task, prepared=False)
        return False

    def clear(self) -> None:
        """Forget what an unfinished preparation left: other cells than those of the next may be among it."""
        shutil.rmtree(self.folder / "cells", ignore_errors=True)
        (self.folder / "cells").mkdir()

    def tables(self, name: str) -> Path:
        """An empty folder for the blocks of a table."""
        folder = self.folder / "tables" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def prepared(self, task: dict[str, Any]) -> None:
        """Say that ids, cells and sample are complete."""
        self._mark(task, prepared=True)

    def _mark(self, task: dict[str, Any], prepared: bool) -> None:
        text = json.dumps({"task": task, "prepared": prepared}, indent=2)
        with appearing(self.folder / "run.json") as draft:
            draft.write_text(text)

    def cell(self, number: int) -> Path:
        """File of a cell's pairs; absent where the cell has none."""
        return self.folder / "cells" / f"{number:05d}.arrow"

    def save(self, epoch: int, state: Floats) -> None:
        """Keep the state after so many epochs."""
        write_array(self._state(epoch), state, safe=True)
        for old in sorted(self.folder.glob("state-*.npy"))[:-KEPT]:
            old.unlink()

    def newest(self) -> tuple[int, Floats] | None:
        """The newest state that can be read, and its epoch; None before the first."""
        for path in sorted(self.folder.glob("state-*.npy"), reverse=True):
            try:
                state: Floats = np.load(ordinary(path))
            except (ValueError, EOFError, OSError, MemoryError, SyntaxError, TokenError):  # its head is Python's
                continue  # damaged, say by a full disk: the one before it is as good, only older
            return int(path.stem.removeprefix("state-")), state
        return None

    def log(self, entries: list[dict[str, Any]]) -> None:
        """Write the convergence so far."""
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        with appearing(self.folder / "convergence.jsonl") as draft:
            draft.write_text(text)

    def logged(self, epoch: int) -> list[dict[str, Any]]:
        """Convergence of the epochs before `epoch`."""
        path = self.folder / "convergence.jsonl"
        lines = read_bytes(path, "an embedding").splitlines() if path.exists() else []
        entries = [noted(line, dict[str, Any], str(path), "an embedding") for line in lines]
        return [entry for entry in entries if isinstance(entry.get("epoch"), int) and entry["epoch"] <= epoch]

    def remove(self) -> None:
        """Forget the run."""
        shutil.rmtree(self.folder)

    def _state(self, epoch: int) -> Path:
        return self.folder / f"state-{epoch:04d}.npy"


def write_arrow(path: Path, table: pa.Table) -> None:
    """A table as an Arrow file, which is read by mapping it into memory."""
    with appearing(path) as draft, pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """An Arrow file, mapped into memory: pages are shared between processes and read when they are used."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def write_array(path: Path, array: Floats, safe: bool = False) -> None:
    """An array as a file; `safe`: on disk, also when the machine goes down right after."""
    with appearing(path, safe=safe) as draft, draft.open("wb") as file:
        np.save(file, array)
