"""One Spark session for all tests under tests/spark; tests that use it carry the marker `spark` by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small session on two cores; scratch files in memory where the machine has /dev/shm."""
    pytest.importorskip("pyspark")
    from nova.spark.session import local_session

    scratch = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path_factory.mktemp("spark")
    with local_session(2, memory_mb=1024, config={"spark.local.dir": str(scratch)}) as running:
        yield running
