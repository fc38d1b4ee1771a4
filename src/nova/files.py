"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def appearing(path: Path, *, safe: bool = False) -> Iterator[Path]:
    """A file beside `path` to write to; at the end of the block it takes that name, and an error leaves nothing behind.
    `safe`: its content is on the disk by then, also if the machine goes down."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        yield draft
        if safe:
            with draft.open("rb+") as written:
                os.fsync(written.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_safely(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole, and keep it through a crash of the process or the machine."""
    with appearing(path, safe=True) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
