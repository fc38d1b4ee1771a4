"""Files that are there after a crash: written wholly or not at all, and on the disk before anyone relies on them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCK = 1 << 16
"""Parts of so many bytes are written by themselves."""
ASIDE = "cut"
"""Folder for damaged tails of the journal and damaged snapshots."""
TEMPORARY = ".tmp"
"""Ending of files that a killed process may leave behind half written. They mean nothing and may be removed."""


def sync_folder(folder: Path) -> None:
    """Make names that were added to or removed from a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write every byte; the system may take fewer than asked for."""
    view = memoryview(content)
    while len(view):
        view = view[os.write(descriptor, view) :]


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file so that, whatever happens, its name stands for the old content or all of the new one."""
    beside = path.with_name(path.name + TEMPORARY)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            for block in _blocks(parts):
                write_all(descriptor, block)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _blocks(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes with small parts joined, so that each costs no call of its own."""
    small = bytearray()
    for part in parts:
        if len(part) >= BLOCK:
            yield bytes(small)
            small.clear()
            yield part
        else:
            small += part
    yield bytes(small)


def put_aside(path: Path) -> None:
    """Move a file that is of no use any more to where it is only kept."""
    aside = path.parent / ASIDE
    aside.mkdir(exist_ok=True)
    os.replace(path, aside / path.name)
    sync_folder(aside)
    sync_folder(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed writer left half written."""
    for path in folder.glob(f"*{TEMPORARY}"):
        path.unlink(missing_ok=True)
