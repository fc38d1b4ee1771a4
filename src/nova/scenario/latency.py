"""The latency table: measured round-trip times, as a square matrix or as a list of pairs.

What is repaired is said: two directions that differ are averaged, zeros between different nodes count as not measured,
the diagonal is ignored. What is not measured stays unknown: reachability is never invented.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova.costspace.fillers import fillers
from nova.model.plausible import LEAST_MS
from nova.model.problem import Bools, Floats, Ints, Latency, Nodes
from nova.model.units import RTT, RTT_UNITS, Quantity
from nova.scenario.faults import Faults, listed
from nova.scenario.table import Table

ABSURD_MS = 60_000.0
"""A round trip of more than a minute is a mistake of units, not a network."""
RTTS = (*(f"rtt_{unit}" for unit in RTT_UNITS), "rtt")
"""Columns of RTTs; `rtt` does not say its unit, so the scenario or each cell has to."""
LOOKS_LIKE_SECONDS = 1.0
"""A matrix without a unit and without an RTT of this many ms is one of seconds, or of a single rack: one has to say."""


def is_matrix(names: list[str], nodes: pa.StringArray) -> bool:
    """Whether a table with these columns is a square matrix: its columns are named after nodes."""
    if ({"from", "to"} <= set(names) and set(RTTS) & set(names)) or len(names) < 2:
        return False
    return bool(pc.any(pc.is_in(pa.array(names[1:], pa.string()), value_set=nodes)).as_py())


@dataclass(frozen=True)
class _Directed:
    """RTTs from one node to another, as rows of the node table; self-pairs and zeros are gone."""

    origin: Ints
    target: Ints
    rtt_ms: Floats


def build_latency(table: Table, nodes: pa.StringArray, warnings: list[str], unit: str | None = None) -> Latency | None:
    """RTTs of unordered pairs; None where the table is wrong or holds none. `unit` is that of bare numbers: ms where
    it is not stated, and not told by the name of the column."""
    names = list(table.columns)
    if is_matrix(names, nodes):
        directed = _from_matrix(table, nodes, warnings, unit)
    elif {"from", "to", *RTTS} & set(names):
        directed = _from_edges(table, nodes, warnings, unit)
    else:
        table.faults.add(
            table.place,
            "neither a list of pairs (columns from, to, rtt_ms) nor a matrix (columns named after nodes); "
            f"the columns here are {listed(names)}",
            1 if table.lines is not None else None,
        )
        return None
    return None if directed is None else _unordered(directed, nodes, table.place, warnings)


def _from_matrix(table: Table, nodes: pa.StringArray, warnings: list[str], unit: str | None) -> _Directed | None:
    """The entries of a matrix whose header and first column name the same nodes in the same order."""
    first, *names = table.columns
    ids = table.ids(first)
    header = pa.array(names, pa.string())
    before = len(table.faults)
    rows = table.references(first, nodes, "node")
    unknown = pc.invert(pc.is_in(header, value_set=nodes)).to_numpy(zero_copy_only=False)
    extra = [name for name, bad in zip(names, unknown, strict=True) if bad]
    if extra:
        table.faults.add(table.place, f"columns that are no nodes: {listed(extra)}", 1 if table.lines else None)
    if not ids.equals(header):
        only_column = pc.invert(pc.is_in(ids, value_set=header)).to_numpy(zero_copy_only=False)
        only_header = pc.invert(pc.is_in(header, value_set=ids)).to_numpy(zero_copy_only=False)
        if only_column.any() or only_header.any():
            parts = [
                f"only in the {where}: {listed(side.filter(pa.array(only)).to_pylist())}"
                for where, side, only in (("first column", ids, only_column), ("header", header, only_header))
                if only.any()
            ]
            message = f"header and first column name different nodes ({'; '.join(parts)})"
            table.faults.add(table.place, message, 1 if table.lines else None, first)
        elif len(ids) == len(names):  # else an id stands there twice, which is told already
            i = next(i for i, (a, b) in enumerate(zip(ids.to_pylist(), names, strict=False)) if a != b)
            message = f"header and first column name the nodes in different orders; here the header has {names[i]!r}"
            table.faults.add(table.place, message, table.row(i), first, ids[i].as_py())
    entries = _entries(table, names, unit or "ms")
    if len(table.faults) > before:
        return None
    if unit is None and (entries > 0).sum() > 2 and np.nanmax(entries) < LOOKS_LIKE_SECONDS:
        message = (
            f"the largest RTT is {np.nanmax(entries):g}: are these seconds? Say so in the scenario with"
            " `latency_unit: s`, or with `latency_unit: ms` if they are not"
        )
        table.faults.add(table.place, message, field="latency_unit")
        return None
    diagonal = np.diagonal(entries)
    _warn_diagonal(diagonal[~np.isnan(diagonal)], table.place, warnings)
    np.fill_diagonal(entries, np.nan)
    a, b = np.nonzero(~np.isnan(entries))
    return _measured(rows[a], rows[b], entries[a, b], table.place, warnings)


def _entries(table: Table, names: list[str], unit: str) -> Floats:
    """The cells of a matrix in ms, NaN where empty. Columns are checked one by one only if something is wrong."""
    columns = [table.columns[name] for name in names]
    if unit == "ms" and all(pa.types.is_float64(column.type) for column in columns):
        entries: Floats = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
        empty = sum(column.null_count for column in columns)
        if np.count_nonzero((entries == 0) | ((entries >= LEAST_MS) & (entries <= ABSURD_MS))) + empty == entries.size:
            return entries
    return np.column_stack([_rtts(table, name, unit, empty=math.nan) for name in names])


def _rtts(table: Table, name: str, unit: str, empty: float | None = None) -> Floats:
    """A column of RTTs in ms. Cells may have units of their own where ms are meant."""
    factor = RTT_UNITS[unit]
    quantity = RTT if unit == "ms" else Quantity(unit, {})
    return factor * table.numbers(name, quantity, empty=empty, most=ABSURD_MS / factor, least=LEAST_MS / factor)


def _from_edges(table: Table, nodes: pa.StringArray, warnings: list[str], unit: str | None) -> _Directed | None:
    """The rows of a list of pairs, each direction of a pair at most once."""
    before = len(table.faults)
    origin = table.references("from", nodes, "node") if "from" in table.columns else None
    target = table.references("to", nodes, "node") if "to" in table.columns else None
    named = next((name for name in RTTS if name in table.columns), "rtt_ms")
    told = named.removeprefix("rtt_") if named != "rtt" else unit
    if told is None:
        if _has_units(table, named):
            told = "ms"
        else:
            message = "which unit? Name the column rtt_ms or rtt_s, or say `latency_unit: ms` or `s` in the scenario"
            table.faults.add(table.place, message, 1 if table.lines is not None else None, named)
            return None
    elif unit is not None and unit != told:
        message = f"the scenario says `latency_unit: {unit}`, and this column is one of {told}"
        table.faults.add(table.place, message, 1 if table.lines is not None else None, named)
    rtt = _rtts(table, named, told) if named in table.columns else None
    if not table.require("from", "to", named):
        return None
    assert origin is not None
    assert target is not None
    assert rtt is not None
    known = (origin >= 0) & (target >= 0)
    key = np.where(known, origin * np.int64(len(nodes)) + target, -1 - np.arange(len(table)))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    table.note(
        first[inverse] != np.arange(len(table)),
        "to",
        lambda i: f"duplicate: row {table.row(int(first[inverse[i]]))} gives this pair already",
        pc.binary_join_element_wise(table.text("from"), table.text("to"), " → "),
    )
    if len(table.faults) > before:
        return None
    if unit is None and named == "rtt_ms" and len(rtt) > 2 and 0 < rtt.max() < LOOKS_LIKE_SECONDS:
        warnings.append(
            f"{table.place}: the largest RTT is {rtt.max():g} ms; if these are seconds, call the column rtt_s"
        )
    same = origin == target
    _warn_diagonal(rtt[same], table.place, warnings)
    return _measured(origin[~same], target[~same], rtt[~same], table.place, warnings)


def _has_units(table: Table, name: str) -> bool:
    """Whether every cell says its own unit."""
    column = table.columns[name]
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return False
    return bool(pc.all(pc.match_substring_regex(column, r"[0-9.]\s*(ns|us|µs|μs|ms|s)\s*$")).as_py())


def _warn_diagonal(values: Floats, place: str, warnings: list[str]) -> None:
    if count := int(np.count_nonzero(values)):
        warnings.append(f"{place}: {count:,} RTTs of a node to itself are not 0 (largest {values.max():g} ms): ignored")


def _measured(origin: Ints, target: Ints, rtt: Floats, place: str, warnings: list[str]) -> _Directed:
    """Drop zeros: two machines are never 0 ms apart, such an entry says that nothing was measured."""
    zero = rtt == 0
    if count := int(np.count_nonzero(zero)):
        warnings.append(f"{place}: {count:,} RTTs between different nodes are 0 ms: taken as not measured")
    return _Directed(origin[~zero], target[~zero], rtt[~zero])


def _unordered(directed: _Directed, nodes: pa.StringArray, place: str, warnings: list[str]) -> Latency | None:
    """One RTT per pair, in order of the nodes; where both directions were measured, their mean."""
    n = np.int64(len(nodes))
    if not len(directed.rtt_ms):
        warnings.append(f"{place}: no RTT is measured")
        return None
    low, high = np.minimum(directed.origin, directed.target), np.maximum(directed.origin, directed.target)
    key = low * n + high
    order = np.argsort(key, kind="stable")
    key, rtt = key[order], directed.rtt_ms[order]
    start = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    count = np.diff(np.r_[start, len(key)])
    least, most = np.minimum.reduceat(rtt, start), np.maximum.reduceat(rtt, start)
    differ = most - least > 1e-9 * most
    first, second = (key[start] // n).astype(np.int32), (key[start] % n).astype(np.int32)
    if pairs := int(np.count_nonzero(differ)):
        worst = int(np.argmax(most - least))
        ends = f"{nodes[int(first[worst])]} and {nodes[int(second[worst])]}"
        warnings.append(
            f"{place}: {pairs:,} pairs have a different RTT in each direction "
            f"(the largest difference is {most[worst] - least[worst]:g} ms, between {ends}): averaged"
        )
    latency = Latency(first, second, np.where(count == 2, (least + most) / 2, least))
    filler = fillers(len(nodes), latency)
    if pairs := int(np.count_nonzero(filler)):
        worth = float(latency.rtt_ms.min())
        warnings.append(
            f"{place}: {pairs:,} pairs have {worth:g} ms, the least RTT there is, and lie far below what others say:"
            " taken as filler values for missing ones, left out"
        )
        latency = Latency(first[~filler], second[~filler], latency.rtt_ms[~filler])
    return latency


def check_reachable(latency: Latency | None, nodes: Nodes, used: Bools, place: str, faults: Faults) -> None:
    """Fault where nodes that a plan may use have no path of measured RTTs between them.

    The cost space could put such pieces anywhere: any latency between them would be made up.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(nodes)
    first, second = (latency.first, latency.second) if latency is not None else (np.empty(0, np.int32),) * 2
    graph = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(n, n))
    _, piece = connected_components(graph, directed=False)
    pieces, sizes = np.unique(piece[used], return_counts=True)
    if len(pieces) < 2:
        return
    shown = []
    for k in np.argsort(-sizes, kind="stable")[:5]:
        members = np.flatnonzero(used & (piece == pieces[k]))
        noun = "node" if sizes[k] == 1 else "nodes"
        shown.append(f"{sizes[k]:,} {noun} ({listed(nodes.ids.take(pa.array(members[:6])).to_pylist(), 5)})")
    rest = f"; … and {len(pieces) - 5:,} more pieces" if len(pieces) > 5 else ""
    faults.add(
        place,
        f"the measured RTTs leave {len(pieces):,} pieces with no path between them: {'; '.join(shown)}{rest}. "
        "Measure RTTs between the pieces, give coordinates, or set `hosts` to false for nodes that nothing uses",
        field="latency",
    )


def ways(nodes: Nodes, latency: Latency | None, start: Ints, end: Ints) -> Floats:
    """Rough ms from each node to each other one, before there is a cost space: by coordinates, or as measured, where
    pairs without a measurement count as the median one."""
    if nodes.coordinates is not None:
        at = nodes.coordinates
        heights = np.zeros(len(nodes)) if nodes.heights is None else nodes.heights
        apart: Floats = np.linalg.norm(at[start][:, None] - at[end][None], axis=2)
        apart = apart + heights[start][:, None] + heights[end][None]
    elif latency is not None and len(latency):
        apart = np.full((len(start), len(end)), float(np.median(latency.rtt_ms)))
        place = {int(node): row for row, node in enumerate(np.unique(np.concatenate([start, end])))}
        used = np.isin(latency.first, list(place)) & np.isin(latency.second, list(place))
        square = np.full((len(place), len(place)), np.nan)
        a, b = ([place[int(one)] for one in side[used]] for side in (latency.first, latency.second))
        square[a, b] = square[b, a] = latency.rtt_ms[used]
        known = square[np.ix_([place[int(one)] for one in start], [place[int(one)] for one in end])]
        apart = np.where(np.isnan(known), apart, known)
    else:
        apart = np.zeros((len(start), len(end)))
    return np.where(start[:, None] == end[None], 0.0, apart)
