"""Dialects of CSV: what can be read without guessing is read; the rest is told with the fix.

Spreadsheets write semicolons where commas are decimal, tabs, UTF-16 with its mark. All of that says itself at the
beginning of a file.
"""

from __future__ import annotations

import gzip
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nova.model.limits import available_bytes, refuse_beyond
from nova.model.reading import ordinary

HEAD = 1 << 16
"""Bytes of a file that its dialect is told by."""
DEFLATE = 1032
"""No gzip file unpacks to more than this many times its size."""
IN_MEMORY = 3.0
"""Bytes of memory that a byte of CSV takes at most while it is read."""
_COMMA = r"^\s*[-+]?[0-9]+,[0-9]+([eE][-+]?[0-9]+)?\s*[^0-9.,\s]*[^.,]*$"
_NOT_THOUSANDS = r"^\s*[-+]?(?:[0-9]{4,}|0[0-9]*),|^\s*[-+]?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})(?:[^0-9]|$)"
_POINT = r"^\s*[-+]?[0-9]*\.[0-9]*([eE][-+]?[0-9]+)?\s*([^0-9.,\s][^.,]*)?$"
_LIKE_THOUSANDS = r"^\s*[-+]?[1-9][0-9]{0,2}\.[0-9]{3}\s*([^0-9.,\seE][^.,]*)?$"
_UNIT = r"(?:[eE][-+]?[0-9]+)?\s*(?:[^0-9.,\s][^.,]*)?$"
_SPACED = r"^\s*[-+]?[0-9]{1,3}(?:[ \x{a0}\x{202f}'\x{2019}][0-9]{3})+(?:[.,][0-9]*)?" + _UNIT
_GAPS = r"([0-9])[ \x{a0}\x{202f}'\x{2019}]([0-9]{3})"


@dataclass(frozen=True)
class Dialect:
    """How the text of a CSV file is written."""

    encoding: str = "utf-8-sig"
    delimiter: str = ","

    @property
    def plain(self) -> bool:
        """Whether Arrow's reader takes the file as it is."""
        return self.encoding == "utf-8-sig"


def dialect_of(path: Path) -> Dialect:
    """The dialect of a file: UTF-16 by its mark, semicolons or tabs where the header has them and no comma."""
    with opened(path) as file:
        head: bytes = file.read(HEAD)
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = head[: len(head) & ~1].decode(encoding, "replace")
    header = next((line for line in text.splitlines() if line.strip()), "")
    header = re.sub(r'"[^"]*"', "", header)
    found = [mark for mark in ",;\t" if mark in header]
    return Dialect(encoding, found[0] if len(found) == 1 else ",")


def opened(path: Path) -> Any:
    """The bytes of a file, unpacked where it is gzipped."""
    return gzip.open(ordinary(path), "rb") if path.name.lower().endswith(".gz") else ordinary(path).open("rb")


def text_of(path: Path, dialect: Dialect) -> Any:
    """The text of a file, line ends as they are."""
    return io.TextIOWrapper(opened(path), encoding=dialect.encoding, newline="")


def refuse_large(path: Path) -> None:
    """Refuse a table that would not fit into memory, before it is unpacked there."""
    size = ordinary(path).stat().st_size
    if path.name.lower().endswith(".gz") and size * DEFLATE * IN_MEMORY > available_bytes():
        most, size = int(available_bytes() / IN_MEMORY), 0
        with gzip.open(path, "rb") as file:
            while size <= most and (piece := file.read(1 << 22)):
                size += len(piece)
    refuse_beyond(str(path), "the table", size * IN_MEMORY)


def without_thousands(texts: pa.StringArray) -> pa.StringArray:
    """A column of numbers without marks between thousands: 1 200 and 1'200 are 1200; where a cell has points and commas
    (1.200,5), one of them twice (1,200,000), or one that can only part decimals (0,5), it says for all of its column
    which of them parts thousands. The same array where none does, or where cells contradict each other."""
    spaced = pc.match_substring_regex(texts, _SPACED).fill_null(False)
    if pc.any(spaced).as_py():
        closed = texts
        for _ in range(2):  # groups that touch each other
            closed = pc.replace_substring_regex(closed, _GAPS, r"\1\2")
        texts = pc.if_else(spaced, closed, texts)
    said = [mark for mark in ".," if pc.any(_parts_thousands(texts, mark)).as_py()]
    if len(said) != 1 or not pc.any(pc.match_substring(texts, said[0])).as_py():
        return texts
    (mark,) = said
    other = "," if mark == "." else "."
    grouped = pc.match_substring_regex(texts, _grouped(mark, sure=False))
    marked = pc.match_substring(texts, mark)
    if not pc.all(pc.or_(grouped, pc.invert(marked)).fill_null(True)).as_py():
        return texts
    plain = pc.replace_substring(pc.replace_substring(texts, mark, ""), other, ".")
    numbers = pc.match_substring_regex(texts, r"^\s*[-+]?[0-9][0-9.,]*" + _UNIT)
    return pc.if_else(numbers, plain, texts)


def _parts_thousands(texts: pa.StringArray, mark: str) -> pa.BooleanArray:
    """Cells that say that a mark parts thousands, or that the other one parts decimals."""
    grouped = pc.match_substring_regex(texts, _grouped(mark, sure=True))
    if mark == ".":
        decimal = pc.and_(pc.match_substring_regex(texts, _COMMA), pc.match_substring_regex(texts, _NOT_THOUSANDS))
    else:
        like_thousands = pc.match_substring_regex(texts, _LIKE_THOUSANDS)
        pointed = pc.and_(pc.match_substring_regex(texts, _POINT), pc.match_substring(texts, "."))
        decimal = pc.and_not(pointed, like_thousands)
    return pc.or_(grouped, decimal).fill_null(False)


def _grouped(mark: str, sure: bool) -> str:
    """Numbers whose thousands are parted by a mark; `sure`: no other way to read them."""
    part, other = re.escape(mark), re.escape("," if mark == "." else ".")
    groups = rf"^\s*[-+]?[0-9]{{1,3}}(?:{part}[0-9]{{3}})"
    if sure:
        return rf"(?:{groups}+{other}[0-9]*|{groups}{{2,}}){_UNIT}"
    return rf"{groups}+(?:{other}[0-9]*)?{_UNIT}"


def decimal_commas(texts: pa.StringArray) -> pa.StringArray:
    """A column of numbers with decimal commas, such as 1,5, with points instead. Left as it is where it has none, where
    points occur too, or where every comma might part thousands: 1,500 may be two things."""
    commas = pc.match_substring_regex(texts, _COMMA).fill_null(False)
    if not pc.any(commas).as_py():
        return texts
    sure = pc.any(pc.match_substring_regex(texts.filter(commas), _NOT_THOUSANDS)).as_py()
    points = pc.any(pc.match_substring(texts, ".")).as_py()
    if not sure or points:
        return texts
    return pc.if_else(commas, pc.replace_substring(texts, ",", "."), texts)


def unsure_points(texts: pa.StringArray) -> pa.BooleanArray:
    """Cells of a semicolon file whose point may part decimals or thousands, such as 4.000: who writes semicolons often
    writes decimal commas. None of them where one cell of the column has a point that is sure to be decimal."""
    like_thousands = pc.match_substring_regex(texts, _LIKE_THOUSANDS).fill_null(False)
    sure = pc.and_not(pc.match_substring_regex(texts, _POINT).fill_null(False), like_thousands)
    return pc.and_(like_thousands, not pc.any(sure).as_py())


def comma_hint(text: str) -> str | None:
    """What to do about a cell with a comma that was not taken as a number."""
    if not re.match(r"^\s*[-+]?[0-9][0-9.,\s']*,", text):
        return None
    return "a comma may part decimals or thousands: write 1.5, or 1500"


POINT_HINT = (
    "between semicolons a point may part decimals or thousands: write 4, 4.0 or 4000, or part the cells with commas"
)
"""What to do about a cell of `unsure_points`."""
