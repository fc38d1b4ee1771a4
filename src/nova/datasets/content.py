"""Content: the numbers and labels of a data file, however it is packed, and their digest."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nova.model.errors import Fault, InvalidInput
from nova.model.reading import whole

NA = {"", "na", "nan", "null", "none"}
HEADS = {"", "node", "id", "name"}
"""What may stand above a column of labels."""


@dataclass(frozen=True)
class Content:
    """Labels and numbers: one square matrix, a stack of them, or a table of points; NaN where nothing stands."""

    labels: tuple[str, ...]
    values: npt.NDArray[np.float64]

    @property
    def digest(self) -> str:
        """SHA-256 of labels and numbers. Numbers count as 32-bit floats, which is how stacks are stored."""
        digest = hashlib.sha256("\n".join(self.labels).encode())
        plain = np.where(np.isnan(self.values), np.float32(np.nan), self.values.astype("<f4"))
        digest.update(str(plain.shape).encode())
        digest.update(np.ascontiguousarray(plain, dtype="<f4").tobytes())
        return digest.hexdigest()


def read_text(path: Path) -> str:
    """A text file, unpacked where it is gzipped."""
    raw = whole(path)
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return raw.decode("utf-8-sig")


def text_digest(paths: Sequence[Path]) -> str:
    """SHA-256 of the texts of files, one after the other, whatever their packing and line ends."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update("\n".join(read_text(path).split("\r\n")).encode())
    return digest.hexdigest()


def read_table(text: str, file: str, square: bool) -> Content:
    """A delimited table of numbers (comma, semicolon, tab or spaces), with or without a header and a label column.

    Without labels rows are named 0, 1, 2, …
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InvalidInput([Fault(file, "empty")])
    separator = next((s for s in (",", ";", "\t") if s in lines[0]), None)
    # tabs and spaces at the end of a line are padding; a comma there is an empty cell
    cells = [[cell.strip().strip('"') for cell in line.rstrip(" \t\r").split(separator)] for line in lines]
    header = cells[0][0].lower() in HEADS or not all(_is_number(cell) for cell in cells[0][1:])
    body = cells[1:] if header else cells
    width = len(body[0]) if body else 0
    labelled = (
        (square and width == len(body) + 1)
        or (bool(body) and not _is_number(body[0][0]))
        or (header and cells[0][0].lower() in HEADS)
    )
    first = 1 if labelled else 0
    faults = [
        Fault(file, "not a number", row + 1 + header, str(column), cell)
        for row, line in enumerate(body)
        for column, cell in enumerate(line)
        if column >= first and not _is_number(cell)
    ]
    ragged = [
        Fault(file, f"{width} columns expected", row + 1 + header)
        for row, line in enumerate(body)
        if len(line) != width
    ]
    if ragged or faults:
        raise InvalidInput(ragged or faults)
    values = np.array(
        [[np.nan if cell.lower() in NA else float(cell) for cell in line[first:]] for line in body], dtype=np.float64
    )
    if square and values.shape[0] != values.shape[1]:
        raise InvalidInput([Fault(file, f"a square matrix expected, found {values.shape[0]} × {values.shape[1]}")])
    labels = tuple(line[0] for line in body) if labelled else tuple(str(i) for i in range(len(body)))
    return Content(labels, values)


def read_nested(text: str, file: str) -> Content:
    """A matrix as JSON `{"data": {from: {to: ms}}}`, labels in alphabetic order."""
    try:
        data: dict[str, dict[str, float]] = json.loads(text)["data"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidInput([Fault(file, f"not a nested matrix: {error}")]) from None
    labels = tuple(sorted(data))
    values = np.array([[data[a].get(b, np.nan) for b in labels] for a in labels], dtype=np.float64)
    return Content(labels, values)


def read_stored(path: Path, square: bool) -> Content:
    """A file of the data folder: CSV with labels, or a numpy archive with `labels` and one numeric stack."""
    if path.suffix != ".npz":
        return read_table(read_text(path), str(path), square)
    with np.load(path) as archive:
        stacks = [name for name in archive.files if archive[name].ndim == 3]
        if len(stacks) != 1 or "labels" not in archive.files:
            raise InvalidInput([Fault(str(path), "one stack of matrices and `labels` expected", value=archive.files)])
        return Content(tuple(str(x) for x in archive["labels"]), archive[stacks[0]].astype(np.float64))


def write_stored(content: Content, path: Path) -> None:
    """Write in the layout of the data folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, labels=np.array(content.labels), rtt_ms=content.values.astype(np.float32))
        return
    square = content.values.shape[0] == content.values.shape[1]
    header = ",".join(["node", *(content.labels if square else "xyz"[: content.values.shape[1]])])
    rows = [
        ",".join([label, *("NA" if np.isnan(v) else repr(float(v)) for v in row)])
        for label, row in zip(content.labels, content.values, strict=True)
    ]
    raw = ("\n".join([header, *rows]) + "\n").encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def _is_number(cell: str) -> bool:
    if cell.lower() in NA:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True
