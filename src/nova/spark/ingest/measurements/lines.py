"""Text files line by line: every line is seen, counted and can be found again, also those that no parser takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.spark.dead_letters import NOT_PARSED
from nova.spark.ingest.measurements.columns import names_of
from nova.spark.ingest.measurements.files import delimiter_of

HEADER, BLANK = "header", "blank"
"""Lines that are no rows: they are counted, and then passed over."""

_CORRUPT = "_corrupt"


def lines_of(spark: SparkSession, paths: list[str], whole: bool = False) -> DataFrame:
    """Table `value, file, block, row`: the lines of text files (`whole`: each file as one), with the file, the split
    it was read in and a number that grows by one from line to line within a split."""
    return spark.read.text(paths, wholetext=whole).select(
        f.col("value"),
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("row"),
    )


@dataclass(frozen=True)
class Cells:
    """Lines of CSV files cut into cells."""

    frame: DataFrame
    names: list[str]
    """Columns as the header names them; they may hold anything, or occur twice, so cells are taken by place."""
    noticed: Column
    """`BLANK`, `HEADER`, `NOT_PARSED` (wrong number of cells) or null."""
    cell: Callable[[str], Column]
    """The text of a column, by name."""


def cells_of(lines: DataFrame, head: str) -> Cells:
    """Cut lines into cells by the delimiter of their header line `head`. Lines equal to it are headers, wherever they
    stand: files are often glued together."""
    delimiter = delimiter_of(head)
    names = names_of(head, delimiter)
    fields = [*(f"f{i}" for i in range(len(names))), _CORRUPT]
    parsed = f.from_csv(
        "value",
        ", ".join(f"{field} string" for field in fields),
        {"sep": delimiter, "columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"},
    )
    # most lines hold no quotes, and splitting those is several times quicker than a full parser
    quick = f.split("value", "\\" + delimiter if delimiter == "|" else delimiter, -1)
    quoted = f.col("value").contains('"')
    frame = lines.select("*", f.when(~quoted, quick).alias("cells"), f.when(quoted, parsed).alias("parsed"))
    broken = f.coalesce(f.size("cells") != len(names), f.col("parsed")[_CORRUPT].isNotNull())
    noticed = f.when(f.trim("value") == "", BLANK).when(f.col("value") == head, HEADER).when(broken, NOT_PARSED)

    def cell(name: str) -> Column:
        at = names.index(name)
        return f.coalesce(f.get("cells", f.lit(at)), f.col("parsed")[f"f{at}"])

    return Cells(frame, names, noticed, cell)


def micros(text: Column) -> Column:
    """A time in µs since the epoch from ISO 8601 or a number of seconds, ms or µs; null where it is neither."""
    # a cast that fails costs an exception, many times a row's whole way: try only what can be a number
    number = f.when(~text.contains(":"), text).try_cast("double")
    return f.coalesce(epoch(number), f.unix_micros(text.try_cast("timestamp")))


def epoch(number: Column) -> Column:
    """Seconds, milliseconds or microseconds since the epoch, told apart by their size, as microseconds."""
    size = f.abs(number)
    factor = f.when(size < 1e11, 1e6).when(size < 1e14, 1e3).otherwise(1.0)
    return f.when(~f.isnan(number) & (size < 9e18), f.round(number * factor).cast("long"))
