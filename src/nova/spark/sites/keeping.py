"""Keeping: tuples of an outer join that go from the site where they are born to the sink, too: they may join nothing.

They go another way than the results, so the sink also has to know how far they have come.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from nova.routing.routes import SideName
from nova.spark.job.job import watermark_delay_ms
from nova.spark.job.tally import Tally
from nova.spark.job.unmatched import Unmatched
from nova.spark.sites.come import Come, told
from nova.spark.sites.exchange import Channel, Kind
from nova.spark.sites.share import QueryShare, Share


def come_of(side: SideName, site: str) -> str:
    """What a site's tuples of a side are called where it is told how far they have come."""
    return f"{side} of {site}"


def kinds_of(side: SideName) -> tuple[Kind, Kind]:
    """What such tuples of a side travel as, and what says how far they have come."""
    return ("left_lone", "left_lone_come") if side == "left" else ("right_lone", "right_lone_come")


class Keeping:
    """The tuples of some sides of a query that are born at a site, where these are kept."""

    def __init__(self, share: Share, query: QueryShare, folder: Path, sides: Iterable[SideName]) -> None:
        self.share, self.query = share, query
        self.unmatched = Unmatched(query.flow, query.pipeline, folder / "unmatched")
        self.come = Come(folder / "come")
        self.sides = [side for side in sides if side in query.pipeline.keeps]

    def channels(self) -> list[Channel]:
        """Where they go."""
        query = self.query
        return [
            Channel(query.flow.query, kind, self.share.site, query.sink) for s in self.sides for kind in kinds_of(s)
        ]

    def beside(self, batch: int) -> dict[Kind, tuple[int, pa.Table]]:
        """Those of a batch, and how far those of earlier batches had come."""
        if not self.sides:
            return {}
        sink, came, come = self.share.row(self.query.sink), self.unmatched.came(batch), self.come.before(batch)
        found: dict[Kind, tuple[int, pa.Table]] = {}
        for side in self.sides:
            kind, told_by = kinds_of(side)
            name = come_of(side, self.share.site)
            found[kind] = sink, came.filter(pc.is_valid(came[f"{side}_time"]))
            found[told_by] = sink, told({name: come[name]} if name in come else {})
        return found

    def add(self, batch: int, tally: Tally) -> None:
        """Take in how far the tuples of a batch have come, as the joins see it."""
        if not self.sides:
            return
        delay_us = watermark_delay_ms(self.share.lateness_ms(self.query), self.query.flow) * 1000
        ends = {side: getattr(tally, f"{side}_end") for side in self.sides}
        come = {come_of(side, self.share.site): end - delay_us for side, end in ends.items() if end is not None}
        self.come.add(batch, told(come))
