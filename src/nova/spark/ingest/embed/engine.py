"""`nova embed --engine spark` from end to end: a table of latencies in, a cost space with its accuracy out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nova.costspace.accuracy import measure, tiv
from nova.costspace.table import axes
from nova.model.errors import Fault, InvalidInput
from nova.model.options import Options
from nova.model.problem import Latency
from nova.model.space import CostSpace
from nova.model.tables import columns_of, read_numbers
from nova.model.units import RTT_UNITS
from nova.spark.ingest.embed.newcomers import place_newcomers
from nova.spark.ingest.embed.prepare import Shape, prepare
from nova.spark.ingest.embed.solve import Sample, solve
from nova.spark.ingest.embed.work import IDS, Work, read_arrow


@dataclass(frozen=True)
class Embedded:
    """A cost space by id, and what it cost."""

    ids: pa.StringArray
    space: CostSpace
    """Nodes that are not connected to the largest piece are infinitely high."""
    pairs: int
    blocks: int
    convergence: list[dict[str, Any]]
    continued_after: int
    """Epochs that an earlier, killed run had done already."""


def latency_table(spark: SparkSession, path: str, unit: str | None = None) -> DataFrame:
    """The latencies of a file or folder (CSV or Parquet) with `from, to` and `rtt_ms`, as `nova measurements` writes
    them, or `rtt_s`, `rtt_us`, `rtt_ns`, or `rtt` in a `unit`."""
    text = path.removesuffix(".gz").endswith(".csv")
    table = spark.read.option("header", "true").csv(path) if text else spark.read.parquet(path)
    told = {f"rtt_{name}": factor for name, factor in RTT_UNITS.items()}
    if unit is not None:
        told = {f"rtt_{unit}": RTT_UNITS[unit], "rtt": RTT_UNITS[unit]}
    named = next((name for name in told if name in table.columns), "rtt_ms")
    missing = [name for name in ("from", "to", named) if name not in table.columns]
    if missing:
        hint = "; --unit says what rtt is in" if "rtt" in table.columns and unit is None else ""
        there = ", ".join(table.columns)
        raise InvalidInput(
            [Fault(path, f"no column {name!r} among {there}{hint}", row=1, field=name) for name in missing]
        )
    rtt = f.col(named) if told[named] == 1.0 else f.col(named).cast("double") * told[named]
    return table.select("from", "to", rtt.alias("rtt_ms"))


def latency_frame(spark: SparkSession, ids: pa.StringArray, latency: Latency) -> DataFrame:
    """The latencies of a problem, whose pairs are in this process already."""
    return spark.createDataFrame(
        pa.table(
            {
                "from": ids.take(pa.array(latency.first)),
                "to": ids.take(pa.array(latency.second)),
                "rtt_ms": latency.rtt_ms,
            }
        )
    )


def embed_table(
    spark: SparkSession,
    latency: DataFrame,
    folder: Path,
    source: str,
    options: Options = Options(),
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
    blocks: int | None = None,
) -> Embedded:
    """Embed all nodes of a table of latencies; see `prepare` and `solve`. `source` says what the table is, so that
    another run in the working folder is told apart. The folder stays; the caller removes it when the result is safe."""
    work = Work(folder)
    task = {
        "source": source,
        "dimensions": options.dimensions,
        "heights": options.heights,
        "seed": options.seed,
        "neighbours": options.neighbours,
        "blocks": blocks,
    }
    shape_file = folder / "shape.npy"
    if work.claim(task) and shape_file.exists():
        nodes, pairs, count = (int(value) for value in np.load(shape_file))
        shape = Shape(nodes, pairs, count)
    else:
        work.clear()
        shape = prepare(spark, latency, work, neighbours=options.neighbours, seed=options.seed, blocks=blocks)
        np.save(shape_file, np.array([shape.nodes, shape.pairs, shape.blocks]))
        work.prepared(task)
    kept = work.newest()
    space, reached = solve(
        spark, work, shape, dimensions=options.dimensions, heights=options.heights, seed=options.seed, tell=tell
    )
    ids = read_arrow(folder / IDS)["id"].combine_chunks()
    sample = Sample.read(work)
    inside = reached[sample.first] & reached[sample.second]
    heldout = ~sample.used & inside
    on, kind = (heldout, "reserved") if heldout.any() else (sample.used & inside, "none")
    broken = tiv(len(space), sample.first, sample.second, sample.rtt, options.seed)
    accuracy = measure(
        space, sample.first[on], sample.second[on], sample.rtt[on], "reserved" if kind == "reserved" else "none", broken
    )
    order = pc.sort_indices(ids)  # by id, as people look nodes up
    rows = order.to_numpy()
    ordered = CostSpace(space.coordinates[rows], space.heights[rows], accuracy)
    return Embedded(
        ids.take(order), ordered, shape.pairs, shape.blocks, work.logged(10**9), 0 if kept is None else kept[0]
    )


def add_newcomers(
    spark: SparkSession, latency: DataFrame, base: Path, options: Options
) -> tuple[pa.StringArray, CostSpace, int]:
    """The coordinates of `base` as they stand, with those of newcomers after them; and how many newcomers have no
    measurement to a known node, so that they have no place."""
    ids, space = read_coordinates(base)
    found = place_newcomers(spark, latency, ids, space, options)
    names = [*axes(space.dimensions)]
    placed = CostSpace(
        np.vstack([space.coordinates, np.column_stack([found[name].to_numpy() for name in names])]),
        np.concatenate([space.heights, found["height"].to_numpy()]),
    )
    everyone = latency.selectExpr("explode(array(cast(from as string), cast(to as string))) as id").distinct()
    known = spark.createDataFrame(pa.table({"id": ids}))
    unplaced = everyone.join(known, "id", "left_anti").count() - len(found)
    return pa.concat_arrays([ids, found["id"].combine_chunks().cast(pa.string())]), placed, unplaced


def read_coordinates(path: Path) -> tuple[pa.StringArray, CostSpace]:
    """A file that `nova embed` wrote."""
    table = read_numbers(path, "coordinates")
    names = [name for name in table.column_names if name not in ("id", "height")]
    if "id" not in table.column_names or names != axes(len(names)) or not names:
        raise InvalidInput(
            [
                Fault(
                    str(path),
                    "coordinates as nova embed writes them expected: id, x, y, …, height",
                    row=1,
                    value=", ".join(table.column_names),
                )
            ]
        )
    known = ["height"] if "height" in table.column_names else []
    checked = columns_of(table, path, numbers=[*names, *known])
    heights = checked["height"].to_numpy() if known else np.zeros(len(table))
    coordinates = np.column_stack([checked[name].to_numpy() for name in names])
    try:
        ids = table["id"].cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise InvalidInput([Fault(str(path), f"ids expected: {error}", field="id")]) from None
    return ids, CostSpace(coordinates, heights)


def fingerprint(path: str) -> str:
    """What a local file or folder is by name, sizes and times, so that a changed input is not taken for the same."""
    root = Path(path)
    files = sorted(root.rglob("*")) if root.is_dir() else [root]
    told = [f"{file}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join([path, *told]).encode()).hexdigest()[:16]
