from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nova.spark.realtime.build import JAR, build, built_from, digest
from nova.spark.session import java_version


def test_the_jar_is_built_from_the_sources_beside_it() -> None:
    assert built_from(JAR) == digest(), "run: python -m nova.spark.realtime.build"


@pytest.mark.slow
def test_who_builds_it_again_gets_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    java = shutil.which("java")
    if shutil.which("javac") is None or java is None or java_version(java) != 17:
        pytest.skip("needs a JDK 17")
    build(tmp_path / "again.jar")
    assert (tmp_path / "again.jar").read_bytes() == JAR.read_bytes()
