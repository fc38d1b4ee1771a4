from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nova.spark.dead_letters import Letter
from nova.spark.sources.lines import Lines, located

ROLES = {"source": "sensor", "time": "at", "value": "reading"}
NAMES = ("sensor", "at", "reading", "unit")


def found(file: Path, lines: Lines, *told: dict[str, object] | str) -> list[tuple[int | None, str | None]]:
    """Line and text of letters with these values, or this text."""
    letters = [
        Letter("unknown_source", "p", f"file://{file}", None, one if isinstance(one, str) else json.dumps(one))
        for one in told
    ]
    return [(letter.line, letter.record) for letter in located(letters, {"p": lines})]


def test_a_tuple_that_spark_has_read_is_found_by_its_values(tmp_path: Path) -> None:
    file = tmp_path / "1.csv"
    file.write_text(
        "sensor;at;reading;unit\n007;2026-03-01T10:00:00Z;1.50;hPa\n"
        '"x;1";1772359200000;2;"a ""b"""\n007;2026-03-01 10:00:01;1.5;hPa\nbroken\n;2026-03-01T10:00:00+01:00;3;\n'
    )
    lines = Lines("csv", NAMES, ROLES, {"sep": ";", "escape": '"'})
    rows = file.read_text().splitlines()
    later = {"sensor": 7, "at": "2026-03-01T10:00:01.000Z", "reading": 1.5, "unit": "hPa"}
    quoted = {"sensor": "x;1", "at": 1772359200000, "reading": 2.0, "unit": 'a "b"'}
    nobody = {"at": "2026-03-01T09:00:00.000Z", "reading": 3.0}
    elsewhere = {"sensor": 7, "at": "2026-03-01T10:00:02.000Z", "reading": 1.5}
    assert found(file, lines, later, quoted, "broken", nobody, elsewhere) == [
        (4, rows[3]),
        (3, rows[2]),
        (5, "broken"),
        (6, rows[5]),
        (None, json.dumps(elsewhere)),  # no line says that
    ]
    renamed = {"source": "007", "time": "2026-03-01 10:00:00+00:00", "value": 1.5, "unit": "hPa"}
    assert found(file, lines, renamed) == [(2, rows[1])]


def test_json_compressed_and_records_of_several_lines(tmp_path: Path) -> None:
    packed = tmp_path / "1.json.gz"
    text = '{"sensor": "a", "at": 1, "reading": 1}\n{"reading": 2, "at": 5, "sensor": "z"}\n[]\n'
    packed.write_bytes(gzip.compress(text.encode()))
    asked = {"sensor": "z", "at": 5, "reading": 2.0}
    assert found(packed, Lines("json", NAMES, ROLES), asked) == [(2, text.splitlines()[1])]
    file = tmp_path / "2.csv"
    file.write_text('sensor,at,reading,unit\na,1,1,"two\nlines"\nz,5,2,x\n')
    several = Lines("csv", NAMES, ROLES, {"multiline": "true"})
    assert found(file, several, asked | {"unit": "x"}) == [(4, "z,5,2,x")]
    assert found(file, several, {"sensor": "a", "at": 1, "reading": 1.0}) == [(2, 'a,1,1,"two\nlines"')]
    assert found(tmp_path / "gone.csv", several, asked) == [(None, json.dumps(asked))]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "z", "7", ""]), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30
    ),
    st.data(),
)
def test_every_letter_of_a_file_gets_a_line_of_its_own(
    tmp_path_factory: object, rows: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("lines") / "1.csv"  # type: ignore[attr-defined]
    with file.open("w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([NAMES[:3], *rows])
    dead = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    told = [{"sensor": rows[i][0] or None, "at": rows[i][1], "reading": float(rows[i][2])} for i in dead]
    places = found(file, Lines("csv", NAMES[:3], ROLES), *told)
    assert len({line for line, _ in places}) == len(dead)
    for row, (line, text) in zip(dead, places, strict=True):
        assert line is not None
        assert rows[line - 2] == rows[row]
        assert text == ",".join(map(str, rows[row]))
