"""Lines: where in the text files of a stream a tuple stands, which Spark does not tell.

Spark keeps the text of a record only where it does not fit the columns. Of one that fits but cannot be used (nobody
knows its source, it has none, its time is none) it tells the values, so the line is found by them. Only files with dead
letters are looked through, once for all of them.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from nova.scenario.model import StreamInput
from nova.spark.dead_letters import RECORD_CHARS, Letter

TRIED = 50
"""Letters of one source that a line is compared with: in order of the file, the first fits."""


@dataclass(frozen=True)
class Lines:
    """How the text files of a stream are written."""

    format: str
    names: tuple[str, ...]
    """Their columns in order."""
    roles: Mapping[str, str]
    """The columns of the files that are a tuple's source, time and value."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Spark's, in lower case."""

    @classmethod
    def of(cls, given: StreamInput, names: Sequence[str]) -> Lines:
        """Those of an input."""
        roles = {"source": given.columns.source, "time": given.columns.time, "value": given.columns.value}
        options = {name.lower(): str(value) for name, value in given.options.items()}
        return cls(given.format, tuple(names), roles, options)

    def named(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a tuple by the columns of the files."""
        return {name: value for key, value in told.items() if (name := self.roles.get(key, key)) in self.names}

    def _on(self, option: str, usual: bool) -> bool:
        return self.options.get(option.lower(), str(usual)).lower() == "true"

    def records(self, file: Path) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        """Line, text and cells of each record; without cells where it is not what the format says."""
        encoding = self.options.get("encoding", self.options.get("charset", "utf-8"))
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            lines = io.TextIOWrapper(opened, encoding, errors="replace")
            if self.format == "csv":
                yield from self._rows(lines)
            elif not self._on("multiLine", False):
                for number, line in enumerate(lines, 1):
                    yield number, line.rstrip("\n"), _document(line)

    def _rows(self, lines: Iterable[str]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        read: list[str] = []

        def noted() -> Iterator[str]:
            for line in lines:
                read.append(line)
                yield line

        several = self._on("multiLine", False)
        stream = noted()
        whole = self._cells(stream) if several else None
        number = 1
        while True:
            read.clear()
            if whole is not None:
                cells = next(whole, None)
            else:
                line = next(stream, None)
                cells = None if line is None else next(self._cells([line]), [])
            if not read:
                return
            if cells is not None and not (number == 1 and self._on("header", True)):
                yield number, "".join(read).rstrip("\n"), dict(zip(self.names, cells, strict=False))
            number += len(read)

    def _cells(self, lines: Iterable[str]) -> Iterator[list[str]]:
        dialect = {
            "delimiter": self.options.get("sep", self.options.get("delimiter", ",")),
            "quotechar": self.options.get("quote", '"'),
            "escapechar": self.options.get("escape", "\\"),
        }
        try:
            if dialect["escapechar"] == dialect["quotechar"]:
                del dialect["escapechar"]
            reader = csv.reader(lines, **dialect)  # type: ignore[arg-type]
            yield from reader
        except (csv.Error, TypeError):  # a dialect, or an endless cell, that only Spark reads
            return


def located(letters: Iterable[Letter], written: Mapping[str, Lines]) -> list[Letter]:
    """The letters with line and text as they stand in their files. `written`: how the files of streams are written."""
    kept = list(letters)
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, letter in enumerate(kept):
        if letter.line is None and letter.record and letter.file and letter.file.startswith("file:"):
            wanted[letter.file, letter.stream].append(at)
    for (uri, stream), places in wanted.items():
        if stream not in written:
            continue
        lines, file = written[stream], Path(unquote(urlsplit(uri).path))
        by_text: dict[str, list[int]] = defaultdict(list)
        by_source: dict[str, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
        for at in reversed(places):  # the first of the file at the end, to be taken first
            record = kept[at].record or ""
            by_text[record].append(at)
            told = lines.named(_document(record))
            if told:
                by_source[_plain(told.get(lines.roles["source"]))].append((at, told))
        open_ = set(places)
        try:
            for number, text, cells in lines.records(file):
                if not open_:
                    break
                found = _taken(by_text.get(text[:RECORD_CHARS]), open_)
                if found is None and cells:
                    found = _fitting(by_source.get(_plain(cells.get(lines.roles["source"]))), cells, open_)
                if found is not None:
                    open_.discard(found)
                    kept[found] = kept[found]._replace(line=number, record=text[:RECORD_CHARS])
        except (OSError, EOFError, zlib.error, LookupError):  # gone, moved or cut since: its name has to do
            continue
    return kept


def _taken(places: list[int] | None, open_: set[int]) -> int | None:
    """The first letter of some that has no line yet."""
    while places:
        at = places.pop()
        if at in open_:
            return at
    return None


def _fitting(some: list[tuple[int, Mapping[str, Any]]] | None, cells: Mapping[str, Any], open_: set[int]) -> int | None:
    """The first letter of some that has no line yet and is of these cells."""
    while some and some[-1][0] not in open_:
        some.pop()
    for at, told in (some or [])[: -TRIED - 1 : -1]:
        if at in open_ and all(_same(value, cells.get(name)) for name, value in told.items() if value is not None):
            return at
    return None


def _same(told: Any, cell: Any) -> bool:
    """Whether a value as Spark has it may come from a cell."""
    if told == cell or isinstance(cell, dict | list):
        return True
    if cell is None or _plain(told) == _plain(cell):
        return cell is not None
    moment = _moment(told)
    return moment is not None and _moment(cell) in (moment, None)  # else in a format that only Spark is told of


def _plain(value: Any) -> str:
    """A value in the same words, whether it was read as a number or as text."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return str(value).strip()


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _document(text: str) -> dict[str, Any]:
    """The fields of a JSON object; none where it is not one."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
