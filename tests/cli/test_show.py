"""`nova show`: pictures from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import invoke, invoke_json


@pytest.mark.parametrize(("name", "magic"), [("plan.png", b"\x89PNG"), ("plan.HTML", b"<!doctype html>")])
def test_pictures(planned: tuple[Path, Path], tmp_path: Path, name: str, magic: bytes) -> None:
    told = invoke_json("show", *planned, "-o", tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(magic)
    assert told == {"picture": str(tmp_path / name), "bytes": len(content)}


def test_a_wrong_ending_writes_nothing(planned: tuple[Path, Path], tmp_path: Path) -> None:
    result = invoke("show", *planned, "-o", tmp_path / "plan.pdf")
    assert result.exit_code == 2
    assert ".html or .png" in result.stderr
    assert not list(tmp_path.iterdir())
