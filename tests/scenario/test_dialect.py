"""Dialects of CSV and units: read where there is one way to read them, else told with the fix."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from builders import FILES, SMALL, write_files, write_scenario
from nova.model.errors import InvalidInput
from nova.scenario import load

PLAIN = {name: text for name, text in FILES.items() if name.endswith(".csv")}


def semicolons(text: str, decimal: str = ",") -> str:
    return text.replace(",", ";").replace(".", decimal)


def test_semicolons_with_decimal_commas_say_the_same(tmp_path: Path) -> None:
    plain = load(write_files(tmp_path / "a"))
    other = load(write_files(tmp_path / "b", {name: semicolons(text) for name, text in PLAIN.items()}))
    assert other.digest == plain.digest


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_tabs_and_other_encodings_say_the_same(encoding: str, tmp_path: Path) -> None:
    plain = load(write_files(tmp_path / "a"))
    files = {name: text.replace(",", "\t").encode(encoding) for name, text in PLAIN.items()}
    assert load(write_files(tmp_path / "b", files)).digest == plain.digest  # type: ignore[arg-type]


@pytest.mark.parametrize("below", ["\n  \n", ",,,,\n,,,,\n", "\n,\n,,,,,,,\n"], ids=["lines", "separators", "uneven"])
def test_what_spreadsheets_leave_below_a_table_says_nothing(below: str, tmp_path: Path) -> None:
    plain = load(write_files(tmp_path / "a"))
    assert (
        load(write_files(tmp_path / "b", {name: text + below for name, text in PLAIN.items()})).digest == plain.digest
    )


def test_lines_are_right_behind_empty_rows(tmp_path: Path) -> None:
    text = "id,node,rate,region\n,,,\np1,edge1,25,north\n,,,\np2,edge2,soon,south\n"
    with pytest.raises(InvalidInput, match=r"pressure\.csv, row 5, field rate: not a number"):
        load(write_files(tmp_path, {"pressure.csv": text}))


def test_lines_are_right_in_any_dialect(tmp_path: Path) -> None:
    text = "id;node;rate;region\np1;edge1;25;north\np2;edge2;soon;south\n"
    with pytest.raises(InvalidInput, match=r"pressure\.csv, row 3, field rate: not a number"):
        load(write_files(tmp_path, {"pressure.csv": text.encode("utf-16")}))


@pytest.mark.parametrize("cells", [("1,500", "2,000"), ("1.234,5", "1,234.5")])
def test_commas_that_may_be_two_things_are_refused_with_the_fix(cells: tuple[str, str], tmp_path: Path) -> None:
    text = "id;node;rate;region\n" + "".join(f"p{k};edge1;{cell};north\n" for k, cell in enumerate(cells))
    with pytest.raises(InvalidInput, match=r"write 1\.5, or 1500"):
        load(write_files(tmp_path, {"pressure.csv": text}))


@pytest.mark.parametrize(
    ("cells", "rates"),
    [
        (("1.234,5", "2.000"), [1234.5, 2000]),
        (("1.234.567", "1,125 /s"), [1234567, 1.125]),
        (("1,234.5", "2,000 Hz"), [1234.5, 2000]),
        (("1,234,567", "12"), [1234567, 12]),
        (("1.200", "800,5"), [1200, 800.5]),
        (("1,200", "2.5"), [1200, 2.5]),
        (("1 200", "12\u00a0000,5"), [1200, 12000.5]),
        (("1'234'500", "1\u202f200.5 /s"), [1234500, 1200.5]),
    ],
)
def test_thousands_are_read_where_a_cell_says_what_parts_them(
    cells: tuple[str, str], rates: list[float], tmp_path: Path
) -> None:
    text = "id;node;rate;region\n" + "".join(f"p{k};edge1;{cell};north\n" for k, cell in enumerate(cells))
    loaded = load(write_files(tmp_path, {"pressure.csv": text}))
    assert loaded.problem.sources.rate[:2].tolist() == rates


def test_one_cell_that_is_sure_decides_for_its_column(tmp_path: Path) -> None:
    text = "id;node;rate;region\np1;edge1;1,500;north\np2;edge2;2,25 /s;south\n"
    loaded = load(write_files(tmp_path, {"pressure.csv": text}))
    assert loaded.problem.sources.rate[:2].tolist() == [1.5, 2.25]


def with_capacities(folder: Path, mark: str, *cells: str) -> Path:
    rows = [mark.join(("id", "capacity"))] + [mark.join(row) for row in zip(IDS, cells, strict=True)]
    return write_files(folder, {"nodes.csv": "\n".join(rows) + "\n"})


@pytest.mark.parametrize("cell", ["4.000", "12.500 /s", "+4.000"])
def test_points_between_semicolons_that_may_be_two_things_are_refused_with_the_fix(cell: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nodes\.csv, row 3, field capacity: .*write 4, 4\.0 or 4000") as raised:
        load(with_capacities(tmp_path, ";", "100", cell, "800", "900"))
    assert str(raised.value).count("nodes.csv") == 1


@pytest.mark.parametrize("sure", ["2.5", "0.125", "1234.567", "800.0 /s", "2.5e3"])
def test_one_point_that_is_sure_decides_for_its_column(sure: str, tmp_path: Path) -> None:
    loaded = load(with_capacities(tmp_path, ";", "100", "4.000", sure, "900"))
    assert loaded.problem.nodes.capacity[1] == 4.0


def test_points_between_commas_are_decimal(tmp_path: Path) -> None:
    assert load(with_capacities(tmp_path, ",", "100", "4.000", "800", "900")).problem.nodes.capacity[1] == 4.0


def test_a_matrix_between_semicolons_with_points_of_thousands_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rtt\.csv, row 3, field edge1: .*write 4, 4\.0 or 4000"):
        load(with_latency(tmp_path, matrix(1.0).replace(".0", "").replace("20", "1.200").replace(",", ";")))


def test_other_encodings_are_told_with_a_command(tmp_path: Path) -> None:
    text = FILES["nodes.csv"].replace("fog", "forêt")
    with pytest.raises(InvalidInput, match=r"nodes\.csv, row 4: not UTF-8 text: .*iconv -f WINDOWS-1252"):
        load(write_files(tmp_path, {"nodes.csv": text.encode("cp1252")}))


IDS = ["edge1", "edge2", "fog", "hq"]


def matrix(factor: float) -> str:
    rows = [[abs(a - b) * 20 * factor for b in range(4)] for a in range(4)]
    lines = [",".join([name, *map(str, row)]) for name, row in zip(IDS, rows, strict=True)]
    return "\n".join([",".join(["id", *IDS]), *lines]) + "\n"


def with_latency(folder: Path, text: str, more: str = "") -> Path:
    return write_files(folder, {"rtt.csv": text, "scenario.yaml": FILES["scenario.yaml"] + more})


def test_a_matrix_that_looks_like_seconds_must_say_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"rtt\.csv, field latency_unit: the largest RTT is 0\.06: are these seconds"
    ):
        load(with_latency(tmp_path / "a", matrix(1e-3)))
    seconds = load(with_latency(tmp_path / "b", matrix(1e-3), "latency_unit: s\n")).problem.latency
    plain = load(with_latency(tmp_path / "c", matrix(1.0))).problem.latency
    rack = load(with_latency(tmp_path / "d", matrix(1e-3), "latency_unit: ms\n")).problem.latency
    assert seconds is not None
    assert plain is not None
    assert rack is not None
    np.testing.assert_allclose(seconds.rtt_ms, plain.rtt_ms)
    np.testing.assert_allclose(rack.rtt_ms, plain.rtt_ms / 1000)


def test_a_list_of_pairs_names_its_unit_in_the_column(tmp_path: Path) -> None:
    text = FILES["rtt.csv"].replace("rtt_ms", "rtt_s").replace("14.1", "0.0141")
    found = load(with_latency(tmp_path, text.replace("8.2", "0.0082").replace("5.7", "0.0057"))).problem.latency
    assert found is not None
    np.testing.assert_allclose(np.sort(found.rtt_ms), [5.7, 8.2, 8.2, 14.1])
    with pytest.raises(InvalidInput, match="this column is one of ms"):
        load(with_latency(tmp_path, FILES["rtt.csv"], "latency_unit: s\n"))


def test_a_column_rtt_needs_a_unit(tmp_path: Path) -> None:
    bare = FILES["rtt.csv"].replace("rtt_ms", "rtt")
    with pytest.raises(InvalidInput, match=r"row 1, field rtt: which unit\? Name the column rtt_ms or rtt_s, or say"):
        load(with_latency(tmp_path / "a", bare))
    for text, more in ((bare, "latency_unit: ms\n"), (bare.replace("7\n", "7 ms\n"), ""), (bare, "latency_unit: s\n")):
        if not more:
            text = "\n".join(
                line if k == 0 else line.removesuffix(" ms") + " ms" for k, line in enumerate(text.splitlines())
            )
        found = load(with_latency(tmp_path / "b", text, more)).problem.latency
        assert found is not None
        factor = 1000 if more.endswith(" s\n") else 1
        np.testing.assert_allclose(np.sort(found.rtt_ms), np.array([5.7, 8.2, 8.2, 14.1]) * factor)


def test_pairs_that_look_like_seconds_are_told(tmp_path: Path) -> None:
    small = FILES["rtt.csv"].replace("14.1", "0.0141").replace("8.2", "0.0082").replace("5.7", "0.0057")
    loaded = load(with_latency(tmp_path, small))
    assert any("if these are seconds, call the column rtt_s" in warning for warning in loaded.warnings)


@pytest.mark.parametrize("window", ["1s", "1000ms", {"tumbling": "1s"}])
def test_a_window_may_be_a_length_alone(window: object, tmp_path: Path) -> None:
    document = copy.deepcopy(SMALL)
    document["queries"][0]["window"] = window
    assert load(write_scenario(tmp_path, document)).problem.queries[0].window_ms == 1000.0


def test_a_window_without_a_unit_is_told(tmp_path: Path) -> None:
    document = copy.deepcopy(SMALL)
    document["queries"][0]["window"] = 1
    with pytest.raises(InvalidInput, match="give a unit"):
        load(write_scenario(tmp_path, document))


def test_a_column_without_a_name_is_told_in_words(tmp_path: Path) -> None:
    matrix = ",hub,edge1\nhub,0,4\nedge9,4,0\n"
    document = copy.deepcopy(SMALL) | {"latency": "rtt.csv"}
    with pytest.raises(InvalidInput, match=r"rtt\.csv, row 3, the column without a name: no such node"):
        load(write_scenario(tmp_path, document, rtt=matrix))
