from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import skewed
import streams
from builders import SMALL, invoke, write_scenario
from nova import optimizer
from nova.model.errors import InvalidInput
from nova.model.load import node_loads
from nova.scenario import load
from nova.spark.job.run import Run, Settings
from nova.spark.realtime.run import RealtimeRun, slots, why_not
from nova.spark.sources.generator import Pattern, Source, generate
from runs import REGIONS, START_MS, file_inputs, found, plain, scenario, tables


def generated(**more: Any) -> dict[str, Any]:
    options = {"seed": 3, "disorder": "300ms", "length": "4s", "start_ms": START_MS, **more}
    return {name: {"format": "generator", "options": options} for name in SMALL["streams"]}


def test_generated_streams_join_completely_and_are_told(spark: Any, tmp_path: Path) -> None:
    loaded, plan = scenario(tmp_path / "s", generated())
    reports = []
    for _ in range(2):
        running = RealtimeRun(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, speed=4.0))
        running.start()
        running.wait()
        reports.append(running.report())
    report, again = reports
    pattern = Pattern(seed=3, disorder_ms=300, length_ms=4000)
    sides = [
        generate([Source(f"{prefix}1", 25), Source(f"{prefix}2", 25)], pattern, -1, 1e9, START_MS).to_pandas()
        for prefix in "ph"
    ]
    wanted = plain(*sides)
    assert found(tmp_path / "run" / "results") == wanted
    ids = streams.read_results(tmp_path / "run" / "results")["id"]
    assert pc.count_distinct(ids).as_py() == len(ids)
    (query,) = report["queries"]
    assert report["mode"] == "realtime"
    assert report["results"] == wanted.total()
    assert query["tuples"] == {"left": 200, "right": 200}
    assert report["late_tuples"] == report["unknown_tuples"] == 0
    planned = sum(host["planned_tuples_per_s"] for host in report["hosts"])
    assert planned >= 100  # as many as the sources send, more where the plan cuts a join into a grid
    assert sum(host["tuples_per_s"] for host in report["hosts"]) == pytest.approx(planned, rel=0.02)
    assert sum(stage["mean"] for stage in query["stages_ms"].values()) == pytest.approx(
        report["latency_ms"]["mean"], rel=0.05
    )
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99.99"] < 1000 * report["seconds"]
    json.dumps(report)  # plain values
    assert again["tuples"] == again["results"] == 0  # nothing was left to do
    with pytest.raises(InvalidInput, match="mode"):
        Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, speed=4.0)).start()


def test_two_queries_over_recordings(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    inputs = file_inputs(tmp_path / "s", left, right, 2)
    document = {
        **SMALL,
        "streams": {name: {**stream, "input": inputs[name]} for name, stream in SMALL["streams"].items()},
    }
    query = SMALL["queries"][0]
    document["queries"] = [{**query, "id": f"q{ms}", "window": {"tumbling": f"{ms}ms"}} for ms in (100, 1000)]
    loaded = load(write_scenario(tmp_path / "s", document))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    running = RealtimeRun(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, speed=10.0, format="json"))
    running.start()
    running.wait()
    rows = [
        json.loads(line)
        for file in (tmp_path / "run" / "results").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    for ms in (100, 1000):
        mine = [row for row in rows if row["query"] == f"q{ms}"]
        assert len(mine) == plain(left, right, REGIONS, ms * 1000).total() > 10
        assert {(row["left_unit"], row["right_unit"]) for row in mine} == {("p", "h")}
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_heavy_key_is_joined_by_the_hosts_of_its_grid(spark: Any, tmp_path: Path) -> None:
    loaded, plan, wanted = skewed.recorded(tmp_path / "s", numbers=False)
    running = RealtimeRun(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, speed=10.0))
    running.start()
    running.wait()
    skewed.is_right(streams.read_results(tmp_path / "run" / "results"), loaded, plan, wanted, "s7")
    planned = sum(host["planned_tuples_per_s"] for host in running.report()["hosts"])
    assert planned == pytest.approx(node_loads(plan.joins, plan.replicas, len(loaded.problem.nodes)).sum())


def test_what_can_be_had_in_real_time(tmp_path: Path) -> None:
    loaded, _ = scenario(tmp_path / "s", generated())
    assert why_not(loaded, Settings(tmp_path), None) is None
    assert slots(loaded) == 6
    assert "cluster" in (why_not(loaded, Settings(tmp_path), "spark://there:7077") or "")
    assert "--emulate" in (why_not(loaded, Settings(tmp_path, emulate=True), None) or "")
    assert "delta" in (why_not(loaded, Settings(tmp_path, format="delta"), None) or "")
    files = {name: {"format": "csv", "path": "x"} for name in SMALL["streams"]}
    loaded, _ = scenario(tmp_path / "f", files)
    assert "--speed" in (why_not(loaded, Settings(tmp_path), None) or "")
    assert why_not(loaded, Settings(tmp_path, speed=2.0), None) is None


def test_aggregates_go_in_batches_and_are_told(tmp_path: Path) -> None:
    query = """SELECT max(p.value) AS most FROM pressure p JOIN humidity h ON p.region = h.region AND p.value > h.value
               AND TUMBLE(p.event_time, INTERVAL '1' SECOND) = TUMBLE(h.event_time, INTERVAL '1' SECOND)
               GROUP BY window_start"""
    document = {
        **SMALL,
        "streams": {name: {**stream, "input": generated()[name]} for name, stream in SMALL["streams"].items()},
        "queries": [{"id": "warm", "sql": query, "sink": "hq"}],
    }
    path = write_scenario(tmp_path / "s", document)
    assert "query warm aggregates" in (why_not(load(path), Settings(tmp_path), None) or "")
    refused = invoke("run", path, "-o", tmp_path / "run", "--mode", "realtime")
    assert refused.exit_code == 2
    assert "run it with --mode batch" in " ".join(refused.output.split())


def test_a_folder_that_cannot_be_written_to_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario(tmp_path / "s", generated())
    monkeypatch.setattr("os.access", lambda path, *_, **__: Path(path).name != "run")
    refused = invoke("run", tmp_path / "s" / "scenario.yaml", "-o", tmp_path / "run")
    assert refused.exit_code == 1
    assert refused.stderr.endswith("run: the folder of the run cannot be written to\n")
