"""Gate: lets a query's batches through one by one and, once closed, none: then the query can be stopped in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nova.model.reading import parse_json, read_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

COMMIT_S = 5.0
"""Time that Spark has to note a finished batch before its query is stopped; it usually needs a few milliseconds."""


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
        begun, done = self._last("offsets"), self._last("commits")
        return begun if begun > done else None

    def at_end(self) -> bool:
        """Whether all that there will ever be was worked off and committed: then no batch comes that would say so."""
        last = self._last("commits")
        if last < 0 or self.unfinished() is not None:
            return False
        file = self.checkpoint / "offsets" / str(last)
        told = [
            parse_json(offset, str(file), "what Spark wrote")
            for offset in read_text(file, "Spark's checkpoint").splitlines()[2:]
            if offset != "-"
        ]
        return bool(told) and all(isinstance(one, dict) and one.get("ended") is True for one in told)

    def _last(self, log: str) -> int:
        return max((int(file.name) for file in (self.checkpoint / log).glob("*") if file.name.isdigit()), default=-1)

    @property
    def closed(self) -> bool:
        return self._closing
