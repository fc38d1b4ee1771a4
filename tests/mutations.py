"""Mutations for fuzzing: damaged bytes, texts, JSON documents and Parquet tables, drawn from a random generator."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import os
import random
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKENS = (
    b",", b";", b"\n", b"\r\n", b'"', b"'", b"\x00", b"\xff\xfe", b"\xc3\x28", b"{", b"}", b"[", b"]", b":", b"- ",
    b"#", b"&a ", b"*a", b"<<: ", b"!!int ", b"!!binary ", b"\t", b"nan", b"NaN", b"inf", b"-inf", b"-1", b"1e999",
    b"1e-320", b"1e308", b"null", b"~", b"true", b"9" * 5000, b"[" * 3000, b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"0x10",
    b"1,5", b"1s", b"id", b"x", b"rtt_ms", b"edge1", b"hq", b"p1", b"..", b"\\", b"\x1b[2J", b"\xf0\x9f\xa6\x8a",
    b"1_000", "\u0661\u0662".encode(), b"-0", b"1e400000", b"0." + b"0" * 400 + b"1", b"9" * 20,
    b"\x00" * 64, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x0c", b"\x1a", b"\\u0000", b"${HOME}",
    b"${file:/dev/zero}", b"~nobody/x",
    b" " * 20, b"[" * 100_000, b"{a: " * 50_000, b"- " * 50_000, b"1" * 400 + b".5", b"\x1f\x8b\x08\x00", b"PK\x03\x04",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), "", " ",
    "a", "edge1", "hq", "nan", "-1", "1e999", "5 ms", "1s", "1,5", "\x00", "\n", "\ud800", "x" * 5000, [], [1], [[]],
    ["edge1"], [None], {}, {"a": 1}, {"id": "edge1"}, [{}], "2024-01-01", "0001-01-01T00:00:00+23:00", "🦊",
)  # fmt: skip


def damaged_bytes(content: bytes, dice: random.Random) -> bytes:
    """Bits flipped, pieces cut, repeated, or put in."""
    raw = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(raw) + 1)
        kind = dice.randrange(6)
        if kind == 0 and raw:
            raw[at % len(raw)] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del raw[at : at + dice.choice((1, 2, 8, 64))]
        elif kind == 2:
            raw[at:at] = dice.choice(TOKENS)
        elif kind == 3:
            raw[at:at] = raw[at : at + dice.choice((4, 32))]
        elif kind == 4 and raw:
            raw[at % len(raw)] = dice.randrange(256)
        elif dice.random() < 0.2:
            del raw[at:]
    return bytes(raw)


def damaged_json(content: bytes, dice: random.Random) -> bytes:
    """The document (or one of its lines) with a value replaced, taken away, or put under another name."""
    lines = content.decode().splitlines()
    try:
        documents = [json.loads(content)]
        lines = []
    except ValueError:
        documents = [json.loads(line) for line in lines]
    spot: Any = documents
    for _ in range(12):
        key = dice.choice(sorted(spot)) if isinstance(spot, dict) else dice.randrange(len(spot))
        if not isinstance(spot[key], dict | list) or not spot[key] or dice.random() < 0.25:
            break
        spot = spot[key]
    kind = dice.randrange(7)
    if kind == 5 and isinstance(spot, dict):  # the same name twice
        spot[MARK] = spot[key]
        return _written(documents, lines).replace(json.dumps(MARK), json.dumps(key)).encode()
    if kind == 6:
        spot[key] = MARK
        deep = dice.choice(('{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "[" * 300 + "]" * 300, "1" * 5000))
        return _written(documents, lines).replace(json.dumps(MARK), deep).encode()
    if kind == 0 and spot is not documents:
        del spot[key]
    elif kind == 1 and isinstance(spot, dict):
        spot[dice.choice(("a", "nova", "id", key.upper()))] = spot.pop(key)
    elif kind == 2 and isinstance(spot, list):
        spot.append(copy.deepcopy(spot[key]))
    else:
        spot[key] = dice.choice(VALUES)
    return _written(documents, lines).encode()


MARK = "where something else will stand"


def _written(documents: list[Any], lines: list[str]) -> str:
    return "\n".join(json.dumps(one) for one in documents) if lines else json.dumps(documents[0])


CELLS = (
    "", "  ", "nan", "inf", "1e309", "-0", "1e-400", "9" * 400, "0x1p3", "1_0", "\u0661", "½", "1\u202f000", "1'000",
    "50%", "1/2", "5/s", "-5/s", "5ms/s", "=1+1", "yes", "edge1 ", "EDGE1", "e\u0301", '"', '""', "a\nb", "\x1a",
    "\ufeff", "#", "a" * 70_000, "N/A", "2024-01-01", ";", "\t", "1.5.5", "--1", "(5)", "5-", "$5", "\u200b",
)  # fmt: skip


def damaged_cells(content: bytes, dice: random.Random) -> bytes:
    """The table with cells replaced, put in or taken out, rows repeated, and written as another program would."""
    text = content.decode(errors="replace")
    first = text.split("\n", 1)[0]
    rows = list(csv.reader(io.StringIO(text), delimiter=";" if first.count(";") > first.count(",") else ","))
    for _ in range(dice.choice((1, 1, 2, 4))):
        row, kind = dice.choice(rows), dice.randrange(4)
        if kind == 0 or not row:
            row.insert(dice.randrange(len(row) + 1), dice.choice(CELLS))
        elif kind == 1:
            row.pop(dice.randrange(len(row)))
        elif kind == 2:
            rows.insert(dice.randrange(len(rows) + 1), list(row))
        else:
            row[dice.randrange(len(row))] = dice.choice(CELLS)
    out = io.StringIO()
    ends, quotes = dice.choice(("\n", "\r\n", "\r")), dice.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    csv.writer(out, delimiter=dice.choice(",,;\t|"), lineterminator=ends, quoting=quotes).writerows(rows)
    return out.getvalue().encode(dice.choice(("utf-8", "utf-8-sig", "utf-16", "cp1252")), "replace")


NUMBERS = (None, -1.0, 0.0, 0.5, 1 - 1e-9, 1 + 1e-12, 2.0, 1e300, float("nan"), float("inf"), -(2.0**31))
WORDS = (None, "", "edge1", "h1", "zz", "p1" * 9999, "\x00")


def damaged_values(table: pa.Table, column: int, dice: random.Random) -> pa.Table:
    """Some values of a column replaced by others of its type, or all in another order."""
    values, field = table.column(column).to_pylist(), table.schema.field(column)
    if values and dice.random() < 0.7:
        texts = pa.types.is_string(field.type)
        values[dice.randrange(len(values))] = dice.choice(WORDS if texts else NUMBERS)
    else:
        dice.shuffle(values)
    try:
        return table.set_column(column, field.name, pa.array(values, field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # an integer column takes no fraction
        return table.set_column(column, field.name, pa.array(values))


COLUMNS: tuple[Any, ...] = (
    lambda n: pa.nulls(n),
    lambda n: pa.array(["a"] * n),
    lambda n: pa.array([None, *["edge1"] * (n - 1)][:n], pa.string()),
    lambda n: pa.array([b"\xff"] * n, pa.binary()),
    lambda n: pa.array([[1]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array([True] * n),
    lambda n: pa.array([2**62] * n),
    lambda n: pa.array([-1] * n, pa.int8()),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([float("inf")] * n),
    lambda n: pa.array([1e-320] * n),
    lambda n: pa.array([1e308] * n),
    lambda n: pa.array(["edge1"] * n).dictionary_encode(),
    lambda n: pa.array(["1.5"] * n, pa.large_string()),
    lambda n: pa.array(["1.5"] * n, pa.string_view()),
    lambda n: pa.array(np.ones(n, np.float16)),
    lambda n: pa.array([0] * n).cast(pa.timestamp("us")),
    lambda n: pa.array([1] * n).cast(pa.decimal128(30, 2)),
    lambda n: pa.Array.from_buffers(pa.string(), n, [None, *_not_utf8(n)]),
)


def _not_utf8(n: int) -> list[pa.Buffer]:
    return [pa.py_buffer(np.arange(n + 1, dtype=np.int32).tobytes()), pa.py_buffer(b"\xff" * n)]


def damaged_parquet(content: bytes, dice: random.Random) -> bytes:
    """The file with its bytes damaged, or the table with a column dropped, renamed, doubled or of another kind, or with
    rows lost or repeated."""
    if dice.random() < 0.3:
        return damaged_bytes(content, dice)
    table = pq.read_table(io.BytesIO(content))
    kind, column = dice.randrange(8), dice.randrange(table.num_columns)
    if kind > 5:
        table = damaged_values(table, column, dice)
    elif kind == 0:
        table = table.remove_column(column)
    elif kind == 1:
        names = table.column_names
        names[column] = dice.choice(("a", "id", names[column].upper(), names[0], ""))
        table = table.rename_columns(names)
    elif kind == 2:
        rows = [dice.randrange(len(table)) for _ in range(dice.randrange(len(table) + 2))] if len(table) else []
        table = table.take(pa.array(rows, pa.int64()))
    else:
        made = dice.choice(COLUMNS)(len(table))
        table = table.set_column(column, table.column_names[column], made)
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def another_encoding(content: bytes, dice: random.Random) -> bytes:
    """The text as other programs save it, or packed."""
    text = content.decode(errors="replace")
    return dice.choice(
        (
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32"),
            lambda: b"\xef\xbb\xbf" + content,
            lambda: text.encode("latin-1", "replace"),
            lambda: text.replace("\n", "\r").encode(),
            lambda: text.replace("\n", "\r\n").encode(),
            lambda: gzip.compress(content),
            lambda: bytes(len(content)),
            lambda: content * 2,
        )
    )()


def half_characters(content: bytes, dice: random.Random) -> bytes:
    """UTF-16 that is none: half a unit at its end, or half of a pair of units in it."""
    raw = bytearray(content.decode(errors="replace").encode("utf-16-le"))
    if dice.random() < 0.5:
        at = 2 * dice.randrange(len(raw) // 2 + 1)
        raw[at:at] = dice.choice((b"\x00\xd8", b"\x00\xdc", b"\xff\xff"))
    else:
        del raw[-1:]
    return dice.choice((b"\xff\xfe", b"")) + bytes(raw)


def packed_badly(content: bytes, dice: random.Random) -> bytes:
    """Packed by gzip or zip, and cut, wrong in its checksum, or with more behind it."""
    if dice.random() < 0.7:
        packed = gzip.compress(content, mtime=0)
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("content", content)
        packed = out.getvalue()
    at = dice.randrange(1, len(packed))
    return dice.choice(
        (
            packed[:at],
            packed[:-4],
            packed[:-8] + bytes(8),
            packed + packed[:at],
            packed + content,
            packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :],
        )
    )


def lying_parquet(content: bytes, dice: random.Random) -> bytes:
    """A Parquet file whose end is cut off, or says another length of what stands before it."""
    length = int.from_bytes(content[-8:-4], "little")
    told = dice.choice((0, 1, length - 1, length + 1, len(content), 2**31 - 1, 2**31, 2**32 - 1))
    return dice.choice(
        (
            content[: -dice.randrange(1, 12)],
            content[: max(4, len(content) - 8 - dice.randrange(length + 1))],
            content[:-8] + told.to_bytes(4, "little") + b"PAR1",
            content[:-4] + b"PARE",
            b"PAR1" + content[-8:],
            b"PAR1PAR1",
        )
    )


def something_else(path: Path, dice: random.Random) -> bytes:
    """What belongs into another file: one of those around it, or the beginning of what other programs write."""
    beside = [
        other.read_bytes()
        for other in sorted(path.parent.iterdir())
        if other.is_file() and other.stat().st_size < 2**20
    ]
    strange = (
        b"%PDF-1.7\n", b"\x89PNG\r\n\x1a\n", b"SQLite format 3\x00", b"\x7fELF\x02\x01\x01", b"<!DOCTYPE html>\n<html>",
        b"PK\x05\x06" + bytes(18), b"ORC", b"Obj\x01", b"ARROW1\x00\x00", b"BZh91AY&SY", b"\xfd7zXZ\x00",
        b"\x28\xb5\x2f\xfd",
    )  # fmt: skip
    return dice.choice([*beside, *strange])


def put_in_place(path: Path, dice: random.Random) -> None:
    """Something that is no file, a link that leads nowhere, in a circle or up, a file of a terabyte of nothing."""
    path.unlink()
    dice.choice(
        (
            lambda: path.mkdir(),
            lambda: path.symlink_to(path.name),
            lambda: (path.symlink_to("round"), path.with_name("round").symlink_to(path.name)),
            lambda: path.symlink_to("."),
            lambda: path.symlink_to("x" * 300),
            lambda: path.symlink_to("/dev/null"),
            lambda: path.symlink_to("/dev/zero"),
            lambda: path.symlink_to("/proc/self/mem"),
            lambda: os.mkfifo(path),
            lambda: _socket(path),
            lambda: (path.touch(), os.truncate(path, 2**40)),
        )
    )()


def _socket(path: Path) -> None:
    beside = os.open(path.parent, os.O_PATH)  # the path itself may be longer than a socket's may be
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{beside}/{path.name}")
    finally:
        os.close(beside)


def damage(path: Path, dice: random.Random) -> None:
    """Damage a file, or put something else in its place."""
    kind = dice.random()
    if kind < 0.06:
        put_in_place(path, dice)
    elif kind < 0.07:
        path.write_bytes(b"")
    elif kind < 0.10:
        path.write_bytes(something_else(path, dice))
    else:
        content = path.read_bytes()
        if kind < 0.14:
            content = another_encoding(content, dice)
        elif kind < 0.16:
            content = half_characters(content, dice)
        elif kind < 0.18:
            content = packed_badly(content, dice)
        elif kind < 0.22 and path.suffix == ".parquet":
            content = lying_parquet(content, dice)
        else:
            content = damaged(path.name, content, dice)
        path.write_bytes(content)


def damaged(name: str, content: bytes, dice: random.Random) -> bytes:
    """A damaged version of a file, in the way that its name suggests."""
    if name.endswith(".parquet"):
        return damaged_parquet(content, dice)
    if name.endswith((".json", ".jsonl", ".geojson")) and dice.random() < 0.7:
        return damaged_json(content, dice)
    if name.endswith(".csv") and dice.random() < 0.4:
        return damaged_cells(content, dice)
    return damaged_bytes(content, dice)
