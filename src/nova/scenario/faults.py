"""Faults: everything wrong with a scenario, gathered so that a user sees it all at once."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from nova.model.errors import SHOWN, Fault, InvalidInput

_SEARCHED = 20_000
"""Beyond this many names, close ones are looked for among those of about the same length only."""


class Faults:
    """A list of faults that keeps at most `SHOWN` per check and counts the rest."""

    def __init__(self) -> None:
        self._found: dict[str, Fault] = {}
        self._more = 0

    def add(
        self, file: str, message: str, row: int | None = None, field: str | None = None, value: object = None
    ) -> None:
        """Note one fault; one that was noted before (a table used twice) counts once."""
        fault = Fault(file, message, row, field, value)
        self._found.setdefault(str(fault), fault)

    def count_more(self, count: int) -> None:
        """Faults that were found but are too many to be listed."""
        self._more += count

    def __len__(self) -> int:
        return len(self._found) + self._more

    def check(self) -> None:
        """Raise everything found, file by file in row order."""
        if self._found:
            files = list(dict.fromkeys(fault.file for fault in self._found.values()))
            order = sorted(self._found.values(), key=lambda fault: (files.index(fault.file), fault.row or 0))
            raise InvalidInput(order, more=self._more)


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Names in one line, the first few of many."""
    every = [str(name) for name in names]
    rest = f" … and {len(every) - limit:,} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + rest


def suggestion(name: object, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` where something close exists, else nothing."""
    wanted = str(name)
    known = list(names)
    if len(known) > _SEARCHED:
        known = [one for one in known if abs(len(one) - len(wanted)) <= 1 and one[:1] == wanted[:1]][:_SEARCHED]
    lower = {one.lower(): one for one in reversed(known)}
    close = get_close_matches(wanted, known, n=3) or [
        lower[one] for one in get_close_matches(wanted.lower(), lower, n=3)
    ]
    return f"; did you mean {' or '.join(repr(one) for one in close)}?" if close else ""


__all__ = ["Faults", "SHOWN", "listed", "suggestion"]
