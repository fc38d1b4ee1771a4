"""Fixtures that every room of the tests may use. Builders of small scenarios: see `builders.py` beside this file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from builders import write_scenario

settings.register_profile("nova", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nova")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public data and fixed instances that lies beside the repository, not in it."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    folder = Path(os.environ.get("NOVA_SHARED") or beside)
    if not folder.is_dir():
        pytest.skip("needs the shared data in ../shared beside the repository, or NOVA_SHARED set to its folder")
    return folder


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    """A small scenario that plans as it is: see `builders.SMALL`."""
    return write_scenario(tmp_path / "scenario")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small session on two cores; scratch files in memory where the machine has /dev/shm."""
    pytest.importorskip("pyspark")
    from nova.spark.session import local_session

    scratch = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path_factory.mktemp("spark")
    with local_session(2, slots=8, memory_mb=1024, config={"spark.local.dir": str(scratch)}) as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all Spark tests on one xdist worker: one session, one JVM, while the other worker does the rest."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
