from __future__ import annotations

import datetime as dt

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nova.spark.realtime.frames import decode, encode, kinds_of, restored, together, whole

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=False)),
        st.one_of(st.none(), st.text()),
    ),
    min_size=1,
)


@given(rows, rows)
def test_frames_come_back_as_they_were(first: list[tuple[object, ...]], second: list[tuple[object, ...]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    data, wanted = b"", []
    for number, part in enumerate((first, second)):
        columns = [
            pa.array(values, column.type) for values, column in zip(zip(*part, strict=True), schema, strict=True)
        ]
        data += encode(columns, 10 * number, 7 + number)
        wanted.append(columns)
    found = list(decode(data, kinds_of(schema)))
    assert [frame.first for frame in found] == [0, 10]
    for frame, columns in zip(found, wanted, strict=True):
        for read, column in zip(frame.columns, columns, strict=True):
            assert restored(read, column.type).to_pylist() == column.to_pylist()
    read_all, stamps = together(data, kinds_of(schema))
    assert stamps.tolist() == [7] * len(first) + [8] * len(second)
    for read, column, *parts in zip(read_all, schema, *wanted, strict=True):
        assert restored(read, column.type).to_pylist() == [value for part in parts for value in part.to_pylist()]
    for cut in (1, 3, len(data) // 2):
        assert whole(data[:-cut]) in (0, len(encode(wanted[0], 0, 7)))


def test_columns_of_other_types_keep_them() -> None:
    columns = [
        pa.array([True, None, False]),
        pa.array([dt.date(2020, 1, 2), None, dt.date(1960, 1, 1)]),
        pa.array([1.5, None, -0.0], pa.float32()),
        pa.array([None, b"\0x", b""], pa.binary()),
        pa.array([1, 2, None], pa.timestamp("us", tz="UTC")),
        pa.array([1, 2, 3], pa.int16()),
    ]
    schema = pa.schema([(str(i), column.type) for i, column in enumerate(columns)])
    (frame,) = decode(encode([column.slice(1) for column in columns], 0, 0), kinds_of(schema))
    for read, column in zip(frame.columns, columns, strict=True):
        assert restored(read, column.type).to_pylist() == column.slice(1).to_pylist()
