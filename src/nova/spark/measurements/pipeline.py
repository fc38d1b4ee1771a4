"""`nova measurements` from end to end: files → judged pings → pairs, latencies, quarantine, report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.errors import NovaError
from nova.spark.measurements import report
from nova.spark.measurements.aggregate import aggregate
from nova.spark.measurements.files import InputFile, find
from nova.spark.measurements.nodes import known_nodes
from nova.spark.measurements.quarantine import place
from nova.spark.measurements.read import BLANK, HEADER, read
from nova.spark.measurements.validate import REASONS, Rules, judge

PARTITION_BYTES = 48 * 2**20
"""Stored input per shuffle partition: with ids and times unpacked, a few hundred MB to sort."""


@dataclass(frozen=True)
class Task:
    """What to read, by which rules, into which folder."""

    inputs: list[str]
    output: str
    bucket_ms: float = 3_600_000.0
    rules: Rules = field(default_factory=Rules)
    columns: Mapping[str, str] = field(default_factory=dict)
    nodes: str | None = None
    """Table of known nodes; None: every id counts."""
    seed: int = 0
    """Of the sample behind the report."""


@dataclass(frozen=True)
class Counts:
    """Where every row went. `rows = good + duplicates + quarantined` is checked, not assumed."""

    rows: int
    good: int
    duplicates: int
    quarantined: dict[str, int]
    """Rows by reason, only reasons that occurred."""
    floored: int
    """Good rows whose zero was raised to the floor."""
    header_lines: int
    blank_lines: int

    def check(self) -> None:
        """Refuse a result in which rows were lost or doubled."""
        found = self.good + self.duplicates + sum(self.quarantined.values())
        if found != self.rows:
            raise NovaError(f"{self.rows:,} rows were read, but {found:,} came out ({self.good:,} good, "
                            f"{self.duplicates:,} duplicates, {sum(self.quarantined.values()):,} quarantined). "
                            "Did an input file change during the run?")


def measurements(spark: SparkSession, task: Task, step: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Run the task; writes `pairs/`, `latency.parquet/`, `quarantine/`, `report.json` and `report.png` into its folder
    and returns the report. `step` hears what is being done. `report.json` is written last: a folder without it is
    unfinished."""
    step("looking at the input")
    files = find(spark, task.inputs)
    nodes = known_nodes(spark, task.nodes) if task.nodes else None
    if "://" not in task.output:
        Path(task.output, "report.json").unlink(missing_ok=True)
    raw = read(spark, files, task.columns)
    judged, seen = judge(raw.frame, task.rules, nodes)
    step("aggregating")
    pairs = aggregate(judged.where("reason is null"), round(task.bucket_ms * 1000), partitions(spark, files))
    pairs.write.partitionBy("day").mode("overwrite").parquet(f"{task.output}/pairs")
    step("writing latencies")
    pairs = spark.read.parquet(f"{task.output}/pairs")
    latency(pairs).write.mode("overwrite").parquet(f"{task.output}/latency.parquet")
    step("writing the quarantine")
    quarantined = _quarantine(spark, files, task, nodes, anything=any(seen.get[reason] for reason in REASONS))
    step("reporting")
    figures = report.figures(pairs)
    counts = Counts(
        rows=seen.get["rows"], good=figures["pings"] or 0, duplicates=figures["duplicates"] or 0,
        quarantined=quarantined, floored=seen.get["floored"], header_lines=seen.get[HEADER],
        blank_lines=seen.get[BLANK],
    )
    counts.check()
    document = report.document(pairs, figures, counts, task.seed, nodes)
    if "://" not in task.output:
        report.draw(document, pairs, Path(task.output) / "report.png", task.seed)
        Path(task.output, "report.json").write_text(json.dumps(document, indent=2) + "\n")
    return document


def partitions(spark: SparkSession, files: list[InputFile]) -> int:
    """Shuffle partitions for this much input: the session's, or more for large input, so that none outgrows memory."""
    expansion = {"parquet": 4.0}  # Parquet is compressed; so are .gz files
    size = sum(file.size * expansion.get(file.format, 6.0 if file.uri.endswith((".gz", ".zst", ".bz2")) else 1.0)
               for file in files)
    return max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), int(size // (4 * PARTITION_BYTES)) + 1)


def latency(pairs: DataFrame) -> DataFrame:
    """One RTT per pair, as scenarios take it (`from, to, rtt_ms`): the median over buckets of their medians, so that a
    busy hour counts no more than a quiet one. Pairs that never answered have none."""
    typical = f.percentile("median_ms", f.lit(0.5)).alias("rtt_ms")
    return (pairs.where("median_ms is not null").groupBy(f.col("a").alias("from"), f.col("b").alias("to"))
            .agg(typical).sortWithinPartitions("from", "to"))


def _quarantine(
    spark: SparkSession, files: list[InputFile], task: Task, nodes: DataFrame | None, anything: bool
) -> dict[str, int]:
    """Write the quarantine table; rows by reason as they stand in it."""
    raw = read(spark, files if anything else files[:1], task.columns, locate=True)
    bad = place(spark, judge(raw.frame, task.rules, nodes)[0], raw.texts, files)
    (bad if anything else bad.limit(0)).write.mode("overwrite").parquet(f"{task.output}/quarantine")
    written = spark.read.parquet(f"{task.output}/quarantine")
    placed = f.count_if(f.col("line") >= 1).alias("placed")
    rows = written.groupBy("reason").agg(f.count("*").alias("rows"), placed).orderBy("reason").collect()
    if any(row["rows"] != row["placed"] for row in rows):
        raise NovaError("Some quarantined rows could not be placed. Did an input file change during the run?")
    return {row["reason"]: row["rows"] for row in rows}
