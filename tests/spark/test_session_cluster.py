"""`--master`: the commands on a real Spark cluster, a master and two workers in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from nova.spark.session import find_java
from processes import Process, environment, looked_after
from runs import file_inputs, found, plain, scenario, tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a standalone cluster on loopback with two executors of one core each."""
    pyspark = Path(pytest.importorskip("pyspark").__file__).parent
    folder = tmp_path_factory.mktemp("cluster")

    def daemon(name: str, *arguments: object) -> Process:
        settings = f"SPARK_HOME={pyspark}", "SPARK_DAEMON_MEMORY=512m", f"JAVA_HOME={Path(find_java()[0]).parents[1]}"
        return Process(
            "env",
            *settings,
            pyspark / "bin" / "spark-class",
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            "--webui-port",
            0,
            *arguments,
            log=folder / f"{len(started)}.log",
        )

    with looked_after() as started:
        started.append(daemon("master.Master", "--port", 0))
        started[0].until(lambda: re.search(r"spark://127.0.0.1:[1-9]\d*", started[0].log.read_text()))
        address = re.search(r"spark://127.0.0.1:[1-9]\d*", started[0].log.read_text())
        assert address is not None
        for number in range(2):
            started.append(
                daemon("worker.Worker", "--cores", 1, "--memory", "1g", "--work-dir", folder / str(number), address[0])
            )
        for worker in started[1:]:
            worker.until(lambda worker=worker: "Successfully registered" in worker.log.read_text())
        yield address[0]
        assert all(process.running.poll() is None for process in started)


def nova(*arguments: object) -> str:
    """What a command prints, on the cluster."""
    command = [str(Path(sys.executable).with_name("nova")), *map(str, arguments)]
    loopback = environment() | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=loopback)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_measurements_and_embedding(master: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    place = rng.uniform(0, 50, (40, 2))
    lines = [f"n{i:02d},n{j:02d},{np.hypot(*(place[i] - place[j])) + 1:.3f}" for i in range(40) for j in range(i)]
    (tmp_path / "pings.csv").write_text("from,to,rtt\n" + "\n".join(lines) + "\n")
    told = json.loads(
        nova("measurements", tmp_path / "pings.csv", "-o", tmp_path / "clean", "--json", "--master", master)
    )
    assert told["rows"]["good"] == len(lines)
    nova("measurements", tmp_path / "pings.csv", "-o", tmp_path / "here")
    by_pair = [("from", "ascending"), ("to", "ascending")]
    far, near = (pq.read_table(tmp_path / name / "latency.parquet").sort_by(by_pair) for name in ("clean", "here"))
    assert far.equals(near)
    coordinates = []
    for name, options in (("far", ("--master", master)), ("near", ())):
        file = tmp_path / f"{name}.parquet"
        nova("embed", tmp_path / "clean" / "latency.parquet", "--engine", "spark", "-o", file, *options)
        coordinates.append(pq.read_table(file))
    assert coordinates[0].equals(coordinates[1])  # whatever the number of executors


def test_a_plan_runs(master: str, tmp_path: Path) -> None:
    left, right = tables()
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", left, right, 3))
    plan.write(tmp_path / "plan", loaded.problem)
    report = json.loads(
        nova(
            "run",
            tmp_path / "s" / "scenario.yaml",
            "--plan",
            tmp_path / "plan",
            "-o",
            tmp_path / "run",
            "--until-end",
            "--json",
            "--master",
            master,
        )
    )
    assert report["results"] == plain(left, right).total()
    assert found(tmp_path / "run" / "results") == plain(left, right)
