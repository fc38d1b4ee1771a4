"""Digest: a checksum of what a Problem says, so that a plan made for another one is noticed.

It depends on the values alone: the same tables as CSV, as Parquet or inline have the same digest.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from nova.model.problem import Dense, Equal, Pairs, Problem


def digest(problem: Problem) -> str:
    """64 hexadecimal digits over nodes, latencies, sources and queries; not over options, digest or warnings."""
    state = hashlib.sha256()
    nodes, sources, latency = problem.nodes, problem.sources, problem.latency
    _feed(state, nodes.ids, nodes.capacity, nodes.bandwidth, nodes.hosts, nodes.coordinates, nodes.heights)
    if nodes.busy is not None:
        _feed(state, "busy", nodes.busy)
    if latency is None:
        _feed(state, None)
    else:
        _feed(state, latency.first, latency.second, latency.rtt_ms)
    _feed(state, *problem.streams, sources.ids, sources.stream, sources.node, sources.rate)
    for link in problem.links:
        labels = nodes.ids if link.label == "id" else nodes.labels[link.label].cast(pa.string()).fill_null("\0")
        _feed(state, "link", str(link), repr(link.budget), labels)
    for metric in problem.metrics:
        _feed(state, "metric", metric.name, repr(metric.weight), metric.host)
        if metric.group is not None and metric.between is not None:
            used, group = np.unique(metric.group, return_inverse=True)
            known = used[used >= 0]
            _feed(state, group - len(used) + len(known), metric.between[np.ix_(known, known)])
    for query in problem.queries:
        _feed(state, query.id, str(query.left), str(query.right), str(query.sink), repr(float(query.window_ms)))
        if query.pipeline.sql:
            _feed(state, "sql", query.pipeline.sql)
        for requirement in query.requires:
            _feed(
                state, "requires", str(requirement), nodes.labels[requirement.label].cast(pa.string()).fill_null("\0")
            )
        if query.tuple_bytes:
            _feed(state, "tuple_bytes", repr(query.tuple_bytes), nodes.memory)
        if query.apart is not None:
            values = nodes.ids if query.apart == "id" else nodes.labels[query.apart].cast(pa.string()).fill_null("\0")
            _feed(state, "apart", query.apart, values)
        if query.output is not None:
            _feed(state, "output", repr(query.output.share.value), repr(query.output.most))
        if query.key is not None:
            _feed(state, "key", *query.key.columns, repr(query.key.cardinality), np.array(query.key.heavy, np.float64))
            _feed(state, *query.key.values)
        match query.matrix:
            case Dense():
                _feed(state, "dense")
            case Equal() as equal:
                _feed(state, "equal", equal.attribute, equal.left, equal.right)
            case Pairs() as pairs:
                _feed(state, "pairs", pairs.left, pairs.right, pairs.output_rate)
    return state.hexdigest()


def _feed(state: Any, *values: Any) -> None:
    """Add values, each with its kind and length, so that no two different sequences look alike."""
    for value in values:
        if value is None:
            state.update(b"none;")
        elif isinstance(value, str):
            raw = value.encode()
            state.update(b"text %d;" % len(raw))
            state.update(raw)
        elif isinstance(value, pa.Array):
            texts = value.cast(pa.binary())
            offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
            state.update(b"texts %d;" % len(texts))
            state.update(np.diff(offsets).astype(np.int32).tobytes())
            if texts.buffers()[2] is not None:
                state.update(memoryview(texts.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
        else:
            array = np.ascontiguousarray(value)
            state.update(f"{array.dtype.str} {array.shape};".encode())
            state.update(array.tobytes())
