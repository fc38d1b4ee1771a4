"""`nova embed --engine spark`: as accurate as the local solver, continues after a kill, leaves known nodes alone."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import invoke, invoke_json
from nova.costspace import CostSpace, embed_latency, measure, phantom
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Floats, Latency

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def write_pairs(path: Path, latency: Latency) -> Path:
    """Latencies as a table with ids n000, n001, …"""
    pq.write_table(
        pa.table(
            {
                "from": [f"n{k:04d}" for k in latency.first],
                "to": [f"n{k:04d}" for k in latency.second],
                "rtt_ms": latency.rtt_ms,
            }
        ),
        path,
    )
    return path


def heldout_error(file: Path, truth: Latency) -> float:
    """Median relative error of written coordinates on pairs by row number of the id."""
    table = pq.read_table(file).sort_by("id")
    rows = {name: k for k, name in enumerate(table["id"].to_pylist())}
    first = np.array([rows[f"n{k:04d}"] for k in truth.first])
    second = np.array([rows[f"n{k:04d}"] for k in truth.second])
    space = CostSpace(np.column_stack([table[a].to_numpy() for a in "xyz"]), table["height"].to_numpy())
    return float(measure(space, first, second, truth.rtt_ms, "given").median_relative_error)


def split(latency: Latency, n: int, m: int, seed: int) -> tuple[Latency, Latency]:
    """Pairs to fit (m picks per node) and all others."""
    from nova.costspace import choose

    used = choose(n, latency.first, latency.second, latency.rtt_ms, m, seed)
    return tuple(Latency(latency.first[on], latency.second[on], latency.rtt_ms[on]) for on in (used, ~used))  # type: ignore[return-value]


def compare(latency: Latency, n: int, m: int, folder: Path, blocks: int | None) -> tuple[float, float]:
    """Held-out errors of the engine and of the local solver, fitted to the same pairs."""
    from pyspark.sql import SparkSession

    from nova.costspace.table import write_coordinates
    from nova.spark.ingest.embed.engine import embed_table, latency_table

    fit, out = split(latency, n, m, 0)
    spark = SparkSession.getActiveSession()
    assert spark is not None
    options = Options(neighbours=10**6)
    done = embed_table(
        spark,
        latency_table(spark, str(write_pairs(folder / "fit.parquet", fit))),
        folder / "work",
        "t",
        options,
        blocks=blocks,
    )
    assert done.blocks == (blocks or 1)
    write_coordinates(folder / "coords.parquet", done.ids, done.space)
    local = embed_latency(n, fit, options)
    errors = (
        heldout_error(folder / "coords.parquet", out),
        float(measure(local, out.first, out.second, out.rtt_ms, "unused").median_relative_error),
    )
    print(f"held-out error: spark {errors[0]:.4f}, local {errors[1]:.4f}")
    return errors


def test_a_table_says_its_unit_or_is_told(spark: Any, tmp_path: Path) -> None:
    from nova.spark.ingest.embed.engine import latency_table

    for name, unit in (("rtt_ms", None), ("rtt_us", None), ("rtt", "us"), ("rtt_ms", "ms")):
        factor = 1000.0 if "us" in (name[4:], unit) else 1.0
        file = tmp_path / f"{name}-{unit}.csv"
        file.write_text(f"from,to,{name}\na,b,{12.5 * factor}\n")
        (row,) = latency_table(spark, str(file), unit).collect()
        assert float(row["rtt_ms"]) == 12.5
    with pytest.raises(InvalidInput, match="--unit says what rtt is in"):
        latency_table(spark, str(tmp_path / "rtt-us.csv"))


@pytest.mark.parametrize("blocks", [None, pytest.param(4, marks=pytest.mark.slow)])
def test_as_accurate_as_the_local_solver(tmp_path: Path, blocks: int | None) -> None:
    latency = phantom.measured(phantom.scattered(150, seed=5), noise=0.1, seed=5)
    here, local = compare(latency, 150, 16, tmp_path, blocks)
    assert here <= 1.1 * local


def matrix_pairs(matrix: Floats) -> Latency:
    """All measured pairs of a matrix."""
    first, second = np.triu_indices(len(matrix), 1)
    measured = matrix[first, second] > 0
    return Latency(
        first[measured].astype(np.int32),
        second[measured].astype(np.int32),
        matrix[first[measured], second[measured]].astype(np.float64),
    )


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("blocks", [None, 4])
def test_as_accurate_on_ripe_atlas(shared: Path, tmp_path: Path, blocks: int | None) -> None:
    with gzip.open(shared / "data" / "latency" / "ripe-atlas-723.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    matrix: Floats = np.array([[float(cell or 0) for cell in row[1:]] for row in rows])
    alive = (matrix > 0).sum(1) > 50
    here, local = compare(matrix_pairs(matrix[np.ix_(alive, alive)]), int(alive.sum()), 20, tmp_path, blocks)
    assert here <= 1.1 * local


@pytest.mark.shared
@pytest.mark.slow
def test_as_accurate_on_planetlab(shared: Path, tmp_path: Path) -> None:
    matrix = np.load(shared / "data" / "latency" / "planetlab-490-18slots.npz")["rtt_ms"][0]
    here, local = compare(matrix_pairs(matrix), len(matrix), 32, tmp_path, None)
    assert here <= 1.1 * local


def test_command_shows_convergence_and_cleans_up(tmp_path: Path) -> None:
    latency = phantom.measured(phantom.scattered(60, seed=2), 12, seed=2)
    pairs = write_pairs(tmp_path / "rtt.parquet", latency)
    figures = invoke_json("embed", pairs, "--engine", "spark", "-o", tmp_path / "coords.parquet")
    assert figures["nodes"] == 60
    curve = [entry["fitted_error"] for entry in figures["convergence"]]
    assert curve[-1] < min(0.01, 0.5 * curve[0])
    assert figures["heldout"] == "reserved"
    assert figures["median_relative_error"] < 0.1
    assert not list(tmp_path.glob("*.work"))


def test_nodes_without_a_way_to_the_others_are_left_out(tmp_path: Path) -> None:
    latency = phantom.measured(phantom.scattered(30, seed=2), seed=2)
    table = pq.read_table(write_pairs(tmp_path / "rtt.parquet", latency))
    island = pa.table({"from": ["x", "y"], "to": ["y", "z"], "rtt_ms": [1.0, 2.0]})
    pq.write_table(pa.concat_tables([table, island]), tmp_path / "rtt.parquet")
    figures = invoke_json("embed", tmp_path / "rtt.parquet", "--engine", "spark", "-o", tmp_path / "coords.parquet")
    assert figures["unreachable"] == 3
    assert set(pq.read_table(tmp_path / "coords.parquet")["id"].to_pylist()) == {f"n{k:04d}" for k in range(30)}


def test_a_killed_run_continues_to_the_same_result(tmp_path: Path) -> None:
    """Kill −9 after some epochs; the second run takes up its state and ends where an undisturbed run does."""
    latency = phantom.measured(phantom.scattered(120, seed=8), 10, noise=0.05, seed=8)
    pairs = write_pairs(tmp_path / "rtt.parquet", latency)
    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    undisturbed = invoke_json("embed", pairs, "--engine", "spark", "-o", whole)
    assert undisturbed["continued_after"] == 0
    command = [sys.executable, "-m", "nova", "embed", str(pairs), "--engine", "spark", "-o", str(broken)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    work = tmp_path / "broken.parquet.work"
    deadline = time.monotonic() + 600
    while not list(work.glob("state-00[1-9]*.npy")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, "the run ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert work.is_dir()
    assert not broken.exists()
    again = invoke_json("embed", pairs, "--engine", "spark", "-o", broken)
    assert again["continued_after"] >= 10
    assert again["convergence"] == undisturbed["convergence"]
    assert pq.read_table(broken).equals(pq.read_table(whole))
    assert not work.exists()


def test_another_task_in_the_folder_is_refused(tmp_path: Path) -> None:
    latency = phantom.measured(phantom.scattered(30, seed=2), seed=2)
    pairs = write_pairs(tmp_path / "rtt.parquet", latency)
    work = tmp_path / "work"
    work.mkdir()
    (work / "run.json").write_text(json.dumps({"task": {"seed": 99}, "prepared": True}))
    result = invoke("embed", pairs, "--engine", "spark", "-o", tmp_path / "c.parquet", "--work", work)
    assert result.exit_code == 2
    assert "another task" in result.stderr


def test_newcomers_leave_the_rest_untouched(tmp_path: Path) -> None:
    truth = phantom.scattered(80, seed=4)
    latency = phantom.measured(truth, seed=4)
    old = (latency.first < 60) & (latency.second < 60)
    base = write_pairs(tmp_path / "old.parquet", Latency(latency.first[old], latency.second[old], latency.rtt_ms[old]))
    invoke_json("embed", base, "--engine", "spark", "-o", tmp_path / "base.parquet")
    everything = write_pairs(tmp_path / "all.parquet", latency)
    figures = invoke_json(
        "embed", everything, "--engine", "spark", "--base", tmp_path / "base.parquet", "-o", tmp_path / "more.parquet"
    )
    assert (figures["nodes"], figures["newcomers"], figures["unplaced"]) == (80, 20, 0)
    before, after = pq.read_table(tmp_path / "base.parquet"), pq.read_table(tmp_path / "more.parquet")
    assert after.slice(0, 60).equals(before)
    mixed = ~old
    out = Latency(latency.first[mixed], latency.second[mixed], latency.rtt_ms[mixed])
    assert heldout_error(tmp_path / "more.parquet", out) < 0.05


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{folder}/none.parquet"], "no such file"),
        (["{folder}/odd.csv"], "no column 'rtt_ms'"),
        (["{folder}/bad.csv"], "positive, finite RTT"),
        (["{folder}/fine.csv", "--method", "vivaldi"], "only stress runs on Spark"),
        (["{folder}/fine.csv", "--base", "{folder}/fine.csv"], "coordinates as nova embed writes them"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "odd.csv").write_text("from,to,delay\na,b,1\n")
    (tmp_path / "bad.csv").write_text("from,to,rtt_ms\na,b,1\na,c,-3\n")
    (tmp_path / "fine.csv").write_text("from,to,rtt_ms\na,b,1\na,c,3\n")
    result = invoke(
        "embed",
        *(text.format(folder=tmp_path) for text in arguments),
        "--engine",
        "spark",
        "-o",
        tmp_path / "c.parquet",
    )
    assert result.exit_code == 2, result.output
    assert told in result.stderr
