"""`nova measurements` from end to end: files → judged pings → pairs, latencies, quarantine, report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from nova.model.errors import NovaError
from nova.spark.ingest.measurements import report
from nova.spark.ingest.measurements.aggregate import aggregate, latency
from nova.spark.ingest.measurements.files import InputFile, find
from nova.spark.ingest.measurements.lines import BLANK, HEADER
from nova.spark.ingest.measurements.nodes import known_nodes
from nova.spark.ingest.measurements.quarantine import place, write
from nova.spark.ingest.measurements.read import read
from nova.spark.ingest.measurements.validate import Rules, judge

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
            raise NovaError(
                f"{self.rows:,} rows were read, but {found:,} came out ({self.good:,} good, "
                f"{self.duplicates:,} duplicates, {sum(self.quarantined.values()):,} quarantined). "
                "Did an input file change during the run?"
            )


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
    slots = partitions(spark, files)
    pairs = aggregate(judged.where("reason is null"), round(task.bucket_ms * 1000), slots)
    pairs.write.partitionBy("day").mode("overwrite").parquet(f"{task.output}/pairs")
    step("writing latencies")
    # with their schemas, as folders without a single row have none of their own
    pairs = spark.read.schema(pairs.schema).parquet(f"{task.output}/pairs")
    latencies = latency(pairs, slots)
    latencies.write.mode("overwrite").parquet(f"{task.output}/latency.parquet")
    latencies = spark.read.schema(latencies.schema).parquet(f"{task.output}/latency.parquet")
    figures = report.figures(pairs)
    step("writing the quarantine")
    missing = seen.get["rows"] - (figures["pings"] or 0) - (figures["duplicates"] or 0)
    quarantined = quarantine(spark, files, task, nodes, f"{task.output}/quarantine", anything=missing != 0)
    step("reporting")
    counts = Counts(
        rows=seen.get["rows"],
        good=figures["pings"] or 0,
        duplicates=figures["duplicates"] or 0,
        quarantined=quarantined,
        floored=seen.get["floored"],
        header_lines=seen.get[HEADER],
        blank_lines=seen.get[BLANK],
    )
    counts.check()
    document = report.document(pairs, latencies, figures, counts, task.seed, nodes)
    if "://" not in task.output:
        report.draw(document, pairs, Path(task.output) / "report.png", task.seed)
        Path(task.output, "report.json").write_text(json.dumps(document, indent=2) + "\n")
    return document


def partitions(spark: SparkSession, files: list[InputFile]) -> int:
    """Shuffle partitions for this much input: one per core, or more for large input, so that none outgrows memory."""
    expansion = {"parquet": 4.0}  # Parquet is compressed; so are .gz files
    size = sum(
        file.size * expansion.get(file.format, 6.0 if file.path.endswith((".gz", ".zst", ".bz2")) else 1.0)
        for file in files
    )
    return max(spark.sparkContext.defaultParallelism, int(size // (4 * PARTITION_BYTES)) + 1)


def quarantine(
    spark: SparkSession, files: list[InputFile], task: Task, nodes: DataFrame | None, folder: str, anything: bool
) -> dict[str, int]:
    """Write the quarantine table of the files (an empty one unless there is `anything` to put into it); rows by
    reason."""
    raw = read(spark, files if anything else files[:1], task.columns, locate=True)
    shown = {"from": "from_id", "to": "to_id", "time": "time_text", "rtt": "rtt_text"}
    bad = place(spark, judge(raw.frame, task.rules, nodes)[0], raw.texts, files, shown)
    return write(spark, bad if anything else bad.limit(0), folder)
