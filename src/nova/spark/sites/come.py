"""Come: how far the joins of other sites have come, as they tell those who wait for the end of windows.

What a site tells goes beside its rows and is sent after them. So it holds from the next batch on: by then all rows are
there that were sent before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from nova.spark.job.kept import Kept

COLUMNS = "node string, come_us bigint"


def told(come_us: Mapping[str, int]) -> pa.Table:
    """By site, the event time (µs) before which nothing of it is to come."""
    nodes, times = pa.array(list(come_us), pa.string()), pa.array(list(come_us.values()), pa.int64())
    return pa.table({"node": nodes, "come_us": times})


@dataclass(frozen=True)
class Come:
    """What was told, as each of the last batches left it."""

    folder: Path

    def before(self, batch: int) -> dict[str, int]:
        """By site, the latest that earlier batches have brought."""
        known, _ = Kept(self.folder).before(batch)
        return {} if known is None else dict(zip(known["node"].to_pylist(), known["come_us"].to_pylist(), strict=True))

    def add(self, batch: int, table: pa.Table) -> None:
        """Take in what a batch has brought."""
        known = self.before(batch)
        for node, come_us in zip(table["node"].to_pylist(), table["come_us"].to_pylist(), strict=True):
            known[node] = max(come_us, known.get(node, come_us))
        Kept(self.folder).save(batch, told(known), None)


def least(come_us: Mapping[str, int], sites: Collection[str]) -> int | None:
    """Of the slowest of some sites; None where one has not told anything."""
    return min(come_us[site] for site in sites) if sites and all(site in come_us for site in sites) else None
