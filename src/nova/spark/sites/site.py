"""Site: what one node of a plan does, as its own Spark application.

The parts are those of a whole job, cut where tuples cross the network:

    input ─ route, pack ─ outbox ~~exchange~~> join on (cell, bucket) ─ outbox ~~exchange~~> sink
            (send)                                    (join)                               (collect)

Each part is a streaming query with a checkpoint. The join watches one watermark per sender and side and goes by the
slowest: tuples of a site that was down, or is slow, are not late for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.files import appearing
from nova.model.errors import InvalidInput, NovaError
from nova.routing.packets import MOMENT, Names
from nova.routing.routes import SideName
from nova.spark.job.folder import RunFolder
from nova.spark.job.gate import Gate, check
from nova.spark.job.job import ANCIENT, join_packets, with_watermark
from nova.spark.job.listener import Listener
from nova.spark.job.meter import Meter
from nova.spark.job.run import CONFIG, SLOW_START, SLOW_STARTS, Settings, reason
from nova.spark.job.schedule import Schedule
from nova.spark.job.sinks import open_sink
from nova.spark.job.tally import Tally, Till
from nova.spark.job.tasks import Matcher, Router, note
from nova.spark.sites.exchange import Channel, Exchange, read_parts
from nova.spark.sites.outbox import WRITTEN, Outbox, WriteParts
from nova.spark.sites.presence import SILENT_S, GivenUp, Presence
from nova.spark.sites.share import SIDES, QueryShare, Share
from nova.spark.sources.clock import Clock
from nova.spark.sources.inputs import Input, at_end, open_inputs
from nova.spark.sources.tuples import HIDDEN, REASON, column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
PACKET = "cell bigint, bucket_end timestamp, tuples int, packet binary"
"""Columns of packets between sites."""


@dataclass
class SiteJob:
    """One streaming query of a site."""

    name: str
    frame: DataFrame
    work: Callable[[DataFrame, int], None]
    """What happens in a batch."""
    folder: Path
    every_ms: int
    inputs: tuple[Channel, ...] = ()
    """Where its input comes from; nothing: from the site's own sources."""
    finish: Callable[[], None] = field(default=lambda: None)
    """Tells others that there will be no more."""
    at_hand: bool = False
    """All input lies there already."""
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
        if self.inputs:
            return False
        return self.gate.at_end() if self.last is None else all(at_end(source) for source in self.last["sources"])


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
        self.stages: list[SiteJob] = []
        self.meters: dict[str, Meter] = {}
        self.stopped = threading.Event()
        self.began = time.time()
        self._complete: set[Channel] = set()
        self._inboxes: dict[Channel, Path] = {}
        """Where tuples of other sites appear."""
        self._given_up: dict[str, GivenUp] = {}
        self._nudged: dict[Channel, str] = {}
        """Up to where the join was told to go on without a sender."""
        self._listener = Listener(self._note)

    def start(self) -> None:
        """Set up the site's part in each query, and start."""
        for key, value in CONFIG.items():
            self.spark.conf.set(key, value)
        self.presence.check()
        inputs = open_inputs(self.spark, self.share.feeds(), self.folder, self.settings.speed)
        for query in self.share.queries:
            self._prepare(query, inputs)
        self.spark.streams.addListener(self._listener)
        for stage in self.stages:
            stage.start(last_leg=self.settings.until_end and stage.at_hand)

    def _prepare(self, query: QueryShare, inputs: dict[str, Input]) -> None:
        flow, share = query.flow, self.share
        self.folder.remember(flow.query, flow, share.settled.lateness_ms)
        self.meters[flow.query] = Meter(flow.query, Clock() if query.clocked else None, self.began)
        schedule = Schedule(self.folder.job(flow.query) / "schedule")
        own = {side: share.own(query, side) for side in SIDES}
        sends, joins = any(len(mine) for mine in own.values()), share.joins(query)
        if (sends or joins) and not schedule.entries():
            schedule.append(self.folder.FIRST, share.routes(query), ANCIENT, 0)
        if sends:
            self._sender(query, own, inputs, schedule)
        if joins:
            self._joiner(query, schedule)
        if query.sink == share.site:
            self._collector(query)

    def _sender(
        self, query: QueryShare, own: dict[SideName, pa.Table], inputs: dict[str, Input], schedule: Schedule
    ) -> None:
        """Tuples of the site's own sources go to the hosts that need them."""
        till = Till(self.spark.sparkContext)
        outbox = self._outbox(query, "send")
        frames, at_hand, channels = [], True, []
        for side, stream in zip(SIDES, query.streams, strict=True):
            mine = own[side]
            if not len(mine):
                continue
            ids = mine["id"].combine_chunks()
            router = Router(query.flow, side, str(schedule.folder), ids, mine["row"].to_numpy(), till, per_node=True)
            tuples = told_columns(inputs[stream].frame, query.flow.carried(side), ids.to_pylist())
            frames.append(tuples.mapInArrow(WriteParts(router, str(outbox.staging), side, None), WRITTEN))
            at_hand = at_hand and inputs[stream].at_hand
            replicas = self.share.replicas_of(query)
            to = replicas.filter(pc.is_in(replicas[f"{side}_source"], value_set=ids))["node"].unique().to_pylist()
            channels += [Channel(query.flow.query, side, self.share.site, target) for target in sorted(to)]
        frame = reduce(lambda a, b: a.union(b), frames)
        self._outgoing(query, "send", frame, outbox, till, channels, at_hand=at_hand)

    def _joiner(self, query: QueryShare, schedule: Schedule) -> None:
        """Packets of all senders meet; results go to the sink."""
        flow, share = query.flow, self.share
        till = Till(self.spark.sparkContext)
        outbox = self._outbox(query, "join")
        channels, sides = [], []
        for side in SIDES:
            coming = [Channel(flow.query, side, sender, share.site) for sender in share.senders(query, side)]
            channels += coming
            sides.append(
                reduce(
                    lambda a, b: a.union(b),
                    [
                        with_watermark(
                            read_parts(self.spark, self._listen(channel), PACKET),
                            share.settled.lateness_ms,
                            flow,
                        )
                        for channel in coming
                    ],
                )
            )
        matcher = Matcher(flow, str(schedule.folder), share.names(), till)
        to = share.nodes["row"][pc.index(share.nodes["id"], query.sink).as_py()].as_py()
        frame = join_packets(*sides).mapInArrow(WriteParts(matcher, str(outbox.staging), "results", to), WRITTEN)
        sent = [Channel(flow.query, "results", share.site, query.sink)]
        self._outgoing(query, "join", frame, outbox, till, sent, inputs=tuple(channels))

    def _listen(self, channel: Channel) -> Path:
        self._inboxes[channel] = self.exchange.listen(channel)
        return self._inboxes[channel]

    def _collector(self, query: QueryShare) -> None:
        """Results of all hosts go to the sink's format."""
        from pyspark.sql.pandas.types import from_arrow_schema

        flow, share, s = query.flow, self.share, self.settings
        channels = tuple(Channel(flow.query, "results", host, share.site) for host in query.hosts)
        schema = from_arrow_schema(flow.result())
        results = reduce(
            lambda a, b: a.union(b),
            [read_parts(self.spark, self.exchange.listen(channel), schema) for channel in channels],
        )
        sink = open_sink(s.format, s.target, s.options, flow, self.folder.path)
        till, meter = Till(self.spark.sparkContext), self.meters[flow.query]
        frame = sink.attach(results, Counted(share.names(), till))

        def work(batch_frame: DataFrame, batch: int) -> None:
            sink.write(batch_frame, batch)
            meter.batch(batch, till.take(), time.time())

        self._add(query, "collect", frame, work, channels)

    def _outbox(self, query: QueryShare, name: str) -> Outbox:
        folder = self.folder.job(query.flow.query) / name / "outbox"
        return Outbox(folder, query.flow.query, self.share.site, self.share.names().nodes)

    def _outgoing(
        self,
        query: QueryShare,
        name: str,
        frame: DataFrame,
        outbox: Outbox,
        till: Till,
        channels: Iterable[Channel],
        inputs: tuple[Channel, ...] = (),
        at_hand: bool = False,
    ) -> None:
        """A stage that fills an outbox and delivers it."""
        meter = self.meters[query.flow.query]
        letters = self.folder.letters(query.flow.query)
        joins_and_collects = name == "join" and query.sink == self.share.site

        def work(batch_frame: DataFrame, batch: int) -> None:
            self.exchange.send(outbox.fill(batch_frame, batch))
            outbox.delivered(batch)
            tally = till.take()
            letters.put(batch, tally.letters)
            if joins_and_collects:
                tally.results.clear()  # counted where they arrive
            tally.ages.clear()
            meter.batch(batch, tally, time.time())

        def finish() -> None:
            totals = outbox.totals()
            self.exchange.finish([(channel, totals.get((channel.kind, channel.target), 0)) for channel in channels])

        self._add(query, name, frame, work, inputs, finish, at_hand)

    def _add(
        self,
        query: QueryShare,
        name: str,
        frame: DataFrame,
        work: Callable[[DataFrame, int], None],
        inputs: tuple[Channel, ...],
        finish: Callable[[], None] = lambda: None,
        at_hand: bool = False,
    ) -> None:
        folder = self.folder.job(query.flow.query) / name
        self.stages.append(
            SiteJob(
                f"{self.share.site}: {query.flow.query}, {name}",
                frame,
                work,
                folder,
                self.settings.every_ms,
                inputs,
                finish,
                at_hand,
            )
        )

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
        for number, (channel, folder) in enumerate(self._inboxes.items()):
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
            elif stage.inputs and not stage.last_leg and self._all_here(stage.inputs):
                stage.stop()
                stage.start(last_leg=True)
        return all(stage.over for stage in self.stages)

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
                    "missing": sorted({f"{channel.query}: {channel.kind}" for channel in self._from(site)}),
                }
                for site, told in self._given_up.items()
            ],
            "queries": [meter.report(seconds) for meter in self.meters.values()],
        }


@dataclass
class Counted:
    """Results that come ready-made: counts them and passes them on. Stands where a `Matcher` would."""

    names: Names
    till: Till

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        for batch in batches:
            if batch.num_rows:
                note(batch, self.names, tally)
                yield batch
        self.till.put(tally)


def told_columns(frame: DataFrame, columns: pa.Schema, sources: list[str]) -> DataFrame:
    """The tuples of some sources, with the columns and types that all sites have agreed on."""
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    missing = [name for name in columns.names if name not in frame.columns]
    if missing:
        raise InvalidInput(
            f"the tuples here lack the columns {', '.join(missing)}, which they had when the plan was deployed"
        )
    wanted = [column_of(column.name).cast(column.dataType) for column in from_arrow_schema(columns)]
    hidden = [column_of(name) for name in HIDDEN if name in frame.columns]
    mine = sql.col("source").isin(sources)
    if hidden:
        mine = mine | column_of(REASON).isNotNull()
    return frame.where(mine).select("source", "time", *wanted, *hidden)


__all__ = ["Site", "SiteJob", "Counted", "claimed"]
