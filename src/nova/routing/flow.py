"""Flow: what everybody who handles tuples of a query must agree on, so that two tuples that join also meet.

Between routing and joining, tuples travel in *packets*: the tuples of one batch that share a cell and a bucket, as one
Arrow message. A *bucket* is a run of whole windows about a second long; a *cell* is a slice, by hash, of everything
that must be equal for two tuples to join (meeting, window, `on` columns). So packets of one side in one cell and bucket
see every packet of the other side that holds a partner, a state store keeps few large rows instead of many small ones,
and windows may be as short as 1 µs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova.routing.position import Longs, column_bits
from nova.routing.routes import SideName
from nova.routing.xxh64 import hash_longs

BUCKET_US = 1_000_000
"""Buckets are at least this long: shorter ones only make more packets."""
CROWDED = 500_000
"""Tuples of open windows up to which a new packet is compared with whole cells; beyond, cells shrink to few tuples."""
TUPLES_PER_CELL = 50
"""Tuples per cell of a crowded window."""

IDENTITY = "_id"
"""Column by which a tuple of a side that is kept whole (an outer join's) is known again among the results."""
HEAD = pa.schema([("meeting", pa.int32()), ("source", pa.int32()), ("time", pa.int64())])
"""First columns of every packet: where the tuple is to be joined, the row of its source, its event time in µs."""


@dataclass(frozen=True)
class Flow:
    """How the tuples of one query travel."""

    query: str
    window_us: int
    on: tuple[str, ...]
    """Columns of the tuples whose values must be equal."""
    left: pa.Schema
    """Columns that a left tuple carries beside source and time: `value`, then all others."""
    right: pa.Schema
    cells: int = 8
    keeps: tuple[SideName, ...] = ()
    """Sides of which tuples that join nothing are results, too; they carry `IDENTITY`."""

    @property
    def bucket_us(self) -> int:
        """Length of a bucket: the fewest whole windows that reach `BUCKET_US`."""
        return self.window_us * -(-BUCKET_US // self.window_us)

    def carried(self, side: SideName) -> pa.Schema:
        """Columns that a tuple of this side carries beside source and time."""
        return self.left if side == "left" else self.right

    def packet(self, side: SideName) -> pa.Schema:
        """Columns of a packet."""
        return pa.schema([*HEAD, *self.carried(side)])

    def result(self) -> pa.Schema:
        """Columns of a result: the contract's, then what the tuples carry with the prefix of their side."""
        moment = pa.timestamp("us", tz="UTC")
        fixed = [
            ("query", pa.string()),
            ("window_start", moment),
            ("window_end", moment),
            ("left_source", pa.string()),
            ("right_source", pa.string()),
            ("left_time", moment),
            ("right_time", moment),
        ]
        values = [(f"{side}_value", self.carried(side).field("value").type) for side in ("left", "right")]
        others = [
            (f"{side}_{column.name}", column.type)
            for side in ("left", "right")
            for column in self.carried(side)
            if column.name != "value"
        ]
        return pa.schema([*fixed, *values, ("node", pa.string()), *others])

    def keeping(self, sides: tuple[SideName, ...]) -> Flow:
        """The same flow for an outer join that keeps these sides."""
        left, right = (
            self.carried(side).append(pa.field(IDENTITY, pa.int64())) if side in sides else self.carried(side)
            for side in ("left", "right")
        )
        return replace(self, left=left, right=right, keeps=sides)

    def cell(self, meeting: npt.NDArray[np.int32], window: Longs, keys: list[pa.Array]) -> Longs:
        """Cell of each tuple; equal for any two tuples that join."""
        h = hash_longs(window, hash_longs(meeting.astype(np.int64)))
        for key in keys:
            h = hash_longs(column_bits(key)[0], h)
        cell: Longs = (h % np.uint64(self.cells)).astype(np.int64)
        return cell


def cells_for(open_tuples: float, partitions: int) -> int:
    """How many cells suit a stream with about `open_tuples` tuples in windows that are still open.

    Few large packets are cheapest as long as all open tuples can be looked at in a moment. In long windows with
    selective keys that would be read again and again, so cells shrink until a new tuple meets only a handful.
    """
    few = 4 * partitions
    return few if open_tuples <= CROWDED else max(few, int(min(open_tuples / TUPLES_PER_CELL, 2**30)))


def without_null_keys(batch: pa.RecordBatch, on: tuple[str, ...]) -> pa.RecordBatch:
    """Tuples with a missing key join nothing, as in SQL."""
    for name in on:
        if batch.column(name).null_count:
            batch = batch.filter(pc.is_valid(batch.column(name)))
    return batch
