"""Calibration: the workload is what it says, and the figures hang together."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from builders import invoke, invoke_json, write_scenario
from nova.model.errors import InvalidInput
from nova.routing import calibrate as c


def test_every_two_tuples_of_a_sub_join_match_in_a_window() -> None:
    work = c.Workload(1000.0, 30.0, 20.0)
    _, tuples, joined = c._measure(work, 3, 1)
    assert (tuples, joined) == (3 * 50, 3 * 600)
    assert work.results == 600


def test_keys_thin_the_matches_and_windows_cut_them() -> None:
    _, tuples, joined = c._measure(c.Workload(1000.0, 400.0, 400.0, keys=50), 2, 1)
    assert tuples == 1600
    assert joined == pytest.approx(2 * 400 * 400 / 50, rel=0.1)
    _, _, cut = c._measure(c.Workload(100.0, 400.0, 400.0), 1, 1)
    assert cut == pytest.approx(400 * 400 / 10, rel=0.15)


def test_more_results_per_tuple_cost_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "LEAST_S", 0.05)
    few, many = (c.calibrate(c.Workload(1000.0, rate, rate), 3) for rate in (5.0, 1000.0))
    assert many.results_per_tuple == pytest.approx(500.0)
    assert few.tuples_per_s > many.tuples_per_s
    assert few.low <= few.tuples_per_s <= few.high
    assert few.sub_joins > many.sub_joins


def test_a_cross_product_is_told() -> None:
    with pytest.raises(InvalidInput, match="Say with --keys"):
        c.calibrate(c.Workload(60_000.0, 1000.0, 1000.0))


def test_the_command_prints_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "LEAST_S", 0.02)
    scenario = write_scenario(tmp_path)
    told = invoke_json("calibrate", scenario, "--node", "fog", "--cores", "2", "--repeats", "3", "--utilisation", "0.5")
    (row,) = told["queries"]
    assert told["capacity"] == pytest.approx(row["tuples_per_s_per_core"], rel=0.01)  # two cores, half of each
    assert row["lowest"] <= row["tuples_per_s_per_core"] <= row["highest"]
    text = invoke("calibrate", scenario, "--node", "fog", "--repeats", "3").stdout
    assert "\nid,capacity\nfog," in text
    assert invoke("calibrate", scenario, "--query", "climat").exit_code == 2


def test_another_machine_is_measured_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh that runs its command here stands for the other machine."""
    (tmp_path / "ssh").write_text(
        '#!/bin/sh\nprintf \'%s\\n\' "$@" > "$(dirname "$0")/words"\nshift 4\n'
        f'shift && exec "{sys.executable}" -m nova "$@"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scenario = write_scenario(tmp_path / "s")
    told = invoke_json(
        "calibrate", scenario, "--site", "ops@fog-2", "--node", "fog-2", "--cores", 1, "--repeats", 3, "--keys", 5
    )
    assert told["node"] == "fog-2"
    assert told["queries"][0]["results_per_tuple"] == pytest.approx(25 * 25 / 5 / 50, rel=0.2)
    words = (tmp_path / "words").read_text().split()
    assert words[:8] == ["-o", "BatchMode=yes", "--", "ops@fog-2", "nova", "calibrate", "-", "--json"]


def test_a_machine_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'nova: not found' >&2\nexit 127\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    scenario = write_scenario(tmp_path / "s")
    told = invoke("calibrate", scenario, "--site", "fog")
    assert told.exit_code == 1
    assert "is nova on its PATH?" in told.stderr
    assert invoke("calibrate", scenario, "--site", "-oProxyCommand=touch pwned").exit_code == 2


NEGATIVE = '[{"query": "q", "window_ms": -1, "left_rate": 1, "right_rate": 1, "keys": 1}]'


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[]", '[{"query": "q"}]', NEGATIVE])
def test_workloads_that_are_none_are_told(text: str) -> None:
    with pytest.raises(InvalidInput):
        c.workloads_from_json(text, "stdin")


def test_workloads_travel() -> None:
    works = {"a/b": c.Workload(1000.0, 5.0, 7.0, 3)}
    assert c.workloads_from_json(c.workloads_to_json(works), "stdin") == works
