"""Where data lies: the folder that NOVA_DATA names, else the cache that `nova data fetch` fills."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nova.datasets.catalog import Dataset, files_of
from nova.datasets.content import read_stored, text_digest
from nova.model.errors import InvalidInput

VARIABLE = "NOVA_DATA"
State = Literal["verified", "differs"]


def given() -> Path | None:
    """The user's own data folder."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def cache() -> Path:
    """Where fetched data goes; NOVA_CACHE names another place."""
    if named := os.environ.get("NOVA_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nova-placement"


def locate(file: str) -> Path | None:
    """The file, in the user's folder or the cache."""
    for folder in (given(), cache()):
        if folder is not None and (folder / file).is_file():
            return folder / file
    return None


def require(dataset: Dataset, file: str | None = None) -> Path:
    """The same, or an error that says how to get the set."""
    found = locate(file or dataset.file)
    if found is not None:
        return found
    how = (
        f"run `nova data fetch {dataset.name}`"
        if dataset.origin is not None
        else f"no single public file holds it; its parts lie at {dataset.source}"
    )
    raise InvalidInput(f"data set {dataset.name}: no {file or dataset.file} under {VARIABLE} or in the cache; {how}")


@dataclass(frozen=True)
class Found:
    """A data set on this machine."""

    paths: tuple[Path, ...]
    state: State
    """Whether its content is what the catalogue describes."""


def look_up(dataset: Dataset) -> Found | None:
    """The files of a set with their state; None where any of them is missing."""
    paths = [locate(file) for file in files_of(dataset)]
    if any(path is None for path in paths):
        return None
    present = tuple(path for path in paths if path is not None)
    return Found(present, "verified" if digest_of(dataset, present) == dataset.digest else "differs")


def digest_of(dataset: Dataset, paths: tuple[Path, ...]) -> str:
    """The digest of a set's content."""
    if dataset.kind in ("latency", "series", "coordinates"):
        return read_stored(paths[0], square=dataset.kind != "coordinates").digest
    return text_digest(paths)
