"""From a table of latencies to cells of numbered pairs on disk: the only part that shuffles pairs.

Nodes are numbered in a drawn order and cut into blocks; a cell holds the pairs between two blocks. Every cell is one
file, so that a task can map it into memory and work on it without the pairs ever passing through the JVM again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.model.errors import Fault, InvalidInput
from nova.spark.ingest.embed.neighbours import picked_pairs
from nova.spark.ingest.embed.work import IDS, Work, read_arrow, write_arrow

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
LOTS = 1_000_000
BATCH_ROWS = 1 << 18
"""Rows that go to Python at a time: every batch looks its ids up in a hash table made for it."""


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
    rows = _checked(latency)
    ids = rows.select(f.explode(f.array("from", "to")).alias("id")).distinct().orderBy("id").toArrow()["id"]
    n = len(ids)
    if n < 2:
        raise InvalidInput([Fault("latency", "fewer than two nodes have a measured RTT above zero")])
    drawn = np.random.default_rng([seed, 1]).permutation(n)
    write_arrow(work.folder / IDS, pa.table({"id": ids.combine_chunks().take(pa.array(drawn))}))
    with ExitStack() as cached:
        pairs = _kept(_once(_numbered(spark, rows, work.folder)), cached)
        total = pairs.count()
        chosen = _kept(
            _picked(pairs, neighbours, seed) if n * neighbours < total else _kept_out(spark, pairs, n, total, seed),
            cached,
        )
        counts = {row["used"]: row["count"] for row in chosen.groupBy("used").count().collect()}
        shape = Shape(n, counts.get(True, 0), blocks or block_count(counts.get(True, 0)))
        _write_cells(chosen.where("used"), shape, work.folder, seed)
        _write_sample(chosen, counts, work, seed)
    return shape


def _kept(table: DataFrame, cached: ExitStack) -> DataFrame:
    """The table, computed once until the end of `cached`."""
    table.persist()
    cached.callback(table.unpersist)
    return table


def _checked(latency: DataFrame) -> DataFrame:
    """Rows with ids as text, without those of a node to itself. What no embedding can use is refused."""
    typed = latency.select(f.col("from").cast("string"), f.col("to").cast("string"), f.col("rtt_ms").cast("double"))
    rtt = f.col("rtt_ms")
    wrong = (
        typed.where(
            f.col("from").isNull()
            | f.col("to").isNull()
            | rtt.isNull()
            | f.isnan(rtt)
            | (rtt <= 0)
            | (rtt == float("inf"))
        )
        .limit(10)
        .collect()
    )
    if wrong:
        raise InvalidInput(
            [
                Fault(
                    "latency",
                    "two ids and a positive, finite RTT expected",
                    field="rtt_ms",
                    value=f"{row['from']},{row['to']},{row['rtt_ms']}",
                )
                for row in wrong
            ]
        )
    return typed.where(f.col("from") != f.col("to"))


def _numbered(spark: SparkSession, rows: DataFrame, folder: Path) -> DataFrame:
    """Table `i, j, rtt` with numbers (i < j) for ids, looked up where the rows are: a join would send every id through
    two shuffles."""

    def number(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = read_arrow(folder / IDS)["id"].combine_chunks()
        for batch in batches:
            ends = pa.concat_arrays([batch.column("from"), batch.column("to")])
            a, b = pc.index_in(ends.cast(ids.type), value_set=ids).to_numpy().reshape(2, -1)
            yield pa.record_batch({"i": np.minimum(a, b), "j": np.maximum(a, b), "rtt": batch.column("rtt_ms")})

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    return rows.mapInArrow(number, "i int, j int, rtt double")


def _once(pairs: DataFrame) -> DataFrame:
    """Every pair once; repeated ones are averaged."""
    return pairs.groupBy("i", "j").agg(f.avg("rtt").alias("rtt"))


def _picked(pairs: DataFrame, neighbours: int, seed: int) -> DataFrame:
    """Table `i, j, rtt, used` where nodes have more measurements than they pick: pairs that nobody picked can be held
    out."""
    picked = picked_pairs(
        pairs.select(f.col("i").alias("from"), f.col("j").alias("to"), f.col("rtt").alias("rtt_ms")), neighbours, seed
    )
    return picked.select(f.col("from").alias("i"), f.col("to").alias("j"), f.col("rtt_ms").alias("rtt"), "used")


def _kept_out(spark: SparkSession, pairs: DataFrame, nodes: int, total: int, seed: int) -> DataFrame:
    """The same where every pair would be used: a few, drawn between nodes that have measurements enough, are not."""
    share = min(RESERVED_SHARE, 2 * SAMPLE / max(1, total))
    drawn = pairs.where(_lot(seed) < round(share * LOTS)).select("i", "j").toArrow()
    counted = pairs.select(f.explode(f.array("i", "j")).alias("i")).groupBy("i").count().toArrow()
    degree = np.zeros(nodes, np.int64)
    degree[counted["i"].to_numpy()] = counted["count"].to_numpy()
    enough = (degree[drawn["i"].to_numpy()] > ENOUGH) & (degree[drawn["j"].to_numpy()] > ENOUGH)
    out = spark.createDataFrame(drawn.filter(pa.array(enough)).append_column("out", pa.array([True] * enough.sum())))
    marked = pairs.join(f.broadcast(out), ["i", "j"], "left")
    return marked.select("i", "j", "rtt", f.col("out").isNull().alias("used"))


def _lot(seed: int) -> Column:
    """A number below `LOTS` for each pair, the same in every run."""
    return f.pmod(f.xxhash64(f.lit(seed), "i", "j"), f.lit(LOTS))


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
        content = pa.table(
            {
                "first": first.astype(np.int32),
                "second": second.astype(np.int32),
                "rtt": table["rtt"].to_numpy()[order].astype(np.float32),
            }
        )
        write_arrow(Work(folder).cell(number), content.combine_chunks())
        return pa.table({"cell": [number], "pairs": [len(table)]})

    written = cells.groupBy("cell").applyInArrow(write, "cell long, pairs long").agg(f.sum("pairs")).first()
    assert written is not None
    assert (written[0] or 0) == shape.pairs, "every pair is in one cell"


def _write_sample(chosen: DataFrame, counts: dict[bool, int], work: Work, seed: int) -> None:
    """Draw the pairs that tell convergence and accuracy, with their numbers."""
    limit = f.lit(0.0)
    for used, count in counts.items():
        limit = f.when(f.col("used") == used, LOTS * SAMPLE / count).otherwise(limit)
    drawn = chosen.where(_lot(seed + 1) < limit).orderBy("used", "i", "j").toArrow()
    write_arrow(work.folder / "sample.arrow", drawn.combine_chunks())
