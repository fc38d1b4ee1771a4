"""Rows per second of `nova measurements` on generated pings, beside a plain Spark count of the same Parquet.

    python benchmarks/measurements.py [--rows 5000000] [--nodes 2000] [--heap-mb 4096] [--json]

Pings are drawn (seeded) between nodes of a known layout: about 30 per pair and hour, 1 % lost, 0.1 % duplicated, 0.05 %
broken. They are written as Parquet to a temporary folder, which is deleted at the end; 10⁸ rows take 1.5 GB, and 4 GB
more for the shuffle. Peak memory is that of the JVM and of all Python processes together, sampled.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from nova.cli.output import emit_json, table
from nova.costspace import CostSpace, phantom
from nova.model.problem import Floats
from nova.spark.ingest.measurements.pipeline import Task, measurements
from nova.spark.session import session

CHUNK = 250_000
"""Rows that a task draws at a time."""
PER_GROUP = 30
"""Pings per pair and hour."""
START = 1_700_000_000 // 3600 * 3600


def generate(spark: SparkSession, rows: int, nodes: int, folder: Path) -> None:
    """Write `rows` pings as Parquet, drawn chunk by chunk on the executors."""
    chunks = -(-rows // CHUNK)
    truth = phantom.scattered(nodes)
    ids = pa.array([f"node-{k:06d}" for k in range(nodes)])

    def draw(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                yield _pings(chunk, min(CHUNK, rows - chunk * CHUNK), truth, ids)

    spark.range(0, chunks, 1, min(chunks, 64)).mapInArrow(
        draw, "`from` string, `to` string, time timestamp, rtt_ms double"
    ).write.parquet(str(folder))


def _pings(chunk: int, count: int, truth: CostSpace, ids: pa.StringArray) -> pa.RecordBatch:
    """Pings of one chunk: whole groups of a pair and an hour, in any order."""
    rng = np.random.default_rng([1, chunk])
    groups = -(-count // PER_GROUP)
    a = rng.integers(0, len(truth), groups)
    b = (a + rng.integers(1, len(truth), groups)) % len(truth)
    group = rng.permutation(np.arange(count) % groups)
    swap = rng.random(count) < 0.5
    hour = rng.integers(0, 24 * 7, groups)[group]
    base: Floats = truth.between(a, b)[group]
    rtt = np.round(base * np.exp(rng.normal(scale=0.05, size=count)), 3)
    micros = (START + 3600 * hour).astype(np.int64) * 1_000_000 + rng.integers(0, 3_600_000_000, count)
    twice = np.flatnonzero(rng.random(count) < 0.001)
    first, second = np.where(swap, b[group], a[group]), np.where(swap, a[group], b[group])
    for column in (first, second, micros, rtt):
        column[twice] = column[twice - 1]
    rtt[rng.random(count) < 0.0005] = -1.0
    lost = rng.random(count) < 0.01
    lost[twice] = lost[twice - 1]
    return pa.record_batch(
        {
            "from": ids.take(pa.array(first)),
            "to": ids.take(pa.array(second)),
            "time": pa.array(micros, pa.timestamp("us", tz="UTC")),
            "rtt_ms": pa.array(rtt, mask=lost),
        }
    )


class Usage:
    """Resident memory (largest, MB) and CPU time (s) of this process and all its descendants, sampled twice a second.

    CPU time tells more than wall time where a machine has other work as well.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._cpu: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """CPU time until now."""
        self._look()
        return sum(self._cpu.values())

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def _look(self) -> None:
        total = 0
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                total += process.memory_info().rss
                spent = process.cpu_times()
                self._cpu[process.pid] = spent.user + spent.system
            except psutil.Error:
                continue  # it ended between listing and looking
        self.peak_mb = max(self.peak_mb, total / 2**20)


def main() -> None:
    """Generate, count, process, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=5e6)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--heap-mb", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    folder = Path(tempfile.mkdtemp(prefix="nova-measurements-"))
    try:
        figures = run(rows, arguments.nodes, arguments.heap_mb, folder)
    finally:
        shutil.rmtree(folder)
    if arguments.json:
        emit_json(figures)
        return
    table(f"{rows:,} pings", ("", "value"), list(figures.items()))


def run(rows: int, nodes: int, heap_mb: int, folder: Path) -> dict[str, Any]:
    """Figures of one run; everything it writes stays below `folder`."""
    scratch = {"spark.local.dir": str(folder / "scratch")}
    with Usage() as usage, session(heavy=True, memory_mb=heap_mb, config=scratch) as spark:

        def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
            """What it returns, seconds, and CPU seconds."""
            started, before = time.perf_counter(), usage.cpu_s()
            return work(), time.perf_counter() - started, usage.cpu_s() - before

        _, generate_s, _ = timed(lambda: generate(spark, rows, nodes, folder / "raw"))
        size = sum(file.stat().st_size for file in (folder / "raw").rglob("*") if file.is_file())
        raw = spark.read.parquet(str(folder / "raw"))
        counted, count_s, count_cpu_s = timed(raw.count)
        assert counted == rows, "the count sees every row"
        _, scan_s, scan_cpu_s = timed(lambda: raw.write.format("noop").mode("overwrite").save())
        report, spent_s, cpu_s = timed(lambda: measurements(spark, Task([str(folder / "raw")], str(folder / "out"))))
    told = report["rows"]
    return {
        "rows": rows,
        "parquet_mb": round(size / 2**20),
        "generate_seconds": round(generate_s, 1),
        "seconds": round(spent_s, 1),
        "cpu_seconds": round(cpu_s, 1),
        "rows_per_s": round(rows / spent_s),
        "count_seconds": round(count_s, 2),
        "count_cpu_seconds": round(count_cpu_s, 2),
        "count_rows_per_s": round(rows / count_s),
        "scan_seconds": round(scan_s, 2),
        "scan_cpu_seconds": round(scan_cpu_s, 2),
        "scan_rows_per_s": round(rows / scan_s),
        "good": told["good"],
        "duplicates": told["duplicates"],
        "quarantined": told["quarantined_total"],
        "pair_buckets": report["coverage"]["pair_buckets"],
        "heap_mb": heap_mb,
        "peak_mb": round(usage.peak_mb),
    }


if __name__ == "__main__":
    main()
