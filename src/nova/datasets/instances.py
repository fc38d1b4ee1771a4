"""Fixed instances of the published simulations: `<topology>-<level>.json` as a Problem.

An instance file lists nodes (x, y in ms, role, capacity, rate), the pairs of sources that join with their output rate,
the sink, and under `published_scripts` the figures that the published scripts reach on it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Nodes, Pairs, Problem, Query, Sources
from nova.model.reading import parse_json, read_bytes, short

REQUIRED = ("nodes", "pairs", "sink")


@dataclass(frozen=True)
class Instance:
    """A problem with what the published scripts say about it."""

    name: str
    """Topology and level, such as `fit-5`."""
    problem: Problem
    published: dict[str, dict[str, float]]
    """Figures per approach: `ref_*` in the scripts' truncated metric, `lat_exact_*` without truncation."""
    sigma: float | None
    """The σ that the published runs used."""
    c_min: float
    """The C_min that the published runs used, tuples/s."""


def load(path: str | Path) -> Instance:
    """Read an instance. Capacities stay as the file states them (level `inf` says 9,999,999 tuples/s)."""
    path = Path(path)
    text = read_bytes(path, "an instance")
    document = parse_json(text, str(path), "an instance")
    if not isinstance(document, dict):
        raise InvalidInput([Fault(str(path), "not an instance: a JSON object expected", value=short(document))])
    missing = [name for name in REQUIRED if name not in document]
    if missing:
        raise InvalidInput([Fault(str(path), "missing", field=name) for name in missing])
    try:
        params = document.get("params", {})
        return Instance(
            name=path.stem,
            problem=_problem(document, str(path), hashlib.sha256(text).hexdigest()),
            published=document.get("published_scripts", {}),
            sigma=params.get("sigma"),
            c_min=float(params.get("c_min") or 0.0),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInput([Fault(str(path), f"not an instance as it was published: {error!r:.100}")]) from None


def load_instance(path: str | Path) -> Problem:
    """The problem of an instance file: the sink hosts no join, coordinates are given, pairs are explicit."""
    return load(path).problem


def _problem(document: dict[str, Any], file: str, digest: str) -> Problem:
    nodes, pairs = document["nodes"], document["pairs"]
    row = {node["id"]: i for i, node in enumerate(nodes)}
    unknown = [
        Fault(file, "unknown node", i + 1, side, pair[side])
        for i, pair in enumerate(pairs)
        for side in ("left", "right")
        if pair[side] not in row
    ]
    if document["sink"] not in row:
        unknown.append(Fault(file, "unknown node", field="sink", value=document["sink"]))
    if unknown:
        raise InvalidInput(unknown)
    sink = row[document["sink"]]
    n, joins = len(nodes), len(pairs)
    at = np.array([row[pair["left"]] for pair in pairs] + [row[pair["right"]] for pair in pairs], dtype=np.int32)
    hosts = np.ones(n, dtype=bool)
    hosts[sink] = False
    ids = pa.array([str(node["id"]) for node in nodes], pa.string())
    rows = np.arange(joins, dtype=np.int32)
    return Problem(
        nodes=Nodes(
            ids=ids,
            capacity=np.array([node["capacity"] for node in nodes], dtype=np.float64),
            bandwidth=np.full(n, np.inf),
            hosts=hosts,
            coordinates=np.array([[node["x"], node["y"]] for node in nodes], dtype=np.float64),
            heights=np.zeros(n),
        ),
        streams=("left", "right"),
        sources=Sources(
            ids=ids.take(pa.array(at)),
            stream=np.repeat(np.array([0, 1], dtype=np.int32), joins),
            node=at,
            rate=np.array([nodes[i]["rate"] for i in at], dtype=np.float64),
        ),
        queries=(
            Query(
                "join",
                0,
                1,
                sink,
                Pairs(rows, rows + np.int32(joins), np.array([pair["output"] for pair in pairs], dtype=np.float64)),
            ),
        ),
        digest=digest,
    )
