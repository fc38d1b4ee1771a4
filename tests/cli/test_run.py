"""`nova run` as somebody types it: a process of its own, with its own Spark."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from builders import SMALL, write_scenario

pytestmark = pytest.mark.spark
START_MS = 1_700_000_000_000


COMMAND = (sys.executable, "-c", "from nova.cli import main; main()")


def nova(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--packages", "org.example", "GROUP:NAME:VERSION expected"),
        ("--packages", "a:b:1,,c:d:2", "GROUP:NAME:VERSION expected"),
        ("--conf", "spark.ui.enabled", "NAME=VALUE expected"),
    ],
)
def test_options_of_spark_that_are_none_are_told_before_it_starts(
    option: str, value: str, wanted: str, scenario_file: Path
) -> None:
    told = nova("run", scenario_file, option, value)
    assert told.returncode == 2
    assert f"field {option}: {wanted}" in told.stderr


def watched(*arguments: object) -> tuple[subprocess.CompletedProcess[str], str]:
    """The command with a terminal for its messages, and what was seen there."""
    seen: list[bytes] = []
    ours, theirs = pty.openpty()

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65536):
                seen.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "COLUMNS": "140", "TERM": "xterm"}
    try:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=400,
            check=False,
            env=environment,
        )
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return done, b"".join(seen).decode(errors="replace")


def generated(folder: Path, seconds: int) -> Path:
    """SMALL with made-up sensors at 25 tuples/s each."""
    options = {"seed": 3, "length": f"{seconds}s", "start_ms": START_MS}
    streams = {
        name: {**stream, "input": {"format": "generator", "options": options}}
        for name, stream in SMALL["streams"].items()
    }
    return write_scenario(folder, {**SMALL, "streams": streams})


def reported(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_run_to_the_end_of_its_input_tells_everything(tmp_path: Path) -> None:
    scenario = generated(tmp_path / "s", 6)
    told = tmp_path / "run.prom"
    done, seen = watched(
        "run", scenario, "-o", tmp_path / "run", "--until-end", "--speed", 3, "--metrics", told, "--json"
    )
    assert done.returncode == 0, seen
    report = json.loads(done.stdout)
    for word in (
        "in/s",
        "out/s",
        "event to sink, ms",
        "p99.99",
        "late",
        "hosts, tuples/s",
        "used now",
        "planned",
        "fog",
    ):
        assert word in seen, word
    assert report["tuples"] == 600
    assert report["results"] == 2 * 6 * 25 * 25  # two regions, six windows, all pairs
    assert report["seconds"] >= 2  # 6 s at three times their speed
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] < 1000 * report["seconds"]
    assert report["queries"][0]["latency_clock"] == "event time, played at 3× its speed"
    assert (report["watermark"] or "2023-11-14T22:13:").startswith("2023-11-14T22:13:")  # none in a single batch
    assert report["late_tuples"] == report["unknown_tuples"] == 0
    for host in report["hosts"]:
        assert host["tuples_per_s"] == pytest.approx(host["planned_tuples_per_s"], rel=0.05)
        assert host["utilisation"] == pytest.approx(host["planned_utilisation"], rel=0.05)
        assert host["utilisation"] <= 1.05
    files = list((tmp_path / "run" / "results").glob("*.parquet"))
    assert files
    metrics = told.read_text().splitlines()
    assert f'nova_results_total{{query="climate"}} {report["results"]}' in metrics
    assert f'nova_latency_seconds_count{{query="climate"}} {report["results"]}' in metrics


def test_overload_is_visible_with_emulated_hosts(tmp_path: Path) -> None:
    """Two joins of 50 tuples/s each at a sink that can take 20: results come complete, and hosts would fall behind."""
    scenario = generated(tmp_path / "s", 10)
    report = reported(
        nova(
            "run",
            scenario,
            "-o",
            tmp_path / "run",
            "--approach",
            "sink",
            "--until-end",
            "--speed",
            10,
            "--emulate",
            "--json",
        )
    )
    assert report["results"] == 2 * 10 * 25 * 25
    told, predicted = report["emulation"], report["emulation"]["predicted"]
    assert told["tuples"]["backlog"] == pytest.approx(80 * 10, rel=0.05)
    assert told["throughput"]["tuples_per_s"] == pytest.approx(20, rel=0.05)
    for name in ("tuples_per_s", "results_per_s"):
        assert told["throughput"][name] == pytest.approx(predicted["throughput"][name], rel=0.1)
    for kind in ("tuple", "result"):
        assert told["latency_ms"][kind]["p50"] == pytest.approx(predicted["latency_ms"][kind]["p50"], rel=0.1)


def test_a_stage_that_no_result_has_reached_is_an_empty_cell() -> None:
    from nova.cli.run import _median_and_99th

    assert _median_and_99th(None) is None
    assert _median_and_99th({"p50": 1.25, "p99": 30.0}) == "1.25, 30"
