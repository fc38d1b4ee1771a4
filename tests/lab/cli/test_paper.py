"""`nova paper`: units, tables and a page, and going on after an interruption."""

from __future__ import annotations

import csv

import pytest

from builders import invoke, invoke_json
from nova_lab.cluster.cluster import Cluster
from nova_lab.report import workloads
from nova_lab.report.experiments import e2e, scaling


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small problems: what is tested here is the way from command to page."""
    monkeypatch.setattr(workloads, "SYNTHETIC_NODES", 61)
    monkeypatch.setattr(scaling, "sizes", lambda _: [40, 80])
    monkeypatch.setattr(scaling, "EVENTS_EACH", 4)


def test_page_tables_and_findings(tmp_path):
    outcome = invoke_json("paper", "overload", "scaling", "-o", tmp_path, "--quick")
    page = (tmp_path / "index.html").read_text()
    assert "Mitigation of over-utilization" in page
    assert "End-to-end" not in page
    for name, sentences in outcome["findings"].items():
        assert all(sentence.split("`")[0][:40].split("&")[0] in page for sentence in sentences), name
    rows = list(csv.DictReader((tmp_path / "overload.csv").open()))
    assert {row["approach"] for row in rows} >= {"nova", "sink", "tree"}
    assert outcome["reused"] == 0


def test_a_second_run_reuses_what_is_finished(tmp_path):
    first = invoke_json("paper", "overload", "-o", tmp_path, "--quick")
    files = sorted((tmp_path / "units").rglob("*.json"))
    files[0].unlink()  # as if interrupted before this one
    second = invoke_json("paper", "overload", "-o", tmp_path, "--quick")
    assert first["units"] == second["units"] == len(files)
    assert second["reused"] == len(files) - 1


def test_every_experiment_ends_in_a_section(tmp_path, monkeypatch: pytest.MonkeyPatch, two: Cluster):
    monkeypatch.setattr(e2e, "ORDER", ("sink",))  # one site is enough for it
    monkeypatch.setattr(e2e, "WINDOWS_MS", (1000.0,))
    monkeypatch.setattr(e2e, "QUICK_S", 1.0)
    monkeypatch.setattr(e2e, "standing", lambda _: (two, 1e-4))
    result = invoke("paper", "-o", tmp_path, "--quick")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "index.html").read_text()
    for title in ("Mitigation of over-utilization", "Placement quality", "scalability", "End-to-end in simulation"):
        assert title in page
    assert "End-to-end performance" in page
    assert "All 2 runs gave the results of a plain join, each once." in page


def test_unknown_experiments_are_named(tmp_path):
    result = invoke("paper", "magic", "-o", tmp_path)
    assert result.exit_code == 2
    assert "'magic'" in result.output
    assert "overload" in result.output
