"""`nova bench`: figures in the form that other tools read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nova.cli import app


def test_scale_prints_ratio_and_gap():
    done = CliRunner().invoke(app, ["bench", "scale", "--nodes", "300", "--repeats", "1", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    wanted = {"nodes", "joins", "seconds", "floor_seconds", "ratio", "peak_mb", "overloaded", "gap", "phases"}
    assert wanted <= set(figures)
    assert figures["nodes"] == 300
    assert figures["overloaded"] == 0
    assert figures["ratio"] == pytest.approx(figures["seconds"] / figures["floor_seconds"])
    assert -1e-6 <= figures["gap"] <= 0.01  # small problems are solved to their optimum


def test_wrong_partition_is_refused():
    done = CliRunner().invoke(app, ["bench", "scale", "--partition", "round"])
    assert done.exit_code == 2
    assert "round" in done.output
