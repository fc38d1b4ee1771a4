"""Inputs: what a scenario says about a stream's tuples, as a streaming DataFrame with the columns source, time, value
and whatever else the tuples carry."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova.files import name_of
from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Problem
from nova.model.reading import short
from nova.routing.flow import Flow, cells_for
from nova.scenario.model import Columns, StreamInput
from nova.spark.dead_letters import KEPT, Letter
from nova.spark.sources.clock import Clock
from nova.spark.sources.lines import Lines
from nova.spark.sources.tuples import (
    CORRUPT,
    FILE,
    HIDDEN,
    LINE,
    REASON,
    RECORD,
    column_of,
    declared,
    normalised,
    with_corrupt,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nova.scenario import Scenario
    from nova.spark.job.folder import RunFolder
    from nova.spark.sources import replay

FILES = ("csv", "json", "parquet")
MOST_BYTES = 8 * 2**20
"""Files that a batch takes in at most, unless a scenario says otherwise; but always one."""


def at_end(source: Mapping[str, Any]) -> bool:
    """Whether a source has ended, from Spark's report of a batch. Ours say so in their offsets; any other has ended
    for now when a batch brought nothing from it."""
    at = source["endOffset"]
    if isinstance(at, dict) and "ended" in at:
        return bool(at["ended"])
    return not source["numInputRows"]


@dataclass(frozen=True)
class Input:
    """The tuples of one stream."""

    frame: DataFrame
    """Columns source, time, value, …"""
    clock: Clock | None = None
    """How event times relate to now; None where they do not."""
    at_hand: bool = False
    """All of it lies there already: the run can end with it."""


@dataclass(frozen=True)
class Feed:
    """What a scenario says about the tuples of one stream."""

    input: StreamInput
    ids: tuple[str, ...]
    """Its sources."""
    rates: tuple[float, ...]
    """Their tuples/s."""
    folder: Path
    """Folder that paths are meant from."""
    place: str
    """Where the user wrote it, for messages."""


def feeds_of(scenario: Scenario) -> dict[str, Feed]:
    """The feeds of all streams that a query joins."""
    problem = scenario.problem
    used = {problem.streams[problem.born(row)] for query in problem.queries for row in (query.left, query.right)}
    feeds, missing = {}, []
    sources = problem.sources
    for row, name in enumerate(scenario.streams):
        given = scenario.streams[name].input
        if name not in used:
            continue
        if given is None:
            missing.append(
                Fault(
                    str(scenario.path),
                    "to run, a stream needs an `input`; `input: {format: generator}` makes tuples up",
                    field=f"streams.{name}",
                )
            )
            continue
        rows = scenario.problem.sources_of(row)
        feeds[name] = Feed(
            given,
            tuple(sources.ids.take(pa.array(rows)).to_pylist()),
            tuple(sources.rate[rows].tolist()),
            scenario.path.parent,
            f"{scenario.path}: streams.{name}.input",
        )
    if missing:
        raise InvalidInput(missing)
    return feeds


def open_inputs(
    spark: SparkSession, feeds: Mapping[str, Feed], folder: RunFolder, speed: float | None
) -> dict[str, Input]:
    """The inputs of streams. `folder` keeps what they need to remember."""
    replays: dict[str, tuple[DataFrame, replay.Archive, float]] = {}
    inputs: dict[str, Input] = {}
    beginning, now_ms = folder.beginning(), int(time.time() * 1000)
    for name, feed in feeds.items():
        given, place = feed.input, feed.place
        at = replay_speed(given, speed, place)
        if given.format == "generator":
            inputs[name] = _generated(spark, feed, Clock(speed or 1.0, beginning), now_ms)
        elif given.format == "mqtt":
            from nova.spark.sources.mqtt import open_mqtt

            frame = open_mqtt(spark, given, folder.path / "spool" / name_of(name), place, feed.folder)
            inputs[name] = Input(normalised(frame, given.columns, place, ids=feed.ids, live=True), Clock())
        elif given.format == "kafka":
            from nova.spark.sources.kafka import open_kafka

            frame = open_kafka(spark, given, place)
            inputs[name] = Input(
                normalised(frame, given.columns, place, ids=feed.ids, live=True), Clock(), at_hand=True
            )
        elif at is not None:
            replays[name] = (*recorded(spark, name, feed, folder), at)
        elif given.format not in FILES:
            frame = streamed(spark, given, feed.folder)
            inputs[name] = Input(normalised(frame, given.columns, place))
        else:
            files, schema = _files(spark, name, feed, folder)
            tuples = normalised(files.stream(spark, schema), given.columns, place, ids=feed.ids)
            inputs[name] = Input(tuples, at_hand=True)
    return inputs | _replayed(spark, replays, beginning)


def _files(spark: SparkSession, name: str, feed: Feed, folder: RunFolder) -> tuple[Files, str]:
    """The files of a stream, and their schema as it was when the run began."""
    files = Files(feed.input, feed.folder, feed.place)
    schema = folder.schema(name, lambda: files.schema(spark).json())
    if feed.input.format != "parquet":
        folder.written[name] = Lines.of(feed.input, noted(schema, feed.place).names)
    return files, schema


def recorded(spark: SparkSession, name: str, feed: Feed, folder: RunFolder) -> tuple[DataFrame, replay.Archive]:
    """The tuples of recorded files, and the archive that they are played from. Those that cannot be used are put with
    the dead letters before."""
    from nova.spark.sources import replay

    files, schema = _files(spark, name, feed, folder)
    tuples = normalised(files.table(spark, schema), feed.input.columns, feed.place, ids=feed.ids)
    kept = folder.path / "replay" / name_of(name)
    if not replay.prepared(kept):
        _bury(tuples, folder, name)
    good = tuples.where(column_of(REASON).isNull())
    return good, replay.prepare(good, kept)


def _bury(recording: DataFrame, folder: RunFolder, stream: str) -> None:
    """Tuples of a recording that cannot be used are put with the dead letters, and counted, before it is played."""
    dead = recording.where(column_of(REASON).isNotNull()).select(*map(column_of, HIDDEN))
    kept = [Letter(row[REASON], stream, row[FILE], row[LINE], row[RECORD]) for row in dead.limit(KEPT).collect()]
    folder.letters(f"{stream} (recorded)").put(0, kept)
    counts = Counter(letter.reason for letter in kept)
    if len(kept) == KEPT:  # there may be more
        counts = Counter({row[REASON]: row["count"] for row in dead.groupBy(column_of(REASON)).count().collect()})
    folder.bury(stream, counts)


def replay_speed(given: StreamInput, speed: float | None, place: str) -> float | None:
    """How fast recorded files are to be replayed; None: as they come."""
    if given.format not in FILES:
        return None
    told = given.options.get("speed", speed)
    if told is None:
        return None
    try:
        value = float(told)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise InvalidInput(
            [Fault(place, "the speed of a replay is a positive number", field="options.speed", value=told)]
        )
    return value


def _generated(spark: SparkSession, feed: Feed, clock: Clock, now_ms: int) -> Input:
    """Sources made up at their rates: live, or by `clock` where a start is given or time runs at another speed. All
    streams of a run must begin with the same event time: `now_ms`, unless the scenario says another."""
    from nova.spark.sources import generator

    made = [generator.Source(*one) for one in zip(feed.ids, feed.rates, strict=True) if one[1] > 0]
    options = dict(feed.input.options)
    start = options.pop("start_ms", None)
    pattern = generator.Pattern.of(options, feed.place)
    if start is None and clock.speed == 1.0:
        clock = Clock()
    elif start is None:
        start = now_ms
    text = generator.spec(
        made,
        pattern,
        None if start is None else int(start),
        clock=clock,
        partitions=spark.sparkContext.defaultParallelism,
    )
    spark.dataSource.register(generator.Generator)
    frame = spark.readStream.format("nova_generator").option("spec", text).load()
    return Input(normalised(frame, Columns(), feed.place), clock)


def _replayed(
    spark: SparkSession, replays: Mapping[str, tuple[DataFrame, replay.Archive, float]], beginning: str
) -> dict[str, Input]:
    """Archives that are replayed together, on one clock that begins with the earliest of them."""
    from nova.spark.sources import replay

    if not replays:
        return {}
    origin = min(archive.first_us for _, archive, _ in replays.values())
    spark.dataSource.register(replay.Replay)
    opened = {}
    for name, (recording, archive, speed) in replays.items():
        clock = Clock(speed, beginning)
        text = replay.spec(archive, origin, clock)
        frame = spark.readStream.format("nova_replay").schema(recording.schema).option("spec", text).load()
        opened[name] = Input(frame, clock)
    return opened


def streamed(spark: SparkSession, given: StreamInput, folder: Path) -> DataFrame:
    """Any format that Spark streams."""
    path = given.location(folder)
    options = reader_options(given)
    schema = options.pop("schema", None)
    reader = spark.readStream.format(given.format).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(path) if path is not None else reader.load()


def reader_options(given: StreamInput) -> dict[str, str]:
    """Options as Spark wants them: text. CSV files have a header unless said otherwise."""
    options = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.options.items()
    }
    if given.format == "csv":
        options.setdefault("header", "true")
    options.pop("speed", None)
    return options


@dataclass(frozen=True)
class Files:
    """CSV, JSON or Parquet files of a stream, as a table or as they appear. Records that do not fit the schema keep
    their text."""

    given: StreamInput
    folder: Path
    place: str

    @property
    def path(self) -> str:
        path = self.given.location(self.folder)
        assert path is not None
        return path

    @property
    def options(self) -> dict[str, str]:
        return {"columnNameOfCorruptRecord": CORRUPT, **reader_options(self.given)}

    def schema(self, spark: SparkSession) -> StructType:
        """As declared, or as the files that are there tell; Spark streams files only with a schema."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as sql
        from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

        options = self.options
        told = options.pop("schema", None)
        if told is not None:
            return declared(told, self.place)
        try:
            there = spark.read.format(self.given.format).options(**{"inferSchema": "true", **options}).load(self.path)
        except AnalysisException as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidInput(
                [
                    Fault(
                        self.place,
                        f"the schema cannot be told from the files ({reason}). Maybe the folder is "
                        'still empty: then give it as `options: {schema: "source_id STRING, …"}`',
                        field="path",
                        value=self.path,
                    )
                ]
            ) from None
        fields = {field.name: field for field in there.schema.fields if field.name != CORRUPT}
        # one bad record must not make texts of all times and values: what most of them are, counts
        for name, kinds in (
            (self.given.columns.time, (TimestampType(), LongType())),
            (self.given.columns.value, (DoubleType(),)),
        ):
            if name in fields and fields[name].dataType == StringType():
                cell = column_of(name)
                fit = [sql.count_if(cell.try_cast(kind).isNotNull()) for kind in kinds]
                every, *fits = there.agg(sql.count(cell), *fit).collect()[0]
                best = next((kind for kind, count in zip(kinds, fits, strict=True) if 2 * count > every), None)
                fields[name] = StructField(name, best or StringType())
        return StructType(list(fields.values()))

    def table(self, spark: SparkSession, schema: str) -> DataFrame:
        """All files that are there."""
        return self._placed(self._reader(spark.read, schema).load(self.path))

    def stream(self, spark: SparkSession, schema: str) -> DataFrame:
        """The files that are there, and those that appear later."""
        reader = self._reader(spark.readStream, schema)
        if not {"maxFilesPerTrigger", "maxBytesPerTrigger"} & set(self.options):
            reader = reader.option("maxBytesPerTrigger", MOST_BYTES)
        if Path(self.path).is_dir() and "pathGlobFilter" not in self.options:
            reader = reader.option("pathGlobFilter", f"*.{self.given.format}*")
        return self._placed(reader.load(self.path))

    def _reader(self, reader: Any, schema: str) -> Any:
        fields = noted(schema, self.place)
        options = self.options
        options.pop("schema", None)
        if self.given.format != "parquet" and options["columnNameOfCorruptRecord"] == CORRUPT:
            fields = with_corrupt(fields)
        return reader.format(self.given.format).options(**options).schema(fields)

    def _placed(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        line = sql.expr("_metadata.row_index + 1") if self.given.format == "parquet" else sql.lit(None).cast("long")
        return frame.withColumns({FILE: sql.expr("_metadata.file_path"), LINE: line})


def noted(schema: str, place: str) -> StructType:
    """The columns of files as a run has noted them."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(schema))
    except (ValueError, KeyError, TypeError, AttributeError, PySparkException) as error:
        message = f"the columns that the run noted under schemas/ are not what it wrote: {error}"
        raise InvalidInput([Fault(place, message, value=short(schema))]) from None


@dataclass(frozen=True)
class Sides:
    """Both inputs of a query, with the columns of the tuples that must be equal brought to one type."""

    left: DataFrame
    right: DataFrame
    on: tuple[str, ...]


def agree(left: DataFrame, right: DataFrame, on: tuple[str, ...]) -> Sides:
    """`on` columns that the tuples of both sides carry, compared as numbers where both are (whole ones exactly), as
    text else."""
    from pyspark.sql.types import IntegralType, NumericType

    shared = tuple(name for name in on if name in left.columns and name in right.columns)
    for name in shared:
        kinds = left.schema[name].dataType, right.schema[name].dataType
        if kinds[0] == kinds[1]:
            continue
        whole, numbers = (all(isinstance(kind, of) for kind in kinds) for of in (IntegralType, NumericType))
        common = "bigint" if whole else "double" if numbers else "string"
        left, right = (frame.withColumn(name, column_of(name).cast(common)) for frame in (left, right))
    return Sides(left, right, shared)


def carried(frame: DataFrame) -> pa.Schema:
    """What a tuple carries beside source and time, as Arrow columns: value first."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.drop("source", "time", *HIDDEN).schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])


def flow_of(problem: Problem, number: int, sides: Sides, partitions: int) -> Flow:
    """How the tuples of a query travel. `partitions`: in how many tasks they are joined at once."""
    query = problem.queries[number]
    flow = Flow(query.id, max(1, round(query.window_ms * 1000)), sides.on, carried(sides.left), carried(sides.right))
    sources = np.concatenate([problem.sources_of(query.left), problem.sources_of(query.right)])
    per_s = float(problem.sources.rate[sources].sum())
    return replace(flow, cells=cells_for(per_s * flow.bucket_us / 1e6, partitions))


def shared_clock(left: Input, right: Input) -> Clock | None:
    """How event times of both relate to now; None where those of one do not."""
    return left.clock if left.clock == right.clock else None
