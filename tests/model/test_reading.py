"""Files that programs wrote: what cannot be read or would not fit is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova.model.errors import InvalidInput
from nova.model.reading import read_bytes, read_json


def test_json_that_would_not_fit_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("limits", "reading"):
        monkeypatch.setattr(f"nova.model.{module}.available_bytes", lambda: 1_000_000)
    (tmp_path / "plan.json").write_text('{"a": "' + "x" * 200_000 + '"}')
    with pytest.raises(InvalidInput, match=r"plan\.json: a plan of so many bytes would take 2 MB, and 1 MB of memory"):
        read_json(tmp_path / "plan.json", "a plan")
    with pytest.raises(InvalidInput, match="memory are free"):
        read_bytes(Path("/dev/zero"), "a plan")
    (tmp_path / "plan.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "plan.json", "a plan") == {"a": 1}
