"""What the measurements say about themselves: coverage, loss, asymmetry, triangle violations; as data and a picture."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from nova.costspace.accuracy import tiv
from nova.model.problem import Floats, Ints

if TYPE_CHECKING:
    from nova.spark.ingest.measurements.pipeline import Counts

SAMPLE_NODES = 400
"""Nodes of the sample for triangles: 80,000 pairs at most, whatever the input's size."""
SAMPLE_PAIRS = 20_000
"""Pair buckets of the sample that the picture shows."""
SHARES = (0.1, 0.5, 0.9, 0.99)


def figures(pairs: DataFrame) -> Row:
    """Sums and quantiles over all pairs and buckets, in one pass."""
    quantiles = [
        f.percentile_approx(name, list(SHARES), 10_000).alias(name) for name in ("median_ms", "jitter_ms", "loss")
    ]
    skewed = f.abs("asymmetry_ms") / f.least("median_ab_ms", "median_ba_ms")
    found = pairs.agg(
        f.count("*").alias("pair_buckets"),
        f.sum("count").alias("pings"),
        f.sum("lost").alias("lost"),
        f.sum("duplicates").alias("duplicates"),
        f.min("bucket").alias("first"),
        f.max("bucket").alias("last"),
        f.min("min_ms").alias("min_ms"),
        *quantiles,
        f.count("asymmetry_ms").alias("both"),
        f.percentile_approx(skewed, list(SHARES), 10_000).alias("skew"),
        f.count_if(skewed > 0.1).alias("skewed"),
    ).first()
    assert found is not None, "an aggregate without groups has one row"
    return found


def document(
    pairs: DataFrame, latency: DataFrame, figures: Row, counts: Counts, seed: int, nodes: DataFrame | None = None
) -> dict[str, Any]:
    """The report as plain values; RTTs in ms, losses and shares in [0, 1]."""
    degrees = latency.select(f.explode(f.array("from", "to")).alias("node")).groupBy("node").count()
    spread = degrees.agg(
        f.count("*").alias("nodes"),
        f.sum("count").alias("ends"),
        f.min("count").alias("least"),
        f.percentile_approx("count", 0.5).alias("middle"),
    ).first()
    assert spread is not None, "an aggregate without groups has one row"
    asked = pairs.select(f.explode(f.array("a", "b")).alias("id")) if nodes is None else nodes.select("id")
    n = asked.distinct().count()
    buckets = pairs.select("bucket").distinct().where("bucket is not null").count()
    measured = (spread["ends"] or 0) // 2
    possible = n * (n - 1) // 2
    first, second, rtt, sampled = sample(latency, seed)
    return {
        "rows": {**asdict(counts), "quarantined_total": sum(counts.quarantined.values())},
        "coverage": {
            "nodes": n,
            "silent_nodes": n - spread["nodes"],
            "pairs": measured,
            "possible_pairs": possible,
            "share": measured / possible if possible else None,
            "neighbours_least": spread["least"],
            "neighbours_median": spread["middle"],
            "pair_buckets": figures["pair_buckets"],
            "buckets": buckets,
            "first": _iso(figures["first"]),
            "last": _iso(figures["last"]),
        },
        "rtt_ms": {"min": figures["min_ms"], **_named(figures["median_ms"])},
        "jitter_ms": _named(figures["jitter_ms"]),
        "loss": {
            "pings": figures["pings"] or 0,
            "lost": figures["lost"] or 0,
            "share": figures["lost"] / figures["pings"] if figures["pings"] else None,
            **_named(figures["loss"]),
        },
        "asymmetry": {
            "pair_buckets_both_ways": figures["both"],
            "over_10_percent": figures["skewed"],
            **_named(figures["skew"]),
        },
        "triangles": {"sampled_nodes": sampled, "tiv_share": _finite(tiv(sampled, first, second, rtt, seed))},
    }


def sample(latency: DataFrame, seed: int) -> tuple[Ints, Ints, Floats, int]:
    """Pairs among a seeded sample of nodes, as arrays, and the number of nodes. A node is in by its hash, so a rerun
    samples the same ones."""
    nodes = latency.select(f.explode(f.array("from", "to")).alias("node")).distinct()
    ranked = nodes.orderBy(f.xxhash64("node", f.lit(seed)), "node").limit(SAMPLE_NODES).toArrow()["node"].to_pylist()
    known = latency.sparkSession.createDataFrame([(node,) for node in ranked], "node string")
    among = (
        latency.join(f.broadcast(known.withColumnRenamed("node", "from")), "from")
        .join(f.broadcast(known.withColumnRenamed("node", "to")), "to")
        .select(f.col("from").alias("a"), f.col("to").alias("b"), f.col("rtt_ms").alias("rtt"))
        .toArrow()
    )
    ids = pc.unique(pa.concat_arrays([among["a"].combine_chunks(), among["b"].combine_chunks()]))
    first = pc.index_in(among["a"], value_set=ids).to_numpy().astype(np.int32)
    second = pc.index_in(among["b"], value_set=ids).to_numpy().astype(np.int32)
    return first, second, among["rtt"].to_numpy().astype(np.float64), len(ids)


def draw(report: dict[str, Any], pairs: DataFrame, file: Path, seed: int) -> None:
    """The report as a picture: RTTs, loss over time, jitter against RTT, asymmetry."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    share = min(1.0, 2 * SAMPLE_PAIRS / max(1, report["coverage"]["pair_buckets"]))
    seen = (
        pairs.select("median_ms", "jitter_ms", "median_ab_ms", "median_ba_ms")
        .sample(share, seed)
        .limit(SAMPLE_PAIRS)
        .toArrow()
    )
    over_time = (
        pairs.groupBy("bucket")
        .agg((f.sum("lost") / f.sum("count")).alias("loss"), f.sum("count").alias("n"))
        .orderBy("bucket")
        .limit(5000)
        .toArrow()
    )
    rtt, jitter, there, back = (np.asarray(seen[name].to_numpy(), dtype=np.float64) for name in seen.column_names)
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    positive = rtt[rtt > 0]
    if len(positive):
        axes[0, 0].hist(positive, bins=np.geomspace(positive.min(), positive.max() * 1.001, 60), color="#4477aa")
        axes[0, 0].set_xscale("log")
    axes[0, 0].set(
        xlabel="median RTT of a pair and bucket (ms)",
        ylabel="pairs × buckets",
        title=f"{report['coverage']['pairs']:,} pairs of {report['coverage']['nodes']:,} nodes",
    )
    times = over_time["bucket"].to_pylist()
    loss = 100 * over_time["loss"].to_numpy()
    if len(times) > 1:
        axes[0, 1].plot(
            [time for time in times if time is not None],
            [v for v, time in zip(loss, times, strict=True) if time is not None],
            color="#aa3377",
            lw=1,
        )
        axes[0, 1].tick_params(axis="x", rotation=30)
    else:
        axes[0, 1].bar(["all"], loss[:1] if len(loss) else [0.0], color="#aa3377")
    axes[0, 1].set(
        ylabel="lost pings (%)",
        ylim=(0, None),
        title=f"loss {_percent(report['loss']['share'])} of {report['loss']['pings']:,} pings",
    )
    steady = (rtt > 0) & (jitter > 0)
    if steady.any():
        axes[1, 0].plot(rtt[steady], jitter[steady], ",", color="#228833", alpha=0.5)
        axes[1, 0].set(xscale="log", yscale="log")
    else:
        axes[1, 0].text(
            0.5, 0.5, "no two pings of a direction in one bucket", ha="center", transform=axes[1, 0].transAxes
        )
    axes[1, 0].set(xlabel="median RTT (ms)", ylabel="jitter (ms)", title="jitter")
    both = np.isfinite(there) & np.isfinite(back)
    if both.any():
        skew = 100 * (there[both] - back[both]) / np.minimum(there[both], back[both])
        axes[1, 1].hist(np.clip(skew, -50, 50), bins=81, color="#ee6677")
    else:
        axes[1, 1].text(0.5, 0.5, "no pair measured both ways", ha="center", transform=axes[1, 1].transAxes)
    violated = report["triangles"]["tiv_share"]
    axes[1, 1].set(
        xlabel="difference of the directions (% of the smaller RTT)",
        ylabel="pairs × buckets",
        title=f"asymmetry; {_percent(violated)} of sampled triangles are violated",
    )
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _named(quantiles: list[float] | None) -> dict[str, float | None]:
    found: list[float | None] = [*quantiles] if quantiles else [None] * len(SHARES)
    return {f"p{round(100 * share)}": value for share, value in zip(SHARES, found, strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2g} %"


def _iso(time: Any) -> str | None:
    return None if time is None else time.isoformat()
