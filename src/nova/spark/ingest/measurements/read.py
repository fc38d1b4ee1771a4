"""Raw records of every format as one table of pings: ids, time, RTT, and where each came from.

Text files are read line by line and parsed by expressions, so that every line is seen and counted, also those that no
parser takes. Nothing is judged here; see `validate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, DateType, NumericType, StringType, StructField, StructType, TimestampType

from nova.spark.dead_letters import NOT_PARSED
from nova.spark.ingest.measurements.columns import ROLES, assign
from nova.spark.ingest.measurements.files import InputFile
from nova.spark.ingest.measurements.lines import BLANK, cells_of, epoch, lines_of, micros

LOST = ("", "na", "n/a", "null", "none", "*", "-", "x", "lost", "timeout")
"""What files write for a ping that did not come back (without regard to case)."""
PROBE_ERROR = "probe_error"
"""What reading itself notices about a record, besides what `lines` says of a line."""

_ATLAS = "array<struct<rtt:string,x:string,error:string,dup:int>>"
_CORRUPT = "_corrupt"


@dataclass(frozen=True)
class Raw:
    """Pings as read.

    Columns: `from_id, to_id` (string), `time` (µs since the epoch), `timed` (whether the file has times at all),
    `time_blank` (whether the cell is empty), `sequence` (long), `numbered` (false where it only counts rows), `rtt`
    (ms, NaN stays NaN), `lost`, `repeated` (marked as a duplicate reply), `noticed` (see above, or null), and with
    `locate` also `time_text, rtt_text, file, block, row, record`.
    """

    frame: DataFrame
    texts: tuple[DataFrame, ...]
    """Line tables of the text files (`file, block, row`), to turn rows of blocks into line numbers."""


def read(spark: SparkSession, files: list[InputFile], told: Mapping[str, str], locate: bool = False) -> Raw:
    """All pings of the files. `told` says which column plays which part, see `columns`."""
    parts: list[DataFrame] = []
    texts: list[DataFrame] = []

    def kind(file: InputFile) -> tuple[str, str]:
        """Files that one plan reads together: CSV files with the same header, JSON files with the same parts."""
        if file.format in ("json", "json array"):
            return file.format, " ".join(part for part in ("time", "sequence") if _mentions(file.head, part, told))
        return file.format, file.head

    for number, ((form, head), group) in enumerate(groupby(sorted(files, key=kind), key=kind)):
        members = list(group)
        paths = [file.path for file in members]
        if form == "parquet":
            parts.append(_parquet(spark, paths, told, locate, number, members[0].name))
            continue
        lines = lines_of(spark, paths, whole=form == "json array")
        if form == "csv":
            texts.append(lines)
            parts.append(_csv(lines, head, told, locate, number, members[0].name))
        elif form == "json":
            texts.append(lines)
            parts.append(_json(lines, head, told, locate, number))
        else:
            parts.append(_json(_elements(lines), head, told, locate, number))
    return Raw(reduce(DataFrame.unionByName, parts), tuple(texts))


def _csv(lines: DataFrame, head: str, told: Mapping[str, str], locate: bool, number: int, file: str) -> DataFrame:
    cells = cells_of(lines, head)
    parts = assign(cells.names, told, file)
    texts = {part: cells.cell(parts[part]) if part in parts else None for part in ROLES}
    return _pings(cells.frame, texts, {}, cells.noticed, number, locate)


def _elements(lines: DataFrame) -> DataFrame:
    """Elements of files that are one JSON array each; `row` becomes the number of the record, and a file that is no
    array stays one row."""
    array = f.from_json("value", "array<string>")
    return lines.select(
        f.posexplode(f.when(array.isNull(), f.array("value")).otherwise(array)).alias("at", "value"),
        "file",
        f.lit(None).cast("long").alias("block"),
    ).select("value", "file", "block", f.col("at").cast("long").alias("row"))


def _mentions(sample: str, part: str, told: Mapping[str, str]) -> bool:
    """Whether the beginning of a JSON file has a key for this part, so that records without it are faulty."""
    names = [told[part]] if part in told else ROLES[part]
    keys = "|".join(re.escape(name) for name in (*names, "prb_id"))  # Atlas results always have a time and packets
    return re.search(rf'"({keys})"\s*:', sample) is not None


def _json(lines: DataFrame, has: str, told: Mapping[str, str], locate: bool, number: int) -> DataFrame:
    """JSON records, one per row of `value`: plain ones and RIPE Atlas results, told apart record by record.

    `has` names the optional parts that the files have.
    """
    atlas = ("prb_id", "msm_id", "from", "src_addr", "srcaddr", "dst_addr", "addr", "dst_name", "timestamp", "result")
    keys = sorted({*atlas, *(told.get(part) or name for part, known in ROLES.items() for name in known)})
    schema = StructType([StructField(key, StringType()) for key in [*keys, _CORRUPT]])
    record = f.from_json("value", schema, {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"})
    rows = lines.select("*", record.alias("j"))
    j = f.col("j")
    is_atlas = j["msm_id"].isNotNull() & j["prb_id"].isNotNull()
    results = f.from_json(j["result"], _ATLAS)
    nothing = f.lit(None).cast(_ATLAS)
    rows = rows.select("*", f.posexplode_outer(f.when(is_atlas, results).otherwise(nothing)).alias("packet", "p"))
    packet = f.col("p")

    def cell(part: str) -> Column:
        own = told.get(part)
        return f.coalesce(*(j[name] for name in ([own] if own else ROLES[part])))

    texts: dict[str, Column | None] = {
        "from": f.when(is_atlas, f.coalesce(j["from"], j["src_addr"], j["srcaddr"], j["prb_id"])).otherwise(
            cell("from")
        ),
        "to": f.when(is_atlas, f.coalesce(j["dst_addr"], j["addr"], j["dst_name"])).otherwise(cell("to")),
        "time": f.when(is_atlas, j["timestamp"]).otherwise(cell("time")) if "time" in has else None,
        "sequence": f.when(is_atlas, f.col("packet").cast("string")).otherwise(cell("sequence"))
        if "sequence" in has
        else None,
        "rtt": f.when(is_atlas, packet["rtt"]).otherwise(cell("rtt")),
        "site": f.when(~is_atlas, cell("site")),
    }
    noticed = (
        f.when(f.trim("value") == "", BLANK)
        .when(j.isNull() | j[_CORRUPT].isNotNull(), NOT_PARSED)
        .when(is_atlas & packet.isNull(), NOT_PARSED)
        .when(is_atlas & packet["error"].isNotNull(), PROBE_ERROR)
        .when(is_atlas & packet["rtt"].isNull() & packet["x"].isNull(), NOT_PARSED)
    )
    return _pings(
        rows, texts, {}, noticed, number, locate, repeated=is_atlas & f.coalesce(packet["dup"] > 0, f.lit(False))
    )


def _parquet(
    spark: SparkSession, paths: list[str], told: Mapping[str, str], locate: bool, number: int, file: str
) -> DataFrame:
    table = spark.read.option("mergeSchema", "true").parquet(*paths)
    parts = assign(table.columns, told, file)
    types = {field.name: field.dataType for field in table.schema.fields}
    texts: dict[str, Column | None] = {}
    typed: dict[str, Column] = {}
    for part in ROLES:
        if part not in parts:
            texts[part] = None
            continue
        column = f.col(f"`{parts[part]}`")
        texts[part] = column.cast("string")
        exact = _typed(part, column, types[parts[part]])
        if exact is not None:
            typed[part] = exact
    numbered = (
        table.select(
            "*",
            f.col("_metadata.file_path").alias("file"),
            f.lit(None).cast("long").alias("block"),
            f.col("_metadata.row_index").alias("row"),
        )
        if locate
        else table
    )
    if locate:
        # the cells that count are shown anyway, and turning every row into text would cost more than all the rest
        numbered = numbered.withColumn("value", f.lit(None).cast("string"))
    return _pings(numbered, texts, typed, f.lit(None).cast("string"), number, locate)


def _typed(part: str, column: Column, kind: DataType) -> Column | None:
    """A number straight from a typed column, without the way over text; None where text has to be read."""
    if part == "rtt" and isinstance(kind, NumericType):
        return column.cast("double")
    if part == "sequence" and isinstance(kind, NumericType):
        return column.cast("long")
    if part == "time":
        if isinstance(kind, TimestampType | DateType) or kind.typeName() == "timestamp_ntz":
            return f.unix_micros(column.cast("timestamp"))
        if isinstance(kind, NumericType):
            return epoch(column.cast("double"))
    return None


def _pings(
    rows: DataFrame,
    texts: Mapping[str, Column | None],
    typed: Mapping[str, Column],
    noticed: Column,
    number: int,
    locate: bool,
    repeated: Column | None = None,
) -> DataFrame:
    """The columns of `Raw` from what a format offers: texts of every part, and numbers where it has them already.

    Made in two steps, so that the optimizer computes each text once instead of once per use.
    """
    none = f.lit(None).cast("string")
    place = [f.col("file"), f.col("block"), f.col("row"), f.col("value").alias("record")] if locate else []

    def needed(part: str) -> bool:
        """Turning numbers into text costs more than all the rest; only quarantined rows show them."""
        return locate or part not in typed

    flat = rows.select(
        *(
            (none if column is None or not needed(part) else f.trim(column)).alias(f"{part}_text")
            for part, column in texts.items()
        ),
        *(column.alias(f"{part}_typed") for part, column in typed.items()),
        (f.lit(False) if repeated is None else repeated).alias("repeated"),
        noticed.alias("noticed"),
        *place,
    )

    def node(part: str) -> Column:
        plain = f.when(f.col(f"{part}_text") != "", f.col(f"{part}_text"))
        if texts["site"] is None:
            return plain
        prefix = f.when(f.col("site_text") != "", f.concat("site_text", f.lit("_"))).otherwise("")
        return f.concat(prefix, plain)

    if "rtt" in typed:
        rtt, lost = f.col("rtt_typed"), f.col("rtt_typed").isNull()
    else:
        word = f.lower("rtt_text")
        lost = f.coalesce(word.isin(*LOST), f.lit(True))
        rtt = f.when(~lost, word).try_cast("double")  # a cast that fails costs an exception
    moment = f.col("time_text")
    numbered = texts["sequence"] is not None or texts["time"] is not None
    if not numbered:
        # nothing tells two equal pings of such a file apart, so each line is a ping of its own
        sequence = f.monotonically_increasing_id() + (number << 54)
    else:
        sequence = f.coalesce(
            "sequence_typed" if "sequence" in typed else f.col("sequence_text").try_cast("long"), f.lit(0)
        )
    blank = f.col("time_typed").isNull() if "time" in typed else f.coalesce(moment == "", f.lit(True))
    return flat.select(
        node("from").alias("from_id"),
        node("to").alias("to_id"),
        (f.col("time_typed") if "time" in typed else micros(moment)).alias("time"),
        f.lit(texts["time"] is not None).alias("timed"),
        blank.alias("time_blank"),
        f.lit(numbered).alias("numbered"),
        sequence.cast("long").alias("sequence"),
        rtt.alias("rtt"),
        lost.alias("lost"),
        "repeated",
        "noticed",
        *(["time_text", "rtt_text", "file", "block", "row", "record"] if locate else []),
    )
