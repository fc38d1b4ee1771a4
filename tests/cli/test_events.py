"""`nova events`: apply, log, replay; and a real command killed while it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from builders import invoke, invoke_json, write_events


@pytest.fixture(scope="module")
def made(planned: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of events in which nothing has happened; tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "none.jsonl").touch()
    scenario, plan = planned
    result = invoke("events", "apply", folder / "state", folder / "none.jsonl", "-s", scenario, "-p", plan)
    assert result.exit_code == 0, result.output
    return folder / "state"


@pytest.fixture
def state(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "state", symlinks=True))


def rate(value: float, **more: Any) -> dict[str, Any]:
    return {"event": "rate_changed", "stream": "pressure", "source": "p1", "rate": value, **more}


def told(*arguments: object) -> list[dict[str, Any]]:
    result = invoke("events", "apply", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_apply_log_replay(state: Path, tmp_path: Path) -> None:
    events = write_events(tmp_path, rate(10), [rate(20), {"event": "node_removed", "node": "fog"}], rate(30))
    *steps, end = told(state, events, "--client", "ops")
    assert [(step["line"], step["sequence"], step["repeated"]) for step in steps] == [
        (1, 1, False),
        (2, 2, False),
        (3, 3, False),
    ]
    assert any(step["changes"] for step in steps)
    assert end == {"steps": 3, "repeated": 0, "sequence": 3, "plan": str(state / "current/plan"), "waiting": 0}
    # the same command again applies nothing twice, and goes on with what is new
    events = write_events(tmp_path, rate(10), [rate(20), {"event": "node_removed", "node": "fog"}], rate(30), rate(40))
    *steps, end = told(state, events, "--client", "ops")
    assert [step["sequence"] for step in steps] == [None, None, None, 4]
    assert [step["repeated"] for step in steps] == [True, True, True, False]
    log = invoke_json("events", "log", state)
    assert [(row["sequence"], row["client"], row["number"], len(row["events"])) for row in log] == [
        (1, "ops", 1, 1),
        (2, "ops", 2, 2),
        (3, "ops", 3, 1),
        (4, "ops", 4, 1),
    ]
    assert log[3]["events"] == [rate(40.0)]
    assert [row["sequence"] for row in invoke_json("events", "log", state, "--from", 3)] == [3, 4]
    table = invoke("events", "log", state).stdout
    assert "node_removed node=fog" in table
    found = invoke_json("events", "replay", state, "-o", tmp_path / "rebuilt")
    assert (found["first"], found["last"], found["equal"]) == (0, 4, True)
    assert found["compared"] == [{"stored": str(state / "current/plan"), "sequence": 4, "equal": True}]
    assert "equal, bit by bit" in invoke("events", "replay", state).stdout
    same = invoke_json("diff", state / "current/plan", tmp_path / "rebuilt")
    assert same["changes"] == []
    figures = invoke_json("evaluate", state / "current/scenario/scenario.yaml", state / "current/plan")
    assert figures["matches_scenario"] is True


def test_a_replay_that_differs_ends_with_3(state: Path, tmp_path: Path) -> None:
    told(state, write_events(tmp_path, rate(10), {"event": "node_removed", "node": "fog"}))
    plan = state / "current" / "plan"
    other = tmp_path / "plan"
    shutil.copytree(plan, other)
    told(state, write_events(tmp_path, rate(100)))
    document = json.loads((plan / "plan.json").read_text())
    for name in ("replicas.parquet", "coordinates.parquet"):
        shutil.copy(other / name, plan / name)
    (plan / "plan.json").write_text(json.dumps(document))
    result = invoke("events", "replay", state)
    assert result.exit_code == 3
    assert "DIFFERENT" in result.stdout
    assert "is not what its journal leads to" in result.stderr


def test_a_wrong_line_stops_and_those_before_it_are_applied(state: Path, tmp_path: Path) -> None:
    events = write_events(tmp_path, rate(10), rate(20), {"event": "node_removed", "node": "fgo"}, rate(30))
    result = invoke("events", "apply", state, events)
    assert result.exit_code == 2
    assert "events.jsonl, row 3, field node: no such node" in result.stderr
    assert "(found 'fgo')" in result.stderr
    assert [row["sequence"] for row in invoke_json("events", "log", state)] == [1, 2]
    assert invoke_json("events", "replay", state)["compared"][0]["sequence"] == 2


def test_events_from_stdin_as_text(state: Path) -> None:
    from nova.cli import app

    lines = json.dumps(rate(10)) + "\n" + json.dumps({"event": "node_removed", "node": "fog"}) + "\n"
    result = CliRunner().invoke(app, ["events", "apply", str(state)], input=lines)
    assert result.exit_code == 0, result.output
    assert "1: rate_changed: " in result.stdout
    assert "fog removed" in result.stdout
    assert "2 steps, 0 of them applied before" in result.stdout


def test_a_folder_needs_its_origin(planned: tuple[Path, Path], state: Path, tmp_path: Path) -> None:
    events = write_events(tmp_path, rate(10))
    result = invoke("events", "apply", tmp_path / "none", events)
    assert result.exit_code == 2
    assert "make it with --scenario SCENARIO --plan PLAN" in result.stderr
    scenario, plan = planned
    assert invoke("events", "apply", state, events, "-s", scenario, "-p", plan).exit_code == 0
    result = invoke("events", "apply", state, events, "-s", scenario, "-p", tmp_path)
    assert result.exit_code == 2
    assert f"field plan: was made with {plan}" in result.stderr
    assert invoke("events", "apply", state, events, "--migration-ms", 1).exit_code == 0
    result = invoke("events", "apply", state, events, "--migration-ms", 7, "--hysteresis", 0.5)
    assert result.exit_code == 2
    assert "field migration_ms: was made with 1.0 (found 7.0)" in result.stderr
    assert "field hysteresis: was made with 0.02" in result.stderr
    for command in ("log", "replay"):
        result = invoke("events", command, tmp_path)
        assert result.exit_code == 2
        assert "not a folder of events" in result.stderr


def test_a_damaged_tail_is_reported_and_cut(state: Path, tmp_path: Path) -> None:
    for value in (10, 20):  # what one command finds in a file shares an fsync, and so stands or falls together
        told(state, write_events(tmp_path, rate(value)))
    (journal,) = state.glob("journal-*.log")
    os.truncate(journal, journal.stat().st_size - 3)
    read = invoke("events", "log", state)
    assert "passed over" in read.stderr
    result = invoke("events", "apply", state, write_events(tmp_path, rate(30)))
    assert result.exit_code == 0
    assert f"{journal}: cut " in result.stderr
    assert "kept as" in result.stderr
    content = bytearray(journal.read_bytes())
    content[60] ^= 1
    journal.write_bytes(content)
    result = invoke("events", "apply", state, write_events(tmp_path, rate(30)))
    assert result.exit_code == 3
    assert f"{journal}, byte 40, record 1: the checksum does not match; good records follow" in result.stderr


def test_a_real_command_killed_while_it_works(state: Path, tmp_path: Path) -> None:
    """Lines go in until some are acknowledged; then SIGKILL; then the same lines again."""
    lines = [json.dumps(rate(5 + number % 7)) + "\n" for number in range(400)]
    command = [
        sys.executable,
        "-c",
        "from nova.cli import main; main()",
        "events",
        "apply",
        str(state),
        "--json",
        "--client",
        "ops",
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    acknowledged = []
    for line in lines[:40]:
        process.stdin.write(line)
        process.stdin.flush()
        if len(acknowledged) < 20:
            acknowledged.append(json.loads(process.stdout.readline()))
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += [json.loads(line) for line in process.stdout.read().splitlines()]
    process.stdin.close()
    assert process.wait() == -signal.SIGKILL
    numbers = [step["sequence"] for step in acknowledged]
    assert numbers == list(range(1, len(numbers) + 1))
    *steps, end = told(state, write_events(tmp_path, *(line.strip() for line in lines)), "--client", "ops")
    assert end["sequence"] == 400
    assert end["repeated"] >= len(numbers)
    assert [step["sequence"] for step in steps if not step["repeated"]] == list(range(end["repeated"] + 1, 401))
    log = invoke_json("events", "log", state)
    assert [row["number"] for row in log] == list(range(1, 401))
    assert invoke_json("events", "replay", state)["equal"] is True
