"""Routes: the replica table turned into what a tuple needs to know, once per plan.

Replicas that share a host and a box are merged into one *meeting* where their pairs are complete (every left source of
the meeting joins every right one): a tuple then goes there once, not once per partner. That is exact, and it is what
the plan charges a node for.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Floats, Ints
from nova.model.skew import PLAIN, KeyAxis
from nova.routing.position import hash_ranges

if TYPE_CHECKING:  # Spark's workers route tuples; they must not wait for the optimizer's imports
    from nova.model.replicas import Replicas
    from nova.model.subjoins import SubJoins

Rows = npt.NDArray[np.intp]
PACKED = (zipfile.BadZipFile, zlib.error)
SideName = Literal["left", "right"]


@dataclass(frozen=True)
class Side:
    """Where the tuples of each source go, as one list of boxes per source."""

    start: npt.NDArray[np.int64]
    """Boxes of source row s are start[s] … start[s + 1] − 1."""
    meeting: Ints
    share_from: Floats
    share_to: Floats
    slice_from: Floats
    slice_to: Floats
    key_from: Floats
    """Range of the hash space of keys."""
    key_to: Floats
    key_part: Floats
    """Share of the source's tuples whose keys lie in the box. A box whose keys are several ranges of hashes stands here
    once for each, and tells its share with the first."""

    @cached_property
    def keyed(self) -> bool:
        """Whether any box takes only some of the keys, so that tuples need one."""
        return bool(((self.key_from > 0.0) | (self.key_to < 1.0)).any())

    def hashed(self, axis: KeyAxis) -> Side:
        """The same with ranges of hashes instead of ranges of the key axis."""
        if not axis:
            return self
        ranges, which = np.unique(np.column_stack([self.key_from, self.key_to]), axis=0, return_inverse=True)
        found = [np.array(hash_ranges(axis, *map(float, one))).reshape(-1, 2) for one in ranges]
        count = np.array([len(one) for one in found], np.int64)[which]
        first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        rows = np.repeat(np.arange(len(count)), count)
        both = np.concatenate([np.empty((0, 2)), *(found[one] for one in which)])
        part = np.zeros(len(rows))
        part[first[:-1][count > 0]] = self.key_part[count > 0]
        same = {f.name: getattr(self, f.name)[rows] for f in fields(Side) if f.name != "start"}
        changed = {"key_from": both[:, 0].copy(), "key_to": both[:, 1].copy(), "key_part": part}
        return Side(**(same | changed), start=first[self.start])

    def reach(
        self, source: npt.NDArray[np.integer], share: Floats, position: Floats, key: Floats | None = None
    ) -> tuple[Rows, Ints]:
        """Which tuple goes where: rows of the input, repeated as needed, and the meeting each copy goes to.
        Source rows that the plan does not have, such as those of sources that came later, go nowhere. `key` is needed
        where the side is keyed."""
        known = (source >= 0) & (source < len(self.start) - 1)
        at = np.where(known, source, 0)
        first = self.start[at]
        count = np.where(known, self.start[at + 1] - first, 0)
        rows = np.repeat(np.arange(len(source)), count)
        box = np.arange(len(rows)) + np.repeat(first - (np.cumsum(count) - count), count)
        share, position = share[rows], position[rows]
        inside = (self.share_from[box] <= share) & (share < self.share_to[box])
        inside &= (self.slice_from[box] <= position) & (position < self.slice_to[box])
        if self.keyed:
            if key is None:
                raise ValueError("the plan deals out keys, and the tuples have none")
            at_key = key[rows]
            inside &= (self.key_from[box] <= at_key) & (at_key < self.key_to[box])
        return rows[inside], self.meeting[box[inside]]


@dataclass(frozen=True)
class Routes:
    """The data flow of one query under one plan."""

    left: Side
    right: Side
    node: Ints
    """Host of each meeting."""
    sink: int
    """Node that gets the results."""

    @property
    def keyed(self) -> bool:
        """Whether tuples need a key to find their meeting."""
        return self.left.keyed or self.right.keyed

    def side(self, name: SideName) -> Side:
        return self.left if name == "left" else self.right

    def save(self, file: str | Path) -> None:
        """Write as one .npz file."""
        arrays = {
            f"{name}_{f.name}": getattr(self.side(name), f.name) for name in ("left", "right") for f in fields(Side)
        }
        np.savez(file, node=self.node, sink=np.array(self.sink), **arrays)

    @staticmethod
    def load(file: str | Path) -> Routes:
        """Read what `save` wrote."""
        try:
            with np.load(file) as stored:
                left, right = (_stored_side(stored, name) for name in ("left", "right"))
                return Routes(left, right, stored["node"], int(stored["sink"]))
        except (OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, TokenError, *PACKED) as error:
            raise InvalidInput([Fault(str(file), f"not routes that a run wrote: {error}")]) from None


def _stored_side(stored: Mapping[str, npt.NDArray[Any]], name: str) -> Side:
    """One side as `save` wrote it. Runs that began before there were keys have none: every box takes them all."""
    arrays = {f.name: stored[f"{name}_{f.name}"] for f in fields(Side) if f"{name}_{f.name}" in stored}
    boxes = len(arrays["meeting"])
    stored_side = {"key_from": np.zeros(boxes), "key_to": np.ones(boxes), **arrays}
    return Side(**{"key_part": stored_side["key_to"] - stored_side["key_from"], **stored_side})


def compile_routes(
    joins: SubJoins, replicas: Replicas, query: int, sources: int, sink: int, axis: KeyAxis = PLAIN
) -> Routes:
    """The routes of one query; `sources` is the length of the source table, `sink` the row of the query's sink, `axis`
    what the boxes' key ranges are measured on."""
    rows, meeting = meetings(joins, replicas, query)
    mine = replicas.take(rows)
    return routes_between(mine, joins.left[mine.join], joins.right[mine.join], meeting, sources, sink, axis)


def meetings(joins: SubJoins, replicas: Replicas, query: int) -> tuple[Rows, Rows]:
    """Rows of the replicas of a query at which tuples can meet, and the number of each one's meeting."""
    # A box without volume can meet nobody, and an empty range must not be mistaken for a whole one below.
    rows = np.flatnonzero(
        (joins.query[replicas.join] == query)
        & (replicas.left_from < replicas.left_to)
        & (replicas.right_from < replicas.right_to)
        & (replicas.slice_from < replicas.slice_to)
        & (replicas.key_from < replicas.key_to)
    )
    mine = replicas.take(rows)
    return rows, _meetings(mine, joins.left[mine.join], joins.right[mine.join])


def routes_between(
    replicas: Replicas, left: Ints, right: Ints, meeting: Rows, sources: int, sink: int, axis: KeyAxis = PLAIN
) -> Routes:
    """Routes from replicas whose sources (rows `left` and `right`) and meetings are known: of a whole query, or of the
    replicas that one site has to do with."""
    node = np.full(int(meeting.max(initial=-1)) + 1, -1, np.int32)
    node[meeting] = replicas.node
    return Routes(
        left=_side(replicas, left, meeting, sources, "left").hashed(axis),
        right=_side(replicas, right, meeting, sources, "right").hashed(axis),
        node=node,
        sink=sink,
    )


def _meetings(replicas: Replicas, left: Ints, right: Ints) -> Rows:
    """Meeting of each replica.

    Within one host and box, left sources with the same set of partners form a complete block. Sets are compared by the
    sum of random numbers, one per right source; a block that is not complete after all (a collision) falls apart into
    its replicas, so chance costs time, never a result.
    """
    n = len(replicas)
    if n == 0:
        return np.empty(0, np.intp)
    boxes = np.column_stack(
        [
            replicas.node,
            replicas.left_from,
            replicas.left_to,
            replicas.right_from,
            replicas.right_to,
            replicas.slice_from,
            replicas.slice_to,
            replicas.key_from,
            replicas.key_to,
        ]
    )
    box = _codes(*boxes.T)
    one_left = _codes(box, left)
    tags = np.random.default_rng(0).integers(0, 2**63, int(right.max()) + 1, dtype=np.uint64)
    total = np.zeros(int(one_left.max()) + 1, np.uint64)
    np.add.at(total, one_left, tags[right])
    block = _codes(box, total[one_left].view(np.int64))
    edges = np.bincount(block)
    lefts = np.bincount(block[_firsts(one_left)], minlength=len(edges))
    rights = np.bincount(block[_firsts(_codes(block, right))], minlength=len(edges))
    complete = (lefts * rights == edges)[block]
    return _codes(np.where(complete, block, len(edges) + np.arange(n)))


def _codes(*columns: npt.NDArray[np.generic]) -> Rows:
    """Dense code of each distinct row."""
    if len(columns) == 1:
        dense: Rows = np.unique(columns[0], return_inverse=True)[1].astype(np.intp)
        return dense
    code = _codes(columns[0])
    for column in columns[1:]:
        other = _codes(column)
        code = _codes(code * (int(other.max()) + 1) + other)
    return code


def _firsts(codes: Rows) -> Rows:
    """First row of each code, in code order."""
    rows: Rows = np.unique(codes, return_index=True)[1]
    return rows


def _side(replicas: Replicas, source: Ints, meeting: Rows, sources: int, name: SideName) -> Side:
    """Boxes by source; the partners merged into one meeting bring one box, not one each."""
    width = int(meeting.max()) + 1 if len(meeting) else 1
    keep = _firsts((source.astype(np.int64) * width + meeting).astype(np.intp))  # sorted by source, then meeting
    start = np.searchsorted(source[keep], np.arange(sources + 1)).astype(np.int64)
    return Side(
        start=start,
        meeting=meeting[keep].astype(np.int32),
        share_from=getattr(replicas, f"{name}_from")[keep],
        share_to=getattr(replicas, f"{name}_to")[keep],
        slice_from=replicas.slice_from[keep],
        slice_to=replicas.slice_to[keep],
        key_from=replicas.key_from[keep],
        key_to=replicas.key_to[keep],
        key_part=(replicas.key_to - replicas.key_from)[keep],
    )
