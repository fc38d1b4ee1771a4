"""`nova embed`: coordinates that tell the latencies, as a file that a scenario can use again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from builders import SMALL, invoke, invoke_json, write_scenario
from nova.costspace import phantom


def scenario(folder: Path, n: int = 40, m: int | None = 10) -> Path:
    """Nodes without coordinates and measurements of a known layout; sources and sink as in `SMALL`."""
    truth = phantom.scattered(n, seed=1)
    latency = phantom.measured(truth, m, noise=0.02, seed=1)
    ids = ["edge1", "edge2", "hq", *(f"n{k}" for k in range(3, n))]
    document: dict[str, Any] = {**SMALL, "nodes": "nodes.csv", "latency": "rtt.csv"}
    return write_scenario(
        folder,
        document,
        nodes=[["id", "capacity"], *([name, 100] for name in ids)],
        rtt=[
            ["from", "to", "rtt_ms"],
            *(
                [ids[a], ids[b], f"{rtt:.6f}"]
                for a, b, rtt in zip(latency.first, latency.second, latency.rtt_ms, strict=True)
            ),
        ],
    )


def test_the_written_coordinates_tell_the_latencies(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    figures = invoke_json("embed", path, "-o", tmp_path / "coords.csv")
    assert figures["nodes"] == 40
    assert (figures["method"], figures["dimensions"], figures["heights"]) == ("stress", 3, True)
    assert figures["heldout"] == "refit"
    assert figures["median_relative_error"] < 0.15
    coords = pacsv.read_csv(tmp_path / "coords.csv").to_pandas().set_index("id")
    rtt = pacsv.read_csv(tmp_path / "rtt.csv").to_pandas()
    a, b = coords.loc[rtt["from"]], coords.loc[rtt["to"]]
    told = np.linalg.norm(a[["x", "y", "z"]].to_numpy() - b[["x", "y", "z"]].to_numpy(), axis=1)
    told += a["height"].to_numpy() + b["height"].to_numpy()
    assert float(np.median(np.abs(told - rtt["rtt_ms"]) / rtt["rtt_ms"])) < 0.02


def test_the_file_serves_as_node_columns(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    invoke_json("embed", path, "-o", tmp_path / "coords.csv")
    coords = pacsv.read_csv(tmp_path / "coords.csv").to_pylist()
    rows = [[*row.values(), 100] for row in coords]
    again = write_scenario(
        tmp_path / "again",
        {**SMALL, "nodes": "nodes.csv", "latency": "../rtt.csv"},
        nodes=[[*coords[0], "capacity"], *rows],
    )
    figures = invoke_json("embed", again)
    assert (figures["method"], figures["heldout"]) == ("given", "given")
    assert figures["median_relative_error"] < 0.02


def test_options_reach_the_embedding(tmp_path: Path) -> None:
    path = scenario(tmp_path, m=None)
    figures = invoke_json(
        "embed",
        path,
        "-o",
        tmp_path / "coords.parquet",
        "--method",
        "vivaldi",
        "--dimensions",
        4,
        "--neighbours",
        12,
        "--seed",
        3,
        "--no-heights",
    )
    assert (figures["method"], figures["dimensions"], figures["neighbours"], figures["seed"]) == ("vivaldi", 4, 12, 3)
    assert figures["heldout"] == "unused"
    table = pq.read_table(tmp_path / "coords.parquet")
    assert table.column_names == ["id", "x0", "x1", "x2", "x3", "height"]
    assert not any(table["height"].to_pylist())


def test_the_same_seed_writes_the_same_file(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        invoke_json("embed", path, "-o", tmp_path / f"{name}.csv", "--seed", seed)
    a, b, c = ((tmp_path / f"{name}.csv").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_table_names_the_figures(tmp_path: Path) -> None:
    result = invoke("embed", scenario(tmp_path))
    assert result.exit_code == 0, result.output
    for words in ("median relative error", "90th percentile", "mean absolute error", "triangle inequality"):
        assert words in result.stdout


def test_given_coordinates_without_latencies_have_no_figures(scenario_file: Path) -> None:
    figures = invoke_json("embed", scenario_file)
    assert figures["method"] == "given"
    assert figures["median_relative_error"] is None
    assert "nothing tells how accurate" in invoke("embed", scenario_file).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "coords.txt"), "coords.txt"),
        (("--method", "isomap"), "isomap"),
        (("--dimensions", "0"), "dimensions"),
        (("--neighbours", "0"), "neighbours"),
    ],
)
def test_wrong_wishes_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("embed", scenario(tmp_path), *arguments)
    assert result.exit_code == 2
    assert message in result.output
