"""What fits: input that cannot be worked on in this machine's memory is refused before memory goes."""

from __future__ import annotations

import os
from pathlib import Path

from nova.model.errors import Fault, InvalidInput

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that this process may still take: what is free, or less where a control group says so."""
    free = [_free()]
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            free.append(int((_CGROUP / most).read_text()) - int((_CGROUP / used).read_text()))
        except (OSError, ValueError):
            continue  # no such group, or one without a limit
    return max(0, min(free))


def _free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: all memory is the best that is known
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def size_text(count: float) -> str:
    """Bytes in words, such as 3.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def refuse_beyond(file: str, what: str, needed: float, field: str | None = None, fix: str = "") -> None:
    """Raise `InvalidInput` where something needs more memory than there is."""
    limit = available_bytes()
    if needed > limit:
        message = f"{what} would take {size_text(needed)}, and {size_text(limit)} of memory are free"
        raise InvalidInput([Fault(file, message + (f": {fix}" if fix else ""), field=field)])
