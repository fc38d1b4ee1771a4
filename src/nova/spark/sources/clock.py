"""Clock: at which moment of the day an event is due. Latency is counted from there, and replays keep pace by it.

A live event is due when it happens. A recorded or generated stream is played at a chosen speed from the moment its
first reader asks for tuples; all inputs of a run share that moment, so streams that are joined stay in step.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nova.model.problem import Floats
from nova.model.reading import recall

MOST_ROWS = 200_000
"""Tuples of one stream that a batch takes in at most. Where the input outruns Spark, the rest waits at its source, in
the spool or in the topic: batches, and with them memory, stay bounded."""


@dataclass(frozen=True)
class Clock:
    """`Clock()` is live; with a file, events are due at `speed` times their own speed."""

    speed: float = 1.0
    file: str | None = None
    """Where the one who starts the clock notes its beginning, for every process of the run. A run that is continued
    starts a new clock: time stood still in between."""

    def start(self, event_us: int) -> None:
        """Let time run: events of `event_us` (µs since 1970) are due now. Only the first call counts."""
        if self.file is None:
            return
        draft = Path(f"{self.file}.{os.getpid()}-{threading.get_ident()}")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps([event_us, time.time()]))
        try:
            os.link(draft, self.file)  # whole or not at all, and never over another's
        except FileExistsError:
            return
        finally:
            draft.unlink()

    @property
    def runs(self) -> bool:
        """Whether somebody has started it. A batch that is repeated after a crash asks no reader for new tuples, so it
        may be done before the clock starts."""
        return self.file is None or Path(self.file).exists()

    def event_us(self, wall_s: float) -> float:
        """Event time (µs since 1970) that is due at a moment of the day (s since 1970)."""
        event_us, began_s = self._origin()
        return event_us + (wall_s - began_s) * 1e6 * self.speed

    def due_s(self, event_ms: Floats) -> Floats:
        """Moment of the day (s since 1970) at which events (ms since 1970) are due."""
        event_us, began_s = self._origin()
        due: Floats = began_s + (event_ms / 1000 - event_us / 1e6) / self.speed
        return due

    def told(self) -> str:
        """What latencies are counted from, in words."""
        return "event time" if self.file is None else f"event time, played at {self.speed:g}× its speed"

    def _origin(self) -> tuple[int, float]:
        return (0, 0.0) if self.file is None else _read(self.file)


@cache
def _read(file: str) -> tuple[int, float]:
    return recall(Path(file), tuple[int, float])
