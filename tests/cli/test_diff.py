"""`nova diff`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from builders import invoke, invoke_json, write_scenario


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A scenario, its plan, and the same plan with one replica elsewhere."""
    folder = tmp_path_factory.mktemp("two")
    scenario = write_scenario(folder)
    assert invoke("plan", scenario, "-o", folder / "a").exit_code == 0
    shutil.copytree(folder / "a", folder / "b")
    table = pq.read_table(folder / "b" / "replicas.parquet")
    nodes = table["node"].to_pylist()
    nodes[0] = "cloud"
    pq.write_table(table.set_column(table.column_names.index("node"), "node", [nodes]), folder / "b/replicas.parquet")
    return scenario, folder / "a", folder / "b"


def test_as_json(two: tuple[Path, Path, Path]) -> None:
    scenario, a, b = two
    found = invoke_json("diff", a, b)
    assert (found["moved"], found["added"], found["removed"], found["resized"]) == (1, 0, 0, 0)
    change = found["changes"][0]
    assert (change["kind"], change["node"]) == ("moved", "cloud")
    assert found["moved_tuples_per_s"] == pytest.approx(change["tuples_per_s"])
    assert "cost" not in found
    found = invoke_json("diff", a, b, "--scenario", scenario)
    assert found["cost"]["after"]["cost_ms"] > found["cost"]["before"]["cost_ms"]
    assert found["cost"]["before"]["cost_ms"] == pytest.approx(invoke_json("evaluate", scenario, a)["cost_latency_ms"])


def test_as_tables(two: tuple[Path, Path, Path]) -> None:
    scenario, a, b = two
    result = invoke("diff", a, b, "-s", scenario, "-s", scenario)
    assert result.exit_code == 0
    for words in ("moved", "cloud", "tuples/s moved to other hosts", "before", "after"):
        assert words in result.stdout
    same = invoke("diff", a, a)
    assert "Replicas that are different" not in same.stdout


def test_what_is_no_plan_is_named(two: tuple[Path, Path, Path], tmp_path: Path) -> None:
    scenario, a, _ = two
    result = invoke("diff", a, tmp_path)
    assert result.exit_code == 2
    assert "replicas.parquet: no such file of a plan" in result.stderr
    (tmp_path / "replicas.parquet").write_bytes(b"PAR1 or so")
    assert "not a plan" in invoke("diff", a, tmp_path).stderr
    table = pq.read_table(a / "replicas.parquet")
    pq.write_table(table.drop_columns(["node"]), tmp_path / "replicas.parquet")
    assert "field node: no such column" in invoke("diff", tmp_path, a).stderr
    assert invoke("diff", a, a, *["-s", scenario] * 3).exit_code == 2
