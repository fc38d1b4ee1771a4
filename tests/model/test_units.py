"""Numbers with units."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.model.units import DURATION, RATE, RTT, Quantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("25", 25),
        ("25 Hz", 25),
        ("1 kHz", 1000),
        ("1kHz", 1000),
        ("55/s", 55),
        ("600/min", 10),
        ("2.5e3", 2500),
        (" 7 tuples/s ", 7),
        ("inf", math.inf),
        ("1 MHz", 1e6),
        ("5 mHz", 0.005),
        ("+3", 3),
        (".5", 0.5),
        ("1e3 Hz", 1000),
    ],
)
def test_rates(text: str, expected: float) -> None:
    assert RATE.parse(text) == pytest.approx(expected)
    assert RATE.column(pa.array([text.strip(), "1 Hz"]))[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60 ms", 60), ("1s", 1000), ("2h", 7.2e6), ("500us", 0.5), ("500µs", 0.5), ("1 min", 6e4), ("1d", 8.64e7)],
)
def test_durations(text: str, expected: float) -> None:
    assert DURATION.parse(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("quantity", "text", "says"),
    [
        (RATE, "25 furlongs", "furlongs"),
        (RATE, "fast", "not a number"),
        (RATE, "25 mhz", "mhz"),
        (RATE, "1,000", "unit"),
        (RATE, "", "not a number"),
        (DURATION, "5", "give a unit"),
        (DURATION, "5m", "'m'"),
        (RTT, "3 h", "'h'"),
        (RATE, "1 2", "not a number"),
        (RATE, "0x10", "unit"),
    ],
)
def test_what_does_not_parse_is_said(quantity: Quantity, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        quantity.parse(text)
    assert np.isnan(quantity.column(pa.array([text]))[0])


def test_bare_durations_are_refused_as_numbers_too() -> None:
    with pytest.raises(ValueError, match="give a unit"):
        DURATION.parse(5)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sampled_from(["", *RATE.units])), min_size=1))
def test_columns_agree_with_single_values(cells: list[tuple[float, str]]) -> None:
    texts = [f"{number!r} {unit}".strip() for number, unit in cells]
    expected = [RATE.parse(text) for text in texts]
    np.testing.assert_allclose(RATE.column(pa.array(texts)), expected, rtol=1e-15)


def test_nulls_become_nan() -> None:
    np.testing.assert_array_equal(RATE.column(pa.array(["1", None])), [1, math.nan])
    np.testing.assert_array_equal(RATE.column(pa.array(["1 Hz", None])), [1, math.nan])
    np.testing.assert_array_equal(RATE.column(pa.array([None], pa.string())), [math.nan])
