"""Inputs for real-time mode: the columns of each stream, and the feed that brings its tuples into the logs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova.files import name_of
from nova.model.errors import NovaError
from nova.scenario.model import Columns, StreamInput
from nova.spark.dead_letters import LetterBox
from nova.spark.realtime import records
from nova.spark.realtime.feeds import (
    Feed,
    Generated,
    Messages,
    Paced,
    Recorded,
    Tap,
    document_reader,
    json_reader,
)
from nova.spark.realtime.frames import kind_of
from nova.spark.sources import generator, replay
from nova.spark.sources.clock import Clock
from nova.spark.sources.inputs import FILES, carried, recorded, replay_speed
from nova.spark.sources.inputs import Feed as Given
from nova.spark.sources.kafka import Layout
from nova.spark.sources.mqtt import CREDENTIALS, Broker, open_mqtt
from nova.spark.sources.tuples import normalised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nova.spark.job.folder import RunFolder


class Unfit(NovaError):
    """What was asked for runs in batches only."""


@dataclass(frozen=True)
class Stream:
    """The tuples of one stream."""

    frame: DataFrame
    """Its columns, without its tuples."""
    clock: Clock
    feed: Callable[[Sequence[Tap], int], Feed]
    """Opens the feed into some logs, given when streams that are made up begin (ms since 1970): once all is at work,
    lest their first tuples wait for Spark to start."""


def unfit(given: StreamInput, speed: float | None, place: str) -> str | None:
    """Why an input cannot be had in real time; None where it can."""
    if given.format == "generator":
        return None
    if given.format in ("mqtt", "kafka"):
        named = (given.columns.source, given.columns.time, given.columns.value)
        if not all(name.isidentifier() for name in named):
            return f"{given.format} input has expressions as columns"
        return None
    if given.format in FILES:
        if replay_speed(given, speed, place) is not None:
            return None
        return f"{given.format} files are read as they come; --speed plays them"
    return f"there is no feed for inputs of format {given.format}"


def open_streams(
    spark: SparkSession, feeds: Mapping[str, Given], folder: RunFolder, speed: float | None
) -> dict[str, Stream]:
    """The inputs of streams. `folder` keeps what they need to remember."""
    beginning = folder.beginning()
    streams: dict[str, Stream] = {}
    replays: dict[str, tuple[DataFrame, replay.Archive, float]] = {}
    notes = folder.path / "feeds"
    notes.mkdir(parents=True, exist_ok=True)
    for name, feed in feeds.items():
        given = feed.input
        why = unfit(given, speed, feed.place)
        if why is not None:
            raise Unfit(f"{feed.place}: {why}")
        at = replay_speed(given, speed, feed.place)
        if given.format == "generator":
            clock = Clock(speed or 1.0, beginning)
            streams[name] = _generated(spark, feed, clock, notes / f"{len(streams)}.json")
        elif given.format == "mqtt":
            spool = folder.path / "spool" / name_of(name)
            streams[name] = _messages(spark, name, feed, spool, folder.letters(f"{name} (live)"))
        elif given.format == "kafka":
            streams[name] = _records(
                spark, name, feed, notes / f"{len(streams)}.json", folder.letters(f"{name} (live)")
            )
        else:
            assert at is not None
            replays[name] = (*recorded(spark, name, feed, folder), at)
    streams |= _replayed(replays, beginning, folder)
    for name, stream in streams.items():
        for column in carried(stream.frame):
            if kind_of(column.type) is None:
                raise Unfit(f"{feeds[name].place}: the column {column.name!r} is of type {column.type}")
    return streams


def _generated(spark: SparkSession, feed: Given, clock: Clock, note: Path) -> Stream:
    made = [generator.Source(*one) for one in zip(feed.ids, feed.rates, strict=True) if one[1] > 0]
    options = dict(feed.input.options)
    start = options.pop("start_ms", None)
    pattern = generator.Pattern.of(options, feed.place)
    if start is None and clock.speed == 1.0:
        clock = Clock()
    frame = normalised(spark.createDataFrame([], generator.COLUMNS), Columns(), feed.place)

    def open_feed(taps: Sequence[Tap], begin_ms: int) -> Feed:
        return Paced(Generated(made, pattern, note, begin_ms if start is None else int(start)), taps, clock)

    return Stream(frame, clock, open_feed)


def _replayed(
    replays: Mapping[str, tuple[DataFrame, replay.Archive, float]], beginning: str, folder: RunFolder
) -> dict[str, Stream]:
    """Recordings that are played together, on one clock that begins with the earliest of them."""
    origin = min((archive.first_us for _, archive, _ in replays.values()), default=0)

    def opener(name: str, blocks: Recorded, clock: Clock) -> Callable[[Sequence[Tap], int], Feed]:
        letters = folder.letters(f"{name} (played)")
        return lambda taps, _: Paced(blocks, taps, clock, letters=letters, stream=name)

    return {
        name: Stream(
            frame,
            Clock(speed, beginning),
            opener(name, Recorded(archive, origin, frame.columns), Clock(speed, beginning)),
        )
        for name, (frame, archive, speed) in replays.items()
    }


def _messages(spark: SparkSession, name: str, feed: Given, spool: Path, letters: LetterBox) -> Stream:
    """The same options as in the other mode; the log takes the place of the spool."""
    given = feed.input
    frame = normalised(open_mqtt(spark, given, spool, feed.place, feed.folder), given.columns, feed.place)
    options = {name: str(value) for name, value in given.options.items()}
    told = {name: options[name] for name in CREDENTIALS if name in options}
    broker = Broker.parse(given.path or options.get("address", ""), feed.place, told, feed.folder)
    identity = hashlib.blake2b(str(spool.resolve()).encode(), digest_size=6).hexdigest()
    names = given.columns
    read = json_reader(names.source, names.time, names.value, carried(frame))

    def open_feed(taps: Sequence[Tap], _: int) -> Feed:
        client = options.get("client", f"nova-{identity}")
        return Messages(broker, client, options.get("id"), taps, read, letters, name)

    return Stream(frame, Clock(), open_feed)


def _records(spark: SparkSession, name: str, feed: Given, note: Path, letters: LetterBox) -> Stream:
    """The same options as in the other mode."""
    given, layout = feed.input, Layout.of(feed.input, feed.place)
    frame = normalised(spark.createDataFrame([], layout.columns(feed.place)), given.columns, feed.place)
    names = given.columns
    read = records.record_reader(layout, document_reader(names.source, names.time, names.value, carried(frame)))

    def open_feed(taps: Sequence[Tap], _: int) -> Feed:
        return records.Records(layout, feed.place, taps, read, letters, name, note)

    return Stream(frame, Clock(), open_feed)
