"""Snapshot: all a controller knows, in one file that is checked as a whole. Thawed, it goes on bit by bit as before.

    file     8 s "NOVASNAP" · u16 version · u16 zero · u64 sequence number of the last event in it · 16 s id of the
             folder · u64 bytes of the tree · tree (JSON, padded to 16 bytes) · columns (each padded to 16 bytes) ·
             32 s BLAKE2b of all bytes before

The tree holds the fingerprint of `nova.controller.schema`, then objects by the names of their attributes, and says of
each column its type, shape and place. It can name only the classes listed here: reading a snapshot runs no code that
the file brings along.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nova.controller.controller import Controller
from nova.controller.join_rules import Rule
from nova.controller.measurements import Measurements
from nova.controller.names import Names
from nova.controller.schema import Records, fingerprint
from nova.controller.state import Backlog, State
from nova.journal.errors import Damaged
from nova.journal.files import write_whole
from nova.model.links import Link
from nova.model.metrics import Metric
from nova.model.operators import Estimate, Grouping, Output, Pipeline, Side
from nova.model.options import Options, Stability
from nova.model.problem import Derived, Key, Latency
from nova.model.reading import whole
from nova.model.requires import Requirement
from nova.placement.index import HostIndex

VERSION = 6
"""To be raised when attributes of the classes below change: an older snapshot then names what no longer fits. What rows
consist of is not counted here: the fingerprint of the schema stands in every snapshot."""
_BEGIN_ANEW = "Maybe begin a new folder from `current` in this one: it holds the plan and its scenario"
PATTERN = "snapshot-*.nova"
_HEAD = struct.Struct("<8sHHQ16sQ")
_MAGIC = b"NOVASNAP"
_DIGEST = 32
_ALIGN = 16
_CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        Controller,
        State,
        Backlog,
        Records,
        Names,
        Rule,
        Measurements,
        HostIndex,
        Latency,
        Options,
        Stability,
        Derived,
        Pipeline,
        Side,
        Grouping,
        Key,
        Link,
        Requirement,
        Output,
        Estimate,
        Metric,
    )
}
_LEFT_OUT = {("State", "_handle")}
"""What is worked out anew from the rest."""
_PLAIN = {str, int, float, bool, type(None)}
LONG = 64
"""Lists of so many texts or whole numbers become columns."""


def path_of(folder: Path, sequence: int) -> Path:
    """The file of the snapshot after the event with this number."""
    return folder / f"snapshot-{sequence:020d}.nova"


def sequence_of(path: Path) -> int:
    """The number of the last event in a snapshot, as its name says."""
    digits = path.stem.removeprefix("snapshot-")
    if not digits.isdigit():
        raise Damaged(path, 0, "header", "not the name of a snapshot file")
    return int(digits)


def paths(folder: Path) -> list[Path]:
    """The snapshots of a folder, the oldest first."""
    return sorted(folder.glob(PATTERN))


def write(folder: Path, sequence: int, identity: bytes, content: dict[str, Any]) -> Path:
    """Make a snapshot durable. `content` may hold a controller, and plain values beside it."""
    path = path_of(folder, sequence)
    write_whole(path, freeze(sequence, identity, content))
    return path


def read(path: Path, identity: bytes) -> dict[str, Any]:
    """The content of a snapshot, with its controller thawed. Raises `Damaged` where a byte is not as it was."""
    data = whole(path)
    tree, start = _opened(path, data, identity)
    return {name: _thaw(value, data, start) for name, value in tree.items()}


def freeze(sequence: int, identity: bytes, content: dict[str, Any]) -> list[bytes | memoryview]:
    """The parts of a snapshot file."""
    columns: list[npt.NDArray[Any]] = []
    freezer = _Freezer(columns)
    frozen = {"schema": fingerprint()} | {name: freezer.freeze(value, name) for name, value in content.items()}
    tree = json.dumps(frozen, ensure_ascii=False).encode()
    tree += b" " * (-(_HEAD.size + len(tree)) % _ALIGN)
    parts: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, VERSION, 0, sequence, identity, len(tree)), tree]
    for column in columns:
        parts += [np.ascontiguousarray(column).reshape(-1).view(np.uint8).data, bytes(_padding(column.nbytes))]
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()]


def _padding(size: int) -> int:
    return -size % _ALIGN


def _opened(path: Path, data: bytes, identity: bytes) -> tuple[dict[str, Any], int]:
    """The tree of a snapshot, and where its columns begin."""
    if len(data) < _HEAD.size + _DIGEST:
        raise Damaged(path, len(data), "header", "the snapshot is cut short")
    view = memoryview(data)
    if hashlib.blake2b(view[:-_DIGEST], digest_size=_DIGEST).digest() != view[-_DIGEST:]:
        raise Damaged(path, 0, "snapshot", "the checksum does not match")
    magic, version, _, sequence, folder, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise Damaged(path, 0, "header", "not a snapshot")
    if version != VERSION:
        raise Damaged(
            path,
            8,
            "header",
            f"snapshot format {version}, this version reads {VERSION}. {_BEGIN_ANEW}",
        )
    if folder != identity:
        raise Damaged(path, 20, "header", "the file belongs to another folder of events")
    if sequence != sequence_of(path):
        raise Damaged(path, 12, "header", f"holds events up to {sequence}, its name says {sequence_of(path)}")
    start = _HEAD.size + length
    tree = json.loads(data[_HEAD.size : start])
    if tree.pop("schema", None) != fingerprint():
        raise Damaged(path, _HEAD.size, "schema", f"this version holds its state otherwise. {_BEGIN_ANEW}")
    return tree, start


class _Freezer:
    """Turns values into a tree for JSON; columns go into an empty list beside it."""

    def __init__(self, columns: list[npt.NDArray[Any]]) -> None:
        self.columns = columns
        self.at = 0

    def freeze(self, value: Any, where: str) -> Any:
        """A plain value as itself, all else as an object with one key that says what it is."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is np.ndarray:
            return {"array": self._column(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._column(np.array([value]))}
        if kind in (list, tuple, set):
            items = sorted(value) if kind is set else value
            kinds = set(map(type, items))
            if kind is list and len(items) >= LONG and kinds in ({str}, {int}):
                return {"long list": self._long(value)}
            if kinds <= _PLAIN:
                return {f"plain {kind.__name__}": list(items)}
            return {kind.__name__: [self.freeze(item, f"{where}[{i}]") for i, item in enumerate(items)]}
        if kind is dict:
            if set(map(type, value)) <= {str}:
                kinds = set(map(type, value.values()))
                if len(value) >= LONG and kinds == {int}:
                    return {"long dict": [self._long(list(value)), self._long(list(value.values()))]}
                if kinds <= _PLAIN:
                    return {"plain dict": value}
                return {"names": {key: self.freeze(item, f"{where}[{key!r}]") for key, item in value.items()}}
            return {
                "dict": [
                    [self.freeze(key, where), self.freeze(item, f"{where}[{key!r}]")] for key, item in value.items()
                ]
            }
        if _CLASSES.get(kind.__name__) is kind:
            return {
                "object": [
                    kind.__name__,
                    {
                        name: self.freeze(item, f"{where}.{name}")
                        for name, item in _attributes(value).items()
                        if (kind.__name__, name) not in _LEFT_OUT
                    },
                ]
            }
        raise TypeError(f"{where}: a snapshot cannot hold a {kind.__module__}.{kind.__qualname__}")

    def _long(self, items: list[Any]) -> list[Any]:
        """Many texts or whole numbers, as a column: a million of them in JSON take seconds."""
        if type(items[0]) is int:
            return ["numbers", self._column(np.array(items, np.int64))]
        text = "\0".join(items)
        if text.count("\0") != len(items) - 1:
            return ["json", items]  # one of them has the separator in it
        return ["texts", self._column(np.frombuffer(text.encode(), np.uint8))]

    def _column(self, column: npt.NDArray[Any]) -> list[Any]:
        self.columns.append(column)
        at = self.at
        self.at += column.nbytes + _padding(column.nbytes)
        return [np.lib.format.dtype_to_descr(column.dtype), list(column.shape), at]


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, whether it has a dictionary or slots."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {name: getattr(value, name) for name in type(value).__slots__}


def _thaw(value: Any, data: bytes, start: int) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "array":
            return _column_of(content, data, start)
        case "scalar":
            return _column_of(content, data, start)[0]
        case "long list":
            return _long_of(content, data, start)
        case "long dict":
            keys, items = (_long_of(part, data, start) for part in content)
            return dict(zip(keys, items, strict=True))
        case "plain list" | "plain dict":
            return content
        case "plain tuple":
            return tuple(content)
        case "plain set":
            return set(content)
        case "list":
            return [_thaw(item, data, start) for item in content]
        case "tuple":
            return tuple(_thaw(item, data, start) for item in content)
        case "set":
            return {_thaw(item, data, start) for item in content}
        case "names":
            return {key: _thaw(item, data, start) for key, item in content.items()}
        case "dict":
            return {_thaw(key, data, start): _thaw(item, data, start) for key, item in content}
        case "object":
            cls = _CLASSES[content[0]]
            made = cls.__new__(cls)
            for owner, name in _LEFT_OUT:
                if owner == content[0]:
                    object.__setattr__(made, name, None)
            for name, item in content[1].items():
                object.__setattr__(made, name, _thaw(item, data, start))
            return made
    raise ValueError(f"a snapshot holds no {kind}")


def _long_of(content: list[Any], data: bytes, start: int) -> list[Any]:
    how, where = content
    match how:
        case "numbers":
            return list(_column_of(where, data, start).tolist())
        case "texts":
            return _column_of(where, data, start).tobytes().decode().split("\0")
        case "json":
            return list(where)
    raise ValueError(f"a snapshot holds no {how}")


def _column_of(content: list[Any], data: bytes, start: int) -> npt.NDArray[Any]:
    """A column of its own, which may be written to."""
    kind, shape, at = content
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, _kind_of(kind), count, start + at).reshape(shape).copy()


def _kind_of(description: Any) -> np.dtype[Any]:
    """The type of a column, whose rows may be records; JSON made lists of the tuples in it."""
    if isinstance(description, str):
        return np.dtype(description)
    return np.lib.format.descr_to_dtype([(field[0], *field[1:2], *map(tuple, field[2:])) for field in description])
