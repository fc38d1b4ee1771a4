"""Stage: one part of a site's work on a query, as a streaming query with a checkpoint of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova.spark.job.gate import Gate, check
from nova.spark.sites.exchange import Channel
from nova.spark.sources.inputs import at_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Stage:
    """A stage, ready to start."""

    name: str
    frame: DataFrame
    work: Callable[[DataFrame, int], None]
    """What happens in a batch."""
    folder: Path
    every_ms: int
    inputs: tuple[Channel, ...] = ()
    """Where its input comes from; nothing: from the site's own sources, or from other stages."""
    finish: Callable[[], None] = field(default=lambda: None)
    """Tells others that there will be no more."""
    at_hand: bool = False
    """All input lies there already."""
    after: tuple[Stage, ...] = ()
    """Stages whose results are its input."""
    makes: str | None = None
    """The stream that its results are."""
    query: StreamingQuery | None = None
    last: dict[str, Any] | None = None
    """Spark's report of the latest batch."""
    last_leg: bool = False
    """Whether all input is there and the query ends with it."""
    over: bool = False
    slow_starts: int = 0
    gate: Gate = field(init=False)

    def start(self, *, last_leg: bool) -> None:
        """Start the query; on its last leg it ends with what is there now."""
        self.last_leg = last_leg
        gate = self.gate = Gate(self.folder / "checkpoint")
        check(gate.checkpoint)

        def step(frame: DataFrame, batch: int) -> None:
            with gate.batch(batch):
                self.work(frame, batch)

        writer = (
            self.frame.writeStream.queryName(self.name)
            .foreachBatch(step)
            .option("checkpointLocation", str(gate.checkpoint))
        )
        trigger = {"availableNow": True} if last_leg else {"processingTime": f"{self.every_ms} milliseconds"}
        self.query = writer.trigger(**trigger).start()

    def stop(self) -> None:
        """Stop after the batch that runs now."""
        if self.query is not None:
            self.gate.stop(self.query)

    def ended(self) -> bool:
        """Whether all input that there will ever be has been worked off."""
        if self.query is None:
            return False
        if self.last_leg:
            return not self.query.isActive and self.query.exception() is None
        if self.inputs or self.after:
            return False
        return self.gate.at_end() if self.last is None else all(at_end(source) for source in self.last["sources"])
