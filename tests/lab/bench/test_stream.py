"""`nova bench stream`, at a size that says nothing about speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import invoke_json
from nova_lab.bench import realtime
from nova_lab.bench.live import BOUNDED, resident_mb, trend
from nova_lab.bench.stream import LATENESS_MS, Workload, prepare, routed_job, write_batches


def test_stream_measures_both_jobs_and_live_latency(spark: Any) -> None:
    figures = invoke_json(
        "bench", "stream", "--rate", 200, "--rounds", 1, "--batches", 1, "--saturated", 2, "--live", 6, "--every", 500
    )
    assert {"tuples_per_s", "plain_tuples_per_s", "ratio", "latency_ms"} <= set(figures)
    assert figures["ratio"] == pytest.approx(figures["tuples_per_s"] / figures["plain_tuples_per_s"])
    assert figures["usual"]["tuples_per_batch"] == 1600
    assert figures["saturated"]["results"] > 0  # and both jobs have as many
    assert figures["latency_ms"]["p50"] > 0
    (run,) = figures["live"]
    assert run["every_ms"] == 500
    assert run["tuples_per_s"] > 0  # how many depends on the machine
    assert run["first_result_s"] > 0
    assert 0 < run["latency_ms"]["p50"] <= run["latency_ms"]["p99"]


TINY = realtime.Span(warm_s=2.0, live_s=4.0, rates=(), full_s=2.0, checkpoints=False)


def test_real_time_tells_latency_by_stage_and_throughput(spark: Any, tmp_path: Path) -> None:
    work = Workload(rate=25)
    said: list[str] = []
    told = realtime.bench(spark, work, TINY, rounds=1, batches=1, saturated_s=2.0, scratch=tmp_path, tell=said.append)
    assert {"tuples_per_s", "plain_tuples_per_s", "ratio", "latency_ms"} <= set(told)
    assert said[0].startswith("embedded source, 200 tuples/s")
    (one,) = told["rates"]
    assert one["rate"] == 200
    assert one["tuples_per_s"] > 0
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99.99"]
    assert set(told["stages_ms"]) == {"source", "routing", "shuffle", "join", "sink"}
    assert told["tuples_per_s"] > 0
    assert told["batch"]["latency_ms"]["p50"] > 0
    if told["kafka"] is None:
        assert "script/kafka" in said[1]
    else:
        assert told["kafka"]["latency_ms"]["p50"] > 0  # stamped by the listener, results from a broker
        assert told["kafka"]["stages_ms"]["sink"]["p50"] > 0


def test_a_soak_tells_how_state_and_memory_go(spark: Any) -> None:
    """What it tells in a few seconds depends on the machine; that state stays bounded is the next test's."""
    figures = invoke_json("bench", "stream", "--soak", 0.12, "--rate", 25)
    assert figures["minutes"] > 0.1
    assert len(figures["course"]) == 60
    assert figures["tuples"] > 0
    assert figures["course"][-1]["memory_mb"] > 100
    assert set(BOUNDED) <= set(figures)
    assert figures["late_tuples"] == 0


def test_a_soak_in_real_time_tells_how_latency_goes_too(spark: Any) -> None:
    figures = invoke_json("bench", "stream", "--mode", "realtime", "--soak", 0.12, "--rate", 25)
    assert len(figures["course"]) == 60
    assert figures["results"] > 0
    assert set(realtime.BOUNDED) <= set(figures)
    assert figures["p99_ms"]["most"] >= figures["p50_ms"]["most"] > 0
    assert figures["course"][-1]["disk_mb"] > 0


def test_state_holds_what_the_watermark_has_not_passed(spark: Any, tmp_path: Path) -> None:
    """Twenty seconds of the streams, a second per batch: once the watermark moves, state does not grow."""
    work = Workload(rate=25)
    plan = prepare(spark, work)
    write_batches(work, tmp_path / "data", 20, 1.0)
    query = routed_job(spark, work, plan, tmp_path / "data", tmp_path / "out")
    query.awaitTermination()
    rows = [
        sum(op.numRowsTotal for op in report.stateOperators) for report in query.recentProgress if report.numInputRows
    ]
    assert len(rows) == 20
    grown = rows[1] - rows[0]
    assert grown > 0  # until then, each batch adds its windows
    held = LATENESS_MS / work.window_ms + 3  # the open window, the bucket's, and the batch by which a watermark lags
    assert max(rows) <= held * grown
    assert rows[-1] == rows[-8]


def test_trends_compare_the_second_quarter_with_the_last() -> None:
    assert trend([1, 1, 2, 2, 3, 3, None, 8, 8]) == {"early": 2.0, "late": 8.0, "most": 8.0}
    assert trend([None]) is None


def test_resident_memory_counts_this_process() -> None:
    import os

    assert resident_mb(os.getpid()) > 10
