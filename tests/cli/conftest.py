"""Fixtures of tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import invoke, write_scenario


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The small scenario, and a plan for it. Tests read them only."""
    folder = tmp_path_factory.mktemp("planned")
    scenario = write_scenario(folder)
    assert invoke("plan", scenario, "-o", folder / "plan").exit_code == 0
    return scenario, folder / "plan"
