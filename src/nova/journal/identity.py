"""Identity: what a folder of events is, and the id that all its files share."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nova.model.errors import Fault, InvalidInput
from nova.model.reading import parse_json, short, whole

MARKER = "store.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Content of `store.json`."""

    key: bytes
    """16 bytes, drawn when the folder was made."""
    about: Mapping[str, Any]
    """Where it came from: for people, and for exports."""

    @staticmethod
    def new(about: Mapping[str, Any]) -> Identity:
        """The identity of a new folder."""
        return Identity(secrets.token_bytes(16), about)

    def text(self) -> bytes:
        """As written."""
        document = {"nova_events": FORMAT, "id": self.key.hex(), "about": dict(self.about)}
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()

    @staticmethod
    def read(folder: Path) -> Identity:
        """The identity of a folder. Raises `InvalidInput` where it is no folder of events."""
        path = folder / MARKER
        try:
            document = parse_json(whole(path), str(path))
        except OSError as error:
            raise InvalidInput([Fault(str(path), f"not a folder of events: {error.strerror}")]) from None
        if not isinstance(document, dict) or document.get("nova_events") != FORMAT:
            found = document.get("nova_events") if isinstance(document, dict) else document
            raise InvalidInput([Fault(str(path), f"format {FORMAT} expected", field="nova_events", value=found)])
        try:
            key = bytes.fromhex(document["id"])
        except (KeyError, TypeError, ValueError):
            key = b""
        if len(key) != 16:
            raise InvalidInput([Fault(str(path), "32 hexadecimal digits expected", None, "id", document.get("id"))])
        about = document.get("about") or {}
        parts = {"about": about}
        if isinstance(about, dict):
            parts |= {f"about.{name}": about[name] for name in ("stability", "inputs") if name in about}
        for place, part in parts.items():
            if not isinstance(part, dict):
                raise InvalidInput([Fault(str(path), "an object expected", None, place, short(part))])
        return Identity(key, about)
