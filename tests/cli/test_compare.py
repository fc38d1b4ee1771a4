"""`nova compare`: one table, one picture, the same figures in JSON."""

from __future__ import annotations

import pytest

from builders import invoke, invoke_json


def test_json_has_every_approach(scenario_file):
    figures = invoke_json("compare", scenario_file, "--duration", 5)
    rows = {row["approach"]: row for row in figures["approaches"]}
    assert list(rows) == [
        "nova-window",
        "nova-grid",
        "nova-paper",
        "sink",
        "source",
        "top-c",
        "tree",
        "cl-sf",
        "cl-tree-sf",
    ]
    assert rows["sink"]["delta_mean_ms"] == pytest.approx(0.0, abs=1e-9)
    assert rows["nova-grid"]["overloaded"] == 0
    assert rows["sink"]["overloaded"] == 1
    assert rows["sink"]["simulated_p99_ms"] > rows["nova-grid"]["simulated_p99_ms"]


def test_chosen_approaches_table_and_page(scenario_file, tmp_path):
    page = tmp_path / "compare.html"
    result = invoke("compare", scenario_file, "-a", "nova,top-c", "-t", 0, "-o", page)
    assert result.exit_code == 0, result.output
    assert "top-c" in result.stdout
    assert "tree" not in result.stdout
    assert "…" not in result.stdout  # nothing is cut off on a narrow terminal
    text = page.read_text()
    assert "data:image/svg+xml" in text
    assert "latency p90 ms" in text


def test_a_still_picture(scenario_file, tmp_path):
    picture = tmp_path / "compare.png"
    assert invoke("compare", scenario_file, "-a", "nova,sink", "-t", 2, "-o", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_said_before_anything_is_computed(scenario_file, tmp_path):
    unknown = invoke("compare", scenario_file, "-a", "nova,magic")
    assert unknown.exit_code == 2
    assert "magic" in unknown.output
    ending = invoke("compare", scenario_file, "-o", tmp_path / "x.pdf")
    assert ending.exit_code == 2
    assert ".html or .png" in ending.output
