"""What runs inside Spark's tasks: routing and packing before the shuffle, unpacking and joining after it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.routing.flow import IDENTITY, Flow, without_null_keys
from nova.routing.packets import MOMENT, Names, Routed, alone, pack, results, route, unjoined
from nova.routing.position import fingerprint, key_position, tuple_share, window_number
from nova.routing.routes import SideName
from nova.routing.xxh64 import hash_strings
from nova.spark.dead_letters import BAD_TIME, KEPT, RECORD_CHARS, UNKNOWN_SOURCE, Letter
from nova.spark.job.schedule import Schedule
from nova.spark.job.tally import Arrived, Sample, Tally, Till
from nova.spark.sources.tuples import BEAT, FILE, HIDDEN, LINE, REASON, RECORD

PACKET = "node int, cell bigint, bucket_end timestamp, tuples int, packet binary"
"""Columns of packets in Spark."""
PACKET_SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("cell", pa.int64()),
        ("bucket_end", MOMENT),
        ("tuples", pa.int32()),
        ("packet", pa.binary()),
    ]
)
ORIGINAL = "_time"
"""Event time of a tuple that was copied into other windows."""
SAMPLED = 1000
"""Results of one record batch that the emulation follows at most."""
ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""
MOST_BYTES = 32 * 2**20
"""Packets that are unpacked at once."""


@dataclass
class Router:
    """Tuples (columns source, time, value, …) in, packets out. For `mapInArrow`."""

    flow: Flow
    side: SideName
    schedule: str
    """Folder of the query's schedule."""
    ids: pa.StringArray
    """Ids of the stream's sources."""
    rows: np.ndarray
    """Their rows in the source table."""
    till: Till
    stream: str = ""
    """The stream's name: newcomers to it are known from the schedule."""
    sources: int = 0
    """Sources of the scenario: the row of the first newcomer."""
    per_node: bool = False
    watched: bool = False
    """Tell of every tuple, for the emulation."""
    lone: Lone | None = None
    """Where the query keeps tuples of this side that join nothing: puts them by."""
    names: Names | None = None
    """In a query of one stream: make results right away, with these names; nothing is joined."""
    by_beats: bool = False
    """Whether only rows that are no tuples say how far the stream has come: others may be far ahead of it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schedule = Schedule(self.schedule)
        timeline = schedule.timeline()
        new, places = schedule.newcomers().of(self.stream)
        ids = pa.concat_arrays([self.ids, pa.array(new, self.ids.type)])
        all_rows = np.append(self.rows, np.array(places, self.rows.dtype) + self.sources)
        hashes = np.zeros(int(all_rows.max(initial=-1)) + 1, np.uint64)
        hashes[all_rows] = hash_strings(ids.to_pylist())
        names = None if self.names is None else schedule.names(self.names)
        tally = Tally()
        for batch in batches:
            batch, come_us = without_beats(batch)
            if come_us is not None:
                end = (come_us // self.flow.bucket_us + 1) * self.flow.bucket_us
                tally.add(Tally(left_end=end) if self.side == "left" else Tally(right_end=end))
                yield beat(self.side, end)
            known = pc.index_in(batch.column("source"), value_set=ids)
            reason = dead_reason(batch, known)
            if reason.null_count < batch.num_rows:
                bad = pc.is_valid(reason)
                tally.add(dead_letters(batch.filter(bad), reason.filter(bad), self.stream, KEPT - len(tally.letters)))
                batch, known = batch.filter(pc.invert(bad)), known.filter(pc.invert(bad))
            tally.tuples[self.side] += batch.num_rows
            if self.lone is not None:
                batch = self.lone.put_by(batch)
            source = all_rows[known.to_numpy(zero_copy_only=False)]
            numbered = batch.append_column("_source_row", pa.array(source))
            numbered = without_null_keys(numbered, self.flow.on)
            if not numbered.num_rows:
                continue
            source = numbered.column("_source_row").to_numpy()
            routed = route(timeline, self.flow, self.side, source, hashes, numbered)
            made, ends, tuples = self._made(routed, source, numbered, names)
            span = pc.min_max(numbered.column("time").cast(pa.int64())).as_py()
            part = Tally(first_time=span["min"], last_time=span["max"], last_window=span["max"] // self.flow.window_us)
            part.copies = _count(routed.node)
            if len(ends) and not self.by_beats:
                setattr(part, f"{self.side}_end", int(ends.max()))
            part.buckets = Counter(dict(zip(*_sums(ends, tuples), strict=True)))
            if self.watched:
                time_us = numbered.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
                share = tuple_share(hashes[source], time_us, numbered.column("value"))
                key = key_position([numbered.column(name) for name in self.flow.on]) if self.flow.on else None
                part.arrived.append(Arrived(self.side, source, time_us, share, key))
            tally.add(part)
            if names is not None:
                note(made, names, tally)
            if made.num_rows:
                yield made
        if self.lone is not None:
            self.lone.close()
        tally.routed_s = time.time()
        self.till.put(tally)

    def _made(
        self, routed: Routed, source: np.ndarray, batch: pa.RecordBatch, names: Names | None
    ) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
        """Packets, or results where nothing is joined; the ends of their buckets (µs) and how many tuples they hold."""
        length = self.flow.bucket_us
        if names is not None:
            hosts = names.nodes.take(pa.array(routed.node))
            rows = unjoined(self.flow, self.side, batch.take(pa.array(routed.row)), hosts)
            ends = (routed.window * self.flow.window_us // length + 1) * length
            return rows, ends, np.ones(len(ends), np.int32)
        packets = pack(routed, self.flow, self.side, source, batch, self.per_node)
        ends = (packets.bucket + 1) * length
        columns = [
            pa.array(packets.node),
            pa.array(packets.cell),
            pa.array(ends, MOMENT),
            pa.array(packets.tuples),
            pa.array(packets.body, pa.binary()),
        ]
        return pa.record_batch(columns, schema=PACKET_SCHEMA), ends, packets.tuples


def without_beats(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
    """The tuples, and the time (µs) up to which rows that are none say that their stream has come; None: there are no
    such rows."""
    if REASON not in batch.schema.names:
        return batch, None
    beats = pc.fill_null(pc.equal(batch.column(REASON), BEAT), False)
    if not pc.any(beats).as_py():
        return batch, None
    come = pc.max(batch.filter(beats).column("time").cast(pa.int64())).as_py()
    return batch.filter(pc.invert(beats)), come


def beat(side: SideName, end_us: int) -> pa.RecordBatch:
    """A packet of nothing, which moves the watermark of its side on: cells below zero meet nothing."""
    columns = [[-1], [-1 if side == "left" else -2], [end_us], [0], [b""]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, PACKET_SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=PACKET_SCHEMA)


@dataclass
class Lone:
    """Puts by the tuples of a side that is kept whole, as results without a partner, in a file for each task of a
    batch: the driver takes out those that find one. A task that is repeated replaces its file."""

    flow: Flow
    side: SideName
    folder: str
    first_us: int | None = None
    """Of copies of one tuple, that in the window of its event time plus this stands for it; None: each does."""
    rows: list[pa.RecordBatch] = field(default_factory=list)
    """Put by so far."""

    def put_by(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same tuples, with the column by which they are known again."""
        copied = self.first_us is not None and ORIGINAL in batch.schema.names
        names = ["source", ORIGINAL if copied else "time", *self.flow.carried(self.side).names]
        bits = fingerprint([batch.column(name) for name in dict.fromkeys(names) if name != IDENTITY])
        batch = batch.append_column(IDENTITY, pa.array(bits))
        standing = batch
        if copied:
            assert self.first_us is not None
            born, here = (batch.column(name).cast(pa.int64()).to_numpy() for name in (ORIGINAL, "time"))
            first = window_number(born + self.first_us, self.flow.window_us)
            standing = batch.filter(pa.array(window_number(here, self.flow.window_us) == first))
        self.rows.append(unjoined(self.flow, self.side, standing))
        return batch

    def close(self) -> None:
        """Write the file."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        name = f"{batch:09d}-{self.side}-{context.partitionId():05d}"
        beside = Path(self.folder) / f".{name}-{context.taskAttemptId()}"
        if self.rows:
            pq.write_table(pa.Table.from_batches(self.rows), beside)
            beside.replace(Path(self.folder) / f"{name}.parquet")


def dead_reason(batch: pa.RecordBatch, known: pa.Array) -> pa.Array:
    """Why a tuple cannot be used; null where it can. `known`: rows of the tuples' sources."""
    told = batch.column(REASON) if REASON in batch.schema.names else pa.nulls(batch.num_rows, pa.string())
    told = pc.if_else(pc.and_(pc.is_null(told), pc.is_null(batch.column("time"))), BAD_TIME, told)
    return pc.if_else(pc.and_(pc.is_null(told), pc.is_null(known)), UNKNOWN_SOURCE, told)


def dead_letters(batch: pa.RecordBatch, reason: pa.Array, stream: str, room: int) -> Tally:
    """Tuples that cannot be used, counted, and up to `room` of them with place and text."""
    tally = Tally(dead=Counter(reason.to_pylist()))
    some = batch.slice(0, max(room, 0))
    names = some.schema.names
    told = [some.column(name).to_pylist() if name in names else [None] * some.num_rows for name in (FILE, LINE, RECORD)]
    rows = some.select([name for name in names if name not in HIDDEN]).to_pylist()
    for why, file, line, record, row in zip(reason.to_pylist(), *told, rows, strict=False):
        text = record if record is not None else json.dumps(row, default=str, ensure_ascii=False)
        tally.letters.append(Letter(why, stream, file, line, text[:RECORD_CHARS]))
    return tally


@dataclass
class Matcher:
    """Pairs of packets (columns left_packet, right_packet) in, results out. For `mapInArrow`."""

    flow: Flow
    schedule: str
    names: Names
    till: Till
    watched: bool = False
    """Tell of some of the results, for the emulation."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = Schedule(self.schedule).timeline()
        names = Schedule(self.schedule).names(self.names)
        tally = Tally()
        for batch in batches:
            tally.joining_s = tally.joining_s or time.time()
            for part in _portions(batch):
                for joined in results(
                    self.flow, timeline, names, part.column("left_packet"), part.column("right_packet")
                ):
                    note(joined, names, tally)
                    if self.watched:
                        tally.sampled.append(sample(joined, names))
                    yield joined
        if tally.joining_s is not None:
            tally.joined_s = time.time()
        self.till.put(tally)


@dataclass
class Single:
    """Packets of one stream (columns tuples, packet) in, results of a query that joins nothing out. For
    `mapInArrow`."""

    flow: Flow
    schedule: str
    names: Names
    till: Till

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = Schedule(self.schedule).timeline()
        names = Schedule(self.schedule).names(self.names)
        tally = Tally()
        for batch in batches:
            held = batch.filter(pc.greater(batch.column("tuples"), 0))
            if held.num_rows:
                made = alone(self.flow, timeline, names, held.column("packet"))
                note(made, names, tally)
                yield made
        self.till.put(tally)


def _portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch cut so that each piece holds at most about `MOST_BYTES` of packets."""
    size = sum(
        pc.binary_length(batch.column(name)).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("left_packet", "right_packet")
    )
    start, total = 0, 0
    for i, bytes_here in enumerate(np.asarray(size).tolist()):
        if total and total + bytes_here > MOST_BYTES:
            yield batch.slice(start, i - start)
            start, total = i, 0
        total += bytes_here
    if batch.num_rows > start:
        yield batch.slice(start)


def note(joined: pa.RecordBatch, names: Names, tally: Tally) -> None:
    """Count results by host and by the event time of their later tuple."""
    note_hosts(joined, names, tally)
    later = [born(joined, side) for side in ("left", "right") if joined.column(f"{side}_time").null_count == 0]
    tally.ages.update(_count(np.maximum(later[0], later[-1]) // 1000))


def note_hosts(rows: pa.RecordBatch, names: Names, tally: Tally) -> None:
    """Count rows by host."""
    hosts = pc.index_in(rows.column("node"), value_set=names.nodes).to_numpy(zero_copy_only=False)
    tally.results.update(_count(hosts))


def born(joined: pa.RecordBatch, side: str) -> np.ndarray:
    """Event times (µs) of the tuples of one side; those of copies carry it beside the time of their window."""
    name = f"{side}__time" if f"{side}__time" in joined.schema.names else f"{side}_time"
    times: np.ndarray = joined.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times


def sample(joined: pa.RecordBatch, names: Names) -> Sample:
    """Results at equal distances, so that every host and window has its share."""
    step = -(-joined.num_rows // SAMPLED)
    some = joined.take(pa.array(np.arange(step // 2, joined.num_rows, step)))
    left, right = (some.column(f"{side}_time").cast(pa.int64()).to_numpy() for side in ("left", "right"))
    hosts = pc.index_in(some.column("node"), value_set=names.nodes).to_numpy(zero_copy_only=False)
    return Sample(
        some.column("left_source").to_pylist(),
        some.column("right_source").to_pylist(),
        left,
        right,
        hosts.astype(np.int32),
        joined.num_rows / some.num_rows,
    )


def _count(values: np.ndarray) -> Counter[int]:
    distinct, count = np.unique(values, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), count.tolist(), strict=True)))


def _sums(keys: np.ndarray, amounts: np.ndarray) -> tuple[list[int], list[int]]:
    distinct, inverse = np.unique(keys, return_inverse=True)
    return distinct.tolist(), np.bincount(inverse, weights=amounts, minlength=len(distinct)).astype(int).tolist()
