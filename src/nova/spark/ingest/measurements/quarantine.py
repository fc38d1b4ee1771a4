"""Rows that were turned down, with the reason and the place they came from, as `nova.spark.dead_letters` has them.

Spark's text source tells the file and the block (the split) of a row, but no line. Numbering all lines would make every
run pay for what only bad rows need, so places are found in a second pass, and only where there is something to place:
within a task Spark numbers rows one by one (`monotonically_increasing_id`), and a block is read by one task from its
first to its last line. So the line is: lines in the blocks before, plus the distance to the block's first row. The
lines per block are one small aggregate. This scales with the input, needs no shuffle of rows, works for splittable and
compressed files alike, and is exact. Parquet knows its row numbers; elements of JSON arrays are numbered on reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.model.errors import NovaError
from nova.spark.dead_letters import RECORD_CHARS
from nova.spark.ingest.measurements.files import InputFile
from nova.spark.ingest.measurements.lines import BLANK, HEADER

_PLACES = "file string, block long, before long, first long"


def place(
    spark: SparkSession,
    judged: DataFrame,
    texts: Sequence[DataFrame],
    files: Sequence[InputFile],
    shown: Mapping[str, str],
) -> DataFrame:
    """Table `reason, file, line, …, record` of the bad rows of `judged`, which has `reason, file, block, row, record`.
    `shown`: what further columns are called in the table → what they are called in `judged`.

    `line` is the 1-based line of a text file, the 1-based record of Parquet files and JSON arrays.
    """
    bad = judged.where(f.col("reason").isNotNull() & ~f.col("reason").isin(HEADER, BLANK))
    blocks = spark.createDataFrame(_blocks(texts), _PLACES)
    names = spark.createDataFrame([(file.uri, file.name) for file in files], "uri string, name string")
    uri = f.regexp_replace("file", "^file:/+", "file:///")  # Spark writes it with one slash or three
    line = f.when(f.col("block").isNull(), f.col("row") + 1).otherwise(
        f.col("before") + f.col("row") - f.col("first") + 1
    )
    return (
        bad.join(f.broadcast(blocks), ["file", "block"], "left")
        .join(f.broadcast(names), f.col("uri") == uri, "left")
        .select(
            "reason",
            f.coalesce("name", "file").alias("file"),
            line.alias("line"),
            *(f.col(name).alias(called) for called, name in shown.items()),
            f.left("record", f.lit(RECORD_CHARS)).alias("record"),
        )
    )


def write(spark: SparkSession, bad: DataFrame, folder: str) -> dict[str, int]:
    """Write the table; rows by reason as they stand in it. A row without a place is refused."""
    bad.write.mode("overwrite").parquet(folder)
    placed = f.count_if(f.col("line") >= 1).alias("placed")
    found = spark.read.schema(bad.schema).parquet(folder).groupBy("reason").agg(f.count("*").alias("rows"), placed)
    rows = found.orderBy("reason").collect()
    if any(row["rows"] != row["placed"] for row in rows):
        raise NovaError("Some quarantined rows could not be placed. Did an input file change during the run?")
    return {row["reason"]: row["rows"] for row in rows}


def _blocks(texts: Sequence[DataFrame]) -> list[tuple[str, int, int, int]]:
    """Every block of the text files: lines of its file before it, and the row number of its first line."""
    if not texts:
        return []
    counted = [
        text.groupBy("file", "block").agg(f.count("*").alias("lines"), f.min("row").alias("first")) for text in texts
    ]
    rows = reduce(DataFrame.unionByName, counted).orderBy("file", "block").collect()
    places = []
    for file, blocks in groupby(rows, key=lambda row: row["file"]):
        before = 0
        for block in blocks:
            places.append((file, block["block"], before, block["first"]))
            before += block["lines"]
    return places
