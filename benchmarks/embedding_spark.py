"""Scaling of `nova embed --engine spark`: drawn nodes with 20 measured neighbours each; time, memory, accuracy.

    python benchmarks/embedding_spark.py [--nodes 10000 100000 1000000] [--neighbours 20] [--json]

Pairs are written to a temporary folder, which is deleted at the end. Time is told per stage; peak memory is that of the
JVM and of all Python processes together, sampled.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from measurements import Usage
from nova.cli.output import emit_json, table
from nova.costspace import phantom
from nova.model.options import Options
from nova.model.problem import numbered_ids
from nova.spark.ingest.embed.engine import embed_table, latency_table
from nova.spark.session import session


def run(nodes: int, neighbours: int, folder: Path) -> dict[str, Any]:
    """Figures of one size, in a session of its own."""
    latency = phantom.measured(phantom.scattered(nodes), neighbours, noise=0.05)
    ids = numbered_ids(nodes, "node")
    pq.write_table(
        pa.table(
            {
                "from": ids.take(pa.array(latency.first)),
                "to": ids.take(pa.array(latency.second)),
                "rtt_ms": latency.rtt_ms,
            }
        ),
        folder / "pairs.parquet",
    )
    pairs = len(latency)
    del latency, ids
    first = 0.0

    def tell(_: dict[str, Any]) -> None:
        nonlocal first
        first = first or time.perf_counter()

    with (
        Usage() as usage,
        session(heavy=True, memory_mb=4096, config={"spark.local.dir": str(folder / "scratch")}) as spark,
    ):
        started, before = time.perf_counter(), usage.cpu_s()
        done = embed_table(
            spark,
            latency_table(spark, str(folder / "pairs.parquet")),
            folder / "work",
            str(nodes),
            Options(neighbours=10 * neighbours),
            tell,
        )
        spent, cpu = time.perf_counter() - started, usage.cpu_s() - before
    told = done.space.accuracy
    assert told is not None, "the engine always tells its accuracy"
    return {
        "nodes": nodes,
        "pairs": pairs,
        "blocks": done.blocks,
        "epochs": done.convergence[-1]["epochs"],
        "seconds": round(spent, 1),
        "to_first_epoch_s": round(first - started, 1),
        "cpu_seconds": round(cpu, 1),
        "pairs_per_s": round(pairs / spent),
        "peak_mb": round(usage.peak_mb),
        "median_relative_error": round(told.median_relative_error, 4),
    }


def main() -> None:
    """One row per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = []
    for nodes in arguments.nodes:
        folder = Path(tempfile.mkdtemp(prefix="nova-embed-"))
        try:
            figures.append(run(nodes, arguments.neighbours, folder))
        finally:
            shutil.rmtree(folder)
    if arguments.json:
        emit_json(figures)
        return
    table("Embedding on Spark", list(figures[0]), [list(row.values()) for row in figures])


if __name__ == "__main__":
    main()
