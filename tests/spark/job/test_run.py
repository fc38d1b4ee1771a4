from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skewed
import streams
from builders import SMALL, invoke, write_scenario
from nova import optimizer
from nova.model.errors import InvalidInput
from nova.model.plan import Plan
from nova.scenario import Scenario, load
from nova.spark.job.job import Job
from nova.spark.job.run import SLOW_START, Run, Settings
from nova.spark.replan.handover import hand_in
from nova.spark.sources.generator import Pattern, Source, generate
from runs import START_MS, file_inputs, found, plain, scenario, tables


def run(spark: Any, loaded: Scenario, plan: Plan, folder: Path, **settings: Any) -> dict[str, Any]:
    running = Run(spark, loaded, plan, Settings(folder, **{"until_end": True, **settings}))
    running.start()
    running.wait()
    return running.report()


def test_generated_streams_join_completely_and_are_counted(spark: Any, tmp_path: Path) -> None:
    options = {"seed": 3, "disorder": "300ms", "length": "4s", "start_ms": START_MS}
    inputs = {name: {"format": "generator", "options": options} for name in SMALL["streams"]}
    loaded, plan = scenario(tmp_path / "s", inputs)
    report = run(spark, loaded, plan, tmp_path / "run", speed=20.0)
    pattern = Pattern(seed=3, disorder_ms=300, length_ms=4000)
    sides = [
        generate([Source(f"{prefix}1", 25), Source(f"{prefix}2", 25)], pattern, -1, 1e9, START_MS).to_pandas()
        for prefix in "ph"
    ]
    wanted = plain(*sides)
    assert found(tmp_path / "run" / "results") == wanted
    assert report["results"] == wanted.total()
    assert report["tuples"] == len(sides[0]) + len(sides[1]) == 400
    assert report["queries"][0]["tuples"] == {"left": 200, "right": 200}
    assert report["late_tuples"] == report["unknown_tuples"] == 0
    assert sum(host["tuples_per_s"] for host in report["hosts"]) == pytest.approx(100, rel=0.02)
    assert report["hosts"][0]["planned_tuples_per_s"] == pytest.approx(report["hosts"][0]["tuples_per_s"], rel=0.02)
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["max"] < 1000 * report["seconds"]
    assert report["queries"][0]["latency_clock"] == "event time, played at 20× its speed"
    json.dumps(report)  # plain values
    again = run(spark, loaded, plan, tmp_path / "run", speed=20.0, duration_s=60.0)
    assert again["tuples"] == 0
    assert again["seconds"] < 60  # there is nothing left to wait for
    assert found(tmp_path / "run" / "results") == wanted


def dead(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "dead-letters").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_no_tuple_stops_a_run(spark: Any, tmp_path: Path) -> None:
    """Whatever stands in the files, good tuples join and bad ones are kept with reason, line and text, also when the
    run is continued with worse files than those it began with."""
    left, right = tables()
    millis = right["event_time"].astype("datetime64[ms, UTC]").astype("int64")
    (tmp_path / "s" / "p").mkdir(parents=True)
    (tmp_path / "s" / "h").mkdir()

    def write(part: slice, name: str, csv: list[str], jsons: list[str]) -> None:
        text = left[part].assign(event_time=left["event_time"].map(lambda t: t.isoformat())).to_csv(index=False)
        head, *rows = text.splitlines()
        (tmp_path / "s" / "p" / f"{name}.csv").write_text("\n".join([head, *csv, *rows]) + "\n")
        good = right.assign(event_time=millis)[part].to_json(orient="records", lines=True).splitlines()
        (tmp_path / "s" / "h" / f"{name}.json").write_text("\n".join([*good, *jsons]) + "\n")

    when = left["event_time"][0].isoformat()
    write(slice(0, 30), "1", ["p1,yesterday,1.5,Pa", f"p1,{when},broken,Pa"], ["{half a", '{"source_id": "h1"}'])
    inputs = {"pressure": {"format": "csv", "path": "p"}, "humidity": {"format": "json", "path": "h"}}
    loaded, plan = scenario(tmp_path / "s", inputs)
    first = run(spark, loaded, plan, tmp_path / "run")
    assert first["dead_letters"] == {"bad_time": 2, "bad_value": 1, "not_parsed": 1}
    by_text = {letter["record"]: letter for letter in dead(tmp_path / "run")}
    assert by_text["p1,yesterday,1.5,Pa"]["reason"] == "bad_time"
    half = by_text["{half a"]
    assert (half["reason"], half["line"], half["stream"], half["query"]) == ("not_parsed", 31, "humidity", "climate")
    write(
        slice(30, None),
        "2",
        [",,,", "p1", f"p1,{when},1,Pa,too,many", f",{when},1,Pa", f"p7,{when},1,Pa"],
        ["[]", '{"source_id": {"deep": [1]}, "event_time": "x", "value": "y"}', '{"event_time": 1e300}', "\x00\ufffd"],
    )
    again = run(spark, loaded, plan, tmp_path / "run")
    assert again["dead_letters"]["unknown_source"] == 1
    assert again["tuples"] == len(left) + len(right) - len(left[:30]) - len(right[:30])  # those that can be used
    assert sum(again["dead_letters"].values()) == 8  # an empty list of tuples is none
    assert len(dead(tmp_path / "run")) == 4 + 8
    lines = {letter["record"]: letter["line"] for letter in dead(tmp_path / "run") if letter["record"]}
    assert (lines[f"p7,{when},1,Pa"], lines[f",{when},1,Pa"], lines["p1"]) == (6, 5, 3)  # as they stand in the file
    assert found(tmp_path / "run" / "results") == plain(left, right)


HOSTILE = ("climate", "*", "../../out", "climate-00000000", "_'b`c\"$(x)")


def test_ids_of_queries_and_streams_are_data(spark: Any, tmp_path: Path) -> None:
    """No id becomes a path or a pattern: every query's results stay, in the run's folder and nowhere else."""
    left, right = tables(n=16)
    inputs = file_inputs(tmp_path / "deep" / "down" / "s", left, right, 1)
    streams_ = {f"../{name}": {**SMALL["streams"][name], "input": inputs[name]} for name in SMALL["streams"]}
    query = {**SMALL["queries"][0], "left": "../pressure", "right": "../humidity"}
    document = {**SMALL, "streams": streams_, "queries": [{**query, "id": name} for name in HOSTILE]}
    for node in (document := json.loads(json.dumps(document)))["nodes"]:
        node["capacity"] *= len(HOSTILE)
    folder = tmp_path / "deep" / "down"
    loaded = load(write_scenario(folder / "s", document))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    report = run(spark, loaded, optimizer.optimize(loaded.problem, loaded.options), folder / "run", format="parquet")
    wanted = plain(left, right)
    assert [q["results"] for q in report["queries"]] == [wanted.total()] * len(HOSTILE)
    results = streams.read_results(folder / "run" / "results")
    assert {name: results["query"].to_pylist().count(name) for name in HOSTILE} == dict.fromkeys(
        HOSTILE, wanted.total()
    )
    assert spark.read.parquet(str(folder / "run" / "results")).count() == wanted.total() * len(HOSTILE)
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(folder / "run") for path in written)


def test_the_scenario_of_nova_init_runs(spark: Any, tmp_path: Path) -> None:
    assert invoke("init", tmp_path / "my").exit_code == 0
    loaded = load(tmp_path / "my" / "scenario.yaml")
    running = Run(spark, loaded, optimizer.optimize(loaded.problem, loaded.options), Settings(tmp_path / "run"))
    running.start()
    running.wait(lambda now: now.stop() if now.running[0].meter.results else None)
    assert running.report()["unknown_tuples"] == 0
    assert len(streams.read_results(tmp_path / "run" / "results"))


def test_files_of_any_kind_with_iso_and_epoch_times(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    (tmp_path / "s" / "p").mkdir(parents=True)
    (tmp_path / "s" / "h").mkdir()
    stranger = pd.DataFrame({"source_id": ["p9"], "event_time": left["event_time"][:1], "value": [0.0], "unit": ["x"]})
    written = pd.concat([left, stranger]).rename(columns={"source_id": "sensor", "event_time": "at"})
    written.assign(at=written["at"].map(lambda t: t.isoformat())).to_csv(tmp_path / "s" / "p" / "1.csv", index=False)
    millis = right["event_time"].astype("datetime64[ms, UTC]").astype("int64")
    right.assign(event_time=millis).to_json(tmp_path / "s" / "h" / "1.json", orient="records", lines=True)
    loaded, plan = scenario(
        tmp_path / "s",
        {
            "pressure": {"format": "csv", "path": "p", "columns": {"source": "sensor", "time": "at"}},
            "humidity": {"format": "json", "path": "h"},
        },
    )
    report = run(spark, loaded, plan, tmp_path / "run", format="json")
    results = pd.read_json(tmp_path / "run" / "results" / "climate-00000000-000.jsonl", lines=True)
    parts = [pd.read_json(f, lines=True) for f in sorted((tmp_path / "run" / "results").glob("*.jsonl"))]
    results = pd.concat(parts)
    assert len(results) == plain(left, right).total() == report["results"]
    assert report["unknown_tuples"] == 1
    assert report["dead_letters"] == {"unknown_source": 1}
    letter = dead(tmp_path / "run")[0]
    assert (letter["reason"], letter["stream"], letter["query"]) == ("unknown_source", "pressure", "climate")
    assert letter["file"].endswith("/p/1.csv")
    assert letter["line"] == len(left) + 2
    assert letter["record"] == (tmp_path / "s" / "p" / "1.csv").read_text().splitlines()[-1]
    assert list(results.columns) == [
        "query",
        "window_start",
        "window_end",
        "left_source",
        "right_source",
        "left_time",
        "right_time",
        "left_value",
        "right_value",
        "node",
        "left_unit",
        "right_unit",
    ]
    assert report["latency_ms"] is None  # recorded data: there is nothing to wait for


def test_bad_tuples_of_a_recording_are_counted_when_it_is_played(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    for name, table in (("p", left), ("h", right)):
        (tmp_path / "s" / name).mkdir(parents=True)
        lines = table.assign(event_time=table["event_time"].map(lambda t: t.isoformat())).to_csv(index=False)
        (tmp_path / "s" / name / "1.csv").write_text(lines)
    with (tmp_path / "s" / "p" / "1.csv").open("a") as file:
        columns = left.columns.to_list()
        file.write(",".join({"source_id": "p1", "event_time": "yesterday"}.get(name, "1") for name in columns) + "\n")
    inputs = {name: {"format": "csv", "path": path} for name, path in (("pressure", "p"), ("humidity", "h"))}
    loaded, plan = scenario(tmp_path / "s", inputs)
    report = run(spark, loaded, plan, tmp_path / "run", speed=20.0)
    assert report["dead_letters"] == {"bad_time": 1}
    assert report["results"] == plain(left, right).total()
    (letter,) = dead(tmp_path / "run")
    assert "yesterday" in letter["record"]


def test_a_heavy_key_is_joined_by_the_hosts_of_its_grid(spark: Any, tmp_path: Path) -> None:
    loaded, plan, wanted = skewed.recorded(tmp_path / "s", numbers=True)
    run(spark, loaded, plan, tmp_path / "run", until_end=True)
    skewed.is_right(streams.read_results(tmp_path / "run" / "results"), loaded, plan, wanted, 7)


def test_a_recording_is_replayed_at_its_speed(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    (tmp_path / "s").mkdir()
    left.to_parquet(tmp_path / "s" / "p.parquet", index=False)
    right.to_parquet(tmp_path / "s" / "h.parquet", index=False)
    loaded, plan = scenario(
        tmp_path / "s",
        {
            "pressure": {"format": "parquet", "path": "p.parquet"},
            "humidity": {"format": "parquet", "path": "h.parquet"},
        },
    )
    report = run(spark, loaded, plan, tmp_path / "run", speed=2.0)
    assert found(tmp_path / "run" / "results") == plain(left, right)
    assert report["seconds"] > 1.2  # 3 s at double speed
    assert report["latency_ms"]["p50"] > 0


def test_a_stopped_run_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    for name, table in (("p", left), ("h", right)):
        (tmp_path / "s" / name).mkdir(parents=True)
        table.iloc[:40].to_parquet(tmp_path / "s" / name / "1.parquet", index=False)
    loaded, plan = scenario(
        tmp_path / "s", {"pressure": {"format": "parquet", "path": "p"}, "humidity": {"format": "parquet", "path": "h"}}
    )
    run(spark, loaded, plan, tmp_path / "run")
    before = found(tmp_path / "run" / "results").total()
    for name, table in (("p", left), ("h", right)):
        table.iloc[40:].to_parquet(tmp_path / "s" / name / "2.parquet", index=False)
    run(spark, loaded, plan, tmp_path / "run")
    assert found(tmp_path / "run" / "results") == plain(left, right)
    assert 0 < before < plain(left, right).total()
    with pytest.raises(InvalidInput, match="lateness_ms"):
        run(spark, loaded, plan, tmp_path / "run", lateness_ms=1)


def test_a_query_that_spark_did_not_wait_for_is_started_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = tables()
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", left, right, 1))
    start, failures = Job.start, [1, 2]

    def slow(job: Job, *arguments: Any, **named: Any) -> Any:
        query = start(job, *arguments, **named)
        if failures:
            failures.pop()
            query.stop()
            monkeypatch.setattr(type(query), "exception", lambda _: RuntimeError(f"{SLOW_START}."))
        else:
            monkeypatch.undo()
        return query

    monkeypatch.setattr(Job, "start", slow)
    run(spark, loaded, plan, tmp_path / "run")
    assert found(tmp_path / "run" / "results") == plain(left, right)


def test_inputs_that_cannot_work_are_told(spark: Any, tmp_path: Path) -> None:
    loaded = load(write_scenario(tmp_path / "bare"))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    with pytest.raises(InvalidInput, match="needs an `input`"):
        run(spark, loaded, plan, tmp_path / "run")
    (tmp_path / "s" / "p").mkdir(parents=True)
    inputs = {"pressure": {"format": "csv", "path": "p"}, "humidity": {"format": "csv", "path": "p"}}
    with pytest.raises(InvalidInput, match="still empty"):
        run(spark, *scenario(tmp_path / "s", inputs), tmp_path / "run2")
    (tmp_path / "s" / "p" / "1.csv").write_text("id,event_time,value\np1,2024-01-01T00:00:00Z,1\n")
    with pytest.raises(InvalidInput, match="no such column; the columns are id, event_time, value"):
        run(spark, *scenario(tmp_path / "s", inputs), tmp_path / "run3")
    wrong = {name: {"format": "generator", "options": {"colour": 3}} for name in SMALL["streams"]}
    with pytest.raises(InvalidInput, match="no such option of the generator"):
        run(spark, *scenario(tmp_path / "s", wrong), tmp_path / "run4")


def test_plans_are_handed_in_whole_or_not_at_all(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    for name, table in (("p", left), ("h", right)):
        (tmp_path / "s" / name).mkdir(parents=True)
        table.to_parquet(tmp_path / "s" / name / "1.parquet", index=False)
    loaded, plan = scenario(
        tmp_path / "s", {"pressure": {"format": "parquet", "path": "p"}, "humidity": {"format": "parquet", "path": "h"}}
    )
    with pytest.raises(InvalidInput, match="no run lives"):
        hand_in(tmp_path / "plan", tmp_path / "run", loaded.problem)
    run(spark, loaded, plan, tmp_path / "run")
    plan.write(tmp_path / "plan", loaded.problem)
    assert hand_in(tmp_path / "plan", tmp_path / "run", loaded.problem) == ["00001"]
    assert hand_in(tmp_path / "plan", tmp_path / "run", loaded.problem) == ["00002"]
    (tmp_path / "plan" / "replicas.parquet").unlink()
    with pytest.raises(InvalidInput, match="no such file of a plan"):
        hand_in(tmp_path / "plan", tmp_path / "run", loaded.problem)


def test_events_move_windows_to_a_node_that_was_not_there(spark: Any, tmp_path: Path) -> None:
    left, right = tables()
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", left, right, 2))
    (tmp_path / "events.jsonl").write_text(
        '{"event": "node_added", "node": "fog2", "capacity": 500, "coordinates": [8, 8.1]}\n'
        f'{{"event": "node_removed", "node": "fog", "time": {START_MS + 1000}}}\n'
    )
    report = run(spark, loaded, plan, tmp_path / "run", watch=tmp_path / "events.jsonl")
    assert found(tmp_path / "run" / "results") == plain(left, right)
    results = streams.read_results(tmp_path / "run" / "results")
    by_window = set(
        zip(
            results["window_start"].cast(pa.int64()).to_numpy() // 1000 - START_MS,
            results["node"].to_pylist(),
            strict=True,
        )
    )
    assert by_window == {(0, "fog"), (1000, "fog2"), (2000, "fog2")}
    assert report["events"] == {"handled": 2, "refused": [], "waiting": []}
    assert {host["node"]: host["capacity"] for host in report["hosts"]} == {"fog": 120.0, "fog2": 500.0}
    with pytest.raises(InvalidInput, match="events drove this run"):
        run(spark, loaded, plan, tmp_path / "run")


def test_events_let_sources_and_pairs_join_that_did_not(spark: Any, tmp_path: Path) -> None:
    """A sensor appears on a node that appears, and a pair across regions is allowed, from the second window on."""
    left, right = tables()
    new = left[left["source_id"] == "p1"].assign(source_id="p9")
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", pd.concat([left, new]), right, 2))
    (tmp_path / "events.jsonl").write_text(
        '{"event": "node_added", "node": "gate9", "capacity": 500, "coordinates": [3, 9]}\n'
        '[{"event": "source_added", "stream": "pressure", "source": "p9", "node": "gate9", "rate": 10, '
        f'"attributes": {{"region": "north"}}, "time": {START_MS + 1000}}}, '
        f'{{"event": "pair_allowed", "query": "climate", "left": "p1", "right": "h2", "time": {START_MS + 1000}}}]\n'
    )
    report = run(spark, loaded, plan, tmp_path / "run", watch=tmp_path / "events.jsonl")
    assert report["events"] == {"handled": 2, "refused": [], "waiting": []}
    assert report["unknown_tuples"] == 0
    window = pa.compute.divide(
        streams.read_results(tmp_path / "run" / "results")["window_start"].cast(pa.int64()), 1000
    )
    assert set(window.to_pylist()) == {START_MS, START_MS + 1000, START_MS + 2000}
    from_second = [
        side[side["event_time"] >= pd.Timestamp(START_MS + 1000, unit="ms", tz="UTC")] for side in (left, right, new)
    ]
    wanted = plain(left, right)
    wanted += plain(from_second[2], from_second[1], {("p9", "h1")})
    wanted += plain(from_second[0], from_second[1], {("p1", "h2")})
    assert found(tmp_path / "run" / "results") == wanted
    planned = sum(host["planned_tuples_per_s"] for host in report["hosts"])
    assert planned == pytest.approx(100 + 35 + 50)  # what the newest plan charges: 25 + 10 for p9, 25 + 25 for p1 ⋈ h2


def test_the_reason_of_a_failure_is_the_line_that_says_what_happened() -> None:
    from nova.spark.job.run import reason

    worker = (
        "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "outbox.py", line 56, in __call__\n'
        "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device\n"
        "\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert reason(worker).startswith("the disk is full: make room")
    assert reason("Job aborted\nCaused by: java.io.IOException: No space left on device\n") == reason(worker)
    assert reason(worker.replace("No space left on device", "odd")).endswith("Detail: [errno 28] odd")
    assert reason("x\nnova.model.errors.NovaError: no broker\n") == "no broker"
    assert reason("Job aborted\nCaused by: java.io.IOException: odd\n").startswith("Caused by")
    assert reason("odd") == "odd"
