"""A run as a process of its own that is killed (-9) at the worst moments, and goes on from its checkpoint."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streams
from builders import SMALL
from nova.model.plan import Plan
from nova.model.replicas import Replicas
from nova.scenario import Scenario
from nova.spark.job.schedule import Schedule
from nova.spark.replan.handover import hand_in
from nova.spark.sources.generator import Pattern, Source, generate
from processes import Process, looked_after
from runs import START_MS, file_inputs, found, plain, scenario, tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PARTS = 40


class Killed:
    """A run that is killed and started again."""

    def __init__(self, folder: Path, started: list[Process], *options: object) -> None:
        left, right = (side.sort_values("event_time", ignore_index=True) for side in tables(30 * PARTS, 1000 * PARTS))
        self.left: pd.DataFrame = left
        self.right: pd.DataFrame = right
        self.scenario: Scenario
        self.plan: Plan
        self.scenario, self.plan = scenario(folder / "s", file_inputs(folder / "s", left, right, PARTS))
        self.plan.write(folder / "plan", self.scenario.problem)
        self.folder, self.started = folder / "run", started
        self.process = Process(
            "nova",
            "run",
            folder / "s" / "scenario.yaml",
            "--plan",
            folder / "plan",
            "-o",
            self.folder,
            "--until-end",
            "--json",
            *options,
            log=folder / "log",
        )
        started.append(self.process)

    def batches(self) -> set[int]:
        commits = self.folder / "jobs" / "climate" / "checkpoint" / "commits"
        return {int(file.name) for file in commits.glob("*") if file.name.isdigit()}

    def entries(self) -> list[Any]:
        return Schedule(self.folder / "jobs" / "climate" / "schedule").entries()

    def until(self, condition: Any) -> None:
        self.process.until(condition)

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process = self.process.again()
        self.started.append(self.process)

    def on(self, node: str) -> Plan:
        """A plan with everything on one node."""
        row = self.scenario.problem.nodes.ids.to_pylist().index(node)
        joins = self.plan.joins
        return streams.replace_replicas(self.plan, Replicas.whole(np.arange(len(joins)), np.full(len(joins), row)))

    def hosts(self) -> list[set[str]]:
        """The hosts that gave results in each epoch."""
        results = streams.read_results(self.folder / "results")
        window = results["window_start"].cast(pa.int64()).to_numpy() // 1_000_000
        node = np.array(results["node"].to_pylist())
        first = [entry.first_window for entry in self.entries()]
        epoch = np.searchsorted(first[1:], window, "right")
        return [set(node[epoch == e].tolist()) for e in range(len(first))]

    def report(self) -> dict[str, Any]:
        text = self.process.log.read_text()
        report: dict[str, Any] = json.loads(text[text.rindex("\n{\n") if "\n{\n" in text else text.index("{\n") :])
        return report


@contextmanager
def killed(folder: Path, *options: object) -> Iterator[Killed]:
    with looked_after() as started:
        yield Killed(folder, started, *options)


def test_a_switch_of_plans_survives_kills_before_during_and_after(tmp_path: Path) -> None:
    with killed(tmp_path) as run:
        run.until(lambda: len(run.batches()) >= 3)
        run.kill()  # before: the plan comes while the run is dead
        run.on("cloud").write(tmp_path / "cloud", run.scenario.problem)
        hand_in(tmp_path / "cloud", run.folder, run.scenario.problem)
        run.start()
        run.until(lambda: len(run.entries()) == 2)
        run.kill()  # during: the switch is written down, its batch is not done
        switched = run.entries()[1].batch
        assert switched not in run.batches()
        run.start()
        run.until(lambda: switched in run.batches())
        run.kill()  # after
        assert len(run.entries()) == 2
        change = {
            "change": "move",
            "query": "climate",
            "left": "p1",
            "right": "h1",
            "node": "fog",
            "from_node": "cloud",
            "shares": [0, 1, 0, 1, 0, 1],
            "reason": "test",
        }
        last = max(run.batches())
        run.start()
        run.until(lambda: max(run.batches()) > last)
        (tmp_path / "changes.jsonl").write_text(json.dumps(change) + "\n")
        hand_in(tmp_path / "changes.jsonl", run.folder, run.scenario.problem)  # while it works
        run.process.wait()
        assert found(run.folder / "results") == plain(run.left, run.right)
        assert [entry.plan for entry in run.entries()] == ["00000", "00001", "00002"]
        assert run.hosts() == [{"fog"}, {"cloud"}, {"cloud", "fog"}]


def test_events_drive_a_run_through_kills(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with killed(tmp_path, "--watch", events) as run:
        run.until(lambda: len(run.batches()) >= 3)
        events.write_text('{"event": "node_removed", "node": "fog"}\n')
        run.until(lambda: len(run.entries()) == 2)
        run.kill()  # in the batch of the switch
        run.start()
        last = max(run.batches())
        run.until(lambda: max(run.batches()) > last + 2)  # windows have gone on under the second plan
        with events.open("a") as file:
            file.write('{"event": "capacity_changed", "node": "edge1", "hosts": false}\n')
        run.until(lambda: (run.folder / "events.jsonl").read_bytes() == events.read_bytes())
        run.kill()  # the event stands in the run's record, its plan may or may not be there
        run.start()
        run.process.wait()
        assert found(run.folder / "results") == plain(run.left, run.right)
        assert (run.folder / "events.jsonl").read_bytes() == events.read_bytes()
        report = run.report()
        assert report["events"] == {"handled": 2, "refused": [], "waiting": []}
        hosts = run.hosts()
        assert hosts[0] == {"fog"}
        assert "fog" not in set().union(*hosts[1:])
        assert len(hosts) == 3
        assert "edge1" in hosts[1]
        assert "edge1" not in hosts[2]


def test_signals_stop_a_run_in_order(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of a run, as does a service manager's SIGTERM: no results half done, no traces."""
    options = {"seed": 3, "length": "15s", "disorder": "300ms", "start_ms": START_MS}
    inputs = {name: {"format": "generator", "options": options} for name in SMALL["streams"]}
    scenario(tmp_path / "s", inputs)
    command = ("nova", "run", tmp_path / "s" / "scenario.yaml", "-o", tmp_path / "run", "--json")
    commits = tmp_path / "run" / "jobs" / "climate" / "checkpoint" / "commits"

    def batches() -> int:
        return sum(file.name.isdigit() for file in commits.glob("*"))

    with looked_after() as started:
        for number, name in enumerate((signal.SIGINT, signal.SIGTERM)):
            process = Process(*command, log=tmp_path / f"log{number}")
            started.append(process)
            before = batches()
            process.until(lambda before=before: batches() > before)
            os.killpg(process.running.pid, name)
            process.wait()
            assert isinstance(json.loads(process.log.read_text()), dict)  # nothing else was printed
            offsets = {file.name for file in (commits.parent / "offsets").glob("[0-9]*")}
            assert offsets <= {file.name for file in commits.glob("[0-9]*")} | {str(batches())}
        last = Process(*command, "--until-end", log=tmp_path / "log")
        started.append(last)
        last.wait()
    assert isinstance(json.loads(last.log.read_text()), dict)
    pattern = Pattern(seed=3, disorder_ms=300, length_ms=15_000)
    sides = [
        generate([Source(f"{prefix}1", 25), Source(f"{prefix}2", 25)], pattern, -1, 1e9, START_MS).to_pandas()
        for prefix in "ph"
    ]
    assert found(tmp_path / "run" / "results") == plain(*sides)


def test_a_spark_that_dies_is_told(tmp_path: Path) -> None:
    with killed(tmp_path) as run:
        run.until(lambda: len(run.batches()) >= 1)
        children = Path(f"/proc/{run.process.running.pid}/task/{run.process.running.pid}/children").read_text().split()
        java = [int(pid) for pid in children if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(java) == 1
        os.kill(java[0], signal.SIGKILL)
        assert run.process.running.wait(120) == 1
        assert "nova: Spark's own process ended with code -9" in run.process.log.read_text()
        run.start()
        run.process.wait()
        assert found(run.folder / "results") == plain(run.left, run.right)
