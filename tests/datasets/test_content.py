"""Tables of numbers however they are packed, and their digest."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from nova.datasets.content import Content, read_nested, read_stored, read_table, text_digest, write_stored
from nova.model.errors import InvalidInput

PLAIN = Content(("a", "b"), np.array([[0.0, 1.5], [2.25, np.nan]]))


@pytest.mark.parametrize(
    "text",
    [
        "node,a,b\na,0,1.5\nb,2.25,NA\n",
        ",a,b\na,0,1.50\nb,2.25,\n",
        "node;a;b\r\na;0;1.5\r\nb;2.25;nan\r\n",
        "a\t0\t1.5\nb\t2.25\tNA\t\n",
        '"node","a","b"\n"a",0,1.5\n"b",2.25,NA\n',
    ],
)
def test_one_matrix_has_one_digest_however_it_is_written(text: str) -> None:
    found = read_table(text, "file", square=True)
    assert found.labels == PLAIN.labels
    assert np.array_equal(found.values, PLAIN.values, equal_nan=True)
    assert found.digest == PLAIN.digest


def test_the_digest_sees_labels_and_numbers() -> None:
    assert Content(("a", "c"), PLAIN.values).digest != PLAIN.digest
    assert Content(PLAIN.labels, PLAIN.values + 1).digest != PLAIN.digest
    assert Content(PLAIN.labels, np.stack([PLAIN.values])).digest != PLAIN.digest


def test_rows_without_names_are_numbered() -> None:
    found = read_table("0 1.5\n2.5 0\n", "file", square=True)
    assert found.labels == ("0", "1")
    points = read_table("x,y\n1,2\n3,4\n5,6\n", "file", square=False)
    assert (points.labels, points.values.shape) == (("0", "1", "2"), (3, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("node,a,b\na,0,1\nb,one,0\n", "row 3, field 1: not a number .found 'one'."),
        ("node,a,b\na,0,1\nb,0\n", "row 3: 3 columns expected"),
        ("0 1 2 3\n1 0 2 3\n", "square matrix expected, found 2 × 4"),
    ],
)
def test_faults_are_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_table(text, "file", square=True)


def test_nested_matrices_come_in_alphabetic_order() -> None:
    found = read_nested('{"data": {"b": {"a": 2.25}, "a": {"b": 1.5, "a": 0}}}', "file")
    assert found.digest == PLAIN.digest
    with pytest.raises(InvalidInput, match="not a nested matrix"):
        read_nested("[]", "file")


@pytest.mark.parametrize("name", ["latency/m.csv", "latency/m.csv.gz"])
def test_matrices_read_back_as_they_were_written(tmp_path: Path, name: str) -> None:
    write_stored(PLAIN, tmp_path / name)
    assert read_stored(tmp_path / name, square=True).digest == PLAIN.digest


def test_stacks_and_points_read_back_too(tmp_path: Path) -> None:
    stack = Content(("a", "b"), np.stack([PLAIN.values, PLAIN.values * 2]))
    write_stored(stack, tmp_path / "s.npz")
    assert read_stored(tmp_path / "s.npz", square=True).digest == stack.digest
    points = Content(("a", "b", "c"), np.arange(6.0).reshape(3, 2))
    write_stored(points, tmp_path / "p.csv")
    assert read_stored(tmp_path / "p.csv", square=False).digest == points.digest
    np.savez(tmp_path / "odd.npz", labels=np.array(["a"]))
    with pytest.raises(InvalidInput, match="one stack of matrices"):
        read_stored(tmp_path / "odd.npz", square=True)


def test_text_has_one_digest_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\r\n1,2\r\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n"))
    assert text_digest([tmp_path / "a.csv"]) == text_digest([tmp_path / "a.csv.gz"])
