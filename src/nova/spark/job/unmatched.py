"""Unmatched: the tuples of an outer join that find no partner, each once, however the join is divided.

A tuple meets its partners in many places: in every sub-join of its source, in every replica that its window, key or
share of the stream leads to. None of these knows whether another has found something. So each tuple of a side that is
kept goes to the sink, too; the sink strikes it out when it shows up in a result, and writes it, with nulls for the
other side, once no result with it can come any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


@dataclass
class Unmatched:
    """The tuples of one query that may still turn out to join nothing."""

    flow: Flow
    pipeline: Pipeline
    folder: Path
    apart: bool = False
    """Whether results may come before the tuples that they are made of, as they do between sites."""
    _taken: tuple[int, pa.Table, pa.Table] | None = None
    """The latest batch, the tuples that came in it, and those that were joined in it."""

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
        for old in self.arrived.glob(f"*-{side}-*.parquet"):  # of an earlier attempt
            old.unlink()
        return Lone(self.flow, side, str(self.arrived), self.pipeline.first_us if side == "right" else None)

    def came(self, batch: int) -> pa.Table:
        """The tuples that tasks have put by in a batch."""
        files = sorted(self.arrived.glob("*.parquet"))
        fresh = [pq.read_table(file) for file in files if file.name.startswith(f"{batch:09d}-")]
        table = pa.concat_tables([self.flow.result().empty_table(), *fresh])
        for file in files:
            file.unlink()
        return table

    def joined(self, batch: int, found: pa.Table) -> None:
        """Take in what was joined in a batch, and what came in it here."""
        self.take_in(batch, self.came(batch), found)

    def take_in(self, batch: int, new: pa.Table, found: pa.Table) -> None:
        """Take in the tuples that came in a batch and, as `found_in` tells them, those that were joined in it."""
        self._taken = batch, new, found

    def of_batch(self, batch: int, watermark_us: int | None) -> pa.Table:
        """The tuples that are known to join nothing, now that what was joined in a batch is."""
        assert self._taken is not None
        told, new, found = self._taken
        assert told == batch
        if self.apart:
            found = self._with_early(batch, new, found, watermark_us)
        ids = {side: _of_side(found, side) for side in self.pipeline.keeps}
        return self.decide(batch, new, ids, watermark_us)

    def _with_early(self, batch: int, new: pa.Table, found: pa.Table, watermark_us: int | None) -> pa.Table:
        """What was joined, in earlier batches, too, where the tuple had not come; what still may come later is kept."""
        early, before = Kept(self.folder / "early"), self.open.before(batch)[0]
        earlier, _ = early.before(batch)
        every = found if earlier is None else pa.concat_tables([earlier, found])
        here = new if before is None else pa.concat_tables([before, new])
        waits = np.ones(len(every), np.bool_)
        for side in self.pipeline.keeps:
            known = pc.is_in(every["id"], value_set=here[f"{side}_{IDENTITY}"].combine_chunks())
            waits &= ~pc.and_(known, pc.equal(every["side"], side)).to_numpy()
        if watermark_us is not None:
            length = self.flow.bucket_us
            ends = (np.floor_divide(every["time_us"].to_numpy(), length) + 1) * length
            waits &= ends + self.pipeline.waits_us > watermark_us
        early.save(batch, every.filter(pa.array(waits)), None)
        return every

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

    def _ends(self, table: pa.Table) -> Longs:
        """Ends of the buckets (µs) that tuples lie in."""
        time = pc.coalesce(*(table[f"{side}_time"] for side in ("left", "right"))).cast(pa.int64())
        length = self.flow.bucket_us
        ends: Longs = (np.floor_divide(time.to_numpy(), length) + 1) * length
        return ends


FOUND = pa.schema([("side", pa.string()), ("id", pa.int64()), ("time_us", pa.int64())])
"""Tuples that were joined: their side, their identity, and the time that their window is known by."""


def found_in(joined: DataFrame, sides: Iterable[SideName]) -> pa.Table:
    """The tuples of these sides that are in joined rows."""
    from pyspark.sql import functions as F

    each = [
        joined.select(F.lit(side), f"{side}_{IDENTITY}", F.unix_micros(f"{side}_time")).distinct().toArrow()
        for side in sides
    ]
    return pa.concat_tables([one.rename_columns(FOUND.names).cast(FOUND) for one in each])


def _of_side(found: pa.Table, side: SideName) -> pa.Array:
    return found.filter(pc.equal(found["side"], side))["id"].combine_chunks()
