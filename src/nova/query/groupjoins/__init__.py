"""Joins of groups: queries in brackets that group by a window, joined on that window, as one query that groups by it.

    SELECT … FROM (SELECT … FROM bids GROUP BY window, auction) l
             JOIN (SELECT … FROM bids GROUP BY window) r ON l.window_start = r.window_start AND …

The groups of a window are complete at the sink at the same moment, so the join runs there, in a layer over them: once
for each window. Where a rewriting would not give the same rows, the text is refused.

sides         what is joined: queries with groups, and streams
text          the query around them: whose column each name is, and that pairs lie in one window
one_input     sides that all read the same: over the finest groups that any of them needs
many_streams  sides that read different streams: groups of pairs
parts         of the texts that are made
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from nova.query.dialect import is_view
from nova.query.groupjoins.many_streams import PairedGroups
from nova.query.groupjoins.one_input import FinestGroups
from nova.query.groupjoins.sides import select_in
from nova.query.groupjoins.text import JoinText
from nova.query.statement import Schema


@dataclass(frozen=True)
class GroupJoin:
    """A join of groups as one query that groups by a window, and a layer over its groups."""

    base: exp.Select
    layer: exp.Select
    names: tuple[str, ...]
    """Columns of the layer."""
    bounds: frozenset[str]
    """Those of them that are bounds of the window, in lower case."""
    closed: bool
    """Whether a tuple at the very end of a window belongs to it, too: the layer looks at both windows of such a
    tuple."""


def group_join(sql: str, select: exp.Select, streams: Mapping[str, Schema]) -> GroupJoin | None:
    """A SELECT that joins queries with groups, rewritten; None where it joins none. Raises `SqlFault` where a rewriting
    would not give the same rows."""
    inside = [select_in(one.this) for one in (select.args.get("from_"), *(select.args.get("joins") or ())) if one]
    if len(inside) < 2 or not any(one is not None and not is_view(one) for one in inside):
        return None
    text = JoinText(sql, select, streams)
    names, bounds = text.outcome()
    first = next(one.leaf for one in text.sides if one.leaf is not None)
    raw = [one for one in text.sides if one.leaf is None]
    like = all(one.leaf is None or one.leaf.reads == first.reads for one in text.sides)
    if like and all(one.node.name.lower() == first.single.lower() for one in raw):
        return GroupJoin(*FinestGroups(text, first).made(), names, bounds, bool(raw))
    for one in raw:
        raise text.wrong(
            one.node, "a stream is joined with groups of the same stream; else group it by its columns and window"
        )
    return GroupJoin(*PairedGroups(text).made(), names, bounds, False)


__all__ = ["GroupJoin", "group_join"]
