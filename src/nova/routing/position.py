"""Where a tuple sits in the unit cube of its sub-join: its share of the stream, its window's slice, its join key.

In Spark SQL the share is
`shiftrightunsigned(xxhash64(xxhash64(source), unix_micros(time), value), 11) / 9007199254740992D` and the slice is
`w * 0.6180339887D - floor(w * 0.6180339887D)` with `w = floor(unix_micros(time) / window_in_microseconds)`. The key is
`shiftrightunsigned(xxhash64(column, …), 11) / 9007199254740992D`, where numbers count as doubles and a text column
stands for `xxhash64` of its text.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.problem import Floats
from nova.model.skew import KeyAxis
from nova.routing.xxh64 import Hashes, hash_longs, hash_strings

GOLDEN = 0.6180339887
"""Consecutive windows land this far apart on the unit circle: any slice gets evenly spread windows."""
STEP = 2.0**-53
"""Distance of neighbouring places in the hash space of keys."""

Longs = npt.NDArray[np.int64]


def window_number(time_us: Longs, window_us: int) -> Longs:
    """Number of the tumbling window that an event time (µs since 1970) falls into; negative before 1970."""
    return np.floor_divide(time_us, np.int64(window_us))


def slice_position(window: Longs) -> Floats:
    """Place of each window in [0, 1): the fraction of w·0.6180339887, in double precision."""
    turned = window.astype(np.float64) * GOLDEN
    place: Floats = turned - np.floor(turned)
    return place


def tuple_share(source_hash: Hashes, time_us: Longs, value: pa.Array | None = None) -> Floats:
    """Place of each tuple in its stream, in [0, 1): a hash of its source, event time and value.

    `source_hash` is `hash_strings` of the source's id. A missing value is left out of the hash, as in Spark.
    """
    h = hash_longs(time_us, hash_longs(source_hash.view(np.int64)))
    if value is not None:
        bits, present = column_bits(value)
        h = np.where(present, hash_longs(bits, h), h)
    share: Floats = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return share


def key_position(columns: list[pa.Array]) -> Floats:
    """Place of each tuple's join key in its hash space, [0, 1): the same for any two tuples with equal keys, whatever
    the type of their numbers. No column may hold a null."""
    if not columns:
        raise ValueError("the plan deals out keys, and the query joins on no column of its tuples")
    h = hash_longs(column_bits(columns[0])[0])
    for column in columns[1:]:
        h = hash_longs(column_bits(column)[0], h)
    place: Floats = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return place


def value_positions(value: str) -> list[float]:
    """Places in the hash space of keys that are one value, written as text: as a text and, where it is one, as a
    number."""
    kinds: list[pa.Array] = [pa.array([value])]
    with suppress(ValueError):
        kinds.append(pa.array([float(value)]))
    return [float(key_position([kind])[0]) for kind in kinds]


def hash_ranges(axis: KeyAxis, low: float, high: float) -> list[tuple[float, float]]:
    """Ranges of the hash space of keys that a range of the key axis amounts to. A heavy key goes where its range
    begins, all others by the part of their range that lies in it. Ranges that tile the axis tile the hash space."""
    begin = axis.edges[-1]
    start, end = (min(max((edge - begin) / (1.0 - begin), 0.0), 1.0) for edge in (low, high))
    inside, outside = [], []
    for value, edge in zip(axis.values, axis.edges, strict=False):
        for place in value_positions(value):
            there = start <= place < end
            if low <= edge < high and not there:
                inside.append((place, place + STEP))
            elif there and not low <= edge < high:
                outside.append(place)
    for place in sorted(outside):
        if start < place:
            inside.append((start, place))
        start = place + STEP
    return sorted([*inside, *([(start, end)] if start < end else [])])


def column_bits(values: pa.Array) -> tuple[Longs, npt.NDArray[np.bool_]]:
    """64 bits of each value, and where there is one: numbers as doubles, all else by the hash of its text."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        numbers = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        numbers = numbers + 0.0  # −0.0 becomes 0.0: equal values hash alike
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.int64), present
    coded = values.cast(pa.string()).dictionary_encode()
    words = hash_strings(coded.dictionary.to_pylist()).view(np.int64)
    codes = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    return (words[codes] if len(words) else np.zeros(len(values), np.int64)), present


def fingerprint(columns: list[pa.Array]) -> Longs:
    """64 bits of each row that tell it from any other row, but for those that are equal in all columns."""
    h: Hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        bits, present = _exact_bits(column)
        h = hash_longs(np.where(present, bits, 0), hash_longs(present.astype(np.int64), h))
    return h.view(np.int64)


def _exact_bits(values: pa.Array) -> tuple[Longs, npt.NDArray[np.bool_]]:
    """64 bits of each value, whole numbers and times as they are, and where there is one."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        number = pc.fill_null(values.cast(pa.int64(), safe=False), 0)
        return number.to_numpy(zero_copy_only=False), values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_nested(kind):
        values = pa.array([None if one is None else repr(one) for one in values.to_pylist()], pa.string())
    return column_bits(values)
