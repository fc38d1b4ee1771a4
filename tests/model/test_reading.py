"""Files that programs wrote: what cannot be read or would not fit is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nova.model.errors import InvalidInput
from nova.model.reading import noted, parse_json, read_bytes, read_json, recall, whole
from nova.model.tables import read_parquet


def test_json_that_would_not_fit_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("limits", "reading"):
        monkeypatch.setattr(f"nova.model.{module}.available_bytes", lambda: 1_000_000)
    (tmp_path / "plan.json").write_text('{"a": "' + "x" * 200_000 + '"}')
    with pytest.raises(InvalidInput, match=r"plan\.json: a plan of so many bytes would take 2 MB, and 1 MB of memory"):
        read_json(tmp_path / "plan.json", "a plan")
    (tmp_path / "plan.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "plan.json", "a plan") == {"a": 1}


@dataclass(frozen=True)
class Step:
    """What a program may note."""

    name: str
    moment: float
    parts: tuple[int, ...] = ()


def test_notes_of_programs_have_their_types_checked(tmp_path: Path) -> None:
    assert noted('[{"name": "a", "moment": 3, "parts": [1, 2]}]', list[Step], "f") == [Step("a", 3.0, (1, 2))]
    assert noted("[1, null]", tuple[int, int | None], "f") == (1, None)
    (tmp_path / "note.json").write_text('{"name": 5, "moment": 1}')
    with pytest.raises(InvalidInput, match=r"note\.json, field name: not what a run wrote: .*string \(found 5\)"):
        recall(tmp_path / "note.json", Step)
    with pytest.raises(InvalidInput, match="no such file of a site"):
        recall(tmp_path / "gone.json", Step, "a site")


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 5000, b"\xff", '{"name": "\\ud800", "moment": 1}', "\x00", "9" * 5000, "null", "{}"]
)
def test_notes_that_are_damaged_are_told(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^1 problem in the input:\nthere"):
        noted(text, Step, "there")


@pytest.mark.parametrize("read", [read_bytes, read_json, read_parquet])
def test_a_named_pipe_and_a_device_are_told(tmp_path: Path, read: Callable[[Path, str], object]) -> None:
    os.mkfifo(tmp_path / "plan")
    with pytest.raises(InvalidInput, match="plan: this is a pipe, not a file"):
        read(tmp_path / "plan", "a plan")
    with pytest.raises(InvalidInput, match="/dev/zero: this is a device, not a file"):
        read(Path("/dev/zero"), "a plan")


@pytest.mark.parametrize("read", [read_bytes, read_json, lambda path, what: whole(path)])
def test_a_file_larger_than_memory_is_not_begun(tmp_path: Path, read: Callable[[Path, str], object]) -> None:
    (tmp_path / "plan").touch()
    os.truncate(tmp_path / "plan", 2**42)
    with pytest.raises(InvalidInput, match=r"plan: .* would take .* TB, and .* of memory are free"):
        read(tmp_path / "plan", "a plan")


def test_a_pipe_of_the_shell_is_read() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b'{"a": 1}')
    os.close(theirs)
    assert read_json(Path(f"/dev/fd/{ours}"), "a plan") == {"a": 1}
    os.close(ours)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"c": 2, "\\u0061": 1, "d": 2, "a": 3}}]'])
def test_a_name_that_stands_twice_is_told(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"plan\.json, field a: not JSON: 'a' stands twice in one object"):
        parse_json(text, "plan.json")
