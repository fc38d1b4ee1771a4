"""Inputs: what a scenario says about a stream's tuples, as a streaming DataFrame with the columns source, time, value
and whatever else the tuples carry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nova.files import name_of
from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Problem
from nova.routing.flow import Flow, cells_for
from nova.scenario.model import Columns, StreamInput
from nova.spark.sources.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from nova.scenario import Scenario
    from nova.spark.job.folder import RunFolder

FILES = ("csv", "json", "parquet")


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
            missing.append(Fault(str(scenario.path), "to run, a stream needs an `input`", field=f"streams.{name}"))
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
    replays: dict[str, tuple[DataFrame, float]] = {}
    inputs: dict[str, Input] = {}
    beginning, now_ms = folder.beginning(), int(time.time() * 1000)
    for name, feed in feeds.items():
        given, place = feed.input, feed.place
        at = replay_speed(given, speed, place)
        if given.format == "generator":
            inputs[name] = _generated(spark, feed, Clock(speed or 1.0, beginning), now_ms)
        elif given.format == "mqtt":
            from nova.spark.sources.mqtt import open_mqtt

            frame = open_mqtt(spark, given, folder.path / "spool" / name_of(name), place)
            inputs[name] = Input(normalised(frame, given.columns, place), Clock())
        elif at is not None:
            replays[name] = (recorded(spark, given, feed.folder, place), at)
        else:
            frame = streamed(spark, given, feed.folder, place)
            inputs[name] = Input(normalised(frame, given.columns, place), at_hand=given.format in FILES)
    return inputs | _replayed(spark, replays, folder, beginning)


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
    spark: SparkSession, replays: Mapping[str, tuple[DataFrame, float]], folder: RunFolder, beginning: str
) -> dict[str, Input]:
    """Archives that are replayed together, on one clock that begins with the earliest of them."""
    from nova.spark.sources import replay

    if not replays:
        return {}
    archives = {
        name: replay.prepare(frame, folder.path / "replay" / name_of(name)) for name, (frame, _) in replays.items()
    }
    origin = min(archive.first_us for archive in archives.values())
    spark.dataSource.register(replay.Replay)
    opened = {}
    for name, (recording, speed) in replays.items():
        clock = Clock(speed, beginning)
        text = replay.spec(archives[name], origin, clock)
        frame = spark.readStream.format("nova_replay").schema(recording.schema).option("spec", text).load()
        opened[name] = Input(frame, clock)
    return opened


def recorded(spark: SparkSession, given: StreamInput, folder: Path, place: str) -> DataFrame:
    """Recorded files as a table, normalised."""
    path = given.location(folder)
    options = reader_options(given)
    schema = options.pop("schema", None)
    options.pop("speed", None)
    assert path is not None
    reader = spark.read.format(given.format).options(**options)
    reader = reader.schema(schema or infer(spark, given.format, path, options, place))
    return normalised(reader.load(path), given.columns, place)


def streamed(spark: SparkSession, given: StreamInput, folder: Path, place: str) -> DataFrame:
    """A folder of files, or any format that Spark streams. Files that appear later are read too."""
    path = given.location(folder)
    options = reader_options(given)
    schema = options.pop("schema", None)
    if given.format in FILES:
        assert path is not None
        options.setdefault("pathGlobFilter", f"*.{given.format}*") if Path(path).is_dir() else None
        schema = schema or infer(spark, given.format, path, options, place)
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
    return options


def infer(spark: SparkSession, format: str, path: str, options: Mapping[str, str], place: str) -> Any:  # noqa: A002
    """Schema of the files that are there; Spark streams files only with a schema."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format(format).options(**{"inferSchema": "true", **options}).load(path).schema
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(
            [
                Fault(
                    place,
                    f"the schema cannot be told from the files ({reason}). Maybe the folder is "
                    'still empty: then give it as `options: {schema: "source_id STRING, …"}`',
                    field="path",
                    value=path,
                )
            ]
        ) from None


def quoted(name: str) -> str:
    """A column's name in SQL, whatever characters it has."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def column_of(name: str) -> Column:
    """A column by its name, whatever characters it has."""
    from pyspark.sql import functions as sql

    return sql.col(quoted(name))


def normalised(frame: DataFrame, columns: Columns, place: str) -> DataFrame:
    """The columns source (text), time (timestamp) and value, then all others under their own names.

    A column may be an SQL expression, such as `get_json_object(CAST(value AS STRING), '$.id')` for Kafka.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sql

    taken = {}
    for role in ("source", "time", "value"):
        name = getattr(columns, role)
        try:
            taken[role] = frame.select((column_of(name) if name in frame.columns else sql.expr(name)).alias(role))
        except AnalysisException:
            raise InvalidInput(
                [
                    Fault(
                        place,
                        f"no such column; the columns are {', '.join(frame.columns)}",
                        field=f"columns.{role}",
                        value=name,
                    )
                ]
            ) from None
    used = {columns.source, columns.time, columns.value}
    others = [name for name in frame.columns if name not in used]
    clash = [name for name in others if name in ("source", "time", "value")]
    if clash:
        raise InvalidInput(
            [
                Fault(
                    place,
                    f"the column {clash[0]!r} is taken by `columns.{clash[0]}`; rename it",
                    field="columns",
                    value=clash[0],
                )
            ]
        )

    def pick(role: str) -> Any:
        name = getattr(columns, role)
        return column_of(name) if name in frame.columns else sql.expr(name)

    time = pick("time")
    kind = taken["time"].schema["time"].dataType.typeName()
    if kind in ("long", "integer", "short", "double", "float", "decimal"):
        moment = sql.timestamp_micros((time * 1000).cast("long"))
    else:
        moment = time.cast("timestamp")
    return frame.select(
        pick("source").cast("string").alias("source"),
        moment.alias("time"),
        pick("value").alias("value"),
        *(column_of(name) for name in others),
    )


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

    schema = to_arrow_schema(frame.drop("source", "time").schema, timezone="UTC")
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
