"""Writer: a Problem as a scenario file with its tables, so that a plan which events have changed has a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from nova.model.metrics import Metric
from nova.model.operators import Tree
from nova.model.options import Options
from nova.model.problem import Dense, Equal, Ints, Pairs, Problem, Query
from nova.model.subjoins import SubJoins
from nova.placement.resolve import resolve

FILE = "scenario.yaml"


def write(folder: Path, problem: Problem, options: Options, inputs: Mapping[str, Any] | None = None) -> Path | None:
    """Write `scenario.yaml` and Parquet tables into a folder. Returns the scenario file; None where no scenario can say
    it: no two sources join, or of a query of several joins some pairs wait.

    `inputs` are the streams' inputs, as a scenario file writes them, with paths that hold from this folder. Queries of
    which no pair is left, and streams without sources, are left out.
    """
    joins = resolve(problem)
    several = {query.makes for query in problem.queries} - {None}
    if not len(joins) or any(
        isinstance(query.matrix, Pairs)
        and (query.makes in several or {*map(problem.born, (query.left, query.right))} & several)
        for query in problem.queries
    ):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"nova": 1, "nodes": _save(folder, "nodes", _nodes(problem))}
    if problem.latency is not None:
        ids, known = problem.nodes.ids, problem.latency
        document["latency"] = _save(
            folder,
            "latency",
            {
                "from": ids.take(pa.array(known.first)),
                "to": ids.take(pa.array(known.second)),
                "rtt_ms": known.rtt_ms,
            },
        )
    if problem.links:
        document["links"] = [
            {"label": one.label, "from": one.origin, "to": one.target, "budget": one.budget} for one in problem.links
        ]
    if problem.metrics:
        told = {metric.name: _metric(metric) for metric in problem.metrics}
        document["metrics"] = {name: one for name, one in told.items() if "node" in one or "links" in one}
    attributes = _Attributes(problem)
    written = {n: _query(problem, n, joins, attributes, folder) for n in np.unique(joins.query).tolist()}
    made = {query.makes for query in problem.queries}
    document["streams"] = {}
    for number, name in enumerate(problem.streams):
        rows = problem.sources_of(number)
        if not len(rows) or number in problem.derived or number in made:
            continue
        columns = {
            "id": problem.sources.ids.take(pa.array(rows)),
            "node": problem.nodes.ids.take(pa.array(problem.sources.node[rows])),
            "rate": problem.sources.rate[rows],
            **attributes.columns(number),
        }
        stream: dict[str, Any] = {"sources": _save(folder, f"sources-{number}", columns)}
        if inputs and name in inputs:
            stream["input"] = inputs[name]
        declared = dict(columns for query in problem.queries for columns in query.pipeline.columns)
        if name in declared:
            counted = dict(declared[name])
            stream["columns"] = {one: None if count is None else {"distinct": count} for one, count in counted.items()}
        document["streams"][name] = stream
    document["queries"] = [one for number, one in written.items() if problem.queries[number].makes is None]
    document["options"] = {name: value for name, value in options.as_dict().items() if value is not None}
    path = folder / FILE
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _save(folder: Path, name: str, columns: Mapping[str, Any]) -> str:
    file = f"{name}.parquet"
    pq.write_table(pa.table(dict(columns)), folder / file)
    return file


def _nodes(problem: Problem) -> dict[str, Any]:
    nodes = problem.nodes
    columns: dict[str, Any] = {"id": nodes.ids, "capacity": nodes.capacity, "hosts": nodes.hosts}
    columns |= nodes.labels
    for metric in problem.metrics:
        if metric.host is not None:
            columns[f"{metric.name} per tuple"] = metric.host
        if metric.group is not None:
            columns[f"{metric.name} group"] = [None if k < 0 else f"{k:08d}" for k in metric.group.tolist()]
    if not np.isinf(nodes.bandwidth).all():
        columns["bandwidth"] = nodes.bandwidth
    if nodes.busy is not None:
        columns["busy"] = nodes.busy
    if nodes.coordinates is not None:
        columns |= {f"x{axis}": nodes.coordinates[:, axis].copy() for axis in range(nodes.coordinates.shape[1])}
        if nodes.heights is not None:
            columns["height"] = nodes.heights
    return columns


def _metric(metric: Metric) -> dict[str, Any]:
    document: dict[str, Any] = {"weight": metric.weight}
    if metric.host is not None:
        document["node"] = f"{metric.name} per tuple"
    if metric.group is not None and metric.between is not None:
        used = np.unique(metric.group[metric.group >= 0]).tolist()
        rows = [
            {"from": f"{a:08d}", "to": f"{b:08d}", "amount": float(metric.between[a, b])} for a in used for b in used
        ]
        if rows:
            document |= {"label": f"{metric.name} group", "links": rows}
    return document


def _query(problem: Problem, number: int, joins: SubJoins, attributes: _Attributes, folder: Path) -> dict[str, Any]:
    query = problem.queries[number]
    document: dict[str, Any] = {"id": query.id}
    around = query.pipeline
    if around.sql:
        document["sql"] = around.sql
        document["selectivity"] = dict(around.shares)
        if around.origins:
            document["selectivity_from"] = dict(around.origins)
        if around.order is not None:
            document["order"] = _nested(around.order)
    else:
        document |= {"left": problem.streams[query.left], "right": problem.streams[query.right]}
        if query.output is not None and query.makes is None:
            document["selectivity"] = {"join": query.output.share.value}
            if query.output.share.origin != "stated":
                document["selectivity_from"] = {"join": query.output.share.origin}
    match query.matrix:
        case Equal() if around.single:
            pass
        case Equal() as equal if attributes.take(query, equal):
            if not around.sql:
                document["on"] = equal.attribute.split(", ")
        case Dense():
            pass
        case _:
            mine = np.flatnonzero(joins.query == number)
            ids = problem.sources.ids
            document["pairs"] = _save(
                folder,
                f"pairs-{number}",
                {
                    "left": ids.take(pa.array(joins.left[mine])),
                    "right": ids.take(pa.array(joins.right[mine])),
                    "output_rate": pa.array(joins.output_rate[mine], from_pandas=True),
                },
            )
    if not around.sql:
        document["window"] = {"tumbling": f"{float(query.window_ms)!r}ms"}
    if query.tuple_bytes:
        document["tuple_bytes"] = query.tuple_bytes
    if query.apart is not None:
        document["apart"] = query.apart
    if query.requires:
        document["requires"] = [str(one) for one in query.requires]
    if query.key is not None and not query.key.columns[0].startswith("_key"):  # that of a text is read from it again
        key: dict[str, Any] = {"column": list(query.key.columns)}
        if np.isfinite(query.key.cardinality):
            key["cardinality"] = int(query.key.cardinality)
        if query.key.heavy:
            values = query.key.values or [f"key {number + 1}" for number in range(len(query.key.heavy))]
            key["heavy"] = dict(zip(values, query.key.heavy, strict=True))
        document["key"] = key
    document["sink"] = problem.nodes.ids[query.sink].as_py()
    return document


def _nested(tree: Tree) -> Any:
    """An order of joins as lists in lists."""
    return tree if isinstance(tree, str) else [_nested(part) for part in tree]


class _Attributes:
    """Attributes of sources, as the join matrices tell them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.values: dict[tuple[int, str], pa.StringArray] = {}
        """By stream and attribute: one text per source of the stream."""

    def take(self, query: Query, equal: Equal) -> bool:
        """Whether the query can be written as a join on attributes: their values are known, and no query before it
        says otherwise."""
        names = equal.attribute.split(", ")
        if len(equal.values) != len(names) or len(set(names) & {"id", "node", "rate"}):
            return False
        born, made = self.problem.born, {one.makes for one in self.problem.queries}
        both = (born(query.left), equal.left), (born(query.right), equal.right)
        sides: list[tuple[int, Ints]] = [(stream, codes) for stream, codes in both if stream not in made]
        told: dict[tuple[int, str], pa.StringArray] = {}
        for stream, codes in sides:
            for name, values in zip(names, equal.values, strict=True):
                found = _by_code(values, codes)
                known = self.values.get((stream, name))
                if known is None:
                    told[stream, name] = found
                elif pc.any(pc.not_equal(pc.fill_null(known, ""), found)).as_py():
                    return False
                else:
                    told[stream, name] = known
        for stream, codes in sides:  # who joins nothing in this query may not join by what another one tells of it
            whole: npt.NDArray[np.bool_] = np.ones(len(codes), bool)
            for name in names:
                whole &= told[stream, name].is_valid().to_numpy(zero_copy_only=False)
            if (whole & (codes < 0)).any():
                return False
        self.values |= told
        return True

    def columns(self, stream: int) -> dict[str, pa.StringArray]:
        """The attribute columns of a stream."""
        return {name: values for (owner, name), values in self.values.items() if owner == stream}


def _by_code(values: pa.StringArray, codes: Ints) -> pa.StringArray:
    """The value of each code; null for codes below zero."""
    return values.take(pa.array(codes, mask=codes < 0))
