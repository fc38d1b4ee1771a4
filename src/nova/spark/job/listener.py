"""Listener: hears of every batch that Spark has finished."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


class Listener(StreamingQueryListener):
    """Hands Spark's report of each batch to `note`, as plain values."""

    def __init__(self, note: Callable[[dict[str, Any]], None]) -> None:
        self.note = note

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to do: the run has started it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.note(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do: no input, no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to do: the run looks after failures."""
