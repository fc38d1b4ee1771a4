from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import invoke, invoke_json
from nova_lab.showcase.place import STRANGE


def test_generated_anomalies_are_found_and_nova_stands_beside_the_baselines(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "show"
    told = invoke_json("showcase", "-o", out, "--generated", "--seconds", 16, "--rate", 8, "--speed", 16)
    assert {anomaly["region"] for anomaly in told["anomalies"]} == {STRANGE}
    for anomaly in told["anomalies"]:
        assert anomaly["pressure"] < -3
        assert anomaly["humidity"] > 6
    rows = {row["approach"]: row for row in told["placements"]}
    assert rows["nova"]["overloaded"] == 0
    assert rows["sink"]["overloaded"] == 1
    assert rows["sink"]["simulated_p50_ms"] > 10 * rows["nova"]["simulated_p99_ms"]
    assert rows["sink"]["simulated_results_per_s"] < rows["nova"]["simulated_results_per_s"] / 4
    assert told["run"]["mode"] == "realtime"
    assert told["run"]["results"] > 0
    page = (out / "index.html").read_text()
    assert f"<td>{STRANGE}</td>" in page
    assert "Sink-based" in page
    assert "all at the sink" in page  # what a baseline does is said beside its name
    assert "in real time, half of them within" in page
    assert (out / "plan.html").stat().st_size > 10_000
    refused = invoke("showcase", "-o", tmp_path)
    assert refused.exit_code == 2
    assert "other things than a showcase" in refused.output


def test_archives_are_at_hand_when_both_kinds_of_sensors_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nova_lab.cli.showcase import at_hand

    monkeypatch.setenv("NOVA_DATA", str(tmp_path))
    monkeypatch.setenv("NOVA_CACHE", str(tmp_path / "cache"))
    files = [tmp_path / "sensors" / f"aberdeen-{kind}-2018-2019.csv.gz" for kind in ("bme280", "dht22")]
    files[0].parent.mkdir()
    files[0].touch()
    assert at_hand() == []
    files[1].touch()
    assert at_hand() == [str(file) for file in files]
