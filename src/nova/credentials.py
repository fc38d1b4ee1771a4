"""Secrets by reference: `${NAME}` is an environment variable, `${file:PATH}` the content of a file.

Addresses and options may hold such references wherever they are written: scenarios, `site.json`, the command line.
They are looked up by the process that needs them and by nobody else, so that a password stands in no file of Nova's,
no list of processes and no log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from nova.model.errors import Fault, InvalidInput
from nova.model.reading import whole

REFERENCE = re.compile(r"\$\{(file:)?([^}]+)\}")


def resolved(text: str, place: str) -> str:
    """The text with what its references stand for."""

    def look_up(found: re.Match[str]) -> str:
        name = found[2]
        if found[1] is None:
            if name not in os.environ:
                raise InvalidInput([Fault(place, "no such environment variable", value=f"${{{name}}}")])
            return os.environ[name]
        try:
            return whole(Path(name).expanduser()).decode().rstrip("\r\n")
        except InvalidInput as error:
            raise InvalidInput([Fault(place, error.faults[0].message, value=f"${{file:{name}}}")]) from None
        except (OSError, ValueError, RuntimeError) as error:  # not UTF-8; no such user's ~
            why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise InvalidInput([Fault(place, f"cannot be read ({why})", value=f"${{file:{name}}}")]) from None

    return REFERENCE.sub(look_up, text)


def resolved_all(options: Mapping[str, str], place: str) -> dict[str, str]:
    """Options with what their references stand for."""
    return {name: resolved(value, f"{place}.{name}") for name, value in options.items()}


def variables(*texts: str) -> list[str]:
    """Names of the environment variables that texts refer to, each once."""
    return sorted({found[2] for text in texts for found in REFERENCE.finditer(text) if found[1] is None})


def files(*texts: str) -> list[str]:
    """Paths of the files that texts refer to, each once."""
    return sorted({found[2] for text in texts for found in REFERENCE.finditer(text) if found[1] is not None})


def shown(address: str) -> str:
    """An address without its password, for messages; one that is only referred to may be shown."""
    parts = urlsplit(address)
    if parts.password is None or REFERENCE.fullmatch(parts.password):
        return address
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:…@{place}"))
