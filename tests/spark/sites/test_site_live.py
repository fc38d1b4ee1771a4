"""Sites as they are meant: a process with its own Spark each, some of which die and come back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from brokers import address, broker
from processes import Process, environment, looked_after
from runs import file_inputs, found, plain, scenario, tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def deployed(folder: Path, exchange: str, parts: int) -> dict[str, Path]:
    """A scenario with files, its plan, and its sites' folders by name."""
    left, right = tables(40 * parts, 1000 * parts)
    left, right = (side.sort_values("event_time", ignore_index=True) for side in (left, right))
    loaded, plan = scenario(folder / "s", file_inputs(folder / "s", left, right, parts))
    plan.write(folder / "plan", loaded.problem)
    left.to_pickle(folder / "left.pickle")
    right.to_pickle(folder / "right.pickle")
    command = [
        str(Path(sys.executable).parent / "nova"),
        "deploy",
        str(folder / "s" / "scenario.yaml"),
        str(folder / "plan"),
        "-o",
        str(folder / "sites"),
        "--exchange",
        exchange,
        "--json",
    ]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=400).stdout)
    return {site["site"]: folder / "sites" / site["site"] for site in told["sites"]}


def wanted(folder: Path) -> object:
    import pandas as pd

    return plain(pd.read_pickle(folder / "left.pickle"), pd.read_pickle(folder / "right.pickle"))


@pytest.mark.parametrize("way", ["folders", "broker"])
def test_sites_that_die_and_come_back_lose_and_double_nothing(tmp_path: Path, way: str) -> None:
    with broker() as port, looked_after() as started:
        exchange = str(tmp_path / "exchange") if way == "folders" else address(port, "sites")
        sites = deployed(tmp_path, exchange, 24)
        assert set(sites) == {"edge1", "edge2", "fog", "hq"}
        running = {
            name: Process(folder / "run.sh", "--until-end", log=tmp_path / f"{name}.log")
            for name, folder in sites.items()
        }
        started += running.values()

        def batches(name: str, stage: str) -> int:
            folder = sites[name] / "run" / "jobs" / "climate" / stage / "checkpoint" / "commits"
            return sum(file.name.isdigit() for file in folder.glob("*"))

        for name, stage, least in (
            ("edge1", "send", 3),
            ("fog", "join", 2),
            ("hq", "collect", 1),
            ("edge1", "send", 6),
        ):
            running[name].until(lambda name=name, stage=stage, least=least: batches(name, stage) >= least)
            running[name].kill()
            running[name] = running[name].again()
            started.append(running[name])
        for process in running.values():
            process.wait()
    assert found(sites["hq"] / "run" / "results") == wanted(tmp_path)


def test_a_site_that_is_gone_is_told_of_and_given_up(tmp_path: Path) -> None:
    """Without edge2 nothing joins; the others say so, end without it, and it is refused when it comes after all."""
    with looked_after() as started:
        sites = deployed(tmp_path, str(tmp_path / "exchange"), 2)
        running = {
            name: Process(
                *(folder / "run.sh", "--until-end", "--give-up-after", "60s", "--json"),
                *("--metrics", tmp_path / f"{name}.prom"),
                log=tmp_path / f"{name}.log",
            )
            for name, folder in sites.items()
            if name != "edge2"
        }
        started += running.values()
        for process in running.values():
            process.wait()
        told = (tmp_path / "fog.log").read_text()
        assert "waiting for site edge2: not heard of for" in told
        report = json.loads(told[told.index("{\n") :])
        assert [(lost["site"], lost["missing"]) for lost in report["given_up"]] == [
            ("edge2", ["climate: left", "climate: right"])
        ]
        assert 'nova_tuples_total{query="climate",side="left"}' in (tmp_path / "edge1.prom").read_text()
        late = Process(sites["edge2"] / "run.sh", "--until-end", log=tmp_path / "edge2.log")
        started.append(late)
        assert late.running.wait(400) == 1
        assert "deploy the plan anew" in (tmp_path / "edge2.log").read_text()
