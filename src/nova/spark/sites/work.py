"""Work: what a site has to do in its queries, as stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova.model.errors import InvalidInput
from nova.routing.flow import IDENTITY
from nova.routing.routes import SideName
from nova.spark.job.around import AtHosts, AtSink, before, handed_over, leaving
from nova.spark.job.folder import RunFolder
from nova.spark.job.job import ANCIENT, join_packets, with_watermark
from nova.spark.job.merging import merged
from nova.spark.job.meter import Meter
from nova.spark.job.run import Settings
from nova.spark.job.schedule import Schedule
from nova.spark.job.sinks import HandOver, Sink, open_sink
from nova.spark.job.tally import Till
from nova.spark.job.tasks import Matcher, Router, Single
from nova.spark.job.unmatched import FOUND, Unmatched
from nova.spark.sites.come import COLUMNS, Come, least, told
from nova.spark.sites.exchange import Channel, Exchange, Kind, read_parts
from nova.spark.sites.keeping import Keeping, come_of, kinds_of
from nova.spark.sites.outbox import WRITTEN, Outbox, WriteParts
from nova.spark.sites.sending import Counted, Sending, also, of_kind, send, together
from nova.spark.sites.share import QueryShare, Share
from nova.spark.sites.stage import Stage
from nova.spark.sources.clock import Clock
from nova.spark.sources.inputs import Input
from nova.spark.sources.tuples import HIDDEN, REASON, column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


PACKET = "cell bigint, bucket_end timestamp, tuples int, packet binary"
"""Columns of packets between sites."""
ROWS, COME, LONE, JOINED = "rows", "come", "lone", "joined"
"""What arrives together: rows, and how far those who made them have come; of an outer join tuples that may join
nothing, and which of them were joined."""


@dataclass
class Work:
    """The stages of one site."""

    spark: SparkSession
    share: Share
    settings: Settings
    exchange: Exchange
    folder: RunFolder
    began: float
    """s since 1970"""
    lost: Callable[[], set[str]]
    """Sites that were given up."""
    stages: list[Stage] = field(default_factory=list)
    meters: dict[str, Meter] = field(default_factory=dict)
    inboxes: dict[Channel, Path] = field(default_factory=dict)
    """Where what moves the watermarks of joins appears."""

    def prepare(self, query: QueryShare, inputs: dict[str, Input]) -> None:
        """Add its stages in a query; those that others read stand before them."""
        flow, share = query.flow, self.share
        self.folder.remember(flow.query, flow, share.lateness_ms(query))
        self.meters[flow.query] = Meter(flow.query, Clock() if query.clocked else None, self.began)
        schedule = Schedule(self.folder.job(flow.query) / "schedule")
        own = {side: share.own(query, side) for side in query.sides}
        joins = share.joins(query)
        if (joins or any(map(len, own.values()))) and not schedule.entries():
            schedule.append(self.folder.FIRST, share.routes(query), ANCIENT, 0)
        born = {side: mine for side, mine in own.items() if len(mine) and side not in query.made}
        if born:
            self._sender(query, "send", born, inputs, schedule)
        made = {side: mine for side, mine in own.items() if len(mine) and side in query.made}
        if made:
            self._sender(query, "pass", made, inputs, schedule)
        if joins:
            self._joiner(query, inputs, schedule)
        if query.senders(share.site):
            self._merger(query)
        if query.sink == share.site and query.makes is None:
            self._collector(query)

    def _sender(
        self,
        query: QueryShare,
        name: str,
        own: dict[SideName, pa.Table],
        inputs: dict[str, Input],
        schedule: Schedule,
    ) -> None:
        """Tuples of the site's own sources, or of its joins, go to the hosts that need them."""
        till = Till(self.spark.sparkContext)
        outbox = self._outbox(query, name)
        keeping = Keeping(self.share, query, self._folder(query, name), own)
        frames, at_hand, channels, made = [], True, keeping.channels(), []
        for side, mine in own.items():
            stream = query.stream(side)
            ids = mine["id"].combine_chunks()
            router = Router(
                query.flow,
                side,
                str(schedule.folder),
                ids,
                mine["row"].to_numpy(),
                till,
                per_node=True,
                lone=keeping.unmatched.lone(side),
                by_beats=side in query.made,
            )
            place = f"{self.share.place}: query {query.flow.query}"
            passing = before(inputs[stream].frame, query.around(side), place)
            tuples = told_columns(passing, query.flow.carried(side), ids.to_pylist())
            replicas = self.share.replicas_of(query)
            found = replicas.filter(pc.is_in(replicas[f"{side}_source"], value_set=ids))["node"].unique()
            to = sorted(found.to_pylist())
            every = tuple(map(self.share.row, to))
            frames.append(tuples.mapInArrow(WriteParts(router, str(outbox.staging), side, None, every), WRITTEN))
            at_hand = at_hand and inputs[stream].at_hand
            kinds = (side, come_kind(side)) if side in query.made else (side,)
            channels += [Channel(query.flow.query, kind, self.share.site, target) for target in to for kind in kinds]
            made += [stage for stage in self.stages if side in query.made and stage.makes == stream]
        frame = reduce(lambda a, b: a.union(b), frames)
        letters = self.folder.letters(query.flow.query)
        meter = self.meters[query.flow.query]

        def work(batch_frame: DataFrame, batch: int) -> None:
            send(self.exchange, outbox, batch_frame, batch, lambda: keeping.beside(batch))
            tally = till.take()
            keeping.add(batch, tally)
            letters.put(batch, tally.letters)
            meter.batch(batch, tally, time.time())

        stage = self._add(query, name, frame, work, (), self._finish(outbox, channels), at_hand and not made)
        stage.after = tuple(made)

    def _joiner(self, query: QueryShare, inputs: dict[str, Input], schedule: Schedule) -> None:
        """Packets of all senders meet; results go to the sink, or to a site that merges them on the way there, or are
        the tuples of another join."""
        flow, share = query.flow, self.share
        till, meter = Till(self.spark.sparkContext), self.meters[flow.query]
        channels, sides = [], []
        for side in query.sides:
            packets, coming = self._packets(query, side)
            channels += coming
            sides.append(packets)
        sending, sent = self._next(query, "join", share.site if query.senders(share.site) else None)
        to_sink = share.row(query.sink)

        def found(_: int, table: pa.Table) -> None:
            sending.beside("found", table, to_sink)

        watermark: list[int | None] = [None]

        def come_us() -> int | None:
            return None if watermark[0] is None else watermark[0] + share.lateness_ms(query) * 1000

        sink: Sink = sending
        if query.pipeline.sql:
            sink = AtHosts(sending, flow, query.pipeline, found=found if query.pipeline.keeps else None)
        sent += [Channel(flow.query, "found", share.site, query.sink)] if query.pipeline.keeps else []
        if query.makes is not None:
            sink, sent = AtHosts(self._made(query, inputs, come_us), flow, query.pipeline), []
        arrives_here = query.sink == share.site
        come: dict[str, int] = {}

        def work(batch_frame: DataFrame, batch: int) -> None:
            watermark_us = watermark[0] = stage.gate.watermark_us(batch)
            if query.waits and watermark_us is not None and come != {share.site: watermark_us}:
                come[share.site] = watermark_us
                sending.beside(told_by(sending.kind), told(come))
            sink.write(batch_frame, batch)
            tally = till.take()
            if arrives_here:
                tally.results.clear()  # counted where they arrive
            tally.ages.clear()
            meter.batch(batch, tally, time.time())

        folder, names = str(schedule.folder), share.names()
        if query.pipeline.single:
            frame = sink.attach(sides[0].select("tuples", "packet"), Single(flow, folder, names, till))
        else:
            frame = sink.attach(join_packets(*sides), Matcher(flow, folder, names, till))
        stage = self._add(query, "join", frame, work, tuple(channels), self._finish(sending.outbox, sent))
        stage.makes = query.makes

    def _packets(self, query: QueryShare, side: SideName) -> tuple[DataFrame, list[Channel]]:
        """What comes of a side from all senders. Each has a watermark of its own: tuples as they are born move it on,
        those that a join makes do not, for some of these may be far ahead of others that are still to come."""
        name, share = query.flow.query, self.share
        rows = [Channel(name, side, sender, share.site) for sender in share.senders(query, side)]
        told = rows
        if side in query.made:
            told = [Channel(name, come_kind(side), sender, share.site) for sender in share.senders(query, side)]
        frames = [
            with_watermark(read_parts(self.spark, self._listen(channel), PACKET), share.lateness_ms(query), query.flow)
            for channel in told
        ]
        if told is not rows:
            frames += [read_parts(self.spark, self.exchange.listen(channel), PACKET) for channel in rows]
            rows = [*rows, *told]
        return reduce(lambda a, b: a.union(b), frames), rows

    def _made(self, query: QueryShare, inputs: dict[str, Input], come_us: Callable[[], int | None]) -> Sink:
        """Results become the tuples of a stream that other joins read, here."""
        assert query.makes is not None
        folder, clock = self.folder.made(query.flow.query), Clock() if query.clocked else None
        inputs[query.makes] = handed_over(self.spark, folder, query.flow, query.pipeline, clock)
        groups = self._folder(query, "join") / "groups"
        return AtSink(HandOver(folder, come_us), query.pipeline, groups, query.flow.bucket_us, come_us)

    def _next(self, query: QueryShare, stage: str, to: str | None = None) -> tuple[Sending, list[Channel]]:
        """Where results of a stage go, and through which channels: to the site `to`, or on the way to the sink."""
        name, site = query.flow.query, self.share.site
        to = query.merges.get(site) if to is None else to
        kind: Kind = "results" if to is None else "partials"
        target = query.sink if to is None else to
        kinds = [kind, told_by(kind)] if query.waits else [kind]
        sending = Sending(self._outbox(query, stage), self.exchange, kind, self.share.row(target))
        return sending, [Channel(name, each, site, target) for each in kinds]

    def _listen(self, channel: Channel) -> Path:
        self.inboxes[channel] = self.exchange.listen(channel)
        return self.inboxes[channel]

    def _coming(
        self, query: QueryShare, kind: Kind, senders: Iterable[str], till: Till
    ) -> tuple[DataFrame, tuple[Channel, ...]]:
        """What leaves the hosts of a query, as it comes from some sites; where it waits for the end of windows, counted
        and together with what they tell beside it."""
        schema = leaving(self._no_rows(query), query.pipeline).schema
        rows, channels = self._read(query, kind, senders, schema)
        if not query.waits:
            return rows, channels
        come, more = self._read(query, told_by(kind), senders, COLUMNS)
        counted = rows.mapInArrow(Counted(self.share.names(), till), schema)
        return together([(ROWS, counted), (COME, come)]), (*channels, *more)

    def _no_rows(self, query: QueryShare) -> DataFrame:
        """Joined rows of a query, without any."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return self.spark.createDataFrame([], from_arrow_schema(query.flow.result()))

    def _kept(self, query: QueryShare) -> tuple[list[tuple[str, DataFrame]], tuple[Channel, ...]]:
        """At the sink of an outer join: tuples that may join nothing, which of them were joined, and how far those have
        come who send them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        found, channels = self._read(query, "found", query.hosts, from_arrow_schema(FOUND))
        frames, schema = [(JOINED, found)], self._no_rows(query).schema
        for side in query.pipeline.keeps:
            born = sorted(site for one, site in query.keepers if one == side)
            kind, told_by = kinds_of(side)
            lone, some = self._read(query, kind, born, schema)
            come, more = self._read(query, told_by, born, COLUMNS)
            frames += [(LONE, lone), (COME, come)]
            channels = (*channels, *some, *more)
        return frames, channels

    def _read(
        self, query: QueryShare, kind: Kind, senders: Iterable[str], schema: StructType | str
    ) -> tuple[DataFrame, tuple[Channel, ...]]:
        channels = tuple(Channel(query.flow.query, kind, sender, self.share.site) for sender in senders)
        parts = [read_parts(self.spark, self.exchange.listen(channel), schema) for channel in channels]
        return reduce(lambda a, b: a.union(b), parts), channels

    def _merger(self, query: QueryShare) -> None:
        """Partial aggregates of several sites become one for each window and keys."""
        from pyspark.sql import functions as F

        site, group = self.share.site, query.pipeline.group
        assert group is not None
        till, meter = Till(self.spark.sparkContext), self.meters[query.flow.query]
        others = query.senders(site)
        senders = (*others, site) if self.share.joins(query) else others
        frame, channels = self._coming(query, "partials", senders, till)
        sending, sent = self._next(query, "merge")
        come = Come(self._folder(query, "merge") / "come")
        own = pc.index(self.share.names().nodes, site).as_py()

        def work(batch_frame: DataFrame, batch: int) -> None:
            whole = batch_frame.persist()
            try:
                sending.beside(told_by(sending.kind), told(come.before(batch)))
                rows = merged(of_kind(whole, ROWS).withColumn("node", F.lit(site)), group)
                sending.write(sending.attach(rows, None), batch)
                come.add(batch, of_kind(whole, COME).toArrow())
            finally:
                whole.unpersist()
            tally = till.take()
            meter.merged[site] += sum(count for node, count in tally.results.items() if node != own)
            tally.results.clear()
            meter.batch(batch, tally, time.time())

        self._add(query, "merge", frame, work, channels, self._finish(sending.outbox, sent))

    def _collector(self, query: QueryShare) -> None:
        """What leaves the hosts becomes the results of the query, and these go to the sink's format."""
        flow, s, folder = query.flow, self.settings, self._folder(query, "collect")
        till, meter = Till(self.spark.sparkContext), self.meters[flow.query]
        come, known = Come(folder / "come"), dict[str, int]()

        def watermark_us() -> int | None:
            kept = {come_of(side, site) for side, site in query.keepers if site not in self.lost()}
            return least(known, (set(query.hosts) - self.lost()) | kept)

        sink = open_sink(s.format, s.target, s.options, flow, self.folder.path)
        at_sink: AtSink | None = None
        unmatched = Unmatched(flow, query.pipeline, folder / "unmatched", apart=True) if query.pipeline.keeps else None
        if query.pipeline.sql:
            sink = at_sink = AtSink(
                sink, query.pipeline, folder / "groups", flow.bucket_us, watermark_us, unmatched=unmatched
            )
        frame, channels = self._coming(query, "results", query.last(), till)
        if unmatched is not None:
            frames, more = self._kept(query)
            frame, channels = also(frame, frames), (*channels, *more)
        if not query.waits:
            frame = sink.attach(frame, Counted(self.share.names(), till))

        def work(batch_frame: DataFrame, batch: int) -> None:
            if query.waits:
                known.clear()
                known.update(come.before(batch))
                whole = batch_frame.persist()
                try:
                    if unmatched is not None:
                        new = of_kind(whole, LONE).toArrow().cast(flow.result())
                        unmatched.take_in(batch, new, of_kind(whole, JOINED).toArrow().cast(FOUND))
                    sink.write(of_kind(whole, ROWS), batch)
                    come.add(batch, of_kind(whole, COME).toArrow())
                finally:
                    whole.unpersist()
            else:
                sink.write(batch_frame, batch)
            meter.batch(batch, till.take(), time.time())

        def finish() -> None:
            if at_sink is not None:
                at_sink.end(self.spark)

        self._add(query, "collect", frame, work, channels, finish)

    def _folder(self, query: QueryShare, stage: str) -> Path:
        return self.folder.job(query.flow.query) / stage

    def _outbox(self, query: QueryShare, stage: str) -> Outbox:
        folder = self._folder(query, stage) / "outbox"
        return Outbox(folder, query.flow.query, self.share.site, self.share.names().nodes)

    def _finish(self, outbox: Outbox, channels: Iterable[Channel]) -> Callable[[], None]:
        """What tells the others that there will be no more."""

        def finish() -> None:
            totals = outbox.totals()
            self.exchange.finish([(channel, totals.get((channel.kind, channel.target), 0)) for channel in channels])

        return finish

    def _add(
        self,
        query: QueryShare,
        name: str,
        frame: DataFrame,
        work: Callable[[DataFrame, int], None],
        inputs: tuple[Channel, ...],
        finish: Callable[[], None],
        at_hand: bool = False,
    ) -> Stage:
        title, folder = f"{self.share.site}: {query.flow.query}, {name}", self._folder(query, name)
        self.stages.append(Stage(title, frame, work, folder, self.settings.every_ms, inputs, finish, at_hand))
        return self.stages[-1]


def told_by(kind: Kind) -> Kind:
    """How what says how far rows of a kind have come is called."""
    return "partials_come" if kind == "partials" else "results_come"


def come_kind(side: SideName) -> Kind:
    """How what says how far tuples of a side have come is called."""
    return "left_come" if side == "left" else "right_come"


def told_columns(frame: DataFrame, columns: pa.Schema, sources: list[str]) -> DataFrame:
    """The tuples of some sources, with the columns and types that all sites have agreed on."""
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = pa.schema([column for column in columns if column.name != IDENTITY])  # made where tuples are routed
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
