"""`nova evaluate`, and how commands that read a plan open it."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from builders import SMALL, invoke, invoke_json, write_scenario


def changed(folder: Path, **fields: Any) -> Path:
    document = deepcopy(SMALL) | fields
    return write_scenario(folder, document)


def test_figures_as_json(planned: tuple[Path, Path]) -> None:
    figures = invoke_json("evaluate", *planned)
    assert figures["matches_scenario"] is True
    assert figures["overloaded"] == 0
    assert figures["overloaded_nodes"] == []
    assert figures["sub_joins"] == 2
    assert figures["tuples_in"] == pytest.approx(100)
    assert figures["measured"] is None
    assert figures["latency_mean_ms"] >= figures["sink_based_mean_ms"] - 1e-9


def test_figures_as_tables(planned: tuple[Path, Path]) -> None:
    result = invoke("evaluate", *planned)
    assert result.exit_code == 0
    for words in ("mean over sources", "90th percentile", "Eq. 1", "gap to the bound", "overloaded nodes"):
        assert words in result.stdout
    assert "measured" not in result.stdout


def test_measured_latencies_stand_beside_the_estimates(tmp_path: Path) -> None:
    ids = [node["id"] for node in SMALL["nodes"]]
    latency = [{"from": a, "to": b, "rtt_ms": 7.0} for i, a in enumerate(ids) for b in ids[:i]]
    scenario = changed(tmp_path, latency=latency)
    assert invoke("plan", scenario, "-o", tmp_path / "plan").exit_code == 0
    figures = invoke_json("evaluate", scenario, tmp_path / "plan")
    # every link takes 7 ms, but those within a node
    assert figures["measured"]["sink_based_mean_ms"] == pytest.approx(7)
    assert figures["measured"]["measured_share"] == 1
    assert figures["sink_based_mean_ms"] != pytest.approx(7)
    assert "measured" in invoke("evaluate", scenario, tmp_path / "plan").stdout


def test_felt_latency_comes_in_parts_and_results_are_charged(planned: tuple[Path, Path], tmp_path: Path) -> None:
    figures = invoke_json("evaluate", *planned)
    felt = figures["felt"]
    assert felt["mean_ms"] == pytest.approx(felt["network_ms"] + felt["service_ms"] + felt["waiting_ms"])
    assert felt["p50_ms"] <= felt["p90_ms"] <= felt["p99_ms"]
    assert figures["results"]["results_per_s"] > 0
    shown = invoke("evaluate", *planned).stdout
    assert "of the mean: waiting at the host" in shown
    assert "results/s to the sinks" in shown


def test_a_sink_that_cannot_take_the_results_is_named_with_figures(planned: tuple[Path, Path], tmp_path: Path) -> None:
    document = deepcopy(SMALL)
    sink = document["queries"][0]["sink"]
    for node in document["nodes"]:
        if node["id"] == sink:
            node["capacity"] = 5
    scenario = write_scenario(tmp_path, document)
    assert invoke("plan", scenario, "-o", tmp_path / "plan").exit_code == 0
    told = invoke("evaluate", scenario, tmp_path / "plan")
    assert "Sinks that cannot take their results" in told.stdout
    assert f"{sink} gets" in told.stderr
    assert "can take 5" in told.stderr


def test_a_plan_of_another_version_is_judged_with_a_warning(planned: tuple[Path, Path], tmp_path: Path) -> None:
    document = deepcopy(SMALL)
    document["nodes"][3]["x"] = 41
    scenario = write_scenario(tmp_path, document)
    result = invoke("evaluate", scenario, planned[1], "--json")
    assert result.exit_code == 0
    assert "another version" in result.stderr
    assert json.loads(result.stdout)["matches_scenario"] is False


def test_a_plan_that_no_longer_fits_is_refused(planned: tuple[Path, Path], tmp_path: Path) -> None:
    document = deepcopy(SMALL)
    for node in document["nodes"]:
        node["capacity"] = 26
    scenario = write_scenario(tmp_path, document)
    result = invoke("evaluate", scenario, planned[1])
    assert result.exit_code == 3
    assert "another version" in result.stderr
    assert "Maybe plan again" in result.stderr


def test_a_broken_plan_is_refused(planned: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in planned[1].glob("*.*"):
        (broken / file.name).write_bytes(file.read_bytes())
    table = pq.read_table(broken / "replicas.parquet")
    pq.write_table(table.slice(1), broken / "replicas.parquet")
    result = invoke("evaluate", planned[0], broken)
    assert result.exit_code == 3
    assert "tile" in result.stderr


def test_plans_of_other_formats(planned: tuple[Path, Path], tmp_path: Path) -> None:
    """One of another number is refused; one from before there were keys is read, and says the same."""
    before = invoke_json("evaluate", *planned)
    old = Path(shutil.copytree(planned[1], tmp_path / "old"))
    table = pq.read_table(old / "replicas.parquet")
    pq.write_table(table.drop_columns(["key_from", "key_to"]), old / "replicas.parquet")
    assert invoke_json("evaluate", planned[0], old) == before | {"plan": str(old)}
    document = json.loads((old / "plan.json").read_text())
    (old / "plan.json").write_text(json.dumps({**document, "nova": 2}))
    told = invoke("evaluate", planned[0], old)
    assert told.exit_code == 2
    assert "plan.json, field nova: plan format 1 expected (found 2)" in told.stderr


def test_overloaded_nodes_are_named(tmp_path: Path) -> None:
    document = deepcopy(SMALL)
    for node in document["nodes"]:
        node["capacity"] = 15
    scenario = write_scenario(tmp_path, document)
    planned = invoke("plan", scenario, "-o", tmp_path / "plan", "--allow-overload")
    assert planned.exit_code == 0, planned.output
    figures = invoke_json("evaluate", scenario, tmp_path / "plan")
    assert figures["overloaded"] == len(figures["overloaded_nodes"]) > 0
    for node in figures["overloaded_nodes"]:
        assert node["load"] > node["limit"] == 15
    assert figures["overloaded_nodes"][0]["node"] in invoke("evaluate", scenario, tmp_path / "plan").stdout


@pytest.mark.parametrize("command", ["evaluate", "explain", "show"])
def test_no_such_plan(planned: tuple[Path, Path], tmp_path: Path, command: str) -> None:
    more = ["-o", tmp_path / "plan.png"] if command == "show" else []
    result = invoke(command, planned[0], tmp_path / "nowhere", *more)
    assert result.exit_code == 2
    assert "no such file of a plan" in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "explain", "show"])
def test_help_has_an_example(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"nova {command} demo/scenario.yaml demo/plan" in " ".join(result.stdout.split())
