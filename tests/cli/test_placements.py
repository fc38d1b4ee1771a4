"""`nova plan` and `nova explain` say where the joins run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest

from builders import invoke, write_scenario
from nova.cli import placements as shown
from nova.cli.output import console


def test_a_plan_names_the_host_of_every_join(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path)
    told = invoke("plan", scenario, "-o", tmp_path / "plan", "-o", tmp_path / "plan.csv")
    assert told.exit_code == 0, told.output
    for text in ("Where the joins run", "p1 ⋈ h1", "p2 ⋈ h2", "fog", "way, ms"):
        assert text in told.stdout
    with (tmp_path / "plan.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    as_json = json.loads(invoke("plan", scenario, "-o", tmp_path / "plan", "--json").stdout)["placements"]
    assert [(row["left"], row["right"], row["host"]) for row in rows] == [
        (row["left"], row["right"], row["host"]) for row in as_json
    ]
    told = invoke("explain", scenario, tmp_path / "plan")
    assert "Where the joins run" in told.stdout
    assert json.loads(invoke("explain", scenario, tmp_path / "plan", "--json").stdout)["placements"] == as_json


def test_the_table_alone_needs_no_folder(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path / "s")
    assert invoke("plan", scenario, "-o", tmp_path / "plan.csv").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name != "s"] == ["plan.csv"]
    told = invoke("plan", scenario, "-o", tmp_path / "a", "-o", tmp_path / "b")
    assert told.exit_code == 2
    assert "one folder" in told.stderr


def test_many_joins_are_cut_to_the_terminal_and_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 400
    table = pa.table(
        {
            "query": ["q"] * n,
            "left": [f"l{k // 2}" for k in range(n)],
            "right": [f"r{k // 2}" for k in range(n)],
            "host": [f"h{k}" for k in range(n)],
            "share": [0.5] * n,
            "tuples_per_s": [float(k) for k in range(n)],
            "way_ms": [1.0] * n,
        }
    )
    with console.capture() as capture:
        shown.print_placements(table)
    text = capture.get()
    assert "of 400 (--all shows the rest)" in text.replace("\n", " ")
    assert "h399" in text
    assert "h0 " not in text
    assert text.count("l199 ⋈ r199") == 1  # its two hosts stand below each other, under one name
    with console.capture() as capture:
        shown.print_placements(table, all_rows=True)
    assert "h0 " in capture.get()
