"""Order: joins of several streams as a tree of two-way joins, by what it costs to move the tuples.

Every tree that joins along windows is weighed, left-deep and bushy, together with a host for each of its joins: the sum
of tuples/s × ms over all edges is least over subsets of the streams (dynamic programming), for some candidate hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from sqlglot import exp

from nova.model.operators import Estimate, Tree
from nova.model.problem import Floats
from nova.query import rates
from nova.query.statement import Join, Key, Statement, aliases_in
from nova.query.windows import Interval, Tumbling

HANDLING_MS = 1.0
"""What a tuple costs beside its way: where nothing is known of distances, the order that moves fewest tuples wins."""


@dataclass(frozen=True)
class Ground:
    """Where tuples may be joined, and how far that is."""

    between: Floats
    """ms between candidate hosts; the first one is the sink."""
    reach: Mapping[str, Floats]
    """By alias: ms from its sources to each candidate, by their rates."""


NOWHERE = Ground(np.zeros((1, 1)), {})
"""Nothing is known of distances."""


def aliases_of(tree: Tree) -> frozenset[str]:
    """The streams of a tree."""
    return frozenset([tree]) if isinstance(tree, str) else aliases_of(tree[0]) | aliases_of(tree[1])


@dataclass(frozen=True)
class Link:
    """How two groups of streams are joined, in terms of the streams."""

    join: Join
    """Its window and `alias` are those of one stream on each side: see `ends`."""
    ends: tuple[str, str]
    """The streams on both sides whose times the window compares."""


def link(statement: Statement, left: frozenset[str], right: frozenset[str]) -> Link | None:
    """What joins two groups of streams; None where no window does.

    Equalities and windows hold along: from a = b and b = c follows a = c, so that a and c can be joined before b. An
    outer join comes last, as it is written.
    """
    last = statement.joins[-1]
    if last.kind != "inner":
        if last.alias in left | right:
            return _as_written(statement, left, right)
        statement = replace(statement, joins=statement.joins[:-1])
    window: Tumbling | Interval | None = None
    ends = ("", "")
    residual: list[exp.Expr] = []
    for size, members in _same_windows(statement):
        mine, theirs = sorted(members & left), sorted(members & right)
        if not mine or not theirs:
            continue
        if window is None:
            window, ends = size, (mine[0], theirs[0])
        else:
            residual.append(exp.EQ(this=_start(mine[0], size), expression=_start(theirs[0], size)))
    if window is None:
        for one in sorted(_intervals(statement), key=lambda one: one.high_us - one.low_us):
            if one.first in left and one.second in right:
                window, ends = one, (one.first, one.second)
                break
            if one.second in left and one.first in right:
                window, ends = one, (one.second, one.first)
                break
    if window is None:
        return None
    keys: list[Key] = []
    joined: set[int] = set()
    classes = _equal(statement)
    for join in statement.joins:
        for key in join.keys:
            seen = aliases_in(key.left), aliases_in(key.right)
            if (seen[0] <= left and seen[1] <= right) or (seen[0] <= right and seen[1] <= left):
                straight = seen[0] <= left
                keys.append(key if straight else Key(key.right, key.left))
                joined |= {number for number, one in enumerate(classes) if key.left in one}
            elif _crosses(seen[0] | seen[1], left, right):
                residual.append(exp.EQ(this=key.left, expression=key.right))
        residual += [part for part in join.residual if _crosses(aliases_in(part), left, right)]
    for number, alike in enumerate(classes):
        first = next((one for one in alike if aliases_in(one) <= left), None)
        second = next((one for one in alike if aliases_in(one) <= right), None)
        if number not in joined and first is not None and second is not None:
            keys.append(Key(first, second))
    return Link(Join("inner", ends[1], tuple(keys), window, tuple(residual)), ends)


def _as_written(statement: Statement, left: frozenset[str], right: frozenset[str]) -> Link | None:
    """The last join of the text, where these are its sides."""
    last = statement.joins[-1]
    if last.alias not in right:
        left, right = right, left
    if len(right) > 1 or left | right != set(statement.streams):
        return None
    window = last.window
    pair = (window.first, window.second) if isinstance(window, Interval) else last.same[0]
    other = pair[0] if pair[1] == last.alias else pair[1]
    return Link(last, (other, last.alias))


def flows(statement: Statement, born: Mapping[str, float], stated: Mapping[str, float]) -> dict[frozenset[str], float]:
    """Tuples/s of every group of streams that can be joined, given those of the streams after their filters."""
    rate = {frozenset([alias]): born[alias] for alias in statement.streams}
    for group in _groups(statement):
        for left, right in _splits(group):
            if left in rate and right in rate and (found := link(statement, left, right)) is not None:
                share = rates.matching(statement, found.join, stated).value
                seconds = rates.window_s(found.join.window, (len(left) > 1) + (len(right) > 1))
                rate[group] = rate[left] * rate[right] * seconds * share
                break
    return rate


def shares_along(statement: Statement, tree: Tree, stated: Mapping[str, float]) -> dict[frozenset[str], Estimate]:
    """By the streams that are joined once it is done, the share of pairs that each join of a tree lets through, in the
    order they are made."""
    found: dict[frozenset[str], Estimate] = {}
    for left, right in reversed(list(_joins(tree))):
        sides = aliases_of(left), aliases_of(right)
        found[sides[0] | sides[1]] = rates.matching(statement, _linked(statement, *sides), stated, len(found) + 1)
    return found


def flows_along(
    statement: Statement, tree: Tree, born: Mapping[str, float], stated: Mapping[str, float]
) -> dict[frozenset[str], float]:
    """Tuples/s that each join of a tree makes, by its streams, given those of the streams after their filters."""
    rate = {frozenset([alias]): born[alias] for alias in statement.streams}
    shares = shares_along(statement, tree, stated)
    for left, right in reversed(list(_joins(tree))):
        sides = aliases_of(left), aliases_of(right)
        window = _linked(statement, *sides).window
        seconds = rates.window_s(window, sum(len(side) > 1 for side in sides))
        both = sides[0] | sides[1]
        rate[both] = rate[sides[0]] * rate[sides[1]] * seconds * shares[both].value
    return rate


def _linked(statement: Statement, left: frozenset[str], right: frozenset[str]) -> Join:
    """What joins two groups of streams of a tree."""
    found = link(statement, left, right)
    assert found is not None
    return found.join


def best_order(
    statement: Statement, born: Mapping[str, float], stated: Mapping[str, float], ground: Ground = NOWHERE
) -> Tree:
    """The tree whose joins move the fewest tuples × ms. There is one, as every join as written has a window."""
    rate = flows(statement, born, stated)
    hosts = len(ground.between)
    at: dict[frozenset[str], Floats] = {}
    """By group: cost of having its tuples at each candidate host."""
    trees: dict[frozenset[str], list[Tree]] = {}
    """By group: the tree that costs this, for each candidate."""
    for alias in statement.streams:
        group = frozenset([alias])
        at[group] = rate[group] * (ground.reach.get(alias, np.zeros(hosts)) + HANDLING_MS)
        trees[group] = [alias] * hosts
    for group in _groups(statement):
        for left, right in _splits(group):
            if left not in trees or right not in trees or link(statement, left, right) is None:
                continue
            moved = (at[left] + at[right])[:, None] + rate[group] * (ground.between + HANDLING_MS)
            joined_at = moved.argmin(axis=0)
            cost = moved.min(axis=0)
            better = cost < at.get(group, np.full(hosts, np.inf)) * (1 - 1e-12)
            at[group] = np.where(better, cost, at.get(group, cost))
            before = trees.get(group, [""] * hosts)
            trees[group] = [
                _oriented(trees[left][host], trees[right][host], rate) if new else old
                for host, new, old in zip(joined_at.tolist(), better.tolist(), before, strict=True)
            ]
    return trees[frozenset(statement.streams)][0]


def wrong_order(statement: Statement, tree: Tree) -> str:
    """Why streams cannot be joined in an order that somebody states; empty where they can."""
    named = list(_leaves(tree))
    if sorted(named) != sorted(statement.streams):
        return f"{', '.join(sorted(statement.streams))} expected, each once"
    return next(
        (
            f"no window joins {', '.join(sorted(aliases_of(left)))} with {', '.join(sorted(aliases_of(right)))}"
            for left, right in _joins(tree)
            if link(statement, aliases_of(left), aliases_of(right)) is None
        ),
        "",
    )


def _leaves(tree: Tree) -> Iterator[str]:
    """The aliases in a tree."""
    if isinstance(tree, str):
        yield tree
    else:
        yield from (*_leaves(tree[0]), *_leaves(tree[1]))


def _joins(tree: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The joins of a tree, each before those it reads; from the last to the first they are in the order of stages."""
    if not isinstance(tree, str):
        yield tree
        yield from (*_joins(tree[1]), *_joins(tree[0]))


def _oriented(left: Tree, right: Tree, rate: Mapping[frozenset[str], float]) -> Tree:
    """What a join makes on the left, then the faster stream: in interval joins the right side is copied."""
    made = isinstance(left, tuple), isinstance(right, tuple)
    if made[0] != made[1]:
        return (left, right) if made[0] else (right, left)
    return (left, right) if rate[aliases_of(left)] >= rate[aliases_of(right)] else (right, left)


def _groups(statement: Statement) -> Iterator[frozenset[str]]:
    """All groups of two and more streams, small ones first."""
    for size in range(2, len(statement.streams) + 1):
        yield from map(frozenset, combinations(statement.streams, size))


def _splits(group: frozenset[str]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """All ways to divide a group into two, each once."""
    first, *others = sorted(group)
    for size in range(len(others)):
        for some in combinations(others, size):
            left = frozenset([first, *some])
            yield left, group - left


def _crosses(seen: set[str], left: frozenset[str], right: frozenset[str]) -> bool:
    """Whether a condition can be checked once both groups are joined, and not before."""
    return seen <= left | right and not seen <= left and not seen <= right


def _same_windows(statement: Statement) -> list[tuple[Tumbling, set[str]]]:
    """Groups of streams whose times lie in the same window, by size of the window."""
    found: list[tuple[Tumbling, set[str]]] = []
    for join in statement.joins:
        for pair in join.same:
            assert isinstance(join.window, Tumbling)
            touched = [one for one in found if one[0] == join.window and one[1] & set(pair)]
            merged = set(pair).union(*(members for _, members in touched))
            found = [one for one in found if one not in touched] + [(join.window, merged)]
    return found


def _intervals(statement: Statement) -> list[Interval]:
    return [one for join in statement.joins for one in join.intervals]


def _equal(statement: Statement) -> list[list[exp.Expr]]:
    """Groups of expressions, each over one stream, that are all equal."""
    found: list[list[exp.Expr]] = []
    for join in statement.joins:
        for key in join.keys:
            if len(aliases_in(key.left)) != 1 or len(aliases_in(key.right)) != 1:
                continue
            touched = [one for one in found if key.left in one or key.right in one]
            merged = [part for one in touched for part in one]
            merged += [part for part in (key.left, key.right) if part not in merged]
            found = [one for one in found if one not in touched] + [merged]
    return found


def _start(alias: str, window: Tumbling) -> exp.Expr:
    """Start of the window that a stream's time lies in."""
    return window_start(exp.column("time", table=alias), window)


def window_start(time: exp.Expr, window: Tumbling) -> exp.Expr:
    """Start of the window that a time lies in."""
    micros = exp.Anonymous(this="unix_micros", expressions=[time.copy()])
    within = exp.Anonymous(this="pmod", expressions=[micros.copy(), exp.Literal.number(window.size_us)])
    return exp.Anonymous(this="timestamp_micros", expressions=[exp.Sub(this=micros, expression=within)])
