"""Packets: routed tuples packed for the way, and unpacked and joined where they meet. Arrow and numpy only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.model.problem import Ints
from nova.routing.flow import Flow, without_null_keys
from nova.routing.position import Longs, column_bits, key_position, tuple_share, window_number
from nova.routing.routes import Rows, SideName
from nova.routing.timeline import Timeline
from nova.routing.xxh64 import Hashes

MOMENT = pa.timestamp("us", tz="UTC")
CHUNK = 250_000
"""Most results in one record batch: a hot window's pairs must not fill the memory at once."""


@dataclass(frozen=True)
class Packets:
    """Packets of one batch, one row each."""

    node: Ints
    """Host, where packets are made per host; else −1."""
    cell: Longs
    bucket: Longs
    """Number of the bucket."""
    tuples: Ints
    body: list[bytes]

    def __len__(self) -> int:
        return len(self.body)


@dataclass(frozen=True)
class Routed:
    """Where the tuples of one batch go. Rows repeat where a tuple goes to several meetings."""

    row: Rows
    meeting: Ints
    window: Longs
    """Window of each copy."""
    node: Ints
    """Host of each copy."""


def route(
    timeline: Timeline, flow: Flow, side: SideName, source: Ints, source_hash: Hashes, batch: pa.RecordBatch
) -> Routed:
    """Send each tuple of `batch` (columns time, value, …; `source` holds its source rows) to its meetings."""
    time = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
    window = window_number(time, flow.window_us)
    share = tuple_share(source_hash[source], time, batch.column("value"))
    key = key_position([batch.column(name) for name in flow.on]) if timeline.keyed else None
    row, meeting = timeline.reach(side, source, share, window, key)
    return Routed(row, meeting, window[row], timeline.node(meeting, window[row]))


def pack(routed: Routed, flow: Flow, side: SideName, source: Ints, batch: pa.RecordBatch, per_node: bool) -> Packets:
    """The routed tuples as packets; with `per_node` no packet holds tuples for two hosts."""
    row = routed.row
    carried = batch.select([column.name for column in flow.carried(side)]).take(pa.array(row))
    cell = flow.cell(routed.meeting, routed.window, [carried.column(name) for name in flow.on])
    bucket = routed.window // (flow.bucket_us // flow.window_us)
    node = routed.node if per_node else np.full(len(row), -1, np.int32)
    order = np.lexsort((cell, bucket, node))
    cell, bucket, node = cell[order], bucket[order], node[order]
    change = (np.diff(cell) != 0) | (np.diff(bucket) != 0) | (np.diff(node) != 0)
    start = np.concatenate([[0], np.flatnonzero(change) + 1]) if len(order) else np.empty(0, np.intp)
    count = np.diff(np.concatenate([start, [len(order)]]))
    time = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
    whole = pa.record_batch(
        [
            pa.array(routed.meeting[order]),
            pa.array(source[row[order]]),
            pa.array(time[row[order]]),
            *carried.take(pa.array(order)).columns,
        ],
        schema=flow.packet(side),
    )
    body = [whole.slice(int(s), int(c)).serialize().to_pybytes() for s, c in zip(start, count, strict=True)]
    return Packets(node[start], cell[start], bucket[start], count.astype(np.int32), body)


def unpack(bodies: pa.BinaryArray, schema: pa.Schema) -> tuple[pa.Table, Longs]:
    """The tuples of some packets, and which packet each came from."""
    parts = [pa.ipc.read_record_batch(body.as_buffer(), schema) for body in bodies]
    count = np.array([part.num_rows for part in parts], dtype=np.int64)
    return pa.Table.from_batches(parts, schema).combine_chunks(), np.repeat(np.arange(len(parts)), count)


def match(flow: Flow, left: pa.Table, right: pa.Table, left_pair: Longs, right_pair: Longs) -> tuple[Rows, Rows]:
    """Rows of all joining tuples: same packet pair, meeting, window and `on` columns."""
    code = Code(left_pair, right_pair)
    code.add(left["meeting"].to_numpy(), right["meeting"].to_numpy())
    code.add(
        window_number(left["time"].to_numpy(), flow.window_us), window_number(right["time"].to_numpy(), flow.window_us)
    )
    for name in flow.on:
        code.add(*_keys(left[name], right[name]))
    return code.pairs()


class Code:
    """One number per row of two tables, equal where all columns added so far are equal."""

    def __init__(self, left: npt.NDArray[np.integer], right: npt.NDArray[np.integer]) -> None:
        self.cut = len(left)
        self.code, self.range = _dense(left, right)

    def add(self, left: npt.NDArray[np.integer], right: npt.NDArray[np.integer]) -> None:
        """Tell rows apart by one more column."""
        other, width = _dense(left, right)
        if self.range * width >= 2**62:
            self.code, self.range = _ranks(self.code)
            other, width = _ranks(other)
        self.code = self.code * width + other
        self.range *= width

    def pairs(self) -> tuple[Rows, Rows]:
        """All (left row, right row) with equal codes."""
        left, right = self.code[: self.cut], self.code[self.cut :]
        order = np.argsort(right, kind="stable")
        ordered = right[order]
        start = np.searchsorted(ordered, left, "left")
        count = np.searchsorted(ordered, left, "right") - start
        rows = np.repeat(np.arange(len(left)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, order[start[rows] + within]


def _keys(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[Longs, Longs]:
    """Two key columns of one type as numbers, equal exactly where the values are: NaN equals NaN, −0.0 equals 0.0."""
    both = pa.concat_arrays([*left.chunks, *right.chunks])
    kind = both.type
    if pa.types.is_floating(kind):
        codes = column_bits(both)[0]
    elif pa.types.is_integer(kind):
        codes = both.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        codes = both.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(left)], codes[len(left) :]


def _dense(left: npt.NDArray[np.integer], right: npt.NDArray[np.integer]) -> tuple[Longs, int]:
    """Both columns as numbers from 0, and how many there may be: shifted where that is narrow, ranked otherwise."""
    both = np.concatenate([left, right]).astype(np.int64)
    if not len(both):
        return both, 1
    low, high = int(both.min()), int(both.max())
    return (both - low, high - low + 1) if high - low < 2**40 else _ranks(both)


def _ranks(values: Longs) -> tuple[Longs, int]:
    distinct, inverse = np.unique(values, return_inverse=True)
    return inverse.astype(np.int64), max(len(distinct), 1)


@dataclass(frozen=True)
class Names:
    """Ids that results are written with."""

    sources: pa.StringArray
    nodes: pa.StringArray


def results(
    flow: Flow, timeline: Timeline, names: Names, left: pa.BinaryArray, right: pa.BinaryArray
) -> Iterator[pa.RecordBatch]:
    """The joined tuples of pairs of packets (the i-th left with the i-th right), in the contract's columns."""
    left_tuples, left_pair = unpack(left, flow.packet("left"))
    right_tuples, right_pair = unpack(right, flow.packet("right"))
    left_rows, right_rows = match(flow, left_tuples, right_tuples, left_pair, right_pair)
    for at in range(0, len(left_rows), CHUNK):
        yield _assemble(
            flow,
            timeline,
            names,
            left_tuples.take(pa.array(left_rows[at : at + CHUNK])),
            right_tuples.take(pa.array(right_rows[at : at + CHUNK])),
        )


def _assemble(flow: Flow, timeline: Timeline, names: Names, left: pa.Table, right: pa.Table) -> pa.RecordBatch:
    window = window_number(left["time"].to_numpy(), flow.window_us)
    host = timeline.node(left["meeting"].to_numpy(), window)
    sides = {"left": left.combine_chunks(), "right": right.combine_chunks()}
    columns: dict[str, pa.Array] = {
        "query": pa.repeat(pa.scalar(flow.query), len(window)),
        "window_start": pa.array(window * flow.window_us, MOMENT),
        "window_end": pa.array((window + 1) * flow.window_us, MOMENT),
        "node": names.nodes.take(pa.array(host)),
    }
    for side, table in sides.items():
        columns[f"{side}_source"] = names.sources.take(_flat(table["source"]))
        columns[f"{side}_time"] = _flat(table["time"]).cast(MOMENT)
        for column in flow.carried(side):  # type: ignore[arg-type]
            columns[f"{side}_{column.name}"] = _flat(table[column.name])
    schema = flow.result()
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def unjoined(flow: Flow, side: SideName, batch: pa.RecordBatch, node: pa.StringArray | None = None) -> pa.RecordBatch:
    """Tuples of one side (columns source, time, value, …) as results without a partner, from these hosts."""
    count = batch.num_rows
    time = batch.column("time").cast(pa.int64())
    window = window_number(time.to_numpy(zero_copy_only=False), flow.window_us)
    columns: dict[str, pa.Array] = {
        "query": pa.repeat(pa.scalar(flow.query), count),
        "window_start": pa.array(window * flow.window_us, MOMENT),
        "window_end": pa.array((window + 1) * flow.window_us, MOMENT),
        f"{side}_source": batch.column("source"),
        f"{side}_time": time.cast(MOMENT),
        **{f"{side}_{column.name}": batch.column(column.name) for column in flow.carried(side)},
        **({} if node is None else {"node": node}),
    }
    schema = flow.result()
    made = [columns[name].cast(kind) if name in columns else pa.nulls(count, kind) for name, kind in _typed(schema)]
    return pa.record_batch(made, schema=schema)


def alone(flow: Flow, timeline: Timeline, names: Names, packets: pa.BinaryArray) -> pa.RecordBatch:
    """The tuples of left packets as results without a partner: what a query of one stream makes of them."""
    tuples, _ = unpack(packets, flow.packet("left"))
    window = window_number(tuples["time"].to_numpy(), flow.window_us)
    hosts = names.nodes.take(pa.array(timeline.node(tuples["meeting"].to_numpy(), window)))
    columns = {"source": names.sources.take(_flat(tuples["source"])), "time": _flat(tuples["time"])}
    columns |= {column.name: _flat(tuples[column.name]) for column in flow.left}
    return unjoined(flow, "left", pa.record_batch(columns), hosts)


def _typed(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    return ((field.name, field.type) for field in schema)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


__all__ = [
    "Packets",
    "Routed",
    "Names",
    "route",
    "pack",
    "unpack",
    "match",
    "results",
    "unjoined",
    "alone",
    "Code",
    "without_null_keys",
]
