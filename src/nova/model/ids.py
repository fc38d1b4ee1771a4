"""Ids are data: any printable text. Refused is what could change what a line of a file, a terminal or a page means."""

from __future__ import annotations

import re

CONTROL = (
    r"[\x{00}-\x{1F}\x{7F}-\x{9F}\x{061C}\x{200B}\x{200E}\x{200F}\x{2028}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{2069}"
    r"\x{FEFF}\x{FFF9}-\x{FFFB}]"
)
"""Control characters, line and paragraph separators, marks that turn the direction of writing, and what has no width
and joins nothing, so that two ids would look the same; as RE2 writes them."""
_CONTROL = re.compile(re.sub(r"\\x\{([0-9A-F]+)\}", lambda found: f"\\u{int(found[1], 16):04x}", CONTROL))
_SURROGATE = re.compile("[\ud800-\udfff]")
REFUSED = "an id has no line breaks or other control characters"


def has_control(text: str) -> bool:
    """Whether a text holds a character that no id may have."""
    return bool(_CONTROL.search(text) or _SURROGATE.search(text))


def printable(text: str) -> str:
    """A text for a message or a terminal: control characters as Python writes them."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], _SURROGATE.sub(lambda f: repr(f[0])[1:-1], text))
