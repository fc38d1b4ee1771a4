"""Unmatched: the tuples of an outer join that find no partner, each once, however the join is divided.

A tuple meets its partners in many places: in every sub-join of its source, in every replica that its window, key or
share of the stream leads to. None of these knows whether another has found something. So each tuple of a side that is
kept goes to the sink, too; the sink strikes it out when it shows up in a result, and writes it, with nulls for the
other side, once no result with it can come any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.model.operators import Pipeline
from nova.routing.flow import IDENTITY, Flow
from nova.routing.position import Longs
from nova.routing.routes import SideName
from nova.spark.job.kept import Kept
from nova.spark.job.tasks import Lone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Unmatched:
    """The tuples of one query that may still turn out to join nothing."""

    flow: Flow
    pipeline: Pipeline
    folder: Path

    @property
    def arrived(self) -> Path:
        """Where tasks put the tuples of a batch."""
        return self.folder / "arrived"

    @property
    def open(self) -> Kept:
        """Those that have found nothing so far."""
        return Kept(self.folder / "open")

    def lone(self, side: SideName) -> Lone | None:
        """For the tasks that route a side: None where it is not kept."""
        if side not in self.pipeline.keeps:
            return None
        self.arrived.mkdir(parents=True, exist_ok=True)
        return Lone(self.flow, side, str(self.arrived), self.pipeline.first_us if side == "right" else None)

    def of_batch(self, joined: DataFrame, batch: int, watermark_us: int | None) -> pa.Table:
        """Read the joined rows of a batch, and return the tuples that are known by now to join nothing."""
        for old in self.arrived.glob("*.parquet"):  # of batches that are done, or of an earlier attempt
            old.unlink()
        found = {side: self._joined(joined, side) for side in self.pipeline.keeps}
        fresh = [pq.read_table(file) for file in sorted(self.arrived.glob(f"{batch:09d}-*.parquet"))]
        return self.decide(batch, pa.concat_tables([self.flow.result().empty_table(), *fresh]), found, watermark_us)

    def decide(
        self, batch: int, new: pa.Table, found: Mapping[SideName, pa.Array], watermark_us: int | None
    ) -> pa.Table:
        """The tuples that will join nothing, given those that are new in a batch and the identities, by side, of those
        that were joined in it. A tuple is never joined before the batch that it came in."""
        if watermark_us is not None:
            new = new.filter(pa.array(self._ends(new) > watermark_us))  # the join has dropped the others as late
        before, _ = self.open.before(batch)
        state = new if before is None else pa.concat_tables([before, new])
        for side, ids in found.items():
            state = state.filter(pc.invert(pc.is_in(state[f"{side}_{IDENTITY}"], value_set=ids)))
        over = np.zeros(len(state), np.bool_)
        if watermark_us is not None:
            over = self._ends(state) + self.pipeline.waits_us <= watermark_us
        self.open.save(batch, state.filter(pa.array(~over)), None)
        return state.filter(pa.array(over))

    def rest(self) -> pa.Table | None:
        """The input has ended: all that have found nothing, once."""
        last = self.open.last()
        if last is None:
            return None
        state, _ = self.open.before(last + 1)
        return state

    def forget(self) -> None:
        """The rest is written."""
        last = self.open.last()
        if last is not None:
            self.open.save(last, self.flow.result().empty_table(), None)

    def _joined(self, joined: DataFrame, side: SideName) -> pa.Array:
        """Identities of the tuples of a side that are in these rows."""
        name = f"{side}_{IDENTITY}"
        ids = joined.select(name).distinct().toArrow()[name]
        return ids.combine_chunks() if ids.num_chunks != 1 else ids.chunk(0)

    def _ends(self, table: pa.Table) -> Longs:
        """Ends of the buckets (µs) that tuples lie in."""
        time = pc.coalesce(*(table[f"{side}_time"] for side in ("left", "right"))).cast(pa.int64())
        length = self.flow.bucket_us
        ends: Longs = (np.floor_divide(time.to_numpy(), length) + 1) * length
        return ends
