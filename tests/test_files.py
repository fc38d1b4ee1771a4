from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova.files import appearing, write_safely


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with appearing(file, safe=True) as draft:
        draft.write_text("half")
        assert not file.exists()
        draft.write_text("whole")
    assert file.read_text() == "whole"
    assert os.listdir(tmp_path) == ["a.json"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_safely(file, "old")

    def fail() -> None:
        with appearing(file) as draft:
            draft.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_bytes_stay_as_they_are(tmp_path: Path) -> None:
    write_safely(tmp_path / "b", b"\x00\r\n")
    assert (tmp_path / "b").read_bytes() == b"\x00\r\n"
