from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nova.spark.job.sinks import identified, json_lines


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.text()),
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.booleans()),
            st.one_of(st.none(), st.datetimes(timezones=st.just(dt.UTC))),
        )
    )
)
def test_rows_as_json_say_what_the_columns_say(rows: list[tuple[object, ...]]) -> None:
    kinds = [pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    names = ['50 % "x"', "real", "whole", "flag", "time"]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    found = [json.loads(line) for line in json_lines(pa.record_batch(columns, names=names))]
    assert [tuple(row)[:4] for row in (list(one.values()) for one in found)] == [row[:4] for row in rows]
    assert all(list(one) == names for one in found)
    for one, row in zip(found, rows, strict=True):
        assert (None if one["time"] is None else dt.datetime.fromisoformat(one["time"])) == row[4]


def test_what_json_cannot_say_is_null_or_text() -> None:
    columns = [pa.array([float("nan"), float("inf")]), pa.array([dt.date(2026, 1, 2), None]), pa.array([[1], None])]
    lines = json_lines(pa.record_batch(columns, names=["real", "day", "many"]))
    assert lines == ['{"real":null,"day":"2026-01-02","many":[1]}', '{"real":null,"day":null,"many":null}']
    assert json_lines(pa.record_batch([pa.array([], pa.int64())], names=["n"])) == []


def test_results_tell_their_id_beside_an_id_that_the_query_selects() -> None:
    """Equal results of a batch have ids of their own, the same in every repetition."""
    plain, own = pa.record_batch({"n": [1, 1]}), pa.record_batch({"id": [7]})
    (lines,) = identified([plain], "q")
    assert [json.loads(line) for _, line in lines] == [{"id": name, "n": 1} for name, _ in lines]
    assert len({name for name, _ in lines}) == 2
    assert list(identified([plain], "q")) == [lines]
    (((name, line),),) = identified([own], "q")
    assert json.loads(line) == {"result_id": name, "id": 7}
