"""Improve: what an event left worse than need be, looked at within bounds.

An event places what lost its host where there is room now. That alone would drift from a fresh plan, so a few moves are
tried besides: a sub-join that had to go far may evict a replica that loses less (`evict`), sub-joins whose costs
changed look for a better host (`reconsider`), what waits too long on a host with more load leaves it (`relieve`), those
that were evicted return (`return_evicted`), and room that opened is filled by those that gain most (`backfill`). How
many are tried depends on the event, not on the size of the network. Hosts to look at are drawn from the index, by
numbers that depend on what is looked at and not on when: the same question has the same answer on every replay, and in
any order of events that do not touch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from nova.controller.impact import Impact
from nova.controller.ledger import (
    NOWHERE,
    RESERVE,
    ROUNDING,
    TINY,
    axis_of,
    charge,
    cost_on,
    cut_of,
    demand_of,
    drop,
    ends_of,
    felt_of,
    felt_on,
    make,
    make_part,
    merge,
    move,
    own_cost,
    parts_of,
    share_of,
    time_at,
    worth_moving_below,
)
from nova.controller.place import ROWS, place_waiting, search
from nova.controller.schema import GONE, LARGEST, MOST_PARTS, RUNNING, SPARE_TOP, STAY, STEP, unpack
from nova.controller.state import State
from nova.jit import inline, kernel
from nova.model.policy import PART
from nova.placement.index import FAN, least_cost

DEPTH = 1
"""How many times room that a move left behind is looked at in turn."""
BACKFILLS = 2
"""Nodes per event whose new room is offered to others."""
MOVES = 2
"""Replicas that one such node may take over."""
CROWDED = 2
"""Nodes per event with more load (or less capacity) than before that are looked at for what waits too long."""
EVICTIONS = 4
"""Replicas per event that may try to evict another."""
RESIDENTS = 12
"""Replicas looked at per host: a host with thousands must not make an event slow."""
CHOICES = 3
"""Replicas that might give way and are tried in earnest."""


def improve(state: State, impact: Impact) -> None:
    """Look for moves that pay near what a batch of events changed."""
    effort = state.stability.effort
    if impact.placed and effort:
        _make_room(state, impact)
    if impact.repriced:
        _reconsider(state, impact)
    if impact.crowded and effort and state.limits[STAY] > 0:
        for node in itertools.islice(impact.crowded, CROWDED * impact.events):
            state.have_spare(ROWS, RESERVE)
            relieve(state.handle, node, MOVES)
    if impact.opened:
        _return(state, impact)
        if effort:
            _backfill(state, impact)


def _make_room(state: State, impact: Impact) -> None:
    """Sub-joins that had to go far may evict others where it hurts less."""
    rows, done, tries = np.array(impact.placed), 0, EVICTIONS * impact.events
    while done < len(rows):
        state.have_spare(ROWS, RESERVE)
        done, tries = evict_for(state.handle, rows, done, tries, state.stability.effort)


def _reconsider(state: State, impact: Impact) -> None:
    """Sub-joins whose costs changed look for better hosts, the smallest first; what waits may use the room they
    leave."""
    rows = np.array([join for join in impact.repriced if state.joins["state"][join] == RUNNING], np.int64)
    rows = rows[np.argsort(state.demand(rows), kind="stable")]
    for row in rows.tolist():
        impact.reasons.setdefault(row, impact.repriced[row])
    done, moved = 0, False
    while done < len(rows):
        state.have_spare(ROWS, RESERVE)
        done, left = reconsider(state.handle, rows, done, state.stability.effort)
        for node in left.tolist():
            moved = True
            impact.opened.setdefault(node, "left by a better placed replica")
    if moved:
        place_waiting(state, impact)


def _return(state: State, impact: Impact) -> None:
    """Those return to new room that were evicted from there."""
    for node, reason in impact.opened.items():
        rows = state.evicted.get(node)
        if rows and state.nodes["slot"][node] >= 0:
            for row in rows:
                why = f"back on {state.names.nodes[node]}: {reason}"
                impact.reasons.setdefault(int(state.replicas["join"][row]), why)
            state.have_spare(ROWS, RESERVE)
            return_evicted(state.handle, np.array(sorted(rows)), node)


def _backfill(state: State, impact: Impact) -> None:
    """Those move to new room that gain most, and to the room that they left in turn."""
    queue = [(node, 0) for node in impact.opened if state.nodes["slot"][node] >= 0]
    for node, depth in itertools.islice(_growing(queue), BACKFILLS * impact.events):
        state.have_spare(ROWS, RESERVE)
        left = backfill(state.handle, node, state.stability.effort, MOVES, PART)
        if depth < DEPTH:
            queue += [(other, depth + 1) for other in left.tolist()]


def _growing(queue: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The entries of a list that may grow meanwhile."""
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1


@inline
def _next_random(seed):  # type: ignore[no-untyped-def]
    return seed * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@kernel
def _seed(s, node, amount):  # type: ignore[no-untyped-def]
    """A number from where a node is and an amount of tuples/s."""
    value = np.uint64(88172645463325252)
    for k in range(s.at.shape[1]):
        value = (value ^ np.uint64(np.int64(s.at[node, k] * 1048576.0))) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    value = (value ^ np.uint64(np.int64(min(amount, 1e9) * 1024.0))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(32))


@kernel
def _walk(s, level, box, j, limit, seed):  # type: ignore[no-untyped-def]
    """A leaf below a box, drawn step by step among the boxes that hold hosts, and that could hold one cheaper than
    `limit` for sub-join j (any, where j is −1); −1 where there is none. Returns the next seed, too."""
    held, offsets, w = s.i_held, s.i_offsets, s.weights
    prune = j >= 0 and s.rtts.shape[0] == 0
    left = right = sink = np.int64(0)
    high, all_legs = 0.0, w[0] + w[1] + w[2]
    if prune:
        left, right, sink = ends_of(s, j)
        high = w[0] * s.nodes[left].height + w[1] * s.nodes[right].height + w[2] * s.nodes[sink].height
    while level > 0:
        below = offsets[level - 1]
        count, chosen = 0, -1
        for i in range(box * FAN, min(box * FAN + FAN, offsets[level] - below)):
            child = below + i
            if held[child] == 0:
                continue
            if prune:
                bound = least_cost(s.at[left], s.at[right], s.at[sink], w, s.i_low, s.i_high, child)
                if bound + high + all_legs * s.i_height[child] >= limit:
                    continue
            count += 1
            seed = _next_random(seed)
            if np.int64(seed >> np.uint64(33)) % count == 0:
                chosen = i
        if chosen < 0:
            return -1, seed
        box = chosen
        level -= 1
    return box, seed


@kernel
def _serves(s, j, node):  # type: ignore[no-untyped-def]
    """Whether a node runs a box of a sub-join that is cut into boxes: two on one host would share input."""
    r = s.joins[j].first
    while r >= 0:
        if s.replicas[r].node == node and cut_of(s.replicas[r].box) < 0:
            return True
        r = s.replicas[r].next
    return False


@kernel
def evict(s, r, walks):  # type: ignore[no-untyped-def]
    """Try to get replica r a better host by moving one other replica out of it. Returns whether it happened.

    Hosts that would suit r are drawn from the index; among the replicas on them, those whose share is small for the
    room they take lose least by moving. The best few are tried in earnest: where would they go, and does the whole
    gain more than the moves are worth?
    """
    row = s.replicas[r]
    j, here, amount = row.join, row.node, row.charge
    if s.counts[SPARE_TOP] < RESERVE or s.joins[j].state != RUNNING:
        return False
    share = share_of(row.box)
    cost = felt_of(s, r)
    limit = worth_moving_below(s, cost)
    if s.joins[j].ideal >= limit or amount <= 0.0:
        return False
    seed = _seed(s, s.sources[s.joins[j].left].node, amount)
    keys, found = np.zeros(CHOICES), np.full(CHOICES, -1)
    for _ in range(walks):
        leaf, seed = _walk(s, len(s.i_offsets) - 2, np.int64(0), j, limit, seed)
        if leaf < 0:
            break
        for i in range(leaf * FAN, min(leaf * FAN + FAN, len(s.i_node))):
            host = np.int64(s.i_node[i])
            if host < 0 or host == here or s.nodes[host].first < 0 or s.nodes[host].room < amount:
                continue
            there = cost_on(s, j, host)
            if there >= limit:
                continue
            k = s.nodes[host].first
            seen = 0
            while k >= 0 and seen < RESIDENTS:
                seen += 1
                other = s.replicas[k]
                movable = other.join != j and s.joins[other.join].state == RUNNING
                if movable and other.charge + s.i_free[i] >= amount:
                    _note(keys, found, (cost - there) * (share - share_of(other.box)), k)
                k = other.after
    for k in found:
        if k < 0:
            break
        if _swap(s, r, k, share, cost):
            return True
    return False


@inline
def _note(keys, found, key, k):  # type: ignore[no-untyped-def]
    """Keep the rows with the largest positive keys, each once."""
    q = 0
    while q < CHOICES and key <= keys[q] and found[q] != k:
        q += 1
    if q < CHOICES and found[q] != k:
        for p in range(CHOICES - 1, q, -1):
            keys[p], found[p] = keys[p - 1], found[p - 1]
        keys[q], found[q] = key, k


@kernel
def _swap(s, r, k, share, cost):  # type: ignore[no-untyped-def]
    """Move replica r to the host of replica k, and k to the best host then, if the whole is worth it. A replica that
    this step made has to go somewhere anyway; the move of one that runs counts, too."""
    j, here, amount = s.replicas[r].join, s.replicas[r].node, s.replicas[r].charge
    other, host, out = s.replicas[k].join, s.replicas[k].node, s.replicas[k].charge
    cut, other_cut = cut_of(s.replicas[r].box), cut_of(s.replicas[k].box)
    other_share, other_cost = share_of(s.replicas[k].box), felt_of(s, k)
    # what both may cost in all for it to be worth it, less what is known of it
    left = share * (own_cost(s, j, here, cut) - own_cost(s, j, host, cut)) + other_share * own_cost(
        s, other, host, other_cut
    )
    left += time_at(s, here, 0.0, 0.0) + time_at(s, host, 0.0, 0.0)
    left -= other_share * (other_cost - worth_moving_below(s, other_cost))
    if s.replicas[r].step != s.counts[STEP]:
        left -= share * (cost - worth_moving_below(s, cost))
    if left <= 0.0 or _serves(s, j, host):
        return False
    charge(s, here, -amount, -share)
    charge(s, host, amount - out, share - other_share)
    better = np.int64(-1)
    left -= time_at(s, here, 0.0, 0.0) + time_at(s, host, 0.0, 0.0)
    if left > 0.0 and s.nodes[host].used <= s.nodes[host].room:
        i, _ = search(s, other, other_cut, other_share, out, max(out, TINY), left / other_share)
        if i >= 0:
            better = np.int64(s.i_node[i])
    charge(s, here, amount, share)
    charge(s, host, out - amount, other_share - share)
    if better < 0 or better == host or _serves(s, other, better):
        return False
    box, moved = s.replicas[r].box, s.replicas[k].box
    drop(s, r)
    drop(s, k)
    make(s, j, host, box, NOWHERE)
    make(s, other, better, moved, host)
    return True


@kernel
def evict_for(h, joins, begin, tries, walks):  # type: ignore[no-untyped-def]
    """Let the replicas of this step's sub-joins look for better hosts, `tries` times at most. Returns the next
    sub-join to do (all done: their number), and the tries that are left."""
    s = unpack(h)
    for q in range(begin, len(joins)):
        if tries <= 0:
            break
        r = s.joins[joins[q]].first
        while r >= 0 and tries > 0:
            if s.counts[SPARE_TOP] < RESERVE:
                return q, tries
            after = s.replicas[r].next
            if s.replicas[r].step == s.counts[STEP]:
                tries -= 1
                evict(s, r, walks)
            r = after
        merge(s, joins[q])
    return len(joins), tries


@kernel
def relieve(h, node, moves):  # type: ignore[no-untyped-def]
    """Move replicas off a node on which they wait too long, where another host is clearly cheaper for all. Returns how
    many moved."""
    s = unpack(h)
    moved = np.empty(moves, np.int64)
    count, seen = 0, 0
    r = s.nodes[node].first
    while r >= 0 and seen < RESIDENTS and count < moves and s.counts[SPARE_TOP] >= RESERVE:
        seen += 1
        row = s.replicas[r]
        j, after = row.join, row.after
        if s.joins[j].state == RUNNING:
            limit = worth_moving_below(s, felt_of(s, r))
            i, _ = search(s, j, cut_of(row.box), share_of(row.box), row.charge, max(row.charge, TINY), limit)
            if i >= 0 and s.i_node[i] != node and not _serves(s, j, np.int64(s.i_node[i])):
                move(s, r, np.int64(s.i_node[i]), NOWHERE)
                moved[count] = j
                count += 1
        r = after
    for q in range(count):
        merge(s, moved[q])
    return count


@kernel
def return_evicted(h, rows, node):  # type: ignore[no-untyped-def]
    """Replicas that were evicted from `node` return where there is room again and it is cheaper. Their move was not
    their choice, so their return needs no further reason."""
    s = unpack(h)
    i = s.nodes[node].slot
    for r in rows:
        if i < 0 or s.counts[SPARE_TOP] < RESERVE:
            return
        row = s.replicas[r]
        j = row.join
        if row.next == GONE or row.evicted_from != node or s.joins[j].state != RUNNING:
            continue
        if row.charge > s.i_free[i] or _serves(s, j, node):
            continue
        if felt_on(s, j, node, cut_of(row.box), share_of(row.box), row.charge) < felt_of(s, r):
            move(s, r, node, NOWHERE)
            merge(s, j)


@kernel
def backfill(h, node, walks, moves, part):  # type: ignore[no-untyped-def]
    """Fill room on a node with replicas that run worse elsewhere: those that gain most per tuple/s. Looks at other
    parts of what runs here, and at hosts drawn near and far. Returns the nodes that were left."""
    s = unpack(h)
    i = s.nodes[node].slot
    left_behind = np.empty(moves, np.int64)
    count = 0
    levels = len(s.i_offsets) - 1
    while i >= 0 and count < moves:
        free = s.i_free[i]
        if free <= TINY * s.nodes[node].room or s.counts[SPARE_TOP] < RESERVE:
            break
        best, best_key = -1, 0.0
        r = s.nodes[node].first
        seen = 0
        while r >= 0 and seen < RESIDENTS:
            seen += 1
            k = s.joins[s.replicas[r].join].first
            while k >= 0:
                key = _gain(s, k, node, free, part)
                if key > best_key:
                    best, best_key = k, key
                k = s.replicas[k].next
            r = s.replicas[r].after
        seed = _seed(s, node, free)
        for w in range(walks):
            level = levels - 1 - w % (levels - 1) if levels > 1 else 0
            leaf, seed = _walk(s, level, (i // FAN) // FAN**level, NOWHERE, 0.0, seed)
            if leaf < 0:
                continue
            for q in range(leaf * FAN, min(leaf * FAN + FAN, len(s.i_node))):
                if s.i_node[q] < 0 or s.i_node[q] == node:
                    continue
                k = s.nodes[s.i_node[q]].first
                seen = 0
                while k >= 0 and seen < RESIDENTS:
                    seen += 1
                    key = _gain(s, k, node, free, part)
                    if key > best_key:
                        best, best_key = k, key
                    k = s.replicas[k].after
        if best < 0:
            break
        row = s.replicas[best]
        j, left = row.join, row.node
        if row.charge <= free * (1 + ROUNDING):
            move(s, best, node, NOWHERE)
        else:
            axis = axis_of(s, j)
            low, high = row.box[axis], row.box[axis + 1]
            cut = low + free / demand_of(s, j)
            drop(s, best)
            make_part(s, j, left, axis, cut, high, NOWHERE)
            make_part(s, j, node, axis, low, cut, NOWHERE)
        merge(s, j)
        left_behind[count] = left
        count += 1
    return left_behind[:count]


@kernel
def _gain(s, k, node, free, part):  # type: ignore[no-untyped-def]
    """How much replica k would gain per tuple/s on a node with `free` room; 0 where it may not or need not move."""
    row = s.replicas[k]
    j = row.join
    if row.node == node or s.joins[j].state != RUNNING:
        return 0.0
    demand = demand_of(s, j)
    if row.charge > free * (1 + ROUNDING):
        # it would be cut: that needs windows that are dealt out, a good part on both sides, and leave for a replica
        parts = parts_of(s, j)
        dealt = cut_of(row.box) >= 0 and (s.queries[s.joins[j].query].sliced or parts > 1)
        if not dealt or s.limits[LARGEST] < np.inf or parts >= s.limits[MOST_PARTS]:
            return 0.0
        if min(free, row.charge - free) < part * demand:
            return 0.0
    cost = felt_of(s, k)
    part = min(free / max(row.charge, TINY), 1.0)  # of the replica, that would move
    there = felt_on(s, j, node, cut_of(row.box), part * share_of(row.box), part * row.charge)
    if there >= worth_moving_below(s, cost) or demand <= 0.0 or _serves(s, j, node):
        return 0.0
    return (cost - there) / demand


@kernel
def reconsider(h, joins, begin, walks):  # type: ignore[no-untyped-def]
    """Move replicas of the given sub-joins for which a clearly better host has room, or can be made room on. Returns
    the next to do, and the nodes that were left."""
    s = unpack(h)
    left_behind = [np.int64(0)]
    for q in range(begin, len(joins)):
        j = joins[q]
        if s.joins[j].state != RUNNING:
            continue
        r = s.joins[j].first
        while r >= 0:
            if s.counts[SPARE_TOP] < RESERVE:
                return q, np.array(left_behind[1:], dtype=np.int64)
            row = s.replicas[r]
            after, left = row.next, row.node
            limit = worth_moving_below(s, felt_of(s, r))
            if s.joins[j].ideal < limit or s.rtts.shape[0] > 0:
                i, _ = search(s, j, cut_of(row.box), share_of(row.box), row.charge, max(row.charge, TINY), limit)
                gone = False
                if i >= 0 and not _serves(s, j, np.int64(s.i_node[i])):
                    move(s, r, np.int64(s.i_node[i]), NOWHERE)
                    gone = True
                elif walks > 0:
                    gone = evict(s, r, walks)
                if gone:
                    left_behind.append(left)
            r = after
        merge(s, j)
    return len(joins), np.array(left_behind[1:], dtype=np.int64)
