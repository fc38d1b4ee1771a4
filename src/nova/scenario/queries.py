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
from nova.query import MADE_OF
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


def equal_matrix(attributes: tuple[tuple[str, str], ...], left: StreamSources, right: StreamSources) -> Equal | None:
    """Sources join where all attributes, by their names on the left and on the right, are equal; a source without one
    of them joins nothing."""
    names = tuple(zip(*attributes, strict=True))
    found = [side.table.require(*mine) for side, mine in zip((left, right), names, strict=True)]
    if not all(found):
        return None
    codes = np.zeros(len(left) + len(right), dtype=np.int64)
    missing = np.zeros(len(codes), dtype=np.bool_)
    columns = [pa.concat_arrays([left.table.text(mine), right.table.text(other)]) for mine, other in attributes]
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
    return Equal(", ".join(names[1]), short[: len(left)], short[len(left) :], values)


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


def joined_sources(
    sides: tuple[StreamSources, StreamSources],
    aliases: tuple[str, str],
    pairs: tuple[Ints, Ints],
    node: int,
    rate: float,
) -> StreamSources:
    """What a join makes as the sources of a stream: one per pair of sources that join, with the attributes of both as
    `<alias>_<attribute>` (no alias: as they are), and tuples/s by the rates of both that add up to `rate`. They are
    given `node`, until a plan says where the join runs."""
    columns: dict[str, pa.Array] = {}
    for side, alias, rows in zip(sides, aliases, pairs, strict=True):
        for name in side.table.columns:
            if name not in ("id", "node", "rate"):
                columns[f"{alias}_{name}" if alias else name] = side.table.text(name).take(pa.array(rows))
    ids = [side.ids.take(pa.array(rows)) for side, rows in zip(sides, pairs, strict=True)]
    product = sides[0].rate[pairs[0]] * sides[1].rate[pairs[1]]
    share = product / product.sum() if product.sum() > 0 else np.full(len(product), 1 / max(len(product), 1))
    table = Table(sides[0].table.place, columns, len(product), sides[0].table.faults)
    names = pc.binary_join_element_wise(*ids, MADE_OF)
    return StreamSources(table, names, np.full(len(product), node, np.int32), rate * share)


def values_in(side: StreamSources, attribute: str) -> pa.StringArray:
    """The different values of an attribute; none where the sources do not have it."""
    found = side.table.columns.get(attribute)
    return pa.array([], pa.string()) if found is None else side.table.text(attribute).drop_null().unique()


def values_of(side: StreamSources, attributes: tuple[str, ...]) -> str:
    """The values that sources have in the attributes of a join, to show why nothing joins."""
    columns = [side.table.text(name) for name in attributes]
    joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "/")
    return listed([value for value in joined.unique().to_pylist() if value is not None], 5) or "none at all"
