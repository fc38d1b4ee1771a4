"""Whatever is in the files: a scenario or a list of faults, never another error."""

from __future__ import annotations

import datetime
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import FILES, SMALL, write_files
from nova.model.errors import InvalidInput
from nova.scenario import Scenario, load

BITS = [",", "\n", '"', "\r\n", "\x00", "'", ":", "{", "}", "[", "- ", "#", "&a", "*a", "<<", "!!int", "\t", "nan", "-",
        "1e999", "é", "\ufeff", "id", "inf", "null", "~", "hq", "p1", "on", "edge1", " ", "0"]  # fmt: skip


def outcome(path: Path) -> Scenario | InvalidInput:
    try:
        return load(path)
    except InvalidInput as error:
        return error


@st.composite
def edits(draw: st.DrawFn) -> dict[str, str | bytes | None]:
    """One or two of the files with a few bits put in, taken out or replaced, or bytes that are no text."""
    changed: dict[str, str | bytes | None] = {}
    for name in draw(st.lists(st.sampled_from(sorted(FILES)), min_size=1, max_size=2, unique=True)):
        text = FILES[name]
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            cut = draw(st.integers(0, 6))
            text = text[:at] + draw(st.sampled_from(BITS) | st.just("")) + text[at + cut :]
        raw = text.encode()
        changed[name] = raw[: len(raw) // 2] + b"\xff" + raw[len(raw) // 2 :] if draw(st.integers(0, 9)) == 0 else raw
    return changed


@settings(max_examples=150)
@given(edits())
def test_damaged_files(changes: dict[str, str | bytes | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome(write_files(Path(folder), changes))


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """The small scenario with anything at all somewhere in it."""
    document = json.loads(json.dumps(SMALL | {"options": {"seed": 1}}))
    spot: Any = document
    while True:
        key = draw(st.sampled_from(sorted(spot))) if isinstance(spot, dict) else draw(st.integers(0, len(spot) - 1))
        if not isinstance(spot[key], dict | list) or not spot[key] or draw(st.integers(0, 2)) == 0:
            spot[key] = draw(values)
            return document  # type: ignore[no-any-return]
        spot = spot[key]


@settings(max_examples=150)
@given(documents())
def test_anything_anywhere_in_the_document(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.json"
        path.write_text(json.dumps(document))
        outcome(path)


COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "timestamp": pa.array([datetime.datetime(2024, 1, 1)] * 2),
    "list": pa.array([[1], [2]]),
    "struct": pa.array([{"a": 1}] * 2),
    "binary": pa.array([b"\xff", b"a"]),
    "large_binary": pa.array([b"\xff", b"a"], pa.large_binary()),
    "decimal": pa.array([Decimal("1.5"), Decimal("2")]),
    "bool": pa.array([True, False]),
    "int8": pa.array([1, 2], pa.int8()),
    "uint64": pa.array([1, 2**63], pa.uint64()),
    "float16": pa.array([1, 2]).cast(pa.float16()),
    "nan": pa.array([1.0, float("nan")]),
    "huge": pa.array([1e300, 2.0]),
    "dictionary": pa.array(["edge1", "fog"]).dictionary_encode(),
    "large_string": pa.array(["edge1", "5"], pa.large_string()),
    "string_view": pa.array(["edge1", "5"], pa.string_view()),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("column", ["id", "node", "rate", "region"])
def test_any_type_in_parquet(kind: str, column: str, tmp_path: Path) -> None:
    path = write_files(tmp_path, {"scenario.yaml": FILES["scenario.yaml"].replace("humidity.csv", "humidity.parquet")})
    columns = {"id": ["h1", "h2"], "node": ["edge1", "fog"], "rate": [1.0, 2.0], "region": ["north", "south"]}
    pq.write_table(pa.table(columns | {column: COLUMNS[kind]}), tmp_path / "humidity.parquet")
    result = outcome(path)
    if kind in ("list", "struct", "binary", "large_binary"):
        assert isinstance(result, InvalidInput)
        (fault,) = result.faults
        assert fault.field == column
        assert "text or numbers expected" in fault.message
    elif kind in ("dictionary", "large_string", "string_view") and column == "id":
        assert isinstance(result, Scenario)
        assert result.problem.sources.ids.to_pylist()[2:] == COLUMNS[kind].to_pylist()
