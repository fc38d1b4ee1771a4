"""Materialize: the problem and the plan that a state amounts to, with rows numbered afresh."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.controller.ledger import OVER
from nova.controller.schema import GONE, NONE, STEP, WAITING
from nova.controller.state import State
from nova.model.chain import linked
from nova.model.merges import merge_loads
from nova.model.plan import Plan, Summary
from nova.model.problem import Ints, Nodes, Pairs, Problem, Query, Sources
from nova.model.replicas import SHARES, Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.placement.merging import merge_trees
from nova.placement.resolve import resolve
from nova.scenario.digest import digest


@dataclass(frozen=True)
class Materialized:
    """A problem with its sub-joins, and the rows of the state that they and its nodes have."""

    problem: Problem
    joins: SubJoins
    join_rows: npt.NDArray[np.intp]
    node_rows: npt.NDArray[np.intp]


def problem_of(state: State) -> Materialized:
    """The problem as events have left it, without the sub-joins that wait. Nodes carry the coordinates of the running
    cost space."""
    found = problem_with(state, waiting=False)
    return replace(found, problem=replace(found.problem, digest=digest(found.problem)))


def problem_with(state: State, *, waiting: bool) -> Materialized:
    """The same without a digest; with the sub-joins that wait for room, if wanted."""
    names, nodes, sources, joins = state.names, state.nodes, state.sources, state.joins
    kept_nodes, node_row = _renumber(nodes["alive"][: nodes.end])
    exists = joins["state"][: joins.end] != NONE
    runs = exists if waiting else _runs(state)
    kept_sources = _sources(state, runs)
    source_row = _numbers(kept_sources, sources.end)
    source_node = node_row[sources["node"][kept_sources]]
    queries: list[Query] = []
    query_row = np.full(len(names.queries), -1, np.int32)
    for row, rule in enumerate(names.queries):
        if rule is None or names.query_rows.get(rule.id) != row or state.queries["sink"][row] < 0:
            continue  # gone, or without a sink
        query_row[row] = len(queries)
        if rule.makes is not None:  # until a plan says where they are born
            streams = [rule.makes, *(made for made, derived in names.derived.items() if derived.base == rule.makes)]
            there = node_row[state.queries["sink"][row]]
            source_node[np.isin(sources["stream"][kept_sources], streams)] = there
        mine = joins["query"][: joins.end] == row
        rows = np.flatnonzero(mine & runs)
        left, right = source_row[joins["left"][rows]], source_row[joins["right"][rows]]
        order = np.lexsort((right, left))
        left_stream, right_stream = (kept_sources[sources["stream"][kept_sources] == stream] for stream in rule.streams)
        rule.reach(sources.end)
        queries.append(
            Query(
                rule.id,
                *rule.streams,
                int(node_row[state.queries["sink"][row]]),
                rule.matrix(
                    (left_stream, right_stream),
                    Pairs(left[order], right[order], joins["output"][rows][order]),
                    complete=len(rows) == np.count_nonzero(mine & exists),
                ),
                rule.window_ms,
                rule.pipeline,
                rule.requires,
                rule.key,
                rule.output,
                tuple_bytes=rule.tuple_bytes,
                apart=rule.apart,
                makes=rule.makes,
            )
        )
    problem = Problem(
        nodes=Nodes(
            pa.array([names.nodes[row] for row in kept_nodes.tolist()], pa.string()),
            nodes["capacity"][kept_nodes],
            nodes["bandwidth"][kept_nodes],
            nodes["hosts"][kept_nodes],
            nodes["at"][kept_nodes],
            nodes["height"][kept_nodes],
            nodes["busy"][kept_nodes] if nodes["busy"][kept_nodes].any() else None,
            {label: _labels(values, kept_nodes) for label, values in names.labels.items()},
        ),
        streams=tuple(names.streams),
        sources=Sources(
            pa.array([names.sources[row] for row in kept_sources.tolist()], pa.string()),
            sources["stream"][kept_sources].astype(np.int32),
            source_node,
            sources["rate"][kept_sources],
        ),
        queries=tuple(queries),
        latency=state.measurements.latency(state, kept_nodes, node_row),
        links=names.links,
        metrics=tuple(metric.of_rows(kept_nodes) for metric in names.metrics),
        derived=names.derived,
    )
    resolved = resolve(problem)
    rows = np.flatnonzero(runs & (query_row[joins["query"][: joins.end]] >= 0))
    join_rows = np.empty(len(resolved), np.intp)
    join_rows[
        _find(
            resolved,
            query_row[joins["query"][rows]],
            source_row[joins["left"][rows]],
            source_row[joins["right"][rows]],
            len(kept_sources),
        )
    ] = rows
    return Materialized(problem, resolved, join_rows, kept_nodes)


def _sources(state: State, runs: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Rows of the sources of a problem: all there are, in their order. Those that sub-joins make follow in the order of
    the sub-joins, as far as these run; copies of a stream stand in its order."""
    names, sources, joins = state.names, state.sources, state.joins
    alive = np.flatnonzero(sources["alive"][: sources.end])
    makers = names.makers()
    if not makers:
        return alive
    stream = sources["stream"][: sources.end]
    kept: list[int] = []
    number = np.full(sources.end, -1, np.int64)

    def take(rows: list[int]) -> None:
        number[rows] = np.arange(len(kept), len(kept) + len(rows))
        kept.extend(rows)

    def with_copies(base: int, ids: list[str]) -> None:
        take([names.source_of(base, name) for name in ids])
        for row, derived in names.derived.items():
            if derived.base == base:
                take([found for name in ids if (found := names.source_of(row, name)) >= 0])

    for row in range(len(names.streams)):
        if row not in makers and row not in names.derived:
            with_copies(row, [names.sources[one] for one in alive[stream[alive] == row].tolist()])
    for made, query in makers.items():
        if state.queries["sink"][query] >= 0:
            mine = np.flatnonzero(runs & (joins["query"][: joins.end] == query))
            left, right = joins["left"][mine], joins["right"][mine]
            order = np.lexsort((number[right], number[left]))
            with_copies(
                made, [names.made_of(*pair) for pair in zip(left[order].tolist(), right[order].tolist(), strict=True)]
            )
    return np.array(kept, np.intp)


def plan_of(state: State, materialized: Materialized) -> Plan:
    """The plan that runs, for the problem that was made of the state. Merges on the way to the sink keep nothing, so
    they are found anew, in the room that replicas leave."""
    problem, table, made = materialized.problem, state.joins, replicas_of(state, materialized)
    joins = linked(problem, materialized.joins, made)
    nodes = problem.nodes
    assert nodes.coordinates is not None
    assert nodes.heights is not None
    space = CostSpace(nodes.coordinates, nodes.heights)
    merges = merge_trees(problem, joins, made, space, state.options)
    used = state.nodes["used"][materialized.node_rows] + merge_loads(problem, joins, made, merges)
    loads = np.where(used > 0, used + nodes.other_load, 0.0)
    over = np.flatnonzero(loads > nodes.limit * (1 + OVER))
    return Plan(
        joins,
        made,
        space,
        state.options,
        overloaded=over.astype(np.int32),
        digest=problem.digest,
        summary=Summary(
            Summary.of(problem, joins, made, loads, len(over), merges=merges),
            steps=int(state.counts[STEP]) - 1,
            waiting_sub_joins=int(np.count_nonzero(table["state"][: table.end] == WAITING)),
        ),
        merges=merges,
    )


def replicas_of(state: State, materialized: Materialized) -> Replicas:
    """What runs, as rows of the problem that was made of the state."""
    replicas = state.replicas
    alive = np.flatnonzero(replicas["next"] != GONE)
    boxes = replicas["box"][alive]
    made = Replicas(
        _numbers(materialized.join_rows, state.joins.end)[replicas["join"][alive]],
        _numbers(materialized.node_rows, state.nodes.end)[replicas["node"][alive]],
        **{name: boxes[:, k].copy() for k, name in enumerate(SHARES)},
    )
    return made.take(np.lexsort((made.key_from, made.right_from, made.left_from, made.slice_from, made.join)))


def _labels(values: list[str | None], rows: npt.NDArray[np.intp]) -> pa.StringArray:
    return pa.array([values[row] for row in rows.tolist()], pa.string())


def _runs(state: State) -> npt.NDArray[np.bool_]:
    """Which sub-joins run."""
    now = state.joins["state"][: state.joins.end]
    return np.asarray((now != NONE) & (now != WAITING))


def _numbers(rows: npt.NDArray[np.intp], size: int) -> Ints:
    """The place of each row in a list of rows; −1 where it is not in it."""
    number = np.full(size, -1, np.int32)
    number[rows] = np.arange(len(rows))
    return number


def _renumber(kept: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], Ints]:
    """Rows that are kept, and the new number of each row (−1 where it is not kept)."""
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    return np.flatnonzero(kept), number


def _find(joins: SubJoins, query: Ints, left: Ints, right: Ints, sources: int) -> Ints:
    """Row in `joins` of each (query, left source, right source)."""
    n = np.int64(max(sources, 1))
    known = (joins.query.astype(np.int64) * n + joins.left) * n + joins.right
    order = np.argsort(known, kind="stable")
    wanted = (query.astype(np.int64) * n + left) * n + right
    return order[np.searchsorted(known[order], wanted)].astype(np.int32)
