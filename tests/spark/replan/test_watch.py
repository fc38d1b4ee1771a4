from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import auctions
import market
from builders import write_scenario
from groups_at_sites import FIVE, planned, sites
from nova import optimizer
from nova.model import plan as plans
from nova.model.errors import InvalidInput
from nova.placement.resolve import resolve
from nova.scenario import Scenario, load
from nova.spark.job.folder import RunFolder
from nova.spark.job.run import Run, Settings
from nova.spark.replan.handover import Switch, hand_in, read_plan, switch_of
from nova.spark.replan.newcomers import Newcomers, NewSource
from nova.spark.replan.watch import Watch

GONE = '{"event": "node_removed", "node": "fog", "time": 5000}\n'
LESS = '{"event": "capacity_changed", "node": "edge1", "capacity": 20}\n'


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return load(write_scenario(tmp_path / "s"))


@pytest.fixture
def run(tmp_path: Path, scenario: Scenario) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(scenario.digest, optimizer.optimize(scenario.problem, scenario.options), scenario.problem)
    return folder


def started(tmp_path: Path, run: RunFolder, scenario: Scenario) -> Watch:
    watch = Watch(tmp_path / "events.jsonl", run, scenario.problem)
    watch.catch_up()
    return watch


def hosts(run: RunFolder, name: str, scenario: Scenario) -> set[str]:
    plan = plans.read(run.plan(name), scenario.problem, resolve(scenario.problem))
    return set(plan.table(scenario.problem)["node"].to_pylist())


def test_events_become_plans_as_they_come(tmp_path: Path, run: RunFolder, scenario: Scenario) -> None:
    events = tmp_path / "events.jsonl"
    watch = started(tmp_path, run, scenario)
    assert watch.poll() == 0  # not even the file is there
    events.write_text(GONE[:20])
    assert watch.poll() == 0  # half a line
    events.write_text(GONE)
    assert watch.poll() == 1
    assert run.plan_names() == ["00000", "00001"]
    assert "fog" in hosts(run, "00000", scenario)
    assert "fog" not in hosts(run, "00001", scenario)
    assert switch_of(run.plan("00001")) == Switch(5000, 1)
    with events.open("a") as file:
        file.write('\n{"event": "node_removed", "node": "mars"}\nnonsense\n{"event": "rate_changed"}\n')
    assert watch.poll() == 4
    for row, what, told in zip((3, 4, 5), ("mars", "not JSON", "missing"), watch.refused, strict=True):
        assert f"row {row}" in told
        assert what in told
    assert run.plan_names() == ["00000", "00001"]


def test_a_host_that_only_merges_is_replaced(tmp_path: Path) -> None:
    """No replica moves, but the run gets a plan: partial aggregates must not go by a host that is gone."""
    document = sites(FIVE)
    document["nodes"].append({"id": "between", "capacity": 300, "x": 50, "y": 30})
    loaded, plan = planned(tmp_path / "s", document)
    run = RunFolder(tmp_path / "run")
    run.open(loaded.digest, plan, loaded.problem)
    events = tmp_path / "events.jsonl"
    events.write_text('{"event": "node_removed", "node": "between"}\n{"event": "node_removed", "node": "hq2"}\n')
    started(tmp_path, run, loaded).poll()
    assert run.plan_names() == ["00000", "00001"]
    now = plans.read(run.plan("00001"), loaded.problem, resolve(loaded.problem))
    assert {row["to"] for row in now.merge_rows(loaded.problem)} == {"e4"}


@pytest.mark.parametrize("lost", ["nothing", "plan", "half a line"])
def test_a_watch_that_died_goes_on(tmp_path: Path, run: RunFolder, scenario: Scenario, lost: str) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(GONE + LESS)
    first = started(tmp_path, run, scenario)
    first.poll()
    before = {name: (run.plan(name) / "replicas.parquet").read_bytes() for name in run.plan_names()}
    if lost == "plan":  # killed between its record and its plan
        for file in run.plan(run.plan_names()[-1]).iterdir():
            file.unlink()
        run.plan(max(before)).rmdir()
    elif lost == "half a line":
        with run.watched.open("ab") as record:
            record.write(GONE[:10].encode())
    again = started(tmp_path, run, scenario)
    assert again.handled == 2
    assert {name: (run.plan(name) / "replicas.parquet").read_bytes() for name in run.plan_names()} == before
    with events.open("a") as file:
        file.write('{"event": "capacity_changed", "node": "edge2", "capacity": 20}\n')
    assert again.poll() == 1
    assert run.watched.read_bytes() == events.read_bytes()


def test_another_file_of_events_is_refused(tmp_path: Path, run: RunFolder, scenario: Scenario) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(GONE)
    started(tmp_path, run, scenario).poll()
    events.write_text(LESS)
    with pytest.raises(InvalidInput, match="does not begin with the 1 lines"):
        started(tmp_path, run, scenario)
    with pytest.raises(InvalidInput, match="events drive this run"):
        hand_in(run.plan("00000"), run.path, scenario.problem)


def test_newcomers_get_rows_behind_the_scenarios(tmp_path: Path, run: RunFolder, scenario: Scenario) -> None:
    (tmp_path / "events.jsonl").write_text(
        '{"event": "node_added", "node": "fog2", "capacity": 500, "coordinates": [8, 8.1]}\n'
        + GONE
        + '{"event": "source_added", "stream": "pressure", "source": "p3", "node": "fog2", "rate": 5, '
        '"attributes": {"region": "north"}}\n'
        + '{"event": "source_removed", "stream": "pressure", "source": "p3"}\n'
        + '{"event": "source_added", "stream": "pressure", "source": "p3", "node": "fog2", "rate": 7, '
        '"attributes": {"region": "north"}}\n'
    )
    watch = started(tmp_path, run, scenario)
    watch.poll()
    assert watch.refused == []
    last = run.plan_names()[-1]
    new = watch.newcomers
    assert new == Newcomers({"fog2": 500.0}, (NewSource("pressure", "p3", "fog2", 5.0),))  # who comes back has a row
    assert switch_of(run.plan(last)).newcomers == started(tmp_path, run, scenario).newcomers == new
    problem = new.added_to(scenario.problem)
    assert problem.sources.ids[len(scenario.problem.sources)].as_py() == "p3"
    plan, _ = read_plan(run, last, scenario.problem)
    table = plan.table(problem)
    assert set(table["node"].to_pylist()) == {"fog2"}
    mine = np.flatnonzero(plan.joins.left == len(scenario.problem.sources))
    assert len(mine)
    assert plan.joins.left_rate[mine] == pytest.approx(7)  # the rates are the controller's, not the scenario's
    np.testing.assert_allclose(table["left_rate"], pq.read_table(run.plan(last) / "replicas.parquet")["left_rate"])
    np.testing.assert_allclose(table["right_rate"], pq.read_table(run.plan(last) / "replicas.parquet")["right_rate"])


def test_pairs_that_the_scenario_does_not_join_can_be_allowed(
    tmp_path: Path, run: RunFolder, scenario: Scenario
) -> None:
    before, _ = read_plan(run, "00000", scenario.problem)
    allowed = {(int(i), int(j)) for i, j in zip(before.joins.left, before.joins.right, strict=True)}
    ids = scenario.problem.sources.ids.to_pylist()
    left, right = next(
        (i, j) for i in scenario.problem.sources_of(0) for j in scenario.problem.sources_of(1) if (i, j) not in allowed
    )
    (tmp_path / "events.jsonl").write_text(
        f'{{"event": "pair_allowed", "query": "climate", "left": "{ids[left]}", "right": "{ids[right]}"}}\n'
    )
    watch = started(tmp_path, run, scenario)
    watch.poll()
    assert watch.refused == []
    plan, _ = read_plan(run, "00001", scenario.problem)
    pairs = {(int(i), int(j)) for i, j in zip(plan.joins.left, plan.joins.right, strict=True)}
    assert pairs == allowed | {(left, right)}
    with pytest.raises(InvalidInput, match="does not allow this pair"):  # nobody else may say so
        plans.read(run.plan("00001"), scenario.problem, resolve(scenario.problem))


def test_new_queries_need_a_run_of_their_own(tmp_path: Path, run: RunFolder, scenario: Scenario) -> None:
    (tmp_path / "events.jsonl").write_text(
        '{"event": "query_added", "query": "more", "left": "pressure", "right": "humidity", "sink": "fog"}\n'
    )
    watch = started(tmp_path, run, scenario)
    watch.poll()
    assert "start another run" in watch.refused[0]
    assert run.plan_names() == ["00000"]


SAME = "TUMBLE({0}.at, INTERVAL '2' SECOND) = TUMBLE({1}.at, INTERVAL '2' SECOND)"
THREE = f"""SELECT b.value, a.category, p.city FROM bids b
    JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
    JOIN people p ON a.seller = p.id AND {SAME.format("a", "p")} WHERE b.value > 20"""


def test_new_sources_of_filtered_streams_have_rows_too(tmp_path: Path) -> None:
    scenario = load(write_scenario(tmp_path / "s", auctions.document("SELECT value FROM bids WHERE value > 20")))
    run = RunFolder(tmp_path / "run")
    run.open(scenario.digest, optimizer.optimize(scenario.problem, scenario.options), scenario.problem)
    (tmp_path / "events.jsonl").write_text(
        '{"event": "source_added", "stream": "bids", "source": "b3", "node": "fog", "rate": 5}\n'
    )
    watch = started(tmp_path, run, scenario)
    watch.poll()
    assert watch.refused == []
    assert {new.stream for new in watch.newcomers.sources} == {"bids", "q.bids", "q.shadow"}
    plan, _ = read_plan(run, run.plan_names()[-1], scenario.problem)
    assert len(plan.joins) == 3


def test_a_running_join_of_three_streams_takes_no_new_sources(tmp_path: Path) -> None:
    scenario = load(write_scenario(tmp_path / "s", market.document({"q": THREE})))
    run = RunFolder(tmp_path / "run")
    run.open(scenario.digest, optimizer.optimize(scenario.problem, scenario.options), scenario.problem)
    (tmp_path / "events.jsonl").write_text(
        '{"event": "source_added", "stream": "people", "source": "p3", "node": "fog", "rate": 5}\n'
        '{"event": "source_removed", "stream": "people", "source": "p2"}\n'
        '{"event": "source_added", "stream": "people", "source": "p2", "node": "fog", "rate": 5}\n'  # comes back
    )
    watch = started(tmp_path, run, scenario)
    watch.poll()
    assert [("row 1" in told, "takes no new sources" in told) for told in watch.refused] == [(True, True)]


def test_events_drive_a_join_of_three_streams(spark: Any, tmp_path: Path) -> None:
    tables = market.tables()
    scenario = load(market.scenario(tmp_path / "s", tables, {"q": THREE}, 4))
    plan = optimizer.optimize(scenario.problem, scenario.options)
    host = plan.table(scenario.problem)["node"].to_pylist()[-1]
    events = tmp_path / "events.jsonl"
    run = Run(spark, scenario, plan, Settings(tmp_path / "run", until_end=True, watch=events))

    def fail_later(run: Run) -> None:
        if not events.exists() and run.running[0].meter.batches:
            events.write_text(f'{{"event": "node_removed", "node": "{host}"}}\n')

    run.start()
    run.wait(fail_later)
    epochs = run.report()["epochs"]
    assert {query: [one["plan"] for one in taken] for query, taken in epochs.items()} == {
        query: ["00000", "00001"] for query in ("q.1", "q")
    }
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    batch = re.sub(r"TUMBLE\((\w)\.at, [^)]*\)", r"(unix_micros(\1.at) div 2000000)", THREE)
    found = pq.read_table(tmp_path / "run" / "results").to_pylist()
    assert found
    made = pq.read_table(run.folder.made("q.1"))
    joined = {"q.1": made["source"].length() - made["source"].null_count, "q": len(found)}
    (told,) = run.measured()
    for number, one in enumerate(run.report()["queries"], 1):  # pairs that join of those in windows of two seconds
        pairs = 2 * one["tuples"]["left"] * one["tuples"]["right"] / one["event_seconds"]
        assert told.selectivity[f"join.{number}"] == pytest.approx(joined[one["query"]] / pairs)
    assert set(told.selectivity) == {"b", "join.1", "join.2"}
    assert auctions.rows(row.values() for row in found) == auctions.rows(spark.sql(batch).collect())
