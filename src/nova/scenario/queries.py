"""Streams and queries: which sources there are, and which of them a query joins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.model.plausible import MOST_RATE
from nova.model.problem import Dense, Equal, Floats, Ints, JoinMatrix, Pairs
from nova.model.units import RATE
from nova.scenario.faults import listed
from nova.scenario.table import Table

MOST_PAIRS = 2**31 - 1
"""Sub-joins are counted in 32 bits; more than this many is a join matrix that somebody forgot to write."""


BYTES_PER_PAIR = 250
"""Memory of a sub-join while it is planned: its columns, its replicas and what assigning them needs, in the least."""


@dataclass(frozen=True)
class StreamSources:
    """The sources of one stream."""

    table: Table
    ids: pa.StringArray
    node: Ints
    rate: Floats

    def __len__(self) -> int:
        return len(self.ids)


def build_sources(table: Table, nodes: pa.StringArray | None) -> StreamSources | None:
    """Sources of a table with id, node and rate; None where it has no ids."""
    n = len(table)
    ids = table.ids() if "id" in table.columns else None
    node = table.references("node", nodes, "node") if "node" in table.columns else np.full(n, -1, np.int32)
    rate = table.numbers("rate", RATE, most=MOST_RATE) if "rate" in table.columns else np.full(n, math.nan)
    table.require("id", "node", "rate")
    return None if ids is None else StreamSources(table, ids, node, rate)


def equal_matrix(attributes: tuple[str, ...], left: StreamSources, right: StreamSources) -> Equal | None:
    """Sources join where all attributes are equal; a source without one of them joins nothing."""
    found = [side.table.require(*attributes) for side in (left, right)]
    if not all(found):
        return None
    codes = np.zeros(len(left) + len(right), dtype=np.int64)
    missing = np.zeros(len(codes), dtype=np.bool_)
    columns = [pa.concat_arrays([left.table.text(name), right.table.text(name)]) for name in attributes]
    first = np.empty(0, np.int64)
    for column in columns:
        texts = column.dictionary_encode()
        missing |= texts.indices.is_null().to_numpy(zero_copy_only=False)
        own = texts.indices.fill_null(len(texts.dictionary)).to_numpy(zero_copy_only=False)
        # number the combinations anew after each attribute, so that codes never outgrow the number of sources
        _, first, codes = np.unique(codes * (len(texts.dictionary) + 1) + own, return_index=True, return_inverse=True)
    codes[missing] = -1
    short = codes.astype(np.int32)
    values = tuple(column.take(pa.array(first)) for column in columns)
    return Equal(", ".join(attributes), short[: len(left)], short[len(left) :], values)


def pairs_matrix(table: Table, left: StreamSources, right: StreamSources, names: tuple[str, str]) -> Pairs | None:
    """The pairs that a table lists, in order of the sources; rows count within each stream."""
    before = len(table.faults)
    a = table.references("left", left.ids, f"source of stream {names[0]!r}") if "left" in table.columns else None
    b = table.references("right", right.ids, f"source of stream {names[1]!r}") if "right" in table.columns else None
    output = np.full(len(table), math.nan)
    if "output_rate" in table.columns:
        output = table.numbers("output_rate", RATE, empty=math.nan, most=MOST_RATE)
    if not table.require("left", "right"):
        return None
    assert a is not None
    assert b is not None
    text = pc.binary_join_element_wise(table.text("left"), table.text("right"), " ⋈ ")
    if names[0] == names[1]:
        table.note((a == b) & (a >= 0), "right", "a source is not joined with itself", text)
    key = np.where((a >= 0) & (b >= 0), a * np.int64(len(right)) + b, -1 - np.arange(len(table)))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    table.note(
        first[inverse] != np.arange(len(table)),
        "right",
        lambda i: f"duplicate: row {table.row(int(first[inverse[i]]))} lists this pair already",
        text,
    )
    if len(table.faults) > before:
        return None
    order = np.argsort(key)
    return Pairs(a[order], b[order], output[order])


def count_pairs(matrix: JoinMatrix, left: int, right: int) -> int:
    """How many sub-joins a join matrix allows, without forming it."""
    match matrix:
        case Pairs():
            return len(matrix.left)
        case Dense():
            return left * right
        case Equal():
            size = int(max(matrix.left.max(initial=-1), matrix.right.max(initial=-1))) + 1
            a, b = (np.bincount(codes[codes >= 0], minlength=size) for codes in (matrix.left, matrix.right))
            return int(a @ b)


def values_in(side: StreamSources, attribute: str) -> pa.StringArray:
    """The different values of an attribute; none where the sources do not have it."""
    found = side.table.columns.get(attribute)
    return pa.array([], pa.string()) if found is None else side.table.text(attribute).drop_null().unique()


def values_of(side: StreamSources, attributes: tuple[str, ...]) -> str:
    """The values that sources have in the attributes of a join, to show why nothing joins."""
    columns = [side.table.text(name) for name in attributes]
    joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "/")
    return listed([value for value in joined.unique().to_pylist() if value is not None], 5) or "none at all"
