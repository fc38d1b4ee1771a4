"""`nova simulate` from files to figures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from builders import invoke, invoke_json
from nova.model.plan import Plan
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.placement.resolve import resolve
from nova.scenario import load


@pytest.fixture
def plan_folder(scenario_file: Path) -> Path:
    """Both sub-joins of the small scenario unsplit on `fog`, which takes 120 tuples/s."""
    problem = load(scenario_file).problem
    joins = resolve(problem)
    assert problem.nodes.coordinates is not None
    space = CostSpace(problem.nodes.coordinates, np.zeros(len(problem.nodes)))
    replicas = Replicas.whole(np.arange(2), np.array([2, 2]))
    return Plan(joins, replicas, space, digest=problem.digest).write(scenario_file.parent / "plan", problem)


def test_json_holds_latency_throughput_and_backlog(scenario_file, plan_folder):
    figures = invoke_json("simulate", scenario_file, plan_folder, "--duration", 20, "--seed", 3)
    tuples = figures["tuples"]
    assert tuples["delivered"] == tuples["served"] + tuples["backlog"] + tuples["in_flight"]
    assert figures["throughput"]["tuples_per_s"] == pytest.approx(100, rel=0.1)
    assert figures["latency_ms"]["tuple"]["p50"] <= figures["latency_ms"]["tuple"]["p99"]
    assert [node["node"] for node in figures["busiest"]] == ["fog"]
    assert figures["busiest"][0]["offered"] == pytest.approx(100 / 120, rel=0.1)


def test_table_and_timeline(scenario_file, plan_folder, tmp_path):
    file = tmp_path / "run.csv"
    result = invoke("simulate", scenario_file, plan_folder, "-t", 5, "-o", file)
    assert result.exit_code == 0, result.output
    assert "backlog at the end" in result.stdout
    rows = list(csv.DictReader(file.open()))
    assert float(rows[-1]["end_s"]) == 5
    assert set(rows[0]) == {"end_s", "arrived", "served", "backlog", "tuple_p99_ms"}


def test_wrong_input_is_named(scenario_file, plan_folder):
    missing = invoke("simulate", scenario_file, plan_folder / "none")
    assert missing.exit_code == 2
    assert "no such file of a plan" in missing.output
    timeless = invoke("simulate", scenario_file, plan_folder, "--duration", 0)
    assert timeless.exit_code == 2
    assert "duration" in timeless.output
