"""Plan: the replica table, and how it is written and read.

A plan is a folder: `plan.json` (summary, options, versions, digest of the scenario), `replicas.parquet` (one row per
replica), and `coordinates.parquet` (the cost space it was made in). `plan.json` also says on which hosts partial
aggregates are merged on their way to the sink, where there are any.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import nova
from nova.model.chain import linked
from nova.model.errors import SHOWN, Fault, InvalidInput
from nova.model.merges import NO_MERGES, Merges
from nova.model.options import Options
from nova.model.plausible import MOST_MS
from nova.model.problem import Bools, Floats, Ints, Problem
from nova.model.reading import read_json, short
from nova.model.replicas import SHARES, Replicas, with_keys
from nova.model.space import CostSpace, Residual
from nova.model.subjoins import SubJoins
from nova.model.tables import columns_of, read_parquet
from nova.model.waiting import drain_ms

FORMAT = 1


class Summary(dict[str, Any]):
    """The figures of a plan that stand in `plan.json`. Those that every plan has are attributes, too."""

    @staticmethod
    def of(
        problem: Problem,
        joins: SubJoins,
        replicas: Replicas,
        loads: Floats,
        overloaded: int,
        unplaced: float = 0.0,
        merges: Merges = NO_MERGES,
    ) -> Summary:
        """The figures that every plan has, and `merging_hosts` where there are any. `loads`: tuples/s that reach each
        node."""
        per_join = np.bincount(replicas.join, minlength=len(joins))
        limit = problem.nodes.limit
        used = loads > 0
        return Summary(
            nodes=len(problem.nodes),
            sub_joins=len(joins),
            replicas=len(replicas),
            split_sub_joins=int((per_join > 1).sum()),
            hosts_used=int(used.sum()),
            max_utilisation=float((loads[used] / limit[used]).max(initial=0.0)),
            overloaded_nodes=overloaded,
            unplaced_tuples_per_s=unplaced,
            **_slices(problem, joins, replicas),
            **({"merging_hosts": len(np.unique(merges.to))} if len(merges) else {}),
        )

    @property
    def nodes(self) -> int:
        return int(self["nodes"])

    @property
    def sub_joins(self) -> int:
        return int(self["sub_joins"])

    @property
    def replicas(self) -> int:
        return int(self["replicas"])

    @property
    def split_sub_joins(self) -> int:
        """Sub-joins that run in more than one replica."""
        return int(self["split_sub_joins"])

    @property
    def hosts_used(self) -> int:
        return int(self["hosts_used"])

    @property
    def max_utilisation(self) -> float:
        """Load over limit of the fullest host."""
        return float(self["max_utilisation"])

    @property
    def sliced_sub_joins(self) -> int:
        """Sub-joins whose windows are dealt out: their results come in bursts."""
        return int(self["sliced_sub_joins"])

    @property
    def slice_lateness_ms(self) -> float:
        """How late the last result of a window is at most because its host gets all of it at once."""
        return float(self["slice_lateness_ms"])

    @property
    def overloaded_nodes(self) -> int:
        return int(self["overloaded_nodes"])

    @property
    def unplaced_tuples_per_s(self) -> float:
        """Input for which no host had room (with `allow_overload` only)."""
        return float(self["unplaced_tuples_per_s"])


def _slices(problem: Problem, joins: SubJoins, replicas: Replicas) -> dict[str, float]:
    """How many sub-joins are sliced, and the lateness to expect from it."""
    rows = np.flatnonzero(replicas.slice_to - replicas.slice_from < 1.0)
    if not len(rows):
        return {"sliced_sub_joins": 0, "slice_lateness_ms": 0.0}
    windows = np.array([query.window_ms for query in problem.queries])
    join = replicas.join[rows]
    lateness = drain_ms(windows[joins.query[join]], joins.demand[join], problem.nodes.limit[replicas.node[rows]])
    return {"sliced_sub_joins": len(np.unique(join)), "slice_lateness_ms": float(lateness.max())}


@dataclass(frozen=True)
class Plan:
    """Where every join runs. `approach` is `nova` or the name of a baseline."""

    joins: SubJoins
    replicas: Replicas
    space: CostSpace
    options: Options = field(default_factory=Options)
    approach: str = "nova"
    overloaded: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Rows of nodes that the plan knowingly overloads (only with `allow_overload`, or in a baseline)."""
    digest: str = ""
    summary: Summary = field(default_factory=Summary)
    merges: Merges = NO_MERGES
    """Where partial aggregates go before they go to the sink."""

    def table(self, problem: Problem) -> pa.Table:
        """The replica table of the contract, with ids."""
        joins, replicas = self.joins, self.replicas
        queries = pa.array([q.id for q in problem.queries], pa.string())
        left_rate, right_rate = replicas.rates(joins)
        columns: dict[str, Any] = {
            "query": queries.take(pa.array(joins.query[replicas.join])),
            "left_source": problem.sources.ids.take(pa.array(joins.left[replicas.join])),
            "right_source": problem.sources.ids.take(pa.array(joins.right[replicas.join])),
            "node": problem.nodes.ids.take(pa.array(replicas.node)),
            **{name: getattr(replicas, name) for name in SHARES},
            "left_rate": left_rate,
            "right_rate": right_rate,
        }
        return pa.table(columns)

    def coordinates(self, problem: Problem) -> pa.Table:
        """The cost space, with ids; the factors of its residual, where there is one, are called plus… or minus…"""
        axes = {f"x{i}": self.space.coordinates[:, i] for i in range(self.space.dimensions)}
        columns = {"id": problem.nodes.ids, **axes, "height": self.space.heights}
        if (residual := self.space.residual) is not None:
            for k, sign in enumerate(residual.signs):
                columns[f"{'plus' if sign > 0 else 'minus'}{k}"] = residual.factors[:, k].copy()
        return pa.table(columns)

    def write(self, folder: str | Path, problem: Problem) -> Path:
        """Write the plan as a folder. Whatever stood there under the plan's file names is replaced."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.table(problem), folder / "replicas.parquet")
        pq.write_table(self.coordinates(problem), folder / "coordinates.parquet")
        document = {
            "nova": FORMAT,
            "version": nova.__version__,
            "approach": self.approach,
            "scenario_digest": self.digest,
            "options": self.options.as_dict(),
            "summary": self.summary,
            "overloaded_nodes": problem.nodes.ids.take(pa.array(self.overloaded)).to_pylist(),
        }
        if len(self.merges):
            document["merges"] = self.merge_rows(problem)
        (folder / "plan.json").write_text(json.dumps(document, indent=2) + "\n")
        return folder

    def merge_rows(self, problem: Problem) -> list[dict[str, str]]:
        """Where partial aggregates go before they go to the sink, with ids."""
        ids, merges = problem.nodes.ids, self.merges
        ends = zip(ids.take(pa.array(merges.node)).to_pylist(), ids.take(pa.array(merges.to)).to_pylist(), strict=True)
        queries = [problem.queries[query].id for query in merges.query.tolist()]
        return [{"query": query, "node": node, "to": to} for query, (node, to) in zip(queries, ends, strict=True)]


def read(folder: str | Path, problem: Problem, joins: SubJoins | None) -> Plan:
    """Read a plan folder made for `problem`, whose sub-joins are `joins`. Unknown ids and rows are named.

    None: the sub-joins are those that the plan has replicas of, whatever the scenario's join matrix says; events may
    have changed that, and nodes may be gone: those have no coordinates.
    """
    folder = Path(folder)
    plan_file, file = folder / "plan.json", str(folder / "replicas.parquet")
    document = _document(plan_file)
    table = read_replicas(folder)
    node = _rows(table["node"], problem.nodes.ids, file, "node")
    named = _named(table, problem, file)
    after_events = joins is None
    if joins is None:
        joins, join = _distinct(table, problem, *named)
    else:
        join = _join_rows(table, problem, joins, named, file)
    shares = {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in SHARES}
    replicas = Replicas(join, node, **shares)
    joins = linked(problem, joins, replicas)
    space = _read_space(folder / "coordinates.parquet", problem, after_events)
    needed = np.full(len(problem.nodes), False) if after_events else problem.nodes.hosts.copy()
    needed[np.concatenate([joins.left_node, joins.right_node, joins.sink, node])] = True
    _check_space(space, needed, problem, folder)
    return Plan(
        joins=joins,
        replicas=replicas,
        space=space,
        options=_options(document["options"], plan_file),
        approach=document["approach"],
        overloaded=_rows(
            pa.chunked_array([pa.array(document["overloaded_nodes"], pa.string())]),
            problem.nodes.ids,
            str(plan_file),
            "overloaded_nodes",
        ),
        digest=document["scenario_digest"],
        summary=Summary(document["summary"]),
        merges=_read_merges(document["merges"], problem, plan_file),
    )


def read_replicas(folder: Path) -> pa.Table:
    """The replica table of a plan folder, its columns checked."""
    file = folder / "replicas.parquet"
    numbers = (*SHARES, "left_rate", "right_rate")
    table = with_keys(read_parquet(file, "a plan"))
    table = columns_of(table, file, texts=("query", "left_source", "right_source", "node"), numbers=numbers)
    faults = []
    for low, high in zip(SHARES[::2], SHARES[1::2], strict=True):
        first, last = table[low].to_numpy(), table[high].to_numpy()
        for row in np.flatnonzero(~((first >= 0) & (first < last) & (last <= 1)))[:SHOWN]:
            found = f"{first[row]:g}…{last[row]:g}"
            faults.append(
                Fault(str(file), f"a share from {low} to {high} within 0…1 expected", int(row) + 1, low, found)
            )
    if faults:
        raise InvalidInput(faults)
    return table


def _document(file: Path) -> dict[str, Any]:
    """`plan.json` with a default for what may be left out, and each field of its kind."""
    document = read_json(file, "a plan")
    if document.get("nova") != FORMAT:
        raise InvalidInput([Fault(str(file), f"plan format {FORMAT} expected", None, "nova", document.get("nova"))])
    defaults: dict[str, Any] = {
        "approach": "nova",
        "scenario_digest": "",
        "options": {},
        "summary": {},
        "overloaded_nodes": [],
        "merges": [],
    }
    words: dict[type, str] = {str: "text", dict: "an object", list: "a list"}
    faults = [
        Fault(str(file), f"{words[type(default)]} expected", None, name, short(document[name]))
        for name, default in defaults.items()
        if name in document and not isinstance(document[name], type(default))
    ]
    if faults:
        raise InvalidInput(faults)
    found = {name: document.get(name, default) for name, default in defaults.items()}
    if not all(isinstance(name, str) and name.isprintable() for name in found["overloaded_nodes"]):
        value = short(found["overloaded_nodes"])
        raise InvalidInput([Fault(str(file), "a list of ids expected", None, "overloaded_nodes", value)])
    return found


def _read_merges(written: list[Any], problem: Problem, file: Path) -> Merges:
    """Where partial aggregates go, from what `plan.json` says; every host has one way, and all come to the sink."""
    queries = {query.id: row for row, query in enumerate(problem.queries)}
    faults, rows = [], []
    texts = [one if isinstance(one, dict) else {} for one in written]
    named = [one.get(end) if isinstance(one.get(end), str) else None for one in texts for end in ("node", "to")]
    found = pc.index_in(pa.array(named, pa.string()), value_set=problem.nodes.ids).to_pylist()
    for number, one in enumerate(texts):
        query, node, to = one.get("query"), found[2 * number], found[2 * number + 1]
        row = queries.get(query) if isinstance(query, str) else None
        for name, known in (("query", row), ("node", node), ("to", to)):
            if known is None:
                faults.append(Fault(str(file), f"unknown {name}", number + 1, "merges", short(one.get(name))))
        if row is not None and node is not None and to is not None:
            rows.append((row, node, to))
    merges = Merges.of(rows)
    if not faults and len({row[:2] for row in rows}) < len(rows):
        faults.append(Fault(str(file), "a host sends its partial aggregates to one other only", None, "merges"))
    if not faults and (merges.levels() < 0).any():
        faults.append(Fault(str(file), "partial aggregates go round in a circle", None, "merges"))
    if faults:
        raise InvalidInput(faults[:SHOWN], more=max(0, len(faults) - SHOWN))
    return merges if rows else NO_MERGES


def _options(written: dict[str, Any], file: Path) -> Options:
    """The options a plan was made with; those that this version does not know are passed over."""
    hints = get_type_hints(Options)
    known = {f.name for f in fields(Options)} & written.keys()
    faults = [
        Fault(str(file), "not a value of this option", None, f"options.{name}", short(written[name]))
        for name in sorted(known)
        if not _fits(written[name], hints[name])
    ]
    if faults:
        raise InvalidInput(faults)
    return Options(**{name: written[name] for name in known})


def _fits(value: object, hint: Any) -> bool:
    """Whether a JSON value is of a type that an option has."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_args(hint):
        return any(_fits(value, one) for one in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2.0**63
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return isinstance(value, hint)


def _read_space(file: Path, problem: Problem, after_events: bool) -> CostSpace:
    """The cost space of a plan, in the order of the problem's nodes; `after_events` some may be gone."""
    table = read_parquet(file, "a plan")
    axes = [name for name in table.column_names if re.fullmatch(r"x[0-9]+", name)]
    if not axes:
        raise InvalidInput([Fault(str(file), "no such column", field="x0")])
    factors = [name for name in table.column_names if re.fullmatch(r"(plus|minus)[0-9]+", name)]
    table = columns_of(table, file, texts=["id"], numbers=[*axes, "height", *factors], finite=False)
    if not table["id"].combine_chunks().equals(problem.nodes.ids):
        at = pc.index_in(problem.nodes.ids, value_set=table["id"].combine_chunks())
        if at.null_count and problem.nodes.coordinates is not None:  # nodes came since; the scenario says where all are
            heights = problem.nodes.heights
            return CostSpace(problem.nodes.coordinates, np.zeros(len(at)) if heights is None else heights)
        if at.null_count and not after_events:
            first = int(np.flatnonzero(at.is_null().to_numpy(zero_copy_only=False))[0])
            message = f"{at.null_count:,} nodes of the scenario have no coordinates in this plan: plan again"
            raise InvalidInput([Fault(str(file), message, None, "id", problem.nodes.ids[first].as_py())])
        table = table.take(at)
    residual = None
    if factors:
        signs = np.array([1.0 if name.startswith("plus") else -1.0 for name in factors])
        residual = Residual(np.column_stack([table[name].to_numpy() for name in factors]), signs)
    coordinates = np.column_stack([table[name].to_numpy() for name in axes])
    return CostSpace(coordinates, table["height"].to_numpy(), residual=residual)


def _check_space(space: CostSpace, needed: Bools, problem: Problem, folder: Path) -> None:
    """Every node that a join uses or may use has a place; others (no path of measurements leads there) need none."""
    places = np.column_stack([space.coordinates, space.heights])
    lost = np.flatnonzero(needed & ~(np.abs(places) <= MOST_MS).all(axis=1))
    if len(lost):
        raise InvalidInput(
            [
                Fault(
                    str(folder / "coordinates.parquet"),
                    f"coordinates are numbers of ms up to {MOST_MS:,.0f}",
                    int(row) + 1,
                    problem.nodes.ids[int(row)].as_py(),
                    places[row].tolist(),
                )
                for row in lost[:SHOWN]
            ],
            more=max(0, len(lost) - SHOWN),
        )


def _rows(values: pa.ChunkedArray, ids: pa.StringArray, file: str, name: str) -> Ints:
    rows = pc.index_in(values.combine_chunks(), value_set=ids)
    if rows.null_count:
        unknown = np.flatnonzero(rows.is_null().to_numpy(zero_copy_only=False))
        raise InvalidInput(
            [Fault(file, f"unknown {name}", int(i) + 1, name, values[int(i)].as_py()) for i in unknown[:SHOWN]],
            more=max(0, len(unknown) - SHOWN),
        )
    return np.asarray(rows.to_numpy(), dtype=np.int32)


Named = tuple[Ints, Ints, Ints]
"""Rows of query, left and right source, of each replica."""


def _named(table: pa.Table, problem: Problem, file: str) -> Named:
    query = _rows(table["query"], pa.array([q.id for q in problem.queries], pa.string()), file, "query")
    sides = {}
    for side in ("left", "right"):
        rows = np.empty(len(table), np.int32)
        for q, wanted in enumerate(problem.queries):
            mine = np.flatnonzero(query == q)
            stream = problem.sources_of(getattr(wanted, side))
            names = table[f"{side}_source"].combine_chunks().take(pa.array(mine))
            found = _rows(pa.chunked_array([names]), problem.sources.ids.take(pa.array(stream)), file, f"{side}_source")
            rows[mine] = stream[found]
        sides[side] = rows
    return query, sides["left"], sides["right"]


def _key(problem: Problem, query: Ints, left: Ints, right: Ints) -> npt.NDArray[np.int64]:
    """One number per sub-join."""
    n = np.int64(len(problem.sources))
    return (query * n + left) * n + right


def _distinct(table: pa.Table, problem: Problem, query: Ints, left: Ints, right: Ints) -> tuple[SubJoins, Ints]:
    """The sub-joins that are named, at the rates that the table tells, and which of them each replica belongs to."""
    first, join = np.unique(_key(problem, query, left, right), return_index=True, return_inverse=True)[1:]
    joins = SubJoins.between(problem, query[first], left[first], right[first], np.full(len(first), np.nan))

    def rate(side: str, other: str) -> Floats:
        """A replica gets its rate once per part of the other side; over boxes that tile the cube this adds up to 1."""
        part = table[f"{other}_to"].to_numpy() - table[f"{other}_from"].to_numpy()
        sums: Floats = np.bincount(join, table[f"{side}_rate"].to_numpy() * part, len(first)).astype(np.float64)
        return sums

    return replace(joins, left_rate=rate("left", "right"), right_rate=rate("right", "left")), join.astype(np.int32)


def _join_rows(table: pa.Table, problem: Problem, joins: SubJoins, named: Named, file: str) -> Ints:
    """Row of the sub-join each replica belongs to, by (query, left source, right source)."""
    if not len(table):
        return np.empty(0, np.int32)
    key, known = _key(problem, *named), _key(problem, joins.query, joins.left, joins.right)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], key), len(known) - 1)
    join = order[at]
    wrong = np.flatnonzero(known[join] != key)
    if len(wrong):
        raise InvalidInput(
            [
                Fault(
                    file,
                    "the join matrix does not allow this pair",
                    int(i) + 1,
                    "left_source",
                    f"{table['left_source'][int(i)]} ⋈ {table['right_source'][int(i)]}",
                )
                for i in wrong
            ]
        )
    return join.astype(np.int32)
