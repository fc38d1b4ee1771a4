"""Extras: the planner imports none of their packages at the top level, and says which extra is missing."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova.extras import EXTRAS, MissingExtra, optional, require

ROOT = Path(__file__).parents[1]
SPARK = ROOT / "src" / "nova" / "spark"
DRAWING = [ROOT / "src" / "nova" / "draw" / name for name in ("png.py",)]
"""Imported only to draw, by `nova.draw.writer`."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level packages that a module imports when it is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_optional_packages_are_imported_where_they_are_used() -> None:
    for file in (ROOT / "src" / "nova").rglob("*.py"):
        if SPARK not in file.parents and file not in DRAWING:
            assert not set(imported(ast.parse(file.read_text()))) & set(EXTRAS), file


def test_every_extra_that_is_named_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(known)


def test_a_missing_package_is_told_with_its_extra() -> None:
    wanted = r"a picture needs matplotlib: pip install 'nova-placement\[plot\]'"
    with pytest.raises(MissingExtra, match=wanted), optional("a picture"):
        raise ModuleNotFoundError("no", name="matplotlib.figure")


def test_other_missing_modules_stay_errors_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError), optional("x"):
        raise ModuleNotFoundError("no", name="nova.typo")


def test_require_refuses_before_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    require("a report", "json")
    monkeypatch.setattr("nova.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"\[data\]"):
        require("a download", "pooch")
