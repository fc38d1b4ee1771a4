"""`nova plan --explain-query`: the operators of each query, with the rate on every edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nova.cli.output import emit_json, progress, table


def explain_queries(scenario: Path, *, as_json: bool) -> None:
    """Print the operator graph of every query of a scenario."""
    with progress("reading the queries"):
        from nova.costspace import embed
        from nova.query.ideal import ideal_places
        from nova.scenario import load_queries

        loaded = load_queries(scenario)
        space = embed(loaded.problem, loaded.options)
        ideal = [
            ideal_places(graph, loaded.problem, space, sink)
            for graph, sink in zip(loaded.graphs, loaded.sinks, strict=True)
        ]
    ids = loaded.problem.nodes.ids
    told: list[dict[str, Any]] = []
    for graph, place, sink, why in zip(loaded.graphs, ideal, loaded.sinks, loaded.unplanned, strict=True):
        where = {row: ids[node].as_py() for row, node in place.node.items()}
        told.append(
            {
                "query": graph.query,
                "sink": ids[sink].as_py(),
                "planned": not why,
                "unplanned": why or None,
                "ideal_cost": place.cost,
                "operators": [
                    {
                        "row": row,
                        "kind": one.kind,
                        "text": one.text,
                        "inputs": list(one.inputs),
                        "tuples_per_s": one.rate.value,
                        "origin": one.rate.origin,
                        "why": one.rate.why,
                        "runs_at": one.pinned or "free",
                        "ideal_node": where.get(row),
                    }
                    for row, one in enumerate(graph.operators)
                ],
            }
        )
    if as_json:
        emit_json({"scenario": str(scenario), "queries": told})
        return
    for query in told:
        rows = [
            (
                one["row"],
                one["kind"],
                one["text"],
                ", ".join(map(str, one["inputs"])),
                one["tuples_per_s"],
                f"{one['origin']}: {one['why']}" if one["why"] else one["origin"],
                f"free, ideally near {one['ideal_node']}" if one["ideal_node"] else f"at the {one['runs_at']}",
            )
            for one in query["operators"]
        ]
        columns = ["", "operator", "what", "reads", "tuples/s out", "which is", "runs"]
        table(f"Query {query['query']} → {query['sink']}", columns, rows)
        typer.echo(f"Σ rate × ms at the ideal positions: {query['ideal_cost']:.6g}")
        if query["unplanned"]:
            typer.echo(f"cannot be planned: {query['unplanned']}")
