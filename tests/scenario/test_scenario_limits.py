"""What does not fit is refused early, with its size and the limit."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import FILES, SMALL, write_files, write_scenario
from nova.model import limits
from nova.model.errors import InvalidInput
from nova.scenario import load


def allow(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Pretend that the machine has so many bytes left."""
    for module in ("nova.model.limits", "nova.scenario.scenario", "nova.scenario.dialect"):
        monkeypatch.setattr(f"{module}.available_bytes", lambda: count)


def test_memory_is_known() -> None:
    assert 1 << 20 < limits.available_bytes() < 1 << 50
    assert limits.size_text(3_210_000_000) == "3.21 GB"
    assert limits.size_text(12) == "12 B"


def test_a_dense_join_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = copy.deepcopy(SMALL)
    del document["queries"][0]["on"]
    for stream in document["streams"].values():
        stream["sources"] = [{"id": f"s{k}", "node": "edge1", "rate": 1} for k in range(200)]
    path = write_scenario(tmp_path, document)
    load(path)
    allow(monkeypatch, 5_000_000)
    with pytest.raises(InvalidInput, match=r"40,000 pairs of sources join, which takes 10 MB of memory, and 5 MB are"):
        load(path)


def test_an_edge_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"edge1,edge2,{k}\n" for k in range(20_000))
    path = write_files(tmp_path, {"rtt.csv": "from,to,rtt_ms\n" + rows})
    allow(monkeypatch, 500_000)
    with pytest.raises(
        InvalidInput, match=r"rtt\.csv, field latency: the table would take .* MB, and 500 kB of memory"
    ):
        load(path)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = FILES["scenario.yaml"].replace("rtt.csv", "rtt.csv.gz")
    bomb = gzip.compress(b"from,to,rtt_ms\n" + b"edge1,edge2,1\n" * 2_000_000)
    path = write_files(tmp_path, {"scenario.yaml": scenario, "rtt.csv.gz": bomb})
    allow(monkeypatch, 20_000_000)
    with pytest.raises(InvalidInput, match=r"rtt\.csv\.gz, field latency: the table would take"):
        load(path)


def test_a_parquet_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = FILES["scenario.yaml"].replace("rtt.csv", "rtt.parquet")
    path = write_files(tmp_path, {"scenario.yaml": scenario})
    n = 1_000_000
    pq.write_table(pa.table({"rtt_ms": pa.array([1.0]).take(pa.array([0] * n))}), tmp_path / "rtt.parquet")
    assert (tmp_path / "rtt.parquet").stat().st_size < 100_000
    allow(monkeypatch, 4_000_000)
    with pytest.raises(InvalidInput, match=r"rtt\.parquet: the table with 1,000,000 cells would take 8 MB"):
        load(path)


def test_a_billion_laughs(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 9)]
    path = tmp_path / "scenario.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match=r"aliases blow the document up to [0-9,]+ values, more than 1,000,000"):
        load(path)


@pytest.mark.parametrize("piece", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_a_document_of_levels_without_end(tmp_path: Path, piece: str) -> None:
    (tmp_path / "scenario.yaml").write_text("nova: 1\nnodes:\n  " + piece * 100_000)
    with pytest.raises(InvalidInput, match="row 3: not YAML: more than 200 levels"):
        load(tmp_path / "scenario.yaml")


def test_a_document_that_contains_itself(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("nova: 1\nnodes: &a [*a]\n")
    with pytest.raises(InvalidInput, match=r"row 2.*an alias stands inside what it names"):
        load(path)


def test_aliases_that_help_are_taken(tmp_path: Path) -> None:
    text = FILES["scenario.yaml"].replace("sink: hq", "sink: &s hq").replace("queries:", "queries: ")
    again = text.split("queries: ")[1].replace("climate", "two").replace("&s hq", "*s")
    loaded = load(write_files(tmp_path, {"scenario.yaml": text + again.lstrip("\n")}))
    assert [query.id for query in loaded.problem.queries] == ["climate", "two"]


def test_a_document_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(SMALL) + " " * 100_000)
    load(path)
    allow(monkeypatch, 1_000_000)
    with pytest.raises(InvalidInput, match="put the rows into a table"):
        load(path)
