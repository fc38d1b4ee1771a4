"""Lists threaded through the tables: replicas by sub-join and by node, sub-joins by source, sources by node."""

from __future__ import annotations

import numpy as np

from nova.controller.layout import GONE, unpack
from nova.jit import kernel


@kernel
def link(s, r):  # type: ignore[no-untyped-def]
    """Put a replica first into the lists of its sub-join and its node."""
    row = s.replicas[r]
    join, node = s.joins[row.join], s.nodes[row.node]
    row.next = join.first
    join.first = r
    row.before, row.after = -1, node.first
    if node.first >= 0:
        s.replicas[node.first].before = r
    node.first = r


@kernel
def unlink(s, r):  # type: ignore[no-untyped-def]
    """Take a replica out of both lists."""
    row = s.replicas[r]
    join, node = s.joins[row.join], s.nodes[row.node]
    if join.first == r:
        join.first = row.next
    else:
        q = join.first
        while s.replicas[q].next != r:
            q = s.replicas[q].next
        s.replicas[q].next = row.next
    if row.before >= 0:
        s.replicas[row.before].after = row.after
    else:
        node.first = row.after
    if row.after >= 0:
        s.replicas[row.after].before = row.before
    row.next = GONE


@kernel
def thread(h, sources, joins, replicas):  # type: ignore[no-untyped-def]
    """Make all lists of a plan that begins to run, and charge its hosts: so many sources, sub-joins and replicas are
    filled in. Last first, so that lists read in row order. The host index does not know of charges yet."""
    s = unpack(h)
    for row in range(sources - 1, -1, -1):
        node = s.nodes[s.sources[row].node]
        s.sources[row].next = node.source
        node.source = row
    for j in range(joins - 1, -1, -1):
        for side in range(2):
            source = s.joins[j].left if side == 0 else s.joins[j].right
            first = s.sources[source].join
            s.joins[j].next[side] = first
            if first >= 0:
                s.joins[first].before[0 if s.joins[first].left == source else 1] = j
            s.sources[source].join = j
    for r in range(replicas - 1, -1, -1):
        link(s, r)
        s.nodes[s.replicas[r].node].used += s.replicas[r].charge


@kernel
def joins_of(h, source):  # type: ignore[no-untyped-def]
    """Sub-joins that read a source."""
    s = unpack(h)
    found = [np.int64(0)]
    j = s.sources[source].join
    while j >= 0:
        found.append(j)
        j = s.joins[j].next[0 if s.joins[j].left == source else 1]
    return np.array(found[1:], dtype=np.int64)


@kernel
def joins_on(h, node):  # type: ignore[no-untyped-def]
    """Sub-joins of the replicas on a node, with repeats."""
    s = unpack(h)
    found = [np.int64(0)]
    r = s.nodes[node].first
    while r >= 0:
        found.append(s.replicas[r].join)
        r = s.replicas[r].after
    return np.array(found[1:], dtype=np.int64)


@kernel
def parts_of(s, j):  # type: ignore[no-untyped-def]
    """Replicas of a sub-join."""
    count = 0
    r = s.joins[j].first
    while r >= 0:
        count += 1
        r = s.replicas[r].next
    return count
