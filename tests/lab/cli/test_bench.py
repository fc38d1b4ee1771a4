"""`nova bench`: figures in the form that other tools read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nova.cli import app
from nova.costspace import phantom
from nova_lab.bench import measured


def test_scale_prints_ratio_and_gap():
    done = CliRunner().invoke(app, ["bench", "scale", "--nodes", "300", "--repeats", "1", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    wanted = {"nodes", "joins", "seconds", "floor_seconds", "ratio", "peak_mb", "overloaded", "gap", "phases"}
    assert wanted <= set(figures)
    assert figures["nodes"] == 300
    assert figures["overloaded"] == 0
    assert figures["ratio"] == pytest.approx(figures["seconds"] / figures["floor_seconds"])
    assert -1e-6 <= figures["gap"] <= 0.15  # whole and cut joins beside a bound that may divide them at will


def test_scale_chains_joins_of_three_streams():
    done = CliRunner().invoke(app, ["bench", "scale", "--nodes", "300", "--repeats", "1", "--streams", "3", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["joins"], told["overloaded"], told["gap"]) == (2 * 29, 0, None)


def test_scale_shows_levels_and_loads():
    done = CliRunner().invoke(
        app, ["bench", "scale", "--nodes", "200", "--repeats", "1", "--no-gap", "--levels", "--loads", "--json"]
    )
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert [row["level"] for row in figures["levels"]] == [0, 1, 2, 3, 4, 5]
    assert [row["placed"] for row in figures["loads"]] == [True, True, True, False]
    assert all(row["overloaded"] == 0 for row in figures["levels"] + figures["loads"])
    assert "found no host" in figures["loads"][-1]["says"]


def test_wrong_partition_is_refused():
    done = CliRunner().invoke(app, ["bench", "scale", "--partition", "round"])
    assert done.exit_code == 2
    assert "round" in done.output


@pytest.mark.shared
def test_instances_are_held_against_what_was_published(shared):
    done = CliRunner().invoke(app, ["bench", "instances", str(shared / "instances"), "--only", "fit-5", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert [row["instance"] for row in figures["instances"]] == ["fit-5"]
    assert figures["overloaded"] == 0
    assert figures["window_gap_worst"] <= 0.01
    assert figures["grid_ratio_worst"] <= 0.65


def test_a_folder_without_instances_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["bench", "instances", str(tmp_path)])
    assert done.exit_code == 2
    assert str(tmp_path) in done.output.replace("\n", "")


def test_measured_times_bring_plans_to_the_true_optimum():
    """A network whose distances no space tells: estimates err, measurements do not."""
    nodes = 60
    rows = measured.measure(nodes, phantom.measured(phantom.scattered(nodes), noise=0.3), level=5, seed=1, neighbours=8)
    single, window, grid = rows
    assert single.measured == pytest.approx(1, abs=1e-6)
    assert window.measured == pytest.approx(1, abs=1e-6)
    assert min(single.estimated, window.estimated) > 1
    assert all(row.overloaded == 0 for row in rows)
    assert grid.measured >= 1


def test_balance_shows_headroom_and_replicas():
    done = CliRunner().invoke(app, ["bench", "balance", "--nodes", "120", "--simulate", "2", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    for row in rows:
        if row["placed"]:
            assert row["utilisation_max"] <= row["utilisation"] * (1 + 1e-6)
            assert row["replicas_max"] <= (row["max_replicas"] or row["replicas"])
    assert rows[0]["placed"]
    table = CliRunner().invoke(app, ["bench", "balance", "--nodes", "120", "--simulate", "0"])
    assert table.exit_code == 0, table.output
    assert "parts" in table.output


def test_waiting_sets_simulated_latencies_side_by_side_and_says_where_nova_loses():
    asked = ["--nodes", "60", "--draws", "1", "--load", "0.4", "--seconds", "5", "--arrivals", "bursty"]
    ways = ["--way", "nova", "--way", "utilisation 0.5", "--way", "top-c-largest"]
    done = CliRunner().invoke(app, ["bench", "waiting", *asked, *ways, "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    rows = {row["way"]: row for row in figures["rows"]}
    assert list(rows) == ["nova", "utilisation 0.5", "top-c-largest"]
    assert all(row["p50"] <= row["p90"] <= row["p99"] for row in rows.values())
    ahead = {
        figure
        for figure in ("mean", "p90", "p99")
        if rows["nova"][figure] > 1.02 * min(row[figure] for way, row in rows.items() if way != "nova")
    }
    assert {loss["figure"] for loss in figures["losses"]} == ahead


def test_waiting_gives_joins_keys_where_asked():
    asked = ["--nodes", "40", "--draws", "1", "--load", "0.8", "--seconds", "2", "--way", "nova"]
    plain, keyed = (CliRunner().invoke(app, ["bench", "waiting", *asked, *more]) for more in ([], ["--keyed"]))
    assert plain.exit_code == keyed.exit_code == 0, keyed.output
    assert "slices" in plain.output
    assert "slices" not in keyed.output


def test_waiting_refuses_a_way_it_does_not_know():
    done = CliRunner().invoke(app, ["bench", "waiting", "--nodes", "60", "--draws", "1", "--way", "by luck"])
    assert done.exit_code == 2
    assert "by luck" in done.output
