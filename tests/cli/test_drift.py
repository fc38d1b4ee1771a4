"""`nova drift`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from builders import SMALL, invoke, invoke_json, write_scenario


def test_a_fresh_plan_has_not_drifted(scenario_file: Path, tmp_path: Path) -> None:
    assert invoke("plan", scenario_file, "-o", tmp_path / "plan").exit_code == 0
    found = invoke_json("drift", scenario_file, tmp_path / "plan")
    assert found["gain_mean_ms"] == pytest.approx(0)
    assert found["moves"]["sub_joins_changed"] == 0
    assert found["matches_scenario"] is True
    assert "would not lower" in invoke("drift", scenario_file, tmp_path / "plan").stdout


def test_a_better_host_has_come_since(scenario_file: Path, tmp_path: Path) -> None:
    assert invoke("plan", scenario_file, "-o", tmp_path / "plan").exit_code == 0
    document = deepcopy(SMALL)
    document["nodes"].append({"id": "next door", "capacity": 1000, "x": 9, "y": 9})
    for node in document["nodes"]:
        if node["id"] == "fog":
            node |= {"x": 500, "y": 500}  # and the one in use has moved away
    now = write_scenario(tmp_path / "now", document)
    # the plan is for fewer nodes: its cost space cannot be read for this scenario, its replicas can
    found = invoke_json("drift", now, tmp_path / "plan")
    assert found["matches_scenario"] is False
    assert found["gain_mean_ms"] > 0
    assert found["gain"] == pytest.approx(found["gain_mean_ms"] / found["running"]["latency_mean_ms"])
    assert found["excess"] == pytest.approx(found["running"]["cost_ms"] / found["fresh"]["cost_ms"] - 1)
    assert found["moves"]["sub_joins_changed"] >= 1
    assert found["moves"]["moved_tuples_per_s"] > 0
    printed = invoke("drift", now, tmp_path / "plan")
    assert "a re-plan would save" in printed.stdout
    assert "tuples/s" in printed.stdout


def test_a_scenario_that_no_longer_fits_is_said(scenario_file: Path, tmp_path: Path) -> None:
    assert invoke("plan", scenario_file, "-o", tmp_path / "plan").exit_code == 0
    document = deepcopy(SMALL)
    for node in document["nodes"]:
        node["capacity"] = 1
    result = invoke("drift", write_scenario(tmp_path / "now", document), tmp_path / "plan")
    assert result.exit_code != 0
    assert "nova: " in result.stderr
