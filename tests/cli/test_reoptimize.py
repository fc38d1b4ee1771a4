"""`nova reoptimize`: events in, changes and the next plan out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import invoke, invoke_json, write_events

REMOVED = {"event": "node_removed", "node": "fog", "time": "2026-01-01T00:00:00.500Z"}


def test_changes_and_the_plan_afterwards(planned: tuple[Path, Path], tmp_path: Path) -> None:
    events = write_events(
        tmp_path,
        REMOVED,
        [
            {"event": "rate_changed", "stream": "pressure", "source": "p1", "rate": 5},
            {"event": "node_added", "node": "fog2", "capacity": "inf", "coordinates": [8, 8]},
        ],
    )
    output = tmp_path / "plan2"
    told = invoke_json("reoptimize", *planned, "--events", events, "-o", output)
    assert [step["line"] for step in told["steps"]] == [1, 2]
    assert told["waiting"] == []
    changes = told["steps"][0]["changes"]
    assert changes
    for change in changes:
        assert change["reason"]
        assert (change["query"], change["from_window"], change["from_ms"]) == ("climate", 1767225601, 1767225601000)
        parts = change["after"] if change["change"] == "repartition" else [change]
        assert all(part["node"] != "fog" and len(part["shares"]) == 8 for part in parts)
    assert all(change["from_window"] is None for change in told["steps"][1]["changes"])
    # the plan is right for the scenario that the events led to
    figures = invoke_json("evaluate", told["scenario"], output)
    assert figures["matches_scenario"] is True
    assert figures["overloaded"] == 0
    assert figures["sub_joins"] == 2
    assert figures["cost_latency_ms"] == pytest.approx(told["cost_after_ms"])
    assert invoke_json("evaluate", *planned)["cost_latency_ms"] == pytest.approx(told["cost_before_ms"])


def test_changes_as_a_table(planned: tuple[Path, Path], tmp_path: Path) -> None:
    events = write_events(tmp_path, REMOVED)
    result = invoke("reoptimize", *planned, "--events", events, "-o", tmp_path / "plan2")
    assert result.exit_code == 0
    for words in ("Changes of", "fog removed", "cost before, ms", "wrote"):
        assert words in result.stdout
    events = write_events(tmp_path, {"event": "capacity_changed", "node": "cloud", "capacity": 900})
    result = invoke("reoptimize", *planned, "--events", events, "-o", tmp_path / "plan3")
    assert "nothing changes" in result.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"event": "node_removed"', "events.jsonl, row 2: not JSON"),
        ({"event": "node_removed", "node": "fgo"}, "events.jsonl, row 2, field node: no such node"),
        ({"event": "rate_changed", "stream": "pressure", "source": "p1", "rate": -1}, "row 2, field rate: a rate is"),
    ],
)
def test_a_wrong_event_is_named_and_nothing_is_written(
    planned: tuple[Path, Path], tmp_path: Path, line: Any, words: str
) -> None:
    output = tmp_path / "plan2"
    result = invoke("reoptimize", *planned, "--events", write_events(tmp_path, REMOVED, line), "-o", output)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not output.exists()


def test_what_cannot_be_read_is_named(planned: tuple[Path, Path], tmp_path: Path) -> None:
    result = invoke("reoptimize", *planned, "--events", tmp_path / "none.jsonl", "-o", tmp_path / "plan2")
    assert result.exit_code == 2
    assert "none.jsonl: cannot be read: No such file" in result.stderr
    (tmp_path / "raw.jsonl").write_bytes(b"\xff\xfe{")
    result = invoke("reoptimize", *planned, "--events", tmp_path / "raw.jsonl", "-o", tmp_path / "plan2")
    assert result.exit_code == 2
    assert "raw.jsonl: not UTF-8 text" in result.stderr
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thing").touch()
    result = invoke("reoptimize", *planned, "--events", write_events(tmp_path, REMOVED), "-o", tmp_path / "taken")
    assert result.exit_code == 2


def test_what_no_longer_fits_is_said(planned: tuple[Path, Path], tmp_path: Path) -> None:
    events = write_events(
        tmp_path,
        [{"event": "node_removed", "node": node} for node in ("fog", "cloud")],
        {"event": "capacity_changed", "node": "edge1", "capacity": 1},
    )
    result = invoke("reoptimize", *planned, "--events", events, "-o", tmp_path / "plan2")
    assert result.exit_code == 0
    assert "sub-joins do not run, among them climate: " in result.stderr
    # with nobody left that could host anything there is no plan to write a scenario for
    events = write_events(
        tmp_path,
        [{"event": "node_removed", "node": node} for node in ("fog", "cloud")],
        [{"event": "capacity_changed", "node": node, "capacity": 0} for node in ("edge1", "edge2")],
    )
    told = invoke("reoptimize", *planned, "--events", events, "-o", tmp_path / "plan3", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["scenario"] is None
    assert "no two sources join any more: no scenario was written" in told.stderr


def test_options_of_stability_count(planned: tuple[Path, Path], tmp_path: Path) -> None:
    """A better host appears: with a high price on moving, nothing moves."""
    events = write_events(tmp_path, {"event": "node_added", "node": "close", "capacity": 1000, "coordinates": [12, 12]})
    moves = [
        sum(
            len(step["changes"])
            for step in invoke_json(
                "reoptimize", *planned, "-e", events, "-o", tmp_path / "plan2", "--migration-ms", price
            )["steps"]
        )
        for price in (0, 1e6)
    ]
    assert moves[0] > 0
    assert moves[1] == 0
