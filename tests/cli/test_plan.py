"""nova plan: from files to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from builders import FILES, SMALL, invoke, invoke_json, write_files, write_scenario
from nova.scenario import load

CONTRACT = [
    "query", "left_source", "right_source", "node", "left_from", "left_to", "right_from", "right_to", "slice_from",
    "slice_to", "key_from", "key_to", "left_rate", "right_rate",
]  # fmt: skip


def small(**capacities: float) -> dict[str, Any]:
    """The small scenario with other capacities."""
    nodes = [node | {"capacity": capacities.get(node["id"], node["capacity"])} for node in SMALL["nodes"]]
    return {**SMALL, "nodes": nodes}


def test_plans_the_initial_scenario(tmp_path: Path) -> None:
    invoke("init", tmp_path)
    result = invoke("plan", tmp_path / "scenario.yaml", "-o", tmp_path / "plan")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for word in ("sub-joins", "replicas", "split sub-joins", "hosts used", "overloaded nodes", "this plan"):
        assert word in result.stdout
    assert pq.read_table(tmp_path / "plan" / "replicas.parquet").column_names == CONTRACT
    document = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert document["scenario_digest"] == load(tmp_path / "scenario.yaml").digest
    assert document["options"]["seed"] == 7


def test_without_an_output_it_is_only_shown(scenario_file: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    told = invoke("plan", scenario_file)
    assert told.exit_code == 0, told.output
    assert "Where the joins run" in told.stdout
    assert "nothing is written without -o" in told.stdout
    assert len(invoke_json("plan", scenario_file)["placements"]) == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sink_that_cannot_take_the_results_is_told(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, small(hq=1))
    told = invoke("plan", path)
    assert "hq gets " in told.stderr
    assert "can take 1" in told.stderr


def test_utilisation_that_is_not_kept_is_told(tmp_path: Path) -> None:
    """A third of the near hosts is too little for a join: only the cloud, far away, could keep to it."""
    nodes = [node | ({"x": 400, "y": 400} if node["id"] == "cloud" else {}) for node in SMALL["nodes"]]
    path = write_scenario(tmp_path, {**SMALL, "nodes": nodes, "options": {"utilisation": 0.3}})
    assert "utilisation 0.3 is not kept: hosts are up to " in invoke("plan", path).stderr
    assert "is not kept" in invoke_json("plan", path)["warnings"][-1]
    assert "not kept" not in invoke("plan", path, "--partition", "grid").stderr


def test_json_says_the_same_as_the_plan(scenario_file: Path, tmp_path: Path) -> None:
    figures = invoke_json("plan", scenario_file, "-o", tmp_path / "deep" / "plan")
    replicas = pq.read_table(tmp_path / "deep" / "plan" / "replicas.parquet").to_pylist()
    assert figures["nodes"] == 5
    assert figures["sub_joins"] == 2
    assert figures["replicas"] == len(replicas)
    assert figures["hosts"] == len({row["node"] for row in replicas})
    assert figures["overloaded"] == 0
    assert figures["latency_mean_ms"] >= figures["sink_based_mean_ms"] > 0


def test_the_same_seed_gives_the_same_plan(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"nodes.csv": "id,capacity\nedge1,60\nedge2,60\nfog,120\nhq,20\n"})
    tables = []
    for name in ("a", "b"):
        assert invoke("plan", path, "-o", tmp_path / name, "--seed", 3).exit_code == 0
        tables.append([pq.read_table(tmp_path / name / f) for f in ("replicas.parquet", "coordinates.parquet")])
    assert tables[0] == tables[1]


def test_options_of_the_command_line_win(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL | {"options": {"seed": 1, "partition": "window"}})
    result = invoke("plan", path, "-o", tmp_path / "plan", "--partition", "grid", "--c-min", "1 Hz", "--no-heights")
    assert result.exit_code == 0, result.output
    options = json.loads((tmp_path / "plan" / "plan.json").read_text())["options"]
    assert (options["seed"], options["partition"], options["c_min"], options["heights"]) == (1, "grid", 1.0, False)


def test_a_wrong_option_of_the_command_line_is_named(scenario_file: Path, tmp_path: Path) -> None:
    result = invoke("plan", scenario_file, "-o", tmp_path / "plan", "--partition", "grd")
    assert result.exit_code == 2
    assert "field partition: should be 'auto', 'key', 'grid' or 'window' (found 'grd')" in result.stderr
    assert not (tmp_path / "plan").exists()


def test_what_cannot_fit_is_said_and_nothing_written(tmp_path: Path) -> None:
    path = write_scenario(tmp_path / "in", small(edge1=10, edge2=10, fog=10, cloud=10))
    before = sorted(tmp_path.rglob("*"))
    result = invoke("plan", path, "-o", tmp_path / "plan", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "tuples/s" in result.stderr
    assert "p1 ⋈ h1" in result.stderr or "p2 ⋈ h2" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_overload_is_reported_when_it_is_allowed(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, small(edge1=10, edge2=10, fog=10, cloud=10))
    result = invoke("plan", path, "-o", tmp_path / "plan", "--allow-overload", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["overloaded"] > 0
    assert "overloaded" in result.stderr
    assert (tmp_path / "plan" / "plan.json").exists()


def test_a_failed_plan_leaves_the_former_one(tmp_path: Path) -> None:
    path = write_scenario(tmp_path)
    assert invoke("plan", path, "-o", tmp_path / "plan").exit_code == 0
    before = (tmp_path / "plan" / "plan.json").read_bytes()
    write_scenario(tmp_path, small(edge1=1, edge2=1, fog=1, cloud=1))
    assert invoke("plan", path, "-o", tmp_path / "plan").exit_code == 2
    assert (tmp_path / "plan" / "plan.json").read_bytes() == before


def test_a_plan_replaces_a_plan_and_leaves_other_files(tmp_path: Path) -> None:
    path = write_scenario(tmp_path)
    invoke("plan", path, "-o", tmp_path / "plan", "--seed", 1)
    (tmp_path / "plan" / "notes.txt").write_text("keep")
    assert invoke("plan", path, "-o", tmp_path / "plan", "--seed", 2).exit_code == 0
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["options"]["seed"] == 2
    assert (tmp_path / "plan" / "notes.txt").read_text() == "keep"
    assert not [other for other in tmp_path.iterdir() if other.name.startswith(".")]


@pytest.mark.parametrize("name", ["plan.html", "plan.PNG", "plan.json"])
def test_a_file_is_no_folder_for_a_plan(name: str, scenario_file: Path, tmp_path: Path) -> None:
    result = invoke("plan", scenario_file, "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "its picture comes from `nova show`" in result.stderr
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("in_the_way", ["file", "folder"])
def test_other_things_are_not_overwritten(in_the_way: str, scenario_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan"
    if in_the_way == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "thesis.tex").write_text("mine")
    assert invoke("plan", scenario_file, "-o", target).exit_code == 2
    assert (target if in_the_way == "file" else target / "thesis.tex").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_said(scenario_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("plan", scenario_file, "-o", tmp_path / "file" / "plan")
    assert result.exit_code == 1
    assert "cannot write" in result.stderr


def test_warnings_go_to_stderr(tmp_path: Path) -> None:
    rtt = FILES["rtt.csv"] + "hq,fog,6.7\n"
    result = invoke("plan", write_files(tmp_path, {"rtt.csv": rtt}), "-o", tmp_path / "plan", "--json")
    assert result.exit_code == 0
    assert "warning:" in result.stderr
    assert "averaged" in json.loads(result.stdout)["warnings"][0]
