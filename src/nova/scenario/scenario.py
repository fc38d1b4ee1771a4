"""Scenario: what a user wrote, checked, and the Problem it describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from nova.model.options import Options
from nova.model.problem import Dense, JoinMatrix, Pairs, Problem, Query, Sources
from nova.scenario import document, model
from nova.scenario.digest import digest
from nova.scenario.faults import Faults, suggestion
from nova.scenario.latency import build_latency, check_reachable, is_matrix
from nova.scenario.nodes import build_nodes
from nova.scenario.queries import (
    MOST_PAIRS,
    StreamSources,
    build_sources,
    count_pairs,
    equal_matrix,
    pairs_matrix,
    values_of,
)
from nova.scenario.reader import read_table


@dataclass(frozen=True)
class Scenario:
    """A scenario that is in order: what was written, and what it means."""

    path: Path
    document: model.Document
    """What the file says, validated: tables by name, queries with their attributes."""
    problem: Problem
    options: Options
    """The file's options with the overrides on top."""

    @property
    def streams(self) -> Mapping[str, model.Stream]:
        """The streams as written, in order; `.input` says where tuples come from when the plan runs."""
        return self.document.streams

    @property
    def digest(self) -> str:
        """Checksum of the problem."""
        return self.problem.digest

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was repaired on reading, in words."""
        return self.problem.warnings


def load(scenario: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario with its tables. Raises InvalidInput with everything that is wrong.

    `scenario` is a file, or what a file would say as a mapping, in which tables may also be pandas, polars or Arrow
    tables and paths hold from the current folder. `overrides` are options that win over those of the scenario; None
    values are left out.
    """
    if isinstance(scenario, Mapping):
        path, written = Path("scenario"), dict(scenario)
    else:
        path = Path(scenario)
        written = document.read(path)
    faults = Faults()
    options = _options(path, written.get("options"), overrides or {}, faults)
    try:
        content = model.Document.model_validate(written)
    except ValidationError as error:
        model.note(error, model.Document, path, faults)
        faults.check()
        raise  # not reached: the error has at least one fault
    problem = _Builder(path, content, faults).build()
    faults.check()
    assert problem is not None
    return Scenario(path, content, replace(problem, digest=digest(problem)), options)


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, as `Options` has them. Raises InvalidInput with everything that is wrong."""
    faults = Faults()
    try:
        return model.OptionsModel.model_validate(dict(given)).model_dump(exclude_unset=True)
    except ValidationError as error:
        model.note(error, model.OptionsModel, Path("options"), faults)
        faults.check()
        raise  # not reached: the error has at least one fault


def _options(path: Path, written: Any, overrides: Mapping[str, Any], faults: Faults) -> Options:
    """The file's options and, over them, the caller's; faults say which of the two is wrong."""
    merged: dict[str, Any] = {}
    given = {name: value for name, value in overrides.items() if value is not None}
    for values, source in ((written, path), (given, Path("overrides"))):
        if not isinstance(values, dict):
            continue  # the document's own check says what is wrong with it
        try:
            merged |= model.OptionsModel.model_validate(values).model_dump(exclude_unset=True)
        except ValidationError as error:
            model.note(error, model.OptionsModel, source, faults, ("options",) if source is path else ())
    return Options(**merged)


class _Builder:
    """Turns the tables of a document into a Problem, and goes on after faults to find them all."""

    def __init__(self, path: Path, content: model.Document, faults: Faults) -> None:
        self.path = path
        self.content = content
        self.faults = faults
        self.warnings: list[str] = []

    def build(self) -> Problem | None:
        """The problem; None where there are faults."""
        content = self.content
        table = read_table(content.nodes, self.path, "nodes", self.faults)
        nodes = build_nodes(table, self.warnings) if table is not None else None
        names = tuple(content.streams)
        ids = nodes.ids if nodes is not None else None
        streams = {name: self._stream(name, ids) for name in names}
        queries = self._queries(streams, ids)
        latency = None
        if content.latency is not None and ids is not None:
            found = read_table(
                content.latency, self.path, "latency", self.faults, matrix=lambda columns: is_matrix(columns, ids)
            )
            latency = build_latency(found, ids, self.warnings) if found is not None else None
        if nodes is not None and content.latency is None and nodes.coordinates is None:
            message = "no latencies: give the nodes coordinates (x, y, …), or a `latency` table"
            self.faults.add(str(self.path), message, field="latency")
        if len(self.faults) or nodes is None:
            return None
        parts = [part for part in streams.values() if part is not None]
        stream = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        node = np.concatenate([part.node for part in parts])
        if nodes.coordinates is None:
            used = nodes.hosts.copy()
            used[node] = True
            used[[query.sink for query in queries]] = True
            check_reachable(latency, nodes, used, str(self.path), self.faults)
        sources = Sources(
            pa.concat_arrays([part.ids for part in parts]), stream, node, np.concatenate([part.rate for part in parts])
        )
        return Problem(nodes, names, sources, tuple(queries), latency, warnings=tuple(self.warnings))

    def _stream(self, name: str, nodes: pa.StringArray | None) -> StreamSources | None:
        table = read_table(self.content.streams[name].sources, self.path, f"streams.{name}.sources", self.faults)
        if not any(name in (query.left, query.right) for query in self.content.queries):
            self.warnings.append(f"{self.path}: no query joins stream {name!r}")
        return build_sources(table, nodes) if table is not None else None

    def _queries(self, streams: Mapping[str, StreamSources | None], nodes: pa.StringArray | None) -> list[Query]:
        rows = {name: row for row, name in enumerate(streams)}
        starts = np.cumsum([0, *(len(part) if part is not None else 0 for part in streams.values())])
        queries: list[Query] = []
        seen: dict[str, int] = {}
        for i, query in enumerate(self.content.queries):
            if query.id in seen:
                self._wrong(i, "id", f"duplicate: query {seen[query.id] + 1} has this id too", query.id)
            seen.setdefault(query.id, i)
            for side in ("left", "right"):
                name = getattr(query, side)
                if name not in streams:
                    self._wrong(i, side, f"no such stream{suggestion(name, streams)}", name)
            if query.left == query.right:
                self._wrong(i, "right", "a stream is not joined with itself", query.right)
            sink = self._sink(i, query.sink, nodes)
            left, right = streams.get(query.left), streams.get(query.right)
            if left is None or right is None:
                continue
            matrix = self._matrix(i, query, left, right)
            if matrix is None or sink < 0:
                continue
            if isinstance(matrix, Pairs):
                shift = [np.int32(starts[rows[name]]) for name in (query.left, query.right)]
                matrix = Pairs(matrix.left + shift[0], matrix.right + shift[1], matrix.output_rate)
            window = query.window.tumbling
            queries.append(Query(query.id, rows[query.left], rows[query.right], sink, matrix, window))
        return queries

    def _sink(self, i: int, name: str, nodes: pa.StringArray | None) -> int:
        if nodes is None:
            return -1
        row = pc.index(nodes, pa.scalar(name.strip(), pa.string())).as_py()
        if row < 0:
            self._wrong(i, "sink", f"no such node{suggestion(name, nodes.to_pylist())}", name)
        return int(row)

    def _matrix(self, i: int, query: model.Query, left: StreamSources, right: StreamSources) -> JoinMatrix | None:
        matrix: JoinMatrix | None = Dense()
        why = ""
        if query.on is not None:
            matrix = equal_matrix(query.on, left, right)
            if matrix is not None:
                why = f": {query.left} has {values_of(left, query.on)}, {query.right} has {values_of(right, query.on)}"
                for name, codes in ((query.left, matrix.left), (query.right, matrix.right)):
                    if missing := int(np.count_nonzero(codes < 0)):
                        text = f"{missing:,} sources of stream {name!r} have no {matrix.attribute}: they join nothing"
                        self.warnings.append(f"{self.path}: query {query.id!r}: {text}")
        elif query.pairs is not None:
            table = read_table(query.pairs, self.path, f"queries.{query.id}.pairs", self.faults)
            matrix = pairs_matrix(table, left, right, (query.left, query.right)) if table is not None else None
        if matrix is None:
            return None
        count = count_pairs(matrix, len(left), len(right))
        if count == 0:
            self._wrong(i, "on", f"no two sources join{why}")
        if count > MOST_PAIRS:
            message = f"{count:,} pairs of sources join, more than {MOST_PAIRS:,}: say which, with `on` or `pairs`"
            self._wrong(i, "on", message)
        return matrix

    def _wrong(self, i: int, field: str, message: str, value: object = None) -> None:
        """A fault in a query, with its line in the scenario file."""
        line = document.line_of(self.path, ("queries", i, field))
        self.faults.add(str(self.path), message, line, f"queries.{i}.{field}", value)
