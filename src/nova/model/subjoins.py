"""Sub-joins: one row per pair of sources that a query's join matrix allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nova.model.problem import Floats, Ints, Problem


def _absent() -> Ints:
    return np.empty(0, np.int32)


@dataclass(frozen=True)
class SubJoins:
    """One row per pair of sources that the join matrix allows."""

    query: Ints
    left: Ints
    """Row of the left source."""
    right: Ints
    left_node: Ints
    right_node: Ints
    sink: Ints
    """Row of the node that gets the results."""
    left_rate: Floats
    right_rate: Floats
    output_rate: Floats
    """Result tuples/s; NaN where nobody said."""
    makes: Ints = field(default_factory=_absent)
    """Row of the source that its results are to a later join; −1, or left out: results go to the sink."""

    part: Floats = field(default_factory=lambda: np.empty(0))
    """Share of a sub-join's tuples that a row stands for: less than 1 only while heavy keys are placed on their own."""

    def __post_init__(self) -> None:
        if not len(self.makes) and len(self.query):
            object.__setattr__(self, "makes", np.full(len(self.query), -1, np.int32))
        if not len(self.part) and len(self.query):
            object.__setattr__(self, "part", np.ones(len(self.query)))

    def __len__(self) -> int:
        return len(self.query)

    @property
    def demand(self) -> Floats:
        """C_r: tuples/s that reach an unsplit join."""
        return self.left_rate + self.right_rate

    @staticmethod
    def between(
        problem: Problem, query: Ints, left: Ints, right: Ints, output_rate: Floats, makes: Ints | None = None
    ) -> SubJoins:
        """Sub-joins of these rows of queries and sources."""
        sources = problem.sources
        return SubJoins(
            query=query,
            left=left,
            right=right,
            left_node=sources.node[left],
            right_node=sources.node[right],
            sink=np.array([q.sink for q in problem.queries], dtype=np.int32)[query],
            left_rate=sources.rate[left],
            right_rate=sources.rate[right],
            output_rate=output_rate,
            makes=_absent() if makes is None else makes,
        )

    def take(self, rows: np.typing.NDArray[np.integer]) -> SubJoins:
        """The given rows as a table of their own."""
        return SubJoins(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})
