"""Tuples: what every input must bring, whatever its format: the columns source, time and value, then all others.

An input may say where each record came from (the columns `FILE`, `LINE` and `RECORD`) and that its format did not take
it (`CORRUPT`). Then a tuple that cannot be used keeps its place and text and gets a `REASON`, and the job puts it with
the dead letters; tuples that are good carry nulls there. Nothing in a tuple makes a query fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nova.model.errors import Fault, InvalidInput
from nova.scenario.model import Columns
from nova.spark.dead_letters import AHEAD_S, BAD_TIME, BAD_VALUE, FUTURE_TIME, NO_SOURCE, NOT_PARSED, RECORD_CHARS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

CORRUPT, REASON, FILE, LINE, RECORD = (f"_nova_{word}" for word in ("corrupt", "reason", "file", "line", "record"))
HIDDEN = (REASON, FILE, LINE, RECORD)
"""Columns of a tuple that say why and where it was turned down."""
BEAT = "beat"
"""In place of a reason: the row is no tuple, but says how far its stream has come (`nova.spark.job.sinks.HandOver`)."""
FEW_SOURCES = 2000
"""Up to so many ids, Spark itself tells tuples of unknown sources, so that they keep their place and text; beyond, all
tuples keep their place."""
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Times (ms since 1970) from the year 1 to the year 9999."""


def quoted(name: str) -> str:
    """A column's name in SQL, whatever characters it has."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def column_of(name: str) -> Column:
    """A column by its name, whatever characters it has."""
    from pyspark.sql import functions as sql

    return sql.col(quoted(name))


def normalised(
    frame: DataFrame, columns: Columns, place: str, *, ids: Sequence[str] | None = None, live: bool = False
) -> DataFrame:
    """The columns source (text), time (timestamp) and value, all others under their own names, and the hidden ones
    where the input tells of places.

    A column may be an SQL expression over those of the input. `ids`: the stream's sources. `live`: event times are
    times of now, so that one far ahead is a fault.
    """
    visible = [name for name in frame.columns if name not in (*HIDDEN, CORRUPT)]
    source, time, value = (_picked(frame, columns, role, visible, place) for role in ("source", "time", "value"))
    used = {columns.source, columns.time, columns.value}
    others = [name for name in visible if name not in used]
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
    source, time = source.cast("string"), moment(time, frame.select(time.alias("time")).schema["time"].dataType)
    audit = _audit(frame, visible, source, time, value, ids, live) if FILE in frame.columns else []
    return frame.select(
        source.alias("source"), time.alias("time"), value.alias("value"), *map(column_of, others), *audit
    )


def _picked(frame: DataFrame, columns: Columns, role: str, visible: Sequence[str], place: str) -> Column:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as sql

    name: str = getattr(columns, role)
    column = column_of(name) if name in visible else sql.expr(name)
    try:
        frame.select(column)
    except (AnalysisException, ParseException):
        raise InvalidInput(
            [
                Fault(
                    place,
                    f"no such column; the columns are {', '.join(visible)}",
                    field=f"columns.{role}",
                    value=name,
                )
            ]
        ) from None
    return column


def moment(time: Column, kind: Any) -> Column:
    """A timestamp from a timestamp, a number (ms since 1970) or a text (ISO 8601 or such a number); null else."""
    from pyspark.sql import functions as sql

    def millis(number: Column) -> Column:
        inside = number.between(EARLIEST_MS, LATEST_MS)
        return sql.when(inside, sql.timestamp_micros(sql.round(number * 1000).cast("long")))

    match kind.typeName():
        case "timestamp" | "timestamp_ntz" | "date":
            return time.cast("timestamp")
        case "string":
            return sql.coalesce(millis(time.try_cast("double")), time.try_cast("timestamp"))
        case "long" | "integer" | "short" | "byte" | "double" | "float" | "decimal":
            return millis(time.cast("double"))
        case _:
            return sql.lit(None).cast("timestamp")


def _audit(
    frame: DataFrame,
    visible: Sequence[str],
    source: Column,
    time: Column,
    value: Column,
    ids: Sequence[str] | None,
    live: bool,
) -> list[Column]:
    from pyspark.sql import functions as sql

    corrupt = column_of(CORRUPT).isNotNull() if CORRUPT in frame.columns else sql.lit(False)
    nothing = source.isNull() & time.isNull() & value.isNull()
    reason = sql.when(nothing, NOT_PARSED).when(source.isNull(), NO_SOURCE).when(time.isNull(), BAD_TIME)
    reason = reason.when(value.isNull(), BAD_VALUE).when(corrupt, NOT_PARSED)
    if live:
        reason = reason.when(time > sql.current_timestamp() + sql.expr(f"INTERVAL {AHEAD_S} SECONDS"), FUTURE_TIME)
    told = reason.isNotNull()
    if ids is not None and len(ids) <= FEW_SOURCES:
        told = told | ~source.isin(list(ids))
    placed = told if ids is None or len(ids) <= FEW_SOURCES else sql.lit(True)
    texts = [column_of(name) for name in (CORRUPT, RECORD) if name in frame.columns]
    text = sql.coalesce(*texts, sql.to_json(sql.struct(*map(column_of, visible))))
    return [
        reason.alias(REASON),
        sql.when(placed, column_of(FILE)).alias(FILE),
        sql.when(placed, column_of(LINE).cast("long")).alias(LINE),
        sql.when(told, sql.left(text, sql.lit(RECORD_CHARS))).alias(RECORD),
    ]


def with_corrupt(schema: StructType) -> StructType:
    """The schema with a column for the text of records that do not fit it."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def json_payload(text: Column, schema: StructType) -> Column:
    """JSON text as a struct with the columns of `schema` and `CORRUPT`."""
    from pyspark.sql import functions as sql

    return sql.from_json(text, with_corrupt(schema), {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"})


def declared(ddl: str, place: str) -> StructType:
    """A schema as a scenario writes it: `source_id STRING, event_time STRING, value DOUBLE`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException:
        schema = None
    if not isinstance(schema, StructType):
        wanted = "a schema such as `source_id STRING, event_time STRING, value DOUBLE` expected"
        raise InvalidInput([Fault(place, wanted, field="options.schema", value=ddl)])
    return schema
