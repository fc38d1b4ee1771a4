from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.files import LONGEST, appearing, name_of, write_safely


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    def fill(draft: Path) -> None:
        draft.symlink_to("/dev/full")
        with draft.open("wb", buffering=0) as file:
            file.write(b"x")

    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/a\.json'"),
        appearing(tmp_path / "a.json") as draft,
    ):
        fill(draft)
    with pytest.raises(FileNotFoundError, match=r"'.*/none/a\.json'"):
        write_safely(tmp_path / "none" / "a.json", "x")


def test_bytes_stay_as_they_are(tmp_path: Path) -> None:
    write_safely(tmp_path / "b", b"\x00\r\n")
    assert (tmp_path / "b").read_bytes() == b"\x00\r\n"


IDS = st.text(min_size=1) | st.text("./\\*?[]{}%~_-:# \n'\"`$ab", min_size=1, max_size=300)


@given(IDS, IDS)
def test_an_id_is_one_part_of_a_path_and_no_pattern(one: str, other: str) -> None:
    name = name_of(one)
    assert Path("folder", name).resolve().parent == Path("folder").resolve()
    assert not set(name) & set("/\\*?[]{}:#+$ \0\n'\"`")
    assert not name.startswith((".", "_"))
    assert len(name.encode()) <= LONGEST
    assert (name_of(other) == name) == (one == other)
    if "%%" not in name:
        assert unquote(name, errors="surrogatepass") == one
