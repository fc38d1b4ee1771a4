"""Sending: what leaves a site, as sinks see it; and what arrives of several kinds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from nova.routing.packets import Names
from nova.spark.job.sinks import joined
from nova.spark.job.tally import Tally, Till
from nova.spark.job.tasks import ArrowMap, note, note_hosts
from nova.spark.sites.exchange import Exchange, Kind
from nova.spark.sites.outbox import WRITTEN, Outbox, WriteParts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Sending:
    """A sink that sends what it gets to another site, through an outbox."""

    outbox: Outbox
    exchange: Exchange
    kind: Kind
    target: int
    """Row of the site's node."""
    _beside: dict[Kind, tuple[int, pa.Table]] = field(default_factory=dict)

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        """Rows to files for the target."""
        rows, make = joined(pairs, matcher)
        return rows.mapInArrow(WriteParts(make, str(self.outbox.staging), self.kind, self.target), WRITTEN)

    def beside(self, kind: Kind, table: pa.Table, target: int | None = None) -> None:
        """Send this with the next batch, to another target where one is named."""
        self._beside[kind] = (self.target if target is None else target), table

    def write(self, frame: DataFrame, batch: int) -> None:
        """Send the batch."""
        more, self._beside = self._beside, {}
        send(self.exchange, self.outbox, frame, batch, lambda: more)


def send(
    exchange: Exchange,
    outbox: Outbox,
    frame: DataFrame,
    batch: int,
    beside: Callable[[], Mapping[Kind, tuple[int, pa.Table]]],
) -> None:
    """Send the parts of a batch, and tables beside it."""
    exchange.send(outbox.fill(frame, batch, beside))
    outbox.delivered(batch)


@dataclass
class Counted:
    """Rows that come ready-made: counts them and passes them on. Stands where a `Matcher` would."""

    names: Names
    till: Till

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        for batch in batches:
            if batch.num_rows:
                counts = note if "left_time" in batch.schema.names else note_hosts
                counts(batch, self.names, tally)
                yield batch
        self.till.put(tally)


def together(frames: Iterable[tuple[str, DataFrame]]) -> DataFrame:
    """Rows of several kinds in one frame: a column of structs for each, of which a row has one."""
    from pyspark.sql import functions as F

    kinds = [frame.select(F.struct("*").alias(kind)) for kind, frame in frames]
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), kinds)


def also(frame: DataFrame, frames: Iterable[tuple[str, DataFrame]]) -> DataFrame:
    """A frame of several kinds with more rows of its kinds, or of others."""
    return frame.unionByName(together(frames), allowMissingColumns=True)


def of_kind(frame: DataFrame, kind: str) -> DataFrame:
    """The rows of one kind."""
    from pyspark.sql import functions as F

    return frame.where(F.col(kind).isNotNull()).select(f"{kind}.*")
