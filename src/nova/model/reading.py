"""Reading files that a program wrote: texts and JSON (tables: `tables.py`). Whatever is in them, the answer is their
content or `InvalidInput` with file, place and value. Without numeric libraries, so that a journal is read at once."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nova.model.errors import Fault, InvalidInput
from nova.model.ids import printable
from nova.model.limits import available_bytes, refuse_beyond

if TYPE_CHECKING:  # workers of Spark read tables and should not wait for it
    from pydantic import TypeAdapter

IN_MEMORY = 10
"""Bytes of memory that a byte of JSON may take once it is parsed."""
Noted = TypeVar("Noted")


def parse_json(text: str | bytes, file: str, what: str = "JSON") -> Any:
    """The value that a JSON text holds; what is no JSON, or nested without end, is told with its line. So is a name
    that stands twice in one object, and half a character (a lone surrogate), which JSON can write and nothing can
    print."""
    try:
        content = json.loads(text, object_pairs_hook=each_once)
        if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except json.JSONDecodeError as error:
        message = f"not {what}: {error.msg} at column {error.colno}"
        raise InvalidInput([Fault(file, message, error.lineno)]) from None
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        found = error.object[error.start : error.end]
        raise InvalidInput([Fault(file, f"not {what}: not UTF-8 text", row, value=found)]) from None
    except UnicodeEncodeError as error:
        value = error.object[error.start : error.end].encode("unicode_escape").decode()
        raise InvalidInput([Fault(file, f"not {what}: half a character", value=value)]) from None
    except Twice as error:
        raise InvalidInput([Fault(file, f"not {what}: {error}", field=error.name)]) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of brackets
        raise InvalidInput([Fault(file, f"not {what}: {error}")]) from None


class Twice(ValueError):
    """A name that stands twice in one object."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} stands twice in one object")
        self.name = name


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: the pairs of an object, whose names must differ."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise Twice(printable(twice))
    return mapping


def ordinary(path: Path) -> Path:
    """The same path, unless it is a device or a pipe that somebody made: reading it might never begin or never end. A
    pipe that the shell made (`<(…)`, `/dev/stdin`) is fine."""
    mode = path.stat().st_mode
    named = os.path.lexists(os.path.realpath(path))
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (stat.S_ISFIFO(mode) and named):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise InvalidInput([Fault(str(path), f"this is {kind}, not a file")])
    return path


def whole(path: Path) -> bytes:
    """All bytes of a file; one that does not fit into memory is refused before it is read."""
    refuse_beyond(str(path), "the file", ordinary(path).stat().st_size)
    try:
        return path.read_bytes()
    except OSError as error:
        error.filename = str(path)  # Python names the file only where it cannot be opened
        raise


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object that a JSON file holds. `what` is the file's kind in messages, such as `a plan`."""
    content = parse_json(read_bytes(path, what), str(path), what)
    if not isinstance(content, dict):
        raise InvalidInput([Fault(str(path), f"not {what}: a JSON object expected", 1, value=short(content))])
    return content


def recall(path: Path, kind: type[Noted], what: str = "a run") -> Noted:
    """What a program noted for itself in a JSON file, as a value of `kind`; `what` is who wrote it, in messages."""
    return noted(read_bytes(path, what), kind, str(path), what)


def noted(text: str | bytes, kind: type[Noted], file: str, what: str = "a run") -> Noted:
    """A JSON text as a value of `kind`: a dataclass, or a collection, whose types are checked all the way down."""
    from pydantic import ValidationError

    known: Any = kind
    try:
        value: Noted = _adapter(known).validate_json(text, strict=True)
        return value
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or None
        found = short(first["input"] if place else printable(str(first["input"])))
        raise InvalidInput([Fault(file, f"not what {what} wrote: {first['msg']}", field=place, value=found)]) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_bytes(path: Path, what: str) -> bytes:
    """A file's content; what cannot be read, or would not fit into memory as values, is told."""
    told = f"{what} of so many bytes"
    try:
        refuse_beyond(str(path), told, ordinary(path).stat().st_size * IN_MEMORY)
        most = available_bytes() // IN_MEMORY
        with path.open("rb") as file:  # a pipe does not say how long it is, and a file may grow
            content = file.read(most + 1)
        refuse_beyond(str(path), told, len(content) * IN_MEMORY)
        return content
    except FileNotFoundError:
        raise InvalidInput([Fault(str(path), f"no such file of {what}")]) from None
    except OSError as error:
        raise InvalidInput([Fault(str(path), f"cannot be read: {error.strerror}")]) from None


def read_text(path: Path, what: str) -> str:
    """A text file's content."""
    try:
        return read_bytes(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            [Fault(str(path), "not UTF-8 text", row, value=error.object[error.start : error.end])]
        ) from None


def short(value: object) -> object:
    """The value as an error shows it; a long one only by its beginning."""
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "…"
