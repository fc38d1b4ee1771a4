"""Site: what one node of a plan does, as its own Spark application.

The parts are those of a whole job, cut where tuples cross the network:

    input ─ filter, route, pack ─ outbox ~~exchange~~> join on (cell, bucket) ─ outbox ~~exchange~~> sink
            (send)                                            (join)                               (collect)

Each part is a streaming query with a checkpoint. The join watches one watermark per sender and side and goes by the
slowest: tuples of a site that was down, or is slow, are not late for that. Where results wait for the end of their
windows, the join tells how far it has come, and the sink goes by the slowest join. Partial aggregates may be merged at
other sites on their way to the sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova.files import appearing
from nova.model.errors import NovaError
from nova.routing.packets import MOMENT
from nova.spark.job.folder import RunFolder
from nova.spark.job.listener import Listener
from nova.spark.job.meter import Meter
from nova.spark.job.run import CONFIG, SLOW_START, SLOW_STARTS, Settings, reason
from nova.spark.sites.exchange import Channel, Exchange
from nova.spark.sites.presence import SILENT_S, GivenUp, Presence
from nova.spark.sites.share import Share
from nova.spark.sites.stage import Stage
from nova.spark.sites.work import Work
from nova.spark.sources.inputs import open_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
TOLD = "_come"
"""How kinds end that tell how far others have come."""


@contextmanager
def claimed(site: str, digest: str, folder: Path, exchange: Exchange) -> Iterator[Presence]:
    """A site's run folder and its name among all sites, this process's own within the block; the exchange is closed
    behind it. Spark is started within, for that takes long on a small machine: a second process with the same name is
    refused at once, and others hear of the site meanwhile."""
    run = RunFolder(folder)
    run.lock()
    try:
        run.adopt(digest)
        presence = Presence(exchange.board(), site, run.path)
        presence.start()
        presence.keep_up()
        try:
            yield presence
        finally:
            presence.end()
    finally:
        exchange.close()
        run.unlock()


class Site:
    """A node of a plan at work, whose name is `claimed`. `start`, then `wait`, then `report`."""

    def __init__(
        self, spark: SparkSession, share: Share, settings: Settings, exchange: Exchange, presence: Presence
    ) -> None:
        self.spark, self.share, self.settings, self.exchange = spark, share, settings, exchange
        self.presence = presence
        self.folder = RunFolder(settings.folder)
        self.stopped = threading.Event()
        self.began = time.time()
        self._complete: set[Channel] = set()
        self._given_up: dict[str, GivenUp] = {}
        self._nudged: dict[Channel, str] = {}
        """Up to where the join was told to go on without a sender."""
        self._listener = Listener(self._note)
        self.work = Work(spark, share, settings, exchange, self.folder, self.began, lambda: self.lost)

    @property
    def stages(self) -> list[Stage]:
        """Its parts in all queries."""
        return self.work.stages

    @property
    def meters(self) -> dict[str, Meter]:
        """What it has done, by query."""
        return self.work.meters

    def start(self) -> None:
        """Set up the site's part in each query, and start."""
        for key, value in CONFIG.items():
            self.spark.conf.set(key, value)
        self.presence.check()
        inputs = open_inputs(self.spark, self.share.feeds(), self.folder, self.settings.speed)
        for query in self.share.queries:
            self.work.prepare(query, inputs)
        self.spark.streams.addListener(self._listener)
        for stage in self.stages:
            stage.start(last_leg=self.settings.until_end and stage.at_hand)

    def wait(self, observe: Callable[[Site], None] | None = None) -> None:
        """Work until stopped, the time is over, or (with `until_end`) all streams have ended."""
        end = None if self.settings.duration_s is None else self.began + self.settings.duration_s
        try:
            while not self.stopped.wait(POLL_S) and (end is None or time.time() < end):
                self._failures()
                self.presence.check()
                self._without_the_lost()
                if observe is not None:
                    observe(self)
                if self.settings.until_end and self._advance():
                    break
        finally:
            for stage in self.stages:
                stage.stop()
            self.spark.streams.removeListener(self._listener)

    def waiting(self) -> dict[str, float]:
        """Sites that this one waits for, and how long they have not been heard of (s)."""
        senders = {channel.sender for stage in self.stages if not stage.over for channel in stage.inputs}
        senders = {site for site in senders if not self._all_here(self._from(site))}
        others = (senders | self.exchange.awaited()) - {self.share.site} - set(self._given_up)
        silent = {site: self.presence.silence_s(site) for site in sorted(others)}
        return {site: seconds for site, seconds in silent.items() if seconds >= SILENT_S}

    @property
    def lost(self) -> set[str]:
        """Sites that were given up."""
        return set(self._given_up)

    def _from(self, site: str) -> list[Channel]:
        return [channel for stage in self.stages for channel in stage.inputs if channel.sender == site]

    def _without_the_lost(self) -> None:
        """Give up who has been silent for too long, here or elsewhere, and let the joins go on without them."""
        limit = self.settings.give_up_s
        for site, seconds in self.waiting().items():
            if limit is not None and seconds >= limit and self.presence.given_up(site) is None:
                self.presence.give_up(site)
        senders = {channel.sender for stage in self.stages for channel in stage.inputs}
        for site in senders | self.exchange.awaited():
            told = None if site in self._given_up else self.presence.given_up(site)
            if told is not None:
                self._given_up[site] = told
                self.exchange.give_up(site)
        for number, (channel, folder) in enumerate(self.work.inboxes.items()):
            if channel.sender in self._given_up:
                self._nudge(channel, folder, number)

    def _nudge(self, channel: Channel, folder: Path, number: int) -> None:
        """The join goes by the slowest sender. In the place of one that was given up comes an empty packet, which meets
        no other, with the latest time of the rest: then the watermark moves on."""
        stage = next(stage for stage in self.stages if channel in stage.inputs)
        latest = ((stage.last or {}).get("eventTime") or {}).get("max")
        if latest is None or latest <= self._nudged.get(channel, ""):
            return
        self._nudged[channel] = latest
        end = pa.array([datetime.fromisoformat(latest)], MOMENT)
        packet = pa.table(
            {"cell": [-2 - number], "bucket_end": end, "tuples": pa.array([0], pa.int32()), "packet": [b""]}
        )
        with appearing(folder / f"without-{time.time_ns()}.parquet", safe=True) as draft:
            pq.write_table(packet, draft)

    def _advance(self) -> bool:
        """End stages whose input has ended; True when all are over."""
        for stage in self.stages:
            if stage.over:
                continue
            if stage.ended():
                stage.stop()
                self._failures()
                stage.finish()
                stage.over = True
            elif (stage.inputs or stage.after) and not stage.last_leg and self._all_before(stage):
                stage.stop()
                stage.start(last_leg=True)
        return all(stage.over for stage in self.stages)

    def _all_before(self, stage: Stage) -> bool:
        """Whether all input that a stage will ever have is there."""
        return self._all_here(stage.inputs) and all(one.over for one in stage.after)

    def _all_here(self, channels: Iterable[Channel]) -> bool:
        for channel in channels:
            if channel not in self._complete:
                if channel.sender not in self._given_up and not self.exchange.complete(channel):
                    return False
                self._complete.add(channel)
        return True

    def _failures(self) -> None:
        for stage in self.stages:
            failure = stage.query.exception() if stage.query is not None and not stage.gate.closed else None
            if failure is not None and SLOW_START in str(failure) and stage.slow_starts < SLOW_STARTS:
                stage.slow_starts += 1
                stage.start(last_leg=stage.last_leg)
            elif failure is not None:
                raise NovaError(f"{stage.name} failed: {reason(str(failure))}")

    def stop(self) -> None:
        """Ask a working site to stop; from any thread or a signal handler."""
        self.stopped.set()

    def _note(self, report: dict[str, Any]) -> None:
        for stage in self.stages:
            if stage.query is not None and report["id"] == stage.query.id:
                stage.last = report

    def report(self) -> dict[str, Any]:
        """What the site did, as plain values."""
        seconds = max(time.time() - self.began, 1e-3)
        return {
            "site": self.share.site,
            "folder": str(self.folder.path),
            "seconds": seconds,
            "stages": [stage.name for stage in self.stages],
            "waiting": self.waiting(),
            "given_up": [
                {
                    "site": site,
                    **asdict(told),
                    "missing": sorted(
                        {f"{one.query}: {one.kind}" for one in self._from(site) if not one.kind.endswith(TOLD)}
                    ),
                }
                for site, told in self._given_up.items()
            ],
            "queries": [{**meter.report(seconds), "merged": meter.merged.total()} for meter in self.meters.values()],
        }
