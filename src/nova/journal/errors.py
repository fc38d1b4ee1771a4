"""What can go wrong with a folder of events, told apart by what one has to do about it."""

from __future__ import annotations

from pathlib import Path

from nova.model.errors import NovaError


class Damaged(NovaError):
    """Bytes that were durable are not what was written. Nothing is loaded, since something in the middle is lost."""

    exit_code = 3

    def __init__(self, file: Path, offset: int, record: str, message: str) -> None:
        self.file, self.offset, self.record = file, offset, record
        super().__init__(f"{file}, byte {offset:,}, {record}: {message}")


class Locked(NovaError):
    """Another process writes to the folder."""


class NotDurable(NovaError):
    """A write failed: what was not acknowledged so far is not stored. The folder has to be opened again."""
