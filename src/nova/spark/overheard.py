"""Overheard: what the processes of Spark write to their standard error, of which only the end is kept.

Commands say in a line what went wrong. Spark says it too, in pages and class names, and so do its Python workers: that
is worth reading only where its JVM dies and nobody else can tell why.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

KEPT_LINES = 50
"""Lines that are kept: a fatal error's message stands before its stack."""


class Overheard(threading.Thread):
    """Reads a pipe of its own at `pipe` for as long as this process lives."""

    def __init__(self, pipe: Path) -> None:
        super().__init__(name="overheard", daemon=True)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        os.mkfifo(pipe, 0o600)
        self._end = os.open(pipe, os.O_RDWR)  # nobody need write yet, and who does has somebody to read it
        self.start()

    def run(self) -> None:
        with open(self._end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip())

    @property
    def words(self) -> str:
        """What was said last, without the places in the code."""
        lines = [line for line in self._lines if line.strip() and not line.lstrip().startswith(("at ", "#"))]
        return "\n".join(lines[-5:])
