"""`nova compare`: one table, one picture, the same figures in JSON."""

from __future__ import annotations

import pytest

from builders import invoke, invoke_json, write_scenario


def test_json_has_every_approach_and_begins_with_what_nova_plan_chooses(scenario_file):
    figures = invoke_json("compare", scenario_file, "--duration", 5)
    rows = {row["approach"]: row for row in figures["approaches"]}
    assert list(rows) == [
        "nova",
        "nova-paper",
        "sink",
        "source",
        "top-c",
        "top-c-largest",
        "tree",
        "cl-sf",
        "cl-tree-sf",
    ]
    assert rows["sink"]["delta_mean_ms"] == pytest.approx(0.0, abs=1e-9)
    assert rows["nova"]["overloaded"] == 0
    assert rows["sink"]["overloaded"] == 1
    assert rows["sink"]["simulated_p99_ms"] > rows["nova"]["simulated_p99_ms"]
    for row in rows.values():
        parts = row["simulated_network_ms"] + row["simulated_service_ms"] + row["simulated_waiting_ms"]
        assert parts == pytest.approx(row["simulated_mean_ms"])
    assert rows["sink"]["felt_mean_ms"] is None  # its queue never settles
    assert rows["sink"]["unsettled"] == 1


def test_measured_latencies_decide_where_there_are_any(tmp_path):
    """Two hosts, the nearer one in the given coordinates is the farther one by measurement."""
    nodes = [
        {"id": "left", "capacity": 1, "x": 0, "y": 0, "hosts": False},
        {"id": "right", "capacity": 1, "x": 0, "y": 1, "hosts": False},
        {"id": "sink", "capacity": 1000, "x": 1, "y": 0, "hosts": False},
        {"id": "near", "capacity": 500, "x": 1, "y": 1},
    ]
    document = {
        "nova": 1,
        "nodes": nodes,
        "latency": [{"from": end, "to": "near", "rtt_ms": 70} for end in ("left", "right", "sink")],
        "streams": {
            "l": {"sources": [{"id": "a", "node": "left", "rate": 10}]},
            "r": {"sources": [{"id": "b", "node": "right", "rate": 10}]},
        },
        "queries": [{"id": "q", "left": "l", "right": "r", "window": {"tumbling": "1s"}, "sink": "sink"}],
    }
    scenario = write_scenario(tmp_path, document)
    row = invoke_json("compare", scenario, "-a", "nova", "-t", 5)["approaches"][0]
    assert row["network_ms"] == pytest.approx(140.0)
    assert row["simulated_network_ms"] == pytest.approx(140.0)
    assert row["latency_mean_ms"] == pytest.approx(140.0)
    assert invoke("plan", scenario, "-o", tmp_path / "plan").exit_code == 0
    run = invoke_json("simulate", scenario, tmp_path / "plan", "-t", 5)
    assert run["result_parts_ms"]["network"] == pytest.approx(140.0)
    assert run["predicted"]["network_ms"] == pytest.approx(140.0)


def test_chosen_approaches_table_and_page(scenario_file, tmp_path):
    page = tmp_path / "compare.html"
    result = invoke("compare", scenario_file, "-a", "nova,top-c", "-t", 0, "-o", page)
    assert result.exit_code == 0, result.output
    assert "top-c" in result.stdout
    assert "tree" not in result.stdout
    assert "…" not in result.stdout  # nothing is cut off on a narrow terminal
    text = page.read_text()
    assert "data:image/svg+xml" in text
    assert "felt p90 ms" in text


def test_a_still_picture(scenario_file, tmp_path):
    picture = tmp_path / "compare.png"
    assert invoke("compare", scenario_file, "-a", "nova,sink", "-t", 2, "-o", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_said_before_anything_is_computed(scenario_file, tmp_path):
    unknown = invoke("compare", scenario_file, "-a", "nova,magic")
    assert unknown.exit_code == 2
    assert "magic" in unknown.output
    ending = invoke("compare", scenario_file, "-o", tmp_path / "x.pdf")
    assert ending.exit_code == 2
    assert ".html or .png" in ending.output
