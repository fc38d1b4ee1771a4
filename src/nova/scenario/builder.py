"""Model: a scenario written in Python instead of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

import pyarrow as pa

from nova.scenario.frames import as_arrow, is_frame
from nova.scenario.scenario import Scenario, load

TableLike: TypeAlias = Any
"""A pandas, polars or Arrow table, a list of rows (mappings, or lists of which the first names the columns), or a path
of a CSV or Parquet file."""


class Model:
    """Nodes, latencies, streams and queries, put together piece by piece.

        model = nova.Model(seed=7)
        model.add_node("edge", capacity=100, x=0, y=0)
        model.add_nodes(more_nodes)                          # a table with the same columns
        model.add_stream("pressure", [{"id": "p1", "node": "edge", "rate": 40}])
        model.add_stream("humidity", humidity_sources)
        model.add_query("climate", left="pressure", right="humidity", on="region", window="1s", sink="cloud")
        plan = nova.optimize(model)

    >>> nova.Model(seed=7).add_node("edge", capacity=100, x=0, y=0).to_dict()["options"]
    {'seed': 7}

    Columns and fields are those of scenario files. Nothing is checked before the model is used: then every fault is
    told at once, with table, row, field and value.
    """

    def __init__(self, **options: Any) -> None:
        """`options` are those of a scenario file: seed, objective, partition, …"""
        self._nodes = _Rows()
        self._latencies = _Rows()
        self._links = _Rows()
        self._metrics: dict[str, dict[str, Any]] = {}
        self._streams: dict[str, dict[str, Any]] = {}
        self._queries: list[dict[str, Any]] = []
        self._options = dict(options)

    def add_node(self, id: str, capacity: float | str, **columns: Any) -> Self:  # noqa: A002
        """One machine. Capacity in tuples/s; coordinates in ms, `hosts`, `bandwidth` and labels as in a nodes table."""
        self._nodes.add([{"id": id, "capacity": capacity, **columns}])
        return self

    def add_nodes(self, table: TableLike) -> Self:
        """Many machines: a table with the columns id, capacity, …"""
        self._nodes.add(table)
        return self

    def add_latency(self, first: str, second: str, rtt_ms: float) -> Self:
        """One measured round-trip time."""
        self._latencies.add([{"from": first, "to": second, "rtt_ms": rtt_ms}])
        return self

    def add_latencies(self, table: TableLike) -> Self:
        """Many round-trip times: a table with the columns from, to, rtt_ms, or a square matrix (first column: id)."""
        self._latencies.add(table)
        return self

    def add_links(self, table: TableLike) -> Self:
        """Budgets of links: a table with the columns from, to, budget (or mbit_s and tuple_bytes) and label."""
        self._links.add(table)
        return self

    def add_metric(self, name: str, *, links: TableLike | None = None, **fields: Any) -> Self:
        """Something that counts beside latency; fields are those of a metric in a scenario file: node, label, weight,
        …"""
        self._metrics[name] = fields | ({} if links is None else {"links": _plain(links)})
        return self

    def add_stream(
        self,
        name: str,
        sources: TableLike,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """A logical stream: a table of sources with the columns id, node, rate (tuples/s) and attributes to join on.
        `input` says where its tuples come from when the plan runs, `columns` what they hold, for queries in SQL."""
        if isinstance(sources, Mapping):
            sources = [dict(sources)]
        given = {"input": input, "columns": columns}
        self._streams[name] = {"sources": _plain(sources)} | {k: dict(v) for k, v in given.items() if v is not None}
        return self

    def add_query(
        self,
        id: str,  # noqa: A002
        *,
        sink: str,
        left: str | None = None,
        right: str | None = None,
        sql: str | None = None,
        on: str | Sequence[str] | None = None,
        pairs: TableLike | None = None,
        window: str | float | Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Self:
        """A query: left ⋈ right within windows (`"1s"`, which it is by default, or a number of ms), results to the node
        `sink`; or all of it as `sql`.

        `on` names attributes of the sources that must be equal, `pairs` lists the sources that join; neither: all do.
        Other fields are those of a query in a scenario file.
        """
        given = {"left": left, "right": right, "sql": sql}
        named = {name: value for name, value in given.items() if value is not None}
        query: dict[str, Any] = {"id": id, **named, "sink": sink, **fields}
        if window is not None:
            query["window"] = dict(window) if isinstance(window, Mapping) else {"tumbling": _duration(window)}
        if on is not None:
            query["on"] = on if isinstance(on, str) else list(on)
        if pairs is not None:
            query["pairs"] = _plain(pairs)
        self._queries.append(query)
        return self

    def to_dict(self) -> dict[str, Any]:
        """What a scenario file would say; `nova.load` takes it."""
        document: dict[str, Any] = {"nova": 1, "nodes": self._nodes.table()}
        if self._latencies:
            document["latency"] = self._latencies.table()
        if self._links:
            document["links"] = self._links.table()
        if self._metrics:
            document["metrics"] = self._metrics
        document |= {"streams": self._streams, "queries": self._queries}
        return document | ({"options": self._options} if self._options else {})

    def scenario(self) -> Scenario:
        """The scenario, checked. Raises `InvalidInput` with everything that is wrong."""
        return load(self.to_dict())

    def __repr__(self) -> str:
        return f"Model({self._nodes.parts} parts of nodes, streams {list(self._streams)}, {len(self._queries)} queries)"


class _Rows:
    """A table that grows by rows and by tables."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def parts(self) -> int:
        return len(self._parts)

    def add(self, table: TableLike) -> None:
        """Add rows; those that come one by one are gathered."""
        part = _plain(table)
        last = self._parts[-1] if self._parts else None
        if _are_mappings(part) and _are_mappings(last):
            last += part
        else:
            self._parts.append(part)

    def table(self) -> Any:
        """All of it: as it came where it is one part, else put together column by column."""
        if len(self._parts) == 1:
            return self._parts[0]
        if not self._parts:
            return []
        from nova.scenario.reader import read_rows

        tables = [part if isinstance(part, pa.Table) else read_rows(part) for part in self._parts]
        names = dict.fromkeys(name for table in tables for name in table.column_names)
        mixed = {
            name for name in names if len({table[name].type for table in tables if name in table.column_names}) > 1
        }
        as_text = [
            pa.table({n: table[n].cast(pa.string()) if n in mixed else table[n] for n in table.column_names})
            for table in tables
        ]
        return pa.concat_tables(as_text, promote_options="default")


def _are_mappings(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(row, dict) for row in part)


def _plain(table: TableLike) -> Any:
    """A table as scenario files and the reader know it: Arrow, rows, or a path."""
    if is_frame(table):
        return as_arrow(table)
    if isinstance(table, Sequence) and not isinstance(table, str):
        return [dict(row) if isinstance(row, Mapping) else list(row) for row in table]
    return str(table)


def _duration(window: str | float) -> str:
    return window if isinstance(window, str) else f"{window}ms"
