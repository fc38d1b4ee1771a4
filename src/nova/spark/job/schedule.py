"""Schedule: the timeline of a query on disk, written by the driver between batches and read by every task.

`timeline.json` lists the epochs; each has its compiled routes beside it. The file is replaced as a whole, so a task
sees it before or after a switch, never between.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from nova.files import write_safely
from nova.model.reading import recall
from nova.routing import Epoch, Routes, Timeline
from nova.routing.packets import Names
from nova.spark.replan.newcomers import NOBODY, Newcomers

_loaded: dict[str, tuple[tuple[int, int], Timeline]] = {}
"""Per process: timelines by folder, with the stamp of the file they were read from."""


@dataclass(frozen=True)
class Entry:
    """One epoch as written down."""

    plan: str
    """Name of the plan's folder."""
    first_window: int
    batch: int
    """Batch in whose beginning the plan was taken up."""


class Schedule:
    """The epochs of one query in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.file = self.folder / "timeline.json"

    def entries(self) -> list[Entry]:
        """What is written down; nothing before the first plan."""
        if not self.file.exists():
            return []
        return recall(self.file, list[Entry])

    def append(self, plan: str, routes: Routes, first_window: int, batch: int, newcomers: Newcomers = NOBODY) -> None:
        """From `first_window` on, `plan` holds; `newcomers` are all so far."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if newcomers:
            write_safely(self._newcomers, json.dumps(newcomers.as_json()))
        routes.save(self.folder / f"routes-{plan}.npz")
        entries = [*self.entries(), Entry(plan, first_window, batch)]
        write_safely(self.file, json.dumps([entry.__dict__ for entry in entries], indent=1))

    @property
    def _newcomers(self) -> Path:
        return self.folder / "newcomers.json"

    def newcomers(self) -> Newcomers:
        """Who came so far."""
        if not self._newcomers.exists():
            return NOBODY
        return recall(self._newcomers, Newcomers)

    def names(self, known: Names) -> Names:
        """Ids by row, with those that came later."""
        new = self.newcomers()
        return Names(
            pa.concat_arrays([known.sources, pa.array([s.id for s in new.sources], known.sources.type)]),
            pa.concat_arrays([known.nodes, pa.array(list(new.nodes), known.nodes.type)]),
        )

    def timeline(self) -> Timeline:
        """The epochs with their routes. Cached until the file changes."""
        stat = self.file.stat()
        stamp = (stat.st_mtime_ns, stat.st_ino)
        known = _loaded.get(str(self.folder))
        if known is not None and known[0] == stamp:
            return known[1]
        epochs = tuple(
            Epoch(entry.first_window, Routes.load(self.folder / f"routes-{entry.plan}.npz")) for entry in self.entries()
        )
        timeline = Timeline(epochs)
        _loaded[str(self.folder)] = (stamp, timeline)
        return timeline
