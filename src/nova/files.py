"""Files that appear under their names only when they are complete, and names for files that any id can have."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

LABEL = 40
LONGEST = 150
"""Characters of a name that is made from an id: file systems take 255 bytes, and endings come behind it."""


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
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(draft)):
            error.filename = str(path)  # a full disk tells no name, and nobody knows the draft's
        raise


def write_safely(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole, and keep it through a crash of the process or the machine."""
    with appearing(path, safe=True) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def name_of(id_: str) -> str:
    """An id as one word for files, folders and topics: letters, digits, inner `_`, `-` and `%`. Different ids have
    different names; an id of harmless characters is its own name."""
    name = quote(id_, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if name.startswith("_"):  # Spark and others pass over files that begin so
        name = f"%5F{name[1:]}"
    if len(name) <= LONGEST:
        return name
    digest = hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: LONGEST - 36]}%%{digest}"  # no other name has two percent signs side by side


def label_of(id_: str) -> str:
    """An id as a DNS label, as names of containers, units and Kubernetes objects must be: small letters, digits and
    `-`, at most 40 of them, beginning with a letter. Different ids have different labels."""
    plain = re.sub(r"[^a-z0-9]+", "-", id_.lower()).strip("-")
    if plain == id_ and len(plain) <= LABEL and plain[0].isalpha():
        return plain
    digest = hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"n-{plain[: LABEL - 11]}".strip("-") + f"-{digest}"
