"""Which measurements an embedding uses, chosen on Spark: at most m neighbours per node, some near, the rest drawn."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from nova.costspace.neighbours import NEAREST_SHARE


def choose(pairs: DataFrame, m: int, seed: int = 0, near: float = NEAREST_SHARE) -> DataFrame:
    """Table `node, neighbour, rtt_ms, near` with at most m rows per node: its nearest neighbours by RTT make up the
    share `near`, the others are drawn from the rest. Same seed, same choice, whatever the partitioning.

    `pairs` has `from, to, rtt_ms`, each unordered pair once. Ties are broken by a seeded hash.
    """
    both = pairs.select(
        f.explode(
            f.array(
                f.struct(f.col("from").alias("node"), f.col("to").alias("neighbour")),
                f.struct(f.col("to").alias("node"), f.col("from").alias("neighbour")),
            )
        ).alias("ends"),
        "rtt_ms",
    ).select(
        "ends.node", "ends.neighbour", "rtt_ms", f.xxhash64(f.lit(seed), "ends.node", "ends.neighbour").alias("lot")
    )
    nearest = Window.partitionBy("node").orderBy("rtt_ms", "lot")
    ranked = both.withColumn("near", f.row_number().over(nearest) <= round(m * near))
    drawn = Window.partitionBy("node").orderBy(f.col("near").desc(), "lot")
    return (
        ranked.withColumn("place", f.row_number().over(drawn))
        .where(f.col("place") <= m)
        .select("node", "neighbour", "rtt_ms", "near")
    )


def picked_pairs(pairs: DataFrame, m: int, seed: int = 0, near: float = NEAREST_SHARE) -> DataFrame:
    """`pairs` with a column `used`: whether one of its ends picked the other."""
    picks = (
        choose(pairs, m, seed, near)
        .select(f.least("node", "neighbour").alias("low"), f.greatest("node", "neighbour").alias("high"))
        .distinct()
        .withColumn("picked", f.lit(True))
    )
    keyed = pairs.withColumn("low", f.least("from", "to")).withColumn("high", f.greatest("from", "to"))
    joined = keyed.join(picks, ["low", "high"], "left")
    return joined.select("from", "to", "rtt_ms", f.coalesce("picked", f.lit(False)).alias("used"))
