from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from builders import invoke, invoke_json
from runs import file_inputs, scenario, tables

pytestmark = pytest.mark.spark


def test_each_site_gets_its_share_its_configuration_and_its_command(tmp_path: Path) -> None:
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", *tables(10), 1))
    plan.write(tmp_path / "plan", loaded.problem)
    told = invoke_json(
        "deploy",
        tmp_path / "s" / "scenario.yaml",
        tmp_path / "plan",
        "-o",
        tmp_path / "sites",
        "--exchange",
        tmp_path / "exchange",
        "--lateness",
        "3s",
    )
    assert {site["site"]: (site["sources"], site["replicas"], site["collects"]) for site in told["sites"]} == {
        "edge1": (2, 0, []),
        "edge2": (2, 0, []),
        "fog": (0, 2, []),
        "hq": (0, 0, ["climate"]),
    }
    assert Path(told["exchange"]).parent == tmp_path / "exchange"
    for site in told["sites"]:
        folder = tmp_path / "sites" / site["site"]
        document = json.loads((folder / "site.json").read_text())
        assert document["exchange"] == told["exchange"]
        assert document["lateness_ms"] == 3000
        assert os.access(folder / "run.sh", os.X_OK)
        assert f"--site {site['site']}" in (folder / "run.sh").read_text()
    shared = pq.read_table(tmp_path / "sites" / "edge1" / "replicas.parquet")
    planned = plan.table(loaded.problem).column_names
    assert shared.column_names[: len(planned)] == planned
    wrong = invoke("run", tmp_path / "sites" / "fog", "--site", "hq")
    assert wrong.exit_code == 2
    assert "is the share of fog" in wrong.stderr


def test_what_cannot_be_deployed_is_told(tmp_path: Path) -> None:
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", *tables(10), 1))
    plan.write(tmp_path / "plan", loaded.problem)
    file = tmp_path / "s" / "scenario.yaml"
    for arguments, message in (
        (["deploy", file, tmp_path / "plan", "--exchange", "mqtt://nowhere"], "an MQTT address looks like"),
        (["deploy", file, tmp_path / "plan", "--exchange", "x", "--lateness", "soon"], "--lateness"),
        (["run", file, "--site", "hq"], "a site needs a plan and an exchange"),
        (["run", file, "--site", "hq", "--watch", "events.jsonl"], "is for whole runs, not for a site"),
        (["run", file, "--plan", tmp_path / "plan", "--exchange", "x", "--site", "mars"], "no such node"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
