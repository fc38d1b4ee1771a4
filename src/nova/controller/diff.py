"""Diff: what has to happen so that one plan becomes another, told by ids, so that their scenarios may differ.

Replicas of a sub-join that are in both plans alike stay. Of the others, those with the same shares on another node
moved, those on the same node with other shares were resized, and the rest was added or removed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.controller.changes import Shares
from nova.evaluation.metrics import union_volume
from nova.model.problem import Floats
from nova.model.replicas import SHARES

Kind = Literal["added", "removed", "moved", "resized"]
KINDS: tuple[Kind, ...] = ("added", "removed", "moved", "resized")
_Rows = npt.NDArray[np.intp]
_Joins = npt.NDArray[np.int64]
ROUNDING = 1e-9
"""Relative difference that counts as rounding: rates are worked out from shares."""


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """One replica that is not the same in both plans."""

    kind: Kind
    query: str
    left: str
    right: str
    node: str
    """Where it runs in the second plan; in the first, if it was removed."""
    shares: Shares
    tuples_per_s: float
    """Input of the replica, in the plan that `node` is of."""
    from_node: str | None = None
    """Where it ran, if it moved."""
    from_shares: Shares | None = None
    """What it had, if it was resized."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two plans."""

    changes: list[ReplicaChange]
    unchanged: int
    """Replicas that stay as they are."""
    sub_joins: int
    """Sub-joins of the second plan."""
    sub_joins_changed: int
    """Sub-joins of both plans that have other replicas."""
    sub_joins_added: int
    sub_joins_removed: int
    rates_changed: int
    """Sub-joins of both plans with other rates."""
    tuples_per_s: float
    """Input of all replicas of the second plan, a tuple counted once per sub-join and host."""
    moved_tuples_per_s: float
    """Of the sub-joins of both plans: input that reaches a host that it did not reach before."""
    added_tuples_per_s: float
    """Input of the sub-joins that were added."""
    removed_tuples_per_s: float
    """Input, in the first plan, of the sub-joins that were removed."""

    def count(self, kind: Kind) -> int:
        """Replicas with a change of this kind."""
        return sum(1 for change in self.changes if change.kind == kind)

    def summary(self) -> dict[str, Any]:
        """The counts and rates."""
        rest = {name: getattr(self, name) for name in self.__slots__ if name != "changes"}
        return {**{kind: self.count(kind) for kind in KINDS}, **rest}

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**self.summary(), "changes": [asdict(change) for change in self.changes]}


class _Side:
    """The replica table of one plan, in numbers that both plans share."""

    def __init__(self, table: pa.Table, join: _Joins, node: _Joins) -> None:
        self.table, self.join, self.node = table, join, node
        columns = [_column(table, name) for name in SHARES]
        self.shares = np.column_stack(columns) if len(table) else np.empty((0, len(SHARES)))
        self.left, self.right = _column(table, "left_rate"), _column(table, "right_rate")

    def rates(self, size: int) -> tuple[Floats, Floats]:
        """Tuples/s of the left and the right source of each of `size` sub-joins, as its replicas tell them; 0 for
        those of the other plan."""
        part = self.shares[:, 1::2] - self.shares[:, ::2]
        both = part[:, 2] * part[:, 3]
        left, right = np.zeros(size), np.zeros(size)
        left[self.join] = self.left / (part[:, 0] * both)
        right[self.join] = self.right / (part[:, 1] * both)
        return left, right

    def ids(self, rows: _Rows) -> dict[int, tuple[str, str, str, str]]:
        """Query, left source, right source and node of some rows."""
        names = ("query", "left_source", "right_source", "node")
        columns = [self.table[name].take(pa.array(rows)).to_pylist() for name in names]
        return dict(zip(rows.tolist(), zip(*columns, strict=True), strict=True))

    def parts(self, rows: _Rows) -> dict[int, Shares]:
        """Shares of some rows."""
        return {row: tuple(shares) for row, shares in zip(rows.tolist(), self.shares[rows].tolist(), strict=True)}


def diff(before: pa.Table, after: pa.Table) -> Diff:
    """The difference of two replica tables, as `Plan.table` gives them and `replicas.parquet` holds them."""
    old, new = _sides(before, after)
    stays_old, stays_new = _alike(old, new)
    joins_old, joins_new = np.unique(old.join), np.unique(new.join)
    both = np.intersect1d(joins_old, joins_new)
    changes = _changes(old, new, np.flatnonzero(~stays_old), np.flatnonzero(~stays_new))
    touched = np.union1d(old.join[~stays_old], new.join[~stays_new])
    added, removed = np.setdiff1d(joins_new, joins_old), np.setdiff1d(joins_old, joins_new)
    reach = _Reach(old, new)
    return Diff(
        changes=changes,
        unchanged=int(np.count_nonzero(stays_new)),
        sub_joins=len(joins_new),
        sub_joins_changed=len(np.intersect1d(touched, both)),
        sub_joins_added=len(added),
        sub_joins_removed=len(removed),
        rates_changed=reach.other_rates(both),
        tuples_per_s=reach.sum(reach.after, joins_new),
        moved_tuples_per_s=reach.sum(reach.gained, both),
        added_tuples_per_s=reach.sum(reach.after, added),
        removed_tuples_per_s=reach.sum(reach.before, removed),
    )


def _column(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _sides(before: pa.Table, after: pa.Table) -> tuple[_Side, _Side]:
    """Both tables, with sub-joins and nodes numbered alike."""
    cut = len(before)
    join = np.zeros(cut + len(after), np.int64)
    for name in ("query", "left_source", "right_source"):
        join = _combined(join, _codes(before[name], after[name]))
    node = _codes(before["node"], after["node"])
    return _Side(before, join[:cut], node[:cut]), _Side(after, join[cut:], node[cut:])


def _codes(first: pa.ChunkedArray, second: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    texts = pa.chunked_array([*first.cast(pa.string()).chunks, *second.cast(pa.string()).chunks], pa.string())
    codes = texts.combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64)


def _alike(old: _Side, new: _Side) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows of each side are in the other one, too: same sub-join, node and shares."""
    bits = (np.concatenate([old.shares, new.shares]) + 0.0).view(np.int64)  # −0 becomes 0, then bit by bit
    keys = np.concatenate([old.join, new.join])
    for column in (np.concatenate([old.node, new.node]), *bits.T):
        keys = _combined(keys, np.unique(column, return_inverse=True)[1])
    cut = len(old.join)
    return np.isin(keys[:cut], keys[cut:]), np.isin(keys[cut:], keys[:cut])


def _combined(keys: _Joins, codes: npt.NDArray[np.integer]) -> _Joins:
    """Numbers, from 0 on, of the pairs of a key and a code."""
    pairs = keys * (np.int64(codes.max(initial=0)) + 1) + codes
    return np.unique(pairs, return_inverse=True)[1].astype(np.int64)


def _changes(old: _Side, new: _Side, gone: _Rows, made: _Rows) -> list[ReplicaChange]:
    """The rows that differ, matched sub-join by sub-join, in the order of the first plan, then of the second."""
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for side, rows, which in ((old, gone, 0), (new, made, 1)):
        for row, join in zip(rows.tolist(), side.join[rows].tolist(), strict=True):
            groups.setdefault(join, ([], []))[which].append(row)
    old_ids, new_ids, old_parts, new_parts = old.ids(gone), new.ids(made), old.parts(gone), new.parts(made)
    old_rates, new_rates = old.left + old.right, new.left + new.right
    changes: list[ReplicaChange] = []
    for before, after in groups.values():
        was_at = {row: (int(old.node[row]), old_parts[row]) for row in before}
        now_at = {row: (int(new.node[row]), new_parts[row]) for row in after}
        for kind, was, now in _matched(was_at, now_at):
            if now is not None:
                ids, part, rate = new_ids[now], new_parts[now], float(new_rates[now])
            else:
                assert was is not None
                ids, part, rate = old_ids[was], old_parts[was], float(old_rates[was])
            changes.append(
                ReplicaChange(
                    kind,
                    *ids,
                    part,
                    rate,
                    from_node=old_ids[was][3] if kind == "moved" and was is not None else None,
                    from_shares=old_parts[was] if kind == "resized" and was is not None else None,
                )
            )
    return changes


def _matched(
    before: dict[int, tuple[int, Shares]], after: dict[int, tuple[int, Shares]]
) -> list[tuple[Kind, int | None, int | None]]:
    """Rows of one sub-join that differ (node and shares by row), in pairs where one became the other."""
    found: list[tuple[Kind, int | None, int | None]] = []
    by_shares = {shares: row for row, (_, shares) in before.items()}
    by_node: dict[int, list[int]] = {}
    left = []
    for row, (_, shares) in after.items():
        was = by_shares.pop(shares, None)
        if was is None:
            left.append(row)
        else:
            found.append(("moved", was, row))
    for row in by_shares.values():
        by_node.setdefault(before[row][0], []).append(row)
    for row in left:
        there = by_node.get(after[row][0])
        found.append(("resized", there.pop(0), row) if there else ("added", None, row))
    return found + [("removed", row, None) for rows in by_node.values() for row in rows]


class _Reach:
    """Distinct tuples/s that each sub-join sends to each of its hosts, in either plan."""

    def __init__(self, old: _Side, new: _Side) -> None:
        nodes = int(max(old.node.max(initial=0), new.node.max(initial=0))) + 1
        places, group = np.unique(
            np.concatenate([old.join, new.join]) * nodes + np.concatenate([old.node, new.node]), return_inverse=True
        )
        self.join = places // nodes
        """Sub-join of each pair of a sub-join and a host."""
        size = int(self.join.max(initial=-1)) + 1
        self.old_rates, self.new_rates = old.rates(size), new.rates(size)
        cut = len(old.join)
        self.before = self._into(group[:cut], old.shares, self.old_rates)
        self.after = self._into(group[cut:], new.shares, self.new_rates)
        either = self._into(group, np.concatenate([old.shares, new.shares]), self.new_rates)
        gained = either - self._into(group[:cut], old.shares, self.new_rates)
        self.gained: Floats = np.where(gained > ROUNDING * either, gained, 0.0)
        """What reaches the host in the second plan and did not in the first."""

    def _into(self, group: _Rows, shares: Floats, rates: tuple[Floats, Floats]) -> Floats:
        total = np.zeros(len(self.join))
        for rate, low in zip(rates, (0, 2), strict=True):
            stream, slices, keys = ((shares[:, k], shares[:, k + 1]) for k in (low, 4, 6))
            area = union_volume(group, stream, slices, keys)
            total[: len(area)] += area * rate[self.join[: len(area)]]
        return total

    def sum(self, values: Floats, joins: _Joins) -> float:
        """Sum over some sub-joins."""
        return float(values[np.isin(self.join, joins)].sum())

    def other_rates(self, joins: _Joins) -> int:
        """How many of these sub-joins have other rates in the second plan."""
        other = np.zeros(len(joins), bool)
        for before, after in zip(self.old_rates, self.new_rates, strict=True):
            other |= ~np.isclose(before[joins], after[joins], rtol=ROUNDING, atol=0)
        return int(np.count_nonzero(other))
