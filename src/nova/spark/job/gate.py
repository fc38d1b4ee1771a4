"""Gate: lets a query's batches through one by one and, once closed, none: then the query can be stopped in order."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova.model.errors import Fault, InvalidInput
from nova.model.reading import read_text, short

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DAMAGED = "the checkpoint is damaged: restore the file, or start afresh with --fresh"
COMMIT_S = 5.0
"""Time that Spark has to note a finished batch before its query is stopped; it usually needs a few milliseconds."""


def check(checkpoint: Path) -> None:
    """Tell a checkpoint whose newest notes are not what Spark writes: Spark would name neither file nor cause."""
    for log in ("offsets", "commits"):
        number = _last(checkpoint / log)
        if number >= 0:
            _notes(checkpoint / log / str(number))


def _notes(file: Path) -> list[Any]:
    """What Spark noted of a batch, line by line: of offsets, about the batch first, then where each input was."""
    version, *lines = read_text(file, "Spark's checkpoint").splitlines() or [""]
    if not re.fullmatch(r"v[0-9]+", version):
        raise InvalidInput([Fault(str(file), DAMAGED, 1, value=short(version))])
    try:
        return [json.loads(line) for line in lines if line != "-"]
    except (ValueError, RecursionError):
        raise InvalidInput([Fault(str(file), DAMAGED)]) from None


def _last(log: Path) -> int:
    return max((int(file.name) for file in log.glob("*") if file.name.isdecimal()), default=-1)


class Closed(Exception):
    """Ends a query that is being stopped before it begins a batch."""


@dataclass
class Gate:
    """The gate of one query."""

    checkpoint: Path
    """Spark's checkpoint of the query."""
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _closing: bool = False
    _batch: int | None = None
    """The batch that is being worked on, or was last."""

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Around the work of one batch."""
        with self._turn:
            if self._closing:
                raise Closed
            self._batch = number
            yield

    def stop(self, query: StreamingQuery) -> None:
        """Let the batch that runs now come to its end, begin no other, and stop the query.

        Stopping a query in the middle of a batch would be safe, too, but would leave its results for the next run, and
        Spark complains about every task that it interrupts.
        """
        with self._turn:
            self._closing = True
        committed = self.checkpoint / "commits" / str(self._batch)
        end = time.monotonic() + COMMIT_S
        while self._batch is not None and not committed.exists() and time.monotonic() < end:
            time.sleep(0.01)
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
            time.sleep(0.01)  # a batch that is being planned meets the closed gate
        query.stop()

    def unfinished(self) -> int | None:
        """The batch that was begun and not committed when the query last ran."""
        begun, done = _last(self.checkpoint / "offsets"), _last(self.checkpoint / "commits")
        return begun if begun > done else None

    def at_end(self) -> bool:
        """Whether all that there will ever be was worked off and committed: then no batch comes that would say so."""
        last = _last(self.checkpoint / "commits")
        if last < 0 or self.unfinished() is not None:
            return False
        told = _notes(self.checkpoint / "offsets" / str(last))[1:]
        return bool(told) and all(isinstance(one, dict) and one.get("ended") is True for one in told)

    def watermark_us(self, batch: int) -> int | None:
        """Event time before which a batch that was begun joins nothing, as Spark noted it; None: not yet known."""
        told = _notes(self.checkpoint / "offsets" / str(batch))[0]
        watermark_ms = told.get("batchWatermarkMs", 0) if isinstance(told, dict) else 0
        return watermark_ms * 1000 if watermark_ms else None

    @property
    def closed(self) -> bool:
        return self._closing
