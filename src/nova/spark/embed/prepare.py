"""From a table of latencies to cells of numbered pairs on disk: the only part that shuffles pairs.

Nodes are numbered in a drawn order and cut into blocks; a cell holds the pairs between two blocks. Every cell is one
file, so that a task can map it into memory and work on it without the pairs ever passing through the JVM again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.errors import Fault, InvalidInput
from nova.spark.embed.neighbours import picked_pairs
from nova.spark.embed.work import Work, write_arrow

CELL_PAIRS = 4_000_000
"""Pairs per cell at most, on average: 48 MB on disk, and what a task holds at a time."""
ONE_CELL = 2_000_000
"""Up to so many pairs one cell is as quick as several."""
SAMPLE = 100_000
"""Pairs that tell convergence (fitted) and accuracy (held out), at most."""
RESERVED_SHARE = 0.05
"""Share of the pairs that are held out where all would be used, at most."""
ENOUGH = 8
"""A pair is held out only where both its ends have more measurements than this."""


@dataclass(frozen=True)
class Shape:
    """How the nodes are cut into blocks."""

    nodes: int
    pairs: int
    """Pairs that are fitted."""
    blocks: int

    def rows(self, block: int) -> slice:
        """Rows of the state that belong to a block."""
        return slice(-(-block * self.nodes // self.blocks), -(-(block + 1) * self.nodes // self.blocks))


def block_count(pairs: int) -> int:
    """Blocks: one where one task is enough, else so many that a cell fits; half as many tasks run at a time. By the
    pairs alone, so that results do not depend on the machine."""
    if pairs <= ONE_CELL:
        return 1
    wanted = max(4, math.ceil(math.sqrt(2 * pairs / CELL_PAIRS)))
    return wanted + wanted % 2


def prepare(
    spark: SparkSession, latency: DataFrame, work: Work, *, neighbours: int, seed: int, blocks: int | None = None
) -> Shape:
    """Choose the pairs, number the nodes, write the cells, the ids and the sample. `latency` has `from, to, rtt_ms`."""
    clean = _once(latency)
    degrees = clean.select(f.explode(f.array("from", "to")).alias("id")).groupBy("id").count()
    ids = degrees.orderBy("id").toArrow()
    n = len(ids)
    if n < 2:
        raise InvalidInput([Fault("latency", "fewer than two nodes have a measured RTT above zero")])
    total = int(ids["count"].to_numpy().sum()) // 2
    label = np.random.default_rng([seed, 1]).permutation(n).astype(np.int32)
    numbers = spark.createDataFrame(pa.table({"id": ids["id"], "number": label, "degree": ids["count"]}))
    chosen = _chosen(clean, numbers, total, n * neighbours < total, neighbours, seed)
    chosen = chosen.persist()
    try:
        counts = {row["used"]: row["count"] for row in chosen.groupBy("used").count().collect()}
        pairs = counts.get(True, 0)
        count = blocks or block_count(pairs)
        shape = Shape(n, pairs, count)
        _write_cells(chosen.where("used"), shape, work.folder, seed)
        _write_sample(chosen, counts, work, seed)
    finally:
        chosen.unpersist()
    order = np.argsort(label)
    write_arrow(work.folder / "ids.arrow", pa.table({"id": ids["id"].combine_chunks().take(pa.array(order))}))
    return shape


def _once(latency: DataFrame) -> DataFrame:
    """Every unordered pair once, with ids as text; repeated ones are averaged. What no embedding can use is refused."""
    typed = latency.select(f.col("from").cast("string"), f.col("to").cast("string"), f.col("rtt_ms").cast("double"))
    rtt = f.col("rtt_ms")
    wrong = typed.where(f.col("from").isNull() | f.col("to").isNull() | rtt.isNull() | f.isnan(rtt) | (rtt <= 0)
                        | (rtt == float("inf"))).limit(10).collect()
    if wrong:
        raise InvalidInput([Fault("latency", "two ids and a positive, finite RTT expected", field="rtt_ms",
                                  value=f"{row['from']},{row['to']},{row['rtt_ms']}") for row in wrong])
    apart = typed.where(f.col("from") != f.col("to"))
    return apart.groupBy(f.least("from", "to").alias("from"), f.greatest("from", "to").alias("to")).agg(
        f.avg("rtt_ms").alias("rtt_ms"))


def _chosen(
    clean: DataFrame, numbers: DataFrame, total: int, spare: bool, neighbours: int, seed: int
) -> DataFrame:
    """Table `i, j, rtt, used`: pairs by number (i < j); pairs that are not used can be held out, others are left out.

    Where nodes have more measurements than they pick, those that nobody picked are held out. Otherwise a few pairs are
    kept out of the fit, between nodes that have measurements enough.
    """
    source = picked_pairs(clean, neighbours, seed) if spare else clean.withColumn("used", f.lit(True))
    ends = (source.join(numbers.select(f.col("id").alias("from"), f.col("number").alias("a"),
                                       f.col("degree").alias("degree_a")), "from")
            .join(numbers.select(f.col("id").alias("to"), f.col("number").alias("b"),
                                 f.col("degree").alias("degree_b")), "to"))
    i, j = f.least("a", "b").alias("i"), f.greatest("a", "b").alias("j")
    lot = f.pmod(f.xxhash64(f.lit(seed), f.least("a", "b"), f.greatest("a", "b")), f.lit(1_000_000))
    if not spare:
        share = min(RESERVED_SHARE, 2 * SAMPLE / max(1, total))
        enough = (f.col("degree_a") > ENOUGH) & (f.col("degree_b") > ENOUGH)
        kept_out = enough & (lot < round(share * 1_000_000))
        return ends.select(i, j, f.col("rtt_ms").alias("rtt"), (~kept_out).alias("used"))
    return ends.select(i, j, f.col("rtt_ms").alias("rtt"), "used")


def _write_cells(used: DataFrame, shape: Shape, folder: Path, seed: int) -> None:
    """Deal the pairs into cells and let the workers write them."""
    block_of = [f.floor(f.col(name).cast("long") * shape.blocks / shape.nodes).cast("int") for name in ("i", "j")]
    cells = used.select((block_of[0] * shape.blocks + block_of[1]).alias("cell"), "i", "j", "rtt")

    def write(table: pa.Table) -> pa.Table:
        number = table["cell"][0].as_py()
        low, high = shape.rows(number // shape.blocks), shape.rows(number % shape.blocks)
        table = table.sort_by([("i", "ascending"), ("j", "ascending")])  # the same whatever way the rows came
        order = np.random.default_rng([seed, 8, number]).permutation(len(table))
        first = table["i"].to_numpy()[order] - low.start
        second = table["j"].to_numpy()[order] - high.start
        if low != high:
            second = second + (low.stop - low.start)
        content = pa.table({"first": first.astype(np.int32), "second": second.astype(np.int32),
                            "rtt": table["rtt"].to_numpy()[order].astype(np.float32)})
        write_arrow(Work(folder).cell(number), content.combine_chunks())
        return pa.table({"cell": [number], "pairs": [len(table)]})

    written = cells.groupBy("cell").applyInArrow(write, "cell long, pairs long").agg(f.sum("pairs")).first()
    assert written is not None
    assert (written[0] or 0) == shape.pairs, "every pair is in one cell"


def _write_sample(chosen: DataFrame, counts: dict[bool, int], work: Work, seed: int) -> None:
    """Draw the pairs that tell convergence and accuracy, with their numbers."""
    lot = f.pmod(f.xxhash64(f.lit(seed + 1), "i", "j"), f.lit(1_000_000))
    limit = f.lit(0.0)
    for used, count in counts.items():
        limit = f.when(f.col("used") == used, 1_000_000.0 * SAMPLE / count).otherwise(limit)
    drawn = chosen.where(lot < limit).orderBy("used", "i", "j").toArrow()
    write_arrow(work.folder / "sample.arrow", drawn.combine_chunks())
