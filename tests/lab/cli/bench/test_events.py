"""`nova bench events`: the figures that other tools read, at a small size."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from nova.cli import app
from nova_lab.bench.drawn_events import KINDS


def test_events_are_timed_by_kind_beside_a_full_optimization():
    done = CliRunner().invoke(app, ["bench", "events", "--nodes", "200", "--events", "5", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["nodes"] == 200
    assert set(figures["p50_ms"]) == set(figures["p99_ms"]) == set(figures["cpu_p99_ms"]) == set(KINDS)
    assert all(0 < figures["p50_ms"][kind] <= figures["p99_ms"][kind] for kind in KINDS)
    assert figures["optimize_over_p99"]["rate_changed"] == (
        figures["optimize_ms"] / figures["cpu_p99_ms"]["rate_changed"]
    )


def test_a_long_run_is_held_against_fresh_plans():
    done = CliRunner().invoke(app, ["bench", "events", "--nodes", "300", "--long", "150", "--every", "100", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert [check["events"] for check in figures["checks"]] == [100, 150]
    assert all(check["overloaded"] == 0 for check in figures["checks"])
    assert 0.98 < figures["worst_cost_ratio"] < 1.2
    assert figures["worst_cost_ratio"] == max(check["cost_ratio"] for check in figures["checks"])


def test_a_table_is_for_people():
    done = CliRunner().invoke(app, ["bench", "events", "--nodes", "200", "--events", "2"])
    assert done.exit_code == 0, done.output
    assert "rate_changed" in done.stdout
    assert "full optimization" in done.stdout
