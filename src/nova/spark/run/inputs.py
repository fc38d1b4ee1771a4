"""Inputs: what a scenario says about a stream's tuples, as a streaming DataFrame with the columns source, time, value
and whatever else the tuples carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova.errors import Fault, InvalidInput
from nova.scenario.model import Columns, StreamInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = ("csv", "json", "parquet")


def file_stream(spark: SparkSession, given: StreamInput, folder: Path, place: str) -> DataFrame:
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
    options = {name: str(value).lower() if isinstance(value, bool) else str(value)
               for name, value in given.options.items()}
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
        raise InvalidInput([Fault(place, f"the schema cannot be told from the files ({reason}). Maybe the folder is "
                                  "still empty: then give it as `options: {schema: \"source_id STRING, …\"}`",
                                  field="path", value=path)]) from None


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
            taken[role] = frame.select((sql.col(f"`{name}`") if name in frame.columns else sql.expr(name)).alias(role))
        except AnalysisException:
            raise InvalidInput([Fault(place, f"no such column; the columns are {', '.join(frame.columns)}",
                                      field=f"columns.{role}", value=name)]) from None
    used = {columns.source, columns.time, columns.value}
    others = [name for name in frame.columns if name not in used]
    clash = [name for name in others if name in ("source", "time", "value")]
    if clash:
        raise InvalidInput([Fault(place, f"the column {clash[0]!r} is taken by `columns.{clash[0]}`; rename it",
                                  field="columns", value=clash[0])])

    def pick(role: str) -> Any:
        name = getattr(columns, role)
        return sql.col(f"`{name}`") if name in frame.columns else sql.expr(name)

    time = pick("time")
    kind = taken["time"].schema["time"].dataType.typeName()
    if kind in ("long", "integer", "short", "double", "float", "decimal"):
        moment = sql.timestamp_micros((time * 1000).cast("long"))
    else:
        moment = time.cast("timestamp")
    return frame.select(
        pick("source").cast("string").alias("source"), moment.alias("time"), pick("value").alias("value"),
        *(sql.col(f"`{name}`") for name in others),
    )


@dataclass(frozen=True)
class Sides:
    """Both inputs of a query, with the columns of the tuples that must be equal brought to one type."""

    left: DataFrame
    right: DataFrame
    on: tuple[str, ...]


def agree(left: DataFrame, right: DataFrame, on: tuple[str, ...]) -> Sides:
    """`on` columns that the tuples of both sides carry, compared as numbers where both are, as text else."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import NumericType

    shared = tuple(name for name in on if name in left.columns and name in right.columns)
    for name in shared:
        kinds = left.schema[name].dataType, right.schema[name].dataType
        if kinds[0] == kinds[1]:
            continue
        common = "double" if all(isinstance(kind, NumericType) for kind in kinds) else "string"
        left, right = (frame.withColumn(name, sql.col(f"`{name}`").cast(common)) for frame in (left, right))
    return Sides(left, right, shared)


def carried(frame: DataFrame) -> pa.Schema:
    """What a tuple carries beside source and time, as Arrow columns: value first."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.drop("source", "time").schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])
