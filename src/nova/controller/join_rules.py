"""Rules: whom a source joins in a query, as the query's join matrix says, for sources that come later too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.model.operators import NOTHING_AROUND, Output, Pipeline
from nova.model.problem import Dense, Equal, JoinMatrix, Key, Pairs, Query
from nova.model.requires import Requirement

Label = tuple[str, ...]
"""The values of a join's attributes that a source has."""


@dataclass
class Rule:
    """One running query. Sides: 0 is left, 1 is right."""

    id: str
    streams: tuple[int, int]
    window_ms: float
    kind: str
    """`dense`, `equal` or `pairs`."""
    attributes: tuple[str, ...] = ()
    labels: list[Label] = field(default_factory=list)
    """Attribute values by code."""
    codes: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Code by source row; −1: joins nothing."""
    key: Key | None = None
    """Columns of the tuples that must be equal, too."""
    exceptional: bool = False
    """Whether pairs were allowed or withdrawn one by one, so that the rule alone no longer says what is joined."""
    pipeline: Pipeline = NOTHING_AROUND
    """What happens to tuples before and after the join."""
    requires: tuple[Requirement, ...] = ()
    """What nodes must be or have to run it."""
    output: Output | None = None
    """How much comes out of it, where that is stated or estimated for all sub-joins alike."""
    tuple_bytes: float = 0.0
    """Memory of a tuple in an open window."""
    apart: str | None = None
    """Label of which no two replicas of a sub-join share a value."""
    makes: int | None = None
    """Row of the stream that its results are to another join."""
    yields: float = 0.0
    """Tuples/s that a sub-join makes for that stream, by the product of the rates it reads."""
    _numbers: dict[Label, int] = field(default_factory=dict)
    _members: dict[tuple[int, int], list[int]] | None = None

    @staticmethod
    def of(query: Query, sources: int, rows: tuple[npt.NDArray[Any], npt.NDArray[Any]]) -> Rule:
        """The rule of a query of a problem with so many sources, `rows` of them on each side. Where the join matrix
        does not say what its codes stand for, they are called `0`, `1`, …."""
        sides = (query.left, query.right)
        rest: dict[str, Any] = {
            name: getattr(query, name)
            for name in ("pipeline", "key", "requires", "output", "tuple_bytes", "apart", "makes")
        }
        match query.matrix:
            case Dense():
                return Rule(query.id, sides, query.window_ms, "dense", **rest)
            case Pairs():
                return Rule(query.id, sides, query.window_ms, "pairs", **rest)
            case Equal() as equal:
                attributes = tuple(equal.attribute.split(", "))
                codes = np.full(sources, -1, np.int32)
                codes[rows[0]], codes[rows[1]] = equal.left, equal.right
                labels: list[Label]
                if equal.values:
                    columns = [column.fill_null("").to_pylist() for column in equal.values]
                    labels = list(zip(*columns, strict=True))
                else:
                    labels = [(str(code),) * len(attributes) for code in range(int(codes.max(initial=-1)) + 1)]
                return Rule(
                    query.id,
                    sides,
                    query.window_ms,
                    "equal",
                    attributes,
                    labels,
                    codes,
                    **rest,
                    _numbers={label: code for code, label in enumerate(labels)},
                )

    def side_of(self, stream: int) -> int:
        """Which side a stream is on; −1 where the query does not read it."""
        return self.streams.index(stream) if stream in self.streams else -1

    def code_for(self, attributes: dict[str, str]) -> int:
        """The code of a source with these attributes; −1 where one is missing. New values get new codes."""
        label = tuple(attributes.get(name, "") for name in self.attributes)
        if not all(label):
            return -1
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def enter(self, source: int, side: int, code: int) -> list[int]:
        """A source has a code from now on. Returns the rows on the other side that it joins."""
        self.reach(source + 1)
        self.codes[source] = code
        if code < 0:
            return []
        members = self._by_code()
        members.setdefault((side, code), []).append(source)
        return list(members.get((1 - side, code), ()))

    def reach(self, sources: int) -> None:
        """Have a code for so many source rows at least, where there are codes."""
        if self.kind == "equal" and sources > len(self.codes):
            more = np.full(max(sources - len(self.codes), 16 + len(self.codes) // 2), -1, np.int32)
            self.codes = np.concatenate([self.codes, more])

    def others(self, source: int, side: int) -> list[int]:
        """The rows on the other side that a source joins."""
        code = int(self.codes[source]) if source < len(self.codes) else -1
        return list(self._by_code().get((1 - side, code), ())) if code >= 0 else []

    def copy(self, name: str, streams: tuple[int, int], window_ms: float) -> Rule:
        """The same rule for another query of the same streams."""
        return Rule(
            name,
            streams,
            window_ms,
            self.kind,
            self.attributes,
            list(self.labels),
            self.codes.copy(),
            key=self.key,
            _numbers=dict(self._numbers),
        )

    def leave(self, source: int, side: int) -> None:
        """A source is gone."""
        if self.kind != "equal" or source >= len(self.codes):
            return
        code = int(self.codes[source])
        self.codes[source] = -1
        if code >= 0 and self._members is not None:
            self._members[side, code].remove(source)

    def remember(self, stream_of: npt.NDArray[Any]) -> None:
        """Sort the sources by side and code, so that newcomers find theirs at once."""
        members: dict[tuple[int, int], list[int]] = {}
        known = np.flatnonzero(self.codes >= 0)
        sides = np.where(stream_of[known] == self.streams[0], 0, 1)
        for source, side, code in zip(known.tolist(), sides.tolist(), self.codes[known].tolist(), strict=True):
            members.setdefault((side, code), []).append(source)
        self._members = members

    def _by_code(self) -> dict[tuple[int, int], list[int]]:
        if self._members is None:
            raise RuntimeError("`remember` comes first")
        return self._members

    @property
    def remembers(self) -> bool:
        """Whether `remember` was called."""
        return self._members is not None

    def matrix(self, rows: tuple[npt.NDArray[Any], npt.NDArray[Any]], pairs: Pairs, *, complete: bool) -> JoinMatrix:
        """The join matrix for a problem: the rule itself where it says it all (`complete`: every pair of the rule
        runs), else the pairs one by one. `rows` are the sources of each side, as this rule counts them."""
        if self.kind == "pairs" or self.exceptional or not complete:
            return pairs
        if self.kind == "dense":
            return Dense()
        values = tuple(
            pa.array([label[place] or None for label in self.labels], pa.string())
            for place in range(len(self.attributes))
        )
        return Equal(", ".join(self.attributes), self.codes[rows[0]], self.codes[rows[1]], values)
