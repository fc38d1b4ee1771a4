"""Lock: one process at a time writes to a folder. The system lets go of it when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nova.journal.errors import Locked

NAME = "lock"


class Lock:
    """Held from construction to `release`. The file says who holds it; its content decides nothing."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        self._descriptor: int | None = None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise Locked(
                f"{folder} is in use by process {holder or 'unknown'}: only one may write to it at a time"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others write."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
