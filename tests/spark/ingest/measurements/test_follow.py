"""Continuous mode on real Spark: files that arrive update figures and move nodes; restarts lose and double nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from builders import invoke_json
from nova.controller.codec import lines_of, parse_steps
from nova.controller.events import NodeMoved
from nova.costspace import phantom
from nova.model.errors import NovaError
from nova.model.problem import Floats
from pandas_reference import aggregates, assert_equal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOUR = 1_700_000_000 // 3600 * 3600
N = 16


def pings(shift: Floats, hour: int, seed: int) -> pd.DataFrame:
    """All pairs of a layout, three pings each, in one hour; some lost, some twice. `shift` moves nodes along x."""
    truth = phantom.scattered(N, seed=1)
    truth.coordinates[:, 0] += shift
    latency = phantom.measured(truth, noise=0.01, seed=seed)
    rng = np.random.default_rng(seed)
    times = 3
    frame = pd.DataFrame(
        {
            "from": np.repeat([f"n{k:02d}" for k in latency.first], times),
            "to": np.repeat([f"n{k:02d}" for k in latency.second], times),
            "time": HOUR + 3600 * hour + rng.integers(0, 3600, times * len(latency)),
            "rtt": np.repeat(latency.rtt_ms, times).round(3),
        }
    )
    frame.loc[rng.random(len(frame)) < 0.05, "rtt"] = np.nan
    return pd.concat([frame, frame.iloc[:7]], ignore_index=True)


def drop(folder: Path, name: str, frame: pd.DataFrame) -> None:
    """A file arrives: written elsewhere and moved into the folder."""
    beside = folder.parent / f".{name}"
    frame.to_csv(beside, index=False, na_rep="NA")
    with beside.open("a") as file:
        file.write("n00,n01,yesterday,5\n")
    beside.rename(folder / name)


def run(folder: Path, out: Path) -> list[dict[str, Any]]:
    """Take in what is there, in this process, and say what every batch did."""
    from pyspark.sql import SparkSession

    from nova.model.options import Options
    from nova.spark.ingest.measurements.follow import Following, follow
    from nova.spark.ingest.measurements.pipeline import Task

    spark = SparkSession.getActiveSession()
    assert spark is not None
    told: list[dict[str, Any]] = []
    query = follow(spark, Following(Task([str(folder)], str(out)), Options(), moved_ms=15.0, once=True), told.append)
    query.awaitTermination()
    return told


def check(out: Path, frames: list[pd.DataFrame]) -> None:
    """Figures equal those of pandas over all rows that arrived; every row is accounted for once."""
    everything = pd.concat(frames, ignore_index=True)
    wanted = aggregates(everything, 3600)
    found = pq.read_table(out / "pairs").to_pandas()
    assert_equal(found, wanted)
    assert found["count"].sum() + found["duplicates"].sum() == len(everything)
    assert len(pq.read_table(out / "quarantine")) == len(frames)


def test_figures_and_moves(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    still, moved = np.zeros(N), np.zeros(N)
    moved[3] = 60.0
    first, second, third = pings(still, 0, 1), pings(still, 1, 2), pings(moved, 2, 3)
    drop(folder, "a.csv", first)
    (told,) = run(folder, out)
    assert (told["good"], told["quarantined"], told["placed"], told["moved"]) == (
        len(first),
        {"time_unreadable": 1},
        N,
        0,
    )
    check(out, [first])
    late = second.iloc[::2]
    drop(folder, "b.csv", late)
    (told,) = run(folder, out)
    assert told["moved"] == 0
    assert (out / "events.jsonl").read_text() == ""
    # rows of an hour that was seen already, again with some of its duplicates, and an hour in which a node moved
    rest = pd.concat([second.iloc[1::2], late.iloc[:20]], ignore_index=True)
    drop(folder, "c.csv", rest)
    drop(folder, "d.csv", third)
    (told,) = run(folder, out)
    check(out, [first, late, rest, third])
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [event["node"] for event in events] == ["n03"]
    assert set(events[0]) == {"event", "node", "coordinates", "height", "time"}
    assert events[0]["event"] == "node_moved"
    (step,) = parse_steps(lines_of(out / "events.jsonl"), "events.jsonl")  # as re-optimization reads it
    (event,) = step.events
    assert isinstance(event, NodeMoved)
    assert (event.node, list(event.coordinates or ())) == ("n03", events[0]["coordinates"])
    assert event.time is not None
    table = pq.read_table(out / "coordinates.parquet").to_pandas().set_index("id")
    np.testing.assert_allclose(table.loc["n03", ["x", "y", "z"]].to_numpy(dtype=float), events[0]["coordinates"])
    assert run(folder, out) == []  # nothing new: nothing happens
    fourth = pings(moved, 3, 4)
    drop(folder, "e.csv", fourth)
    (told,) = run(folder, out)
    assert told["moved"] == 0  # it was told already
    assert len((out / "events.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("_take_in", marks=pytest.mark.slow),
        pytest.param("_rtts", marks=pytest.mark.slow),
        pytest.param("_move", marks=pytest.mark.slow),
        "_announce",
        pytest.param("done", marks=pytest.mark.slow),
    ],
)
def test_a_batch_that_breaks_off_anywhere_is_repeated(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails right after each step of the second batch, then starts again: no row or event is lost or doubled."""
    from nova.spark.ingest.measurements.follow import Follower

    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    moved = np.zeros(N)
    moved[5] = 60.0
    first, second = pings(np.zeros(N), 0, 1), pings(moved, 1, 2)
    drop(folder, "a.csv", first)
    run(folder, out)
    drop(folder, "b.csv", second)
    with monkeypatch.context() as patch:
        if step == "done":

            def fail(_: dict[str, Any]) -> None:
                raise NovaError("broken off")

            original_init = Follower.__init__

            def deaf(self: Follower, spark: Any, following: Any, tell: Any) -> None:
                del tell
                original_init(self, spark, following, fail)

            patch.setattr(Follower, "__init__", deaf)
        else:
            original = getattr(Follower, step)

            def breaking(self: Follower, *arguments: Any) -> Any:
                original(self, *arguments)
                raise NovaError("broken off")

            patch.setattr(Follower, step, breaking)
        with pytest.raises(Exception, match="broken off"):
            run(folder, out)
    run(folder, out)
    check(out, [first, second])
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [event["node"] for event in events] == ["n05"]


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    """Kill −9 of the command at drawn moments of a batch while files arrive; in the end every row counted once."""
    rng = np.random.default_rng(3)
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    frames: list[pd.DataFrame] = []

    def arrive() -> None:
        frames.append(pings(np.zeros(N), len(frames), len(frames)))
        drop(folder, f"{len(frames)}.csv", frames[-1])

    def begun() -> int:
        return max((int(path.name) for path in (out / "state").glob("*")), default=-1)

    command = [sys.executable, "-m", "nova", "measurements", str(folder), "-o", str(out), "--follow", "--every", "1s"]
    for _ in range(3):
        before = begun()
        arrive()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 300
        while begun() <= before and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, "the command ended by itself"
        arrive()
        time.sleep(float(rng.uniform(0, 6)))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    run(folder, out)
    check(out, frames)


def test_json_lines_of_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    drop(folder, "a.csv", pings(np.zeros(N), 0, 1))
    (folder / "notes.doc").write_text("hello")
    figures = invoke_json("measurements", folder, "-o", tmp_path / "out", "--follow", "--once")
    assert figures["batch"] == 0
    assert [Path(name).name for name in figures["unknown_files"]] == ["notes.doc"]
