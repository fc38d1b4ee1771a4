"""Feeds: what brings tuples into the logs, in threads of the driver: a generator, a replay, an MQTT subscriber.

All are exact through a crash. Generated and recorded tuples come in an order that follows from the input alone, so the
number of tuples in a log says where to go on; messages carry their ids in the log, so a repeated one is known.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.files import appearing
from nova.model.problem import Ints
from nova.model.reading import recall
from nova.routing.position import Longs
from nova.spark.dead_letters import (
    AHEAD_S,
    BAD_TIME,
    BAD_VALUE,
    FUTURE_TIME,
    KEPT,
    NO_SOURCE,
    NOT_PARSED,
    RECORD_CHARS,
    UNKNOWN_SOURCE,
    Letter,
    LetterBox,
)
from nova.spark.realtime.background import Background
from nova.spark.realtime.frames import Rows
from nova.spark.realtime.log import Log
from nova.spark.sources import generator
from nova.spark.sources.clock import Clock
from nova.spark.sources.mqtt import REMEMBERED, Broker, Subscriber
from nova.spark.sources.replay import MOMENT, Archive
from nova.spark.sources.tuples import EARLIEST_MS, HIDDEN, LATEST_MS

UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
"""What Arrow says of a value that a type cannot hold."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BLOCK_MS = 100.0
"""Event time that is generated at once: tuples that are due meanwhile wait."""
QUIET_S = 5.0
"""A topic that is silent for so long has ended, for who runs to the end of the input."""
TICK_S = 0.001
"""Tuples that fall due within this time go into the log together."""


@dataclass
class Known:
    """Rows of a stream's sources by id; newcomers are added while it runs."""

    ids: pa.Array
    rows: Ints

    def of(self, source: pa.ChunkedArray) -> pa.Array:
        """Rows of some sources; −1 for those that nobody knows."""
        at = pc.index_in(source, value_set=self.ids)
        if isinstance(at, pa.ChunkedArray):
            at = at.combine_chunks()
        rows = pa.array(self.rows, pa.int64()).take(at)
        return pc.fill_null(rows, -1) if rows.null_count else rows


@dataclass
class Tap:
    """One log that a stream's tuples go to, with the columns that its query wants: the same in every query but for
    the types of keys."""

    log: Log
    carried: pa.Schema
    known: Known
    """Sources of the stream, by the rows that the query knows them by."""

    def rows(self, tuples: pa.Table, source: pa.Array, *extra: pa.Array) -> Rows:
        """Tuples as the log takes them; `source`: rows of their sources (−1: unknown)."""
        columns = [tuples[column.name].cast(column.type) for column in self.carried]
        return Rows([source, tuples["time"].cast(pa.int64()), *columns, *extra])

    def take(self, tuples: pa.Table, source: pa.Array, *extra: pa.Array, sync: bool = False) -> None:
        """Append tuples."""
        rows = self.rows(tuples, source, *extra)
        self.log.put(rows, 0, len(rows), sync=sync)


class Feed(Protocol):
    """Brings the tuples of one stream."""

    def start(self) -> None:
        """Begin, in the background."""
        ...

    def stop(self) -> None:
        """Stop; returns when nothing more will be appended."""
        ...

    @property
    def ended(self) -> bool:
        """Whether all that there will ever be is in the logs."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """What made it fail."""
        ...

    @property
    def dead(self) -> Counter[str]:
        """Tuples that it has put with the dead letters, by reason."""
        ...


class Blocks(Protocol):
    """Tuples in the order of their arrival, block by block, always the same."""

    @property
    def begin_us(self) -> int:
        """Event time at which the next tuple may arrive: where the clock starts."""
        ...

    def after(self, rows: int) -> Iterator[tuple[pa.Table, Longs, int]]:
        """All tuples but the first `rows`, the event times (µs) at which they arrive, and when the block ends."""
        ...


@dataclass
class Paced(Background):
    """Tuples when their time has come by the clock."""

    blocks: Blocks
    taps: Sequence[Tap]
    clock: Clock
    ended: bool = False
    letters: LetterBox | None = None
    """Where tuples of sources go that nobody knows; None for those that are made up."""
    stream: str = ""
    dead: Counter[str] = field(default_factory=Counter)

    def work(self) -> None:
        have = [tap.log.rows for tap in self.taps]
        at = min(have)
        began = False
        for tuples, arrival, end_us in self.blocks.after(at):
            if not began:
                self.clock.start(self.blocks.begin_us)
                began = True
            sources = [tap.known.of(tuples["source"]) for tap in self.taps]
            if self.letters is not None:
                self._bury(tuples, sources[0], at, self.letters)
            rows = [tap.rows(tuples, source) for tap, source in zip(self.taps, sources, strict=True)]
            done, now_us = 0, 0.0
            while done < len(arrival) or (not len(arrival) and now_us < end_us):
                now_us = self.clock.event_us(time.time())
                due = int(np.searchsorted(arrival, now_us, "right"))
                if due > done and not any(tap.log.full for tap in self.taps):
                    for tap, mine, first in zip(self.taps, rows, have, strict=True):
                        start = min(max(first - at, done), due)
                        if start < due:
                            tap.log.put(mine, start, due)
                    done = due
                if self._stopped.wait(TICK_S):
                    return
            at += len(arrival)
        self.ended = True

    def _bury(self, tuples: pa.Table, source: pa.Array, at: int, letters: LetterBox) -> None:
        """Put tuples of strangers with the dead letters. `at`: how many tuples came before these."""
        strange = tuples.filter(pc.equal(source, -1))
        self.dead[UNKNOWN_SOURCE] += len(strange)
        dead = []
        for one in strange.slice(0, KEPT).to_pylist():
            _, file, line, record = (one.pop(name, None) for name in HIDDEN)
            text = record or json.dumps(one, default=str, ensure_ascii=False)[:RECORD_CHARS]
            dead.append(Letter(UNKNOWN_SOURCE, self.stream, file, line, text))
        letters.put(at, dead)


@dataclass
class Generated:
    """What `nova_generator` makes, in the order of arrival. `file` notes when it began, and how many tuples came before
    which block, so that a run that goes on need not make all again."""

    sources: Sequence[generator.Source]
    pattern: generator.Pattern
    file: Path
    start_ms: int
    _block: int = 0

    def __post_init__(self) -> None:
        self._rows = 0
        if self.file.exists():
            self.start_ms, self._block, self._rows = recall(self.file, tuple[int, int, int])

    @property
    def begin_us(self) -> int:
        return self.start_ms * 1000 + round(self._block * BLOCK_MS * 1000)

    def after(self, rows: int) -> Iterator[tuple[pa.Table, Longs, int]]:
        last = (self.pattern.length_ms + self.pattern.disorder_ms) / BLOCK_MS
        while self._block < (math.ceil(last) if math.isfinite(last) else math.inf):
            with appearing(self.file) as draft:
                draft.write_text(json.dumps([self.start_ms, self._block, self._rows]))
            made, arrival = self._made()
            skip = min(max(rows - self._rows, 0), len(arrival))
            self._rows += len(arrival)
            end_us = self.begin_us + round(BLOCK_MS * 1000)
            if skip < len(arrival) or not len(arrival):
                yield made.slice(skip), arrival[skip:], end_us
            self._block += 1

    def _made(self) -> tuple[pa.Table, Longs]:
        parts = [
            generator.arrivals_between(
                source, self.pattern, self._block * BLOCK_MS, (self._block + 1) * BLOCK_MS, self.start_ms
            )
            for source in self.sources
        ]
        made = pa.concat_tables([table for table, _ in parts])
        arrival = np.concatenate([times for _, times in parts])
        order = np.argsort(arrival, kind="stable")
        sorted_us: Longs = np.ceil((self.start_ms + arrival[order]) * 1000).astype(np.int64)
        return made.take(pa.array(order)).rename_columns(["source", "time", "value", "key"]).combine_chunks(), sorted_us


@dataclass
class Recorded:
    """A recording that was sorted by time."""

    archive: Archive
    origin_us: int
    """Where the clock starts at the very beginning: with the earliest of all recordings."""
    names: Sequence[str]
    _at_us: int | None = None

    @property
    def begin_us(self) -> int:
        return self.origin_us if self._at_us is None else self._at_us

    def after(self, rows: int) -> Iterator[tuple[pa.Table, Longs, int]]:
        groups = self.archive.groups()
        passed = 0
        for file, group, _, last_us in sorted(groups, key=lambda g: (g[2], g[0], g[1])):
            opened = pq.ParquetFile(self.archive.folder / "tuples" / file)
            here = opened.metadata.row_group(group).num_rows
            if passed + here > rows:
                table = opened.read_row_group(group, columns=list(self.names)).select(list(self.names))
                table = table.slice(max(rows - passed, 0))
                times = table["time"].cast(MOMENT).cast(pa.int64()).to_numpy()
                if rows and self._at_us is None:
                    self._at_us = int(times[0])
                table = table.set_column(table.column_names.index("time"), "time", pa.array(times, MOMENT))
                yield table.combine_chunks(), times, last_us
            passed += here


@dataclass
class Messages:
    """Messages of an MQTT topic as they come, each on the disk before it is acknowledged."""

    broker: Broker
    name: str
    id_field: str | None
    taps: Sequence[Tap]
    read: Callable[[Sequence[str]], pa.Table]
    """Payloads as tuples with the columns source, time, value, …"""
    letters: LetterBox
    """Where messages go that cannot be used; they are of no source."""
    stream: str
    failure: BaseException | None = None
    dead: Counter[str] = field(default_factory=Counter)
    _last_s: float = field(default_factory=time.monotonic)
    """When the last message came."""
    _ids: list[OrderedDict[str, None]] = field(default_factory=list)
    _subscriber: Subscriber | None = None

    def start(self) -> None:
        self.recall()
        self._subscriber = Subscriber(self.broker, self, self.name, self.id_field)

    def recall(self) -> None:
        """The ids of the messages that the logs hold."""
        for tap in self.taps:
            ids: OrderedDict[str, None] = OrderedDict()
            for frame in tap.log.frames(beside="s"):
                ids.update(dict.fromkeys(one.decode() for one in frame.columns[-1].to_pylist()))
            self._ids.append(ids)

    def stop(self) -> None:
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None

    @property
    def ended(self) -> bool:
        """Messages have no end; but for now they have ended when none comes for a while."""
        return time.monotonic() - self._last_s > QUIET_S

    def append(self, messages: Sequence[tuple[str, bool, str, str]]) -> int:
        """Store (id, whether a known id means a repetition, topic, payload); returns how many were new."""
        self._last_s = time.monotonic()
        try:
            return self._append(messages)
        except BaseException as error:
            self.failure = error
            raise

    def _append(self, messages: Sequence[tuple[str, bool, str, str]]) -> int:
        most = 0
        for tap, ids in zip(self.taps, self._ids, strict=True):
            fresh = []
            for name, certain, topic, payload in messages:
                if not (certain and name in ids):
                    fresh.append((name, topic, payload))
                ids[name] = None
            if not fresh:
                continue
            letters = self.letters if tap is self.taps[0] else None
            tuples, source = put_aside(
                self.read([payload for _, _, payload in fresh]),
                tap.known,
                letters,
                self.dead,
                self.stream,
                lambda at, fresh=fresh: (fresh[at][1], None, fresh[at][2]),  # type: ignore[misc]
            )
            tap.take(tuples, source, pa.array([name.encode() for name, _, _ in fresh], pa.binary()), sync=True)
            most = max(most, len(fresh))
            while len(ids) > REMEMBERED:
                ids.popitem(last=False)
        return most


def put_aside(
    tuples: pa.Table,
    known: Known,
    letters: LetterBox | None,
    counts: Counter[str],
    stream: str,
    place: Callable[[int], tuple[str, int | None, str]],
) -> tuple[pa.Table, pa.Array]:
    """Tuples of now as the log takes them, and the rows of their sources: −1 for those that cannot be used, which go
    to the dead letters with their places (file, line, text of a row) and are counted by reason in `counts`."""
    source = known.of(tuples["source"])
    if usable(tuples, source):
        return tuples, source
    reason = unusable(tuples, source)
    if letters is not None:
        dead = [
            Letter(why, stream, file, line, text[:RECORD_CHARS])
            for why, (file, line, text) in zip(reason.to_pylist(), map(place, range(len(tuples))), strict=True)
            if why is not None
        ]
        counts.update(letter.reason for letter in dead)
        letters.put(time.time_ns(), dead)
    source = pc.if_else(pc.is_null(reason), source, -1)
    times = tuples["time"].cast(pa.int64()).fill_null(0).cast(MOMENT)
    return tuples.set_column(tuples.column_names.index("time"), "time", times), source


def usable(tuples: pa.Table, source: pa.Array) -> bool:
    """Whether all can be used, as usual."""
    if any(tuples[name].null_count for name in ("source", "time", "value")) or not len(tuples):
        return False
    latest_us = max(int(chunk.view(pa.int64()).to_numpy().max()) for chunk in tuples["time"].chunks if len(chunk))
    return latest_us <= (time.time() + AHEAD_S) * 1e6 and int(source.to_numpy().min()) >= 0


def unusable(tuples: pa.Table, source: pa.Array) -> pa.Array:
    """Why tuples of now cannot be used; null where they can. `source`: rows of their sources, −1 for unknown ones."""
    no_source, no_time, no_value = (pc.is_null(tuples[name]) for name in ("source", "time", "value"))
    latest = pa.scalar(round((time.time() + AHEAD_S) * 1e6), pa.int64())
    future = pc.greater(tuples["time"].cast(pa.int64()), latest)
    told = pc.case_when(
        pc.make_struct(
            pc.and_(pc.and_(no_source, no_time), no_value),
            no_source,
            no_time,
            no_value,
            pc.fill_null(future, False),
            pc.equal(source, -1),
        ),
        *(pa.scalar(why) for why in (NOT_PARSED, NO_SOURCE, BAD_TIME, BAD_VALUE, FUTURE_TIME, UNKNOWN_SOURCE)),
    )
    return told.combine_chunks() if isinstance(told, pa.ChunkedArray) else told


def document_reader(
    source: str, when: str, value: str, schema: pa.Schema
) -> Callable[[Sequence[Mapping[str, Any]]], pa.Table]:
    """Reads documents: the fields of source, time and value, and those of `schema` beside it (columns as tuples carry
    them, value first). What is not of its column's type is null, as in Spark."""

    def read(documents: Sequence[Mapping[str, Any]]) -> pa.Table:
        columns: dict[str, pa.Array] = {
            "source": pa.array([_text(one.get(source)) for one in documents], pa.string()),
            "time": pa.array([_moment(one.get(when)) for one in documents], MOMENT),
        }
        for column in schema:
            named = value if column.name == "value" else column.name
            columns[column.name] = _column([one.get(named) for one in documents], column.type)
        return pa.table(columns)

    return read


def json_reader(source: str, when: str, value: str, schema: pa.Schema) -> Callable[[Sequence[str]], pa.Table]:
    """The same from JSON texts; one that is no JSON object has no fields."""
    read = document_reader(source, when, value, schema)
    return lambda payloads: read([document(payload) for payload in payloads])


def document(payload: str | bytes) -> dict[str, Any]:
    """The fields of a JSON object; none where it is not one."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def _moment(value: Any) -> int | None:
    """ISO 8601 or milliseconds since 1970, as µs; None where it is neither, or a moment that no calendar has."""
    try:
        if isinstance(value, int | float):
            return round(value * 1000) if EARLIEST_MS <= value <= LATEST_MS else None
        if isinstance(value, datetime):
            return (value - EPOCH) // timedelta(microseconds=1)
        text = str(value)
        if text.replace(".", "", 1).lstrip("-").isdigit():
            return _moment(float(text))
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([_text(value) for value in values], kind)
    try:
        return pa.array(values, kind)
    except UNFIT:
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """The value where the type can hold it, else null."""
    try:
        return pa.array([value], kind)[0].as_py()
    except UNFIT:
        return None
