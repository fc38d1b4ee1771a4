from __future__ import annotations

from pathlib import Path

import pytest

from nova.credentials import resolved, resolved_all, shown
from nova.model.errors import InvalidInput


def test_references_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_A", "one")
    (tmp_path / "secret").write_text("two\n")
    assert resolved(f"${{NOVA_A}} and ${{file:{tmp_path}/secret}}, $NOVA_A", "x") == "one and two, $NOVA_A"
    assert resolved_all({"a": "${NOVA_A}", "b": "b"}, "x") == {"a": "one", "b": "b"}
    with pytest.raises(InvalidInput, match="no such environment variable"):
        resolved("${NOVA_NOT_SET}", "x")
    with pytest.raises(InvalidInput, match="cannot be read"):
        resolved(f"${{file:{tmp_path}/none}}", "x")


def test_a_reference_to_what_is_no_text_file_is_told_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"pass\xffword")
    with pytest.raises(InvalidInput, match=r"^1 problem in the input:\nx: cannot be read \(not UTF-8 text\)") as told:
        resolved(f"${{file:{tmp_path}/secret}}", "x")
    assert "word" not in str(told.value)
    for path in ("~nobody-of-this-name/x", str(tmp_path), f"{tmp_path}/a\0b"):
        with pytest.raises(InvalidInput, match="cannot be read"):
            resolved(f"${{file:{path}}}", "x")
    with pytest.raises(InvalidInput, match="this is a device, not a file"):
        resolved("${file:/dev/zero}", "x")


def test_addresses_are_shown_without_their_password() -> None:
    assert shown("mqtt://u:p@h:1/t") == "mqtt://u:…@h:1/t"
    assert shown("mqtt://u:${P}@h/t") == "mqtt://u:${P}@h/t"
    assert shown("mqtt://h/t") == "mqtt://h/t"
