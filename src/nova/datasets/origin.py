"""Fetching a data set from its public origin, converting it to the layout of the data folder, and checking it.

The originals are packed and labelled otherwise than the data folder, so no checksum of them is known. What is known is
the digest of the content after conversion: a download is kept when its content matches, and refused when it does not,
unless the user accepts it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nova.datasets.catalog import GITHUB, Dataset, Origin
from nova.datasets.content import Content, read_nested, read_stored, read_table, read_text, text_digest, write_stored
from nova.datasets.folder import State, cache
from nova.extras import optional
from nova.model.errors import InvalidInput, NovaError

Download = Callable[[str, Path], Path]
"""Fetch an address into a folder and return the file."""


@dataclass(frozen=True)
class Fetched:
    """What came of a fetch."""

    path: Path
    state: State


def fetch(dataset: Dataset, accept_unverified: bool = False, base: str = GITHUB) -> Fetched:
    """Fetch, convert, check and store a set in the cache."""
    origin = dataset.origin
    if origin is None:
        raise InvalidInput(f"data set {dataset.name} has no single public file; its parts lie at {dataset.source}")
    raw = [download(url, cache() / "origin" / dataset.name) for url in origin.urls(base)]
    target = cache() / dataset.file
    if origin.form == "text":
        found = text_digest(raw)
    else:
        content = convert(dataset, origin, raw)
        found = content.digest
    state: State = "verified" if found == dataset.digest else "differs"
    if state == "differs" and not accept_unverified:
        raise NovaError(
            f"data set {dataset.name}: what came from {origin.repository} is not what the catalogue describes "
            f"(content {found[:12]}…, expected {dataset.digest[:12]}…). The original may have changed; it lies in "
            f"{cache() / 'origin' / dataset.name}. Use --accept-unverified to take it as it is."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    if origin.form == "text":
        target.write_bytes(raw[0].read_bytes())
    else:
        write_stored(content, target)
        stored = read_stored(target, square=dataset.kind != "coordinates").digest
        if stored != found:
            raise NovaError(f"data set {dataset.name}: {target} does not read back as it was written")
    return Fetched(target, state)


def download(url: str, folder: Path) -> Path:
    """One file by pooch, kept in `folder` so that a second fetch needs no network."""
    with optional("`nova data fetch`"):
        import pooch
    pooch.get_logger().setLevel("WARNING")  # the command line shows its own progress, on a terminal only
    try:
        return Path(pooch.retrieve(url, known_hash=None, fname=url.rsplit("/", 1)[1], path=folder, progressbar=False))
    except (OSError, ValueError) as error:
        raise NovaError(f"could not fetch {url}: {error}") from error


def convert(dataset: Dataset, origin: Origin, raw: list[Path]) -> Content:
    """The content of the original files. Matrices without labels take those of the node table, or numbered ones."""
    read = {
        "matrix": lambda text, file: read_table(text, file, square=True),
        "points": lambda text, file: read_table(text, file, square=False),
        "nested": read_nested,
    }[origin.form]
    parts = [read(read_text(path), str(path)) for path in raw]
    if len({part.values.shape for part in parts}) != 1:
        raise NovaError(f"data set {dataset.name}: its files differ in size")
    values = np.stack([part.values for part in parts]) if dataset.kind == "series" else parts[0].values
    labels = parts[0].labels
    if labels == tuple(str(i) for i in range(len(labels))) and dataset.name in UNNAMED:
        labels = tuple(UNNAMED[dataset.name].format(i) for i in range(len(labels)))
    return Content(labels, values)


UNNAMED = {"planetlab-490": "pl{:03d}", "planetlab-169": "pl{:03d}", "planetlab-335": "toread{:03d}"}
"""Names for the nodes of sets whose originals have none."""
