"""Newcomers: nodes and sources that came to a run by events, after the scenario was written.

Their rows follow those of the scenario, in the order they came; who leaves keeps its row. So rows mean the same in
every window, whatever plan it runs under.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from nova.model.problem import Nodes, Problem, Sources


@dataclass(frozen=True)
class NewSource:
    """A source as it was when it came."""

    stream: str
    id: str
    node: str
    rate: float


@dataclass(frozen=True)
class Newcomers:
    """All that came so far."""

    nodes: Mapping[str, float] = field(default_factory=dict)
    """Capacities by id."""
    sources: tuple[NewSource, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.sources)

    def of(self, stream: str) -> tuple[list[str], list[int]]:
        """Ids of a stream's newcomers, and their places among all new sources."""
        mine = [(source.id, at) for at, source in enumerate(self.sources) if source.stream == stream]
        return [name for name, _ in mine], [at for _, at in mine]

    def added_to(self, problem: Problem) -> Problem:
        """The problem with the newcomers behind its own. To read and report only: join matrices do not know them."""
        if not self:
            return problem
        nodes, n = problem.nodes, len(self.nodes)
        ids = pa.concat_arrays([nodes.ids, pa.array(list(self.nodes), nodes.ids.type)])
        grown = Nodes(
            ids,
            np.append(nodes.capacity, list(self.nodes.values())),
            np.append(nodes.bandwidth, np.full(n, np.inf)),
            np.append(nodes.hosts, np.ones(n, bool)),
        )
        sources = problem.sources
        at = {name: row for row, name in enumerate(ids.to_pylist())}
        return replace(
            problem,
            nodes=grown,
            sources=Sources(
                pa.concat_arrays([sources.ids, pa.array([s.id for s in self.sources], sources.ids.type)]),
                np.append(sources.stream, [problem.streams.index(s.stream) for s in self.sources]).astype(np.int32),
                np.append(sources.node, [at[s.node] for s in self.sources]).astype(np.int32),
                np.append(sources.rate, [s.rate for s in self.sources]),
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"nodes": dict(self.nodes), "sources": [source.__dict__ for source in self.sources]}


NOBODY = Newcomers()
