"""What Spark notes in a checkpoint, and what is told where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova.model.errors import InvalidInput
from nova.spark.job.gate import Gate, check

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"ended":true}\n-'


def checkpoint(folder: Path, offsets: str | bytes = OFFSETS, commits: str | bytes = "v2\n{}") -> Path:
    """A checkpoint with two batches, of which the second is as given."""
    for log, text in (("offsets", offsets), ("commits", commits)):
        (folder / log).mkdir()
        (folder / log / "9").write_text("v1\n{}\n{}")
        (folder / log / "10").write_bytes(text if isinstance(text, bytes) else text.encode())
        (folder / log / ".10.crc").write_bytes(b"crc")
    return folder


def test_one_in_order(tmp_path: Path) -> None:
    check(tmp_path)  # nothing yet
    check(checkpoint(tmp_path))
    gate = Gate(tmp_path)
    assert gate.unfinished() is None
    assert gate.at_end()
    (tmp_path / "offsets" / "11").write_text("v1\n{}\n{}")
    assert gate.unfinished() == 11
    assert not gate.at_end()


@pytest.mark.parametrize("damage", [b"", b"v1\n{\x00\xff damaged", b"v1\n{half", b"\x00" * 40, b"1\n{}", b"[" * 9000])
@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_damaged_one_is_told_with_its_file(damage: bytes, log: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, **{log: damage})
    with pytest.raises(InvalidInput, match=rf"{log}/10\b.*(damaged|not UTF-8)"):
        check(tmp_path)
