"""Newcomers on Spark: coordinates for nodes that were not embedded yet, from their measurements to nodes that were.

Every newcomer is placed by itself, so the work splits over the executors; the known nodes do not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.costspace.newcomers import embed_new
from nova.costspace.table import axes
from nova.model.options import Options
from nova.model.space import CostSpace
from nova.spark.ingest.measurements.aggregate import whole_groups

MOST = 64
"""Measurements per newcomer that are used, the rest is left out by lot: more change little."""


def place_newcomers(
    spark: SparkSession, latency: DataFrame, ids: pa.StringArray, space: CostSpace, options: Options
) -> pa.Table:
    """Table `id, x, y, …, height, measurements` of all nodes of `latency` that are not among `ids` and have a
    measurement to one of them. `latency` has `from, to, rtt_ms`; pairs of two newcomers are not used."""
    return place_nodes(spark, latency, None, ids, space, options)


def place_nodes(
    spark: SparkSession,
    latency: DataFrame,
    who: pa.StringArray | None,
    ids: pa.StringArray,
    space: CostSpace,
    options: Options,
) -> pa.Table:
    """As above for the nodes `who`, known or not (None: for those that are not known). Each is placed by its
    measurements to the nodes `ids` where these are now."""
    known = spark.createDataFrame(pa.table({"neighbour": ids, "row": np.arange(len(ids), dtype=np.int32)}))
    start, end = f.col("from").cast("string"), f.col("to").cast("string")
    ways = [f.struct(start.alias("id"), end.alias("neighbour")), f.struct(end.alias("id"), start.alias("neighbour"))]
    both = (
        latency.select(f.explode(f.array(*ways)).alias("ends"), f.col("rtt_ms").cast("double").alias("rtt_ms"))
        .select("ends.id", "ends.neighbour", "rtt_ms")
        .where("rtt_ms > 0 and rtt_ms < double('inf') and id != neighbour")
    )
    if who is None:
        asked = both.join(known.select(f.col("neighbour").alias("id")), "id", "left_anti")
    else:
        asked = both.join(spark.createDataFrame(pa.table({"id": who})), "id", "left_semi")
    keyed = asked.join(known, "neighbour").select(
        f.xxhash64("id").alias("key"),
        "id",
        "row",
        "rtt_ms",
        f.xxhash64(f.lit(options.seed), "id", "neighbour").alias("lot"),
    )
    shared = spark.sparkContext.broadcast((space.coordinates, space.heights))
    columns = [*axes(space.dimensions), "height"]

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fixed = CostSpace(*shared.value)
        for table in whole_groups(batches):
            yield from _placed(table, fixed, columns, options.heights)

    schema = ", ".join(["id string", *(f"{name} double" for name in columns), "measurements int"])
    found = keyed.repartition("key").sortWithinPartitions("key").mapInArrow(place, schema).orderBy("id").toArrow()
    shared.destroy()
    return found


def _placed(table: pa.Table, space: CostSpace, columns: list[str], lift: bool) -> list[pa.RecordBatch]:
    """Newcomers of whole groups, placed in one batch."""
    table = table.sort_by([("id", "ascending"), ("lot", "ascending")]).combine_chunks()
    codes = table["id"].combine_chunks().dictionary_encode()
    group = codes.indices.to_numpy()
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    place = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    kept = place < MOST
    group, place = group[kept], place[kept]
    neighbours = np.full((len(starts), min(MOST, int(place.max()) + 1)), -1, dtype=np.int32)
    rtts = np.ones(neighbours.shape)
    neighbours[group, place] = table["row"].to_numpy()[kept]
    rtts[group, place] = table["rtt_ms"].to_numpy()[kept]
    coordinates, heights = embed_new(space, neighbours, rtts, heights=lift)
    values: dict[str, Any] = {"id": codes.dictionary}
    values |= {name: np.ascontiguousarray(coordinates[:, k]) for k, name in enumerate(columns[:-1])}
    values |= {"height": heights, "measurements": (neighbours >= 0).sum(1).astype(np.int32)}
    return pa.table(values).to_batches()  # type: ignore[no-any-return]
