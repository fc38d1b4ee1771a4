"""Policy: every threshold and rule of placement, in one place, with where it comes from.

Plans and the controller decide by the same values. What only tunes an algorithm to the machine (sizes of blocks and
cells) stays with that algorithm.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nova.model.options import Options
from nova.model.problem import Bools, Floats, Key, Nodes, Query
from nova.model.skew import KeyAxis

# --- How large a problem is solved how --------------------------------------------------------------------------------
DENSE: Final = 2_000_000
"""Sub-joins × hosts up to which every pair is priced, by measured RTTs where known, and the optimum sought; beyond,
hosts are filled by cells in the cost space. Pricing takes 16 MB and a second here."""
SQUARE: Final = 4096
"""Nodes up to which measured latencies are kept as a square matrix, where looking up is quickest (64 MB)."""

# --- What fits --------------------------------------------------------------------------------------------------------
ROUNDING: Final = 1e-12
"""Relative load beyond a node's limit that is rounding: C_r ≤ C_a (Eq. 3) holds with equality, so a join of 50 tuples/s
fits a host of 50. Sums of thousands of rates round by less."""
OVERLOAD: Final = 1e-6
"""Relative load beyond a node's limit from which a plan is refused as overloading."""
UNLIMITED: Final = 1e15
"""Stands for infinite room in tuples/s: arithmetic stays exact enough, and nothing real comes near it."""
CRUMB: Final = 1e-6
"""A smaller share than this of a sub-join is never placed on a host of its own: it would never see a window."""
PART: Final = 0.3
"""A host that would take less than this share of a sub-join is passed over while others can take more: crumbs make
replicas, and replicas make windows meet late."""

# --- What counts as felt ----------------------------------------------------------------------------------------------
BY_RESULTS: Final = 0.5
"""Share of a sub-join's weight that goes by its results/s; the rest is the same for all. People feel results, so those
of a busy sub-join count more often; but rates of results are seldom known well, and no sub-join may be forgotten. On
two instances of the fit topology one half lowers predicted mean and p99 of results by 8 to 20 %, for 2 % on the mean of
sub-joins; all of it would lower the mean by 4 % more, for 6 to 8 %."""
ROOMS: Final = (1.0, 0.9, 0.8, 0.7)
"""Shares of the hosts within which small problems are placed, each on its own; the plan that is felt soonest at mean,
p90 and p99 counts. Plans of like cost differ by up to a tenth in their tails, which the search does not see."""
TIE: Final = 0.02
"""Share by which predicted p99 may lie above that of plans with more room where `utilisation` is to be kept: less is
within what a prediction is off by."""

# --- How joins are cut ------------------------------------------------------------------------------------------------
SHORT_WINDOW_MS: Final = 10.0
"""`auto` without waiting slices windows up to this length at once. A host that takes the share f of a sub-join's
windows gets one whole window and then has time for 1/f of them: its results are late by about (1/f − 1) windows, which
is nothing here."""
LONG_WINDOW_MS: Final = 60_000.0
"""`auto` slices windows up to this length where nothing else fits. Longer ones would drown their host and then leave it
waiting; those joins are cut into grids or not placed."""
KEYS_PER_RANGE: Final = 100
"""Keys that a range holds at least on average: ranges of one length then differ in load by about a tenth."""
HEAVY: Final = 0.1
"""Most that the commonest key may add to the load of a range, as a share of it; else the join is cut by grid, which
divides a single key, too (SharesSkew)."""
ALONE: Final = 8
"""Heavy keys of a query that are placed on their own at most, each a part of every sub-join; beyond, the others hardly
divide better. As many as it takes for the others to divide into `KEY_PARTS`."""
KEY_PARTS: Final = 16
"""Ranges of keys that a sub-join is cut into at most where each is searched a host."""
COLUMNS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of columns that a grid is tried with; more would broadcast a stream to hundreds of hosts."""
SLIVER: Final = 0.1
"""Least share of the dealt stream that is worth broadcasting a column for."""
PER_REPLICA: Final = 0.01
"""Share of its cost that a cut must save per replica it makes: replicas are not free to run."""
NEAR: Final = 64
"""Hosts looked at for a cut that is not forced."""
FAR: Final = (64, 1024)
"""Hosts looked at, in turn, for a cut that is forced where not all pairs are priced."""
SPREAD: Final = 16
"""Hosts that a join which fits nowhere is spread over at most, where overload is allowed (the paper's k is the demand
over the median capacity)."""

# --- Where partial aggregates are merged on their way -----------------------------------------------------------------
PER_MERGE: Final = 0.01
"""Share of the ways to the sink that it takes the place of that a merge must save."""
MERGE_LEVELS: Final = 6
"""Merges on one way at most: each level is a hop to partials, and a shuffle to a run."""
MOST_SENDERS: Final = 1000
"""Hosts of a query that send partials, up to which a merge tree is sought: with a hundred times as many the search
takes minutes."""
OVERFULL_MS: Final = 10_000.0
"""What a tuple/s that a sink or a link cannot take counts, as if it went so much further: more than any way."""


def rooms_down_to(utilisation: float) -> tuple[float, ...]:
    """Shares of the hosts that `auto` may use, most first: those of `ROOMS` above what is wished, then that."""
    return (*(room for room in ROOMS if room > utilisation), utilisation)


def usable(nodes: Nodes, options: Options) -> Floats:
    """Tuples/s of join input that each node may take in; 0 where it is passed over."""
    room = usable_room(nodes.capacity, nodes.bandwidth, nodes.other_load, nodes.hosts, options)
    return room if nodes.allowance is None else np.minimum(room, nodes.allowance)


def usable_room(capacity: Floats, bandwidth: Floats, busy: Floats, hosts: Bools, options: Options) -> Floats:
    """`usable` by columns: the share `utilisation` of capacity and bandwidth, less the node's other work, and nothing
    on nodes that may not host or have less than C_min."""
    limit = np.minimum(np.minimum(capacity, bandwidth), UNLIMITED) * options.utilisation
    room = np.where(hosts, np.maximum(limit * (1 + ROUNDING) - busy, 0.0), 0.0)
    return np.where(room >= options.c_min, room, 0.0)


def key_ranges(key: Key | None) -> float:
    """Equal ranges that a join may be divided into by its key; 1 where it has none."""
    if key is None:
        return 1.0
    return min(key.cardinality / KEYS_PER_RANGE, HEAVY / max((*key.heavy, 1e-12)))


def alone(query: Query) -> int:
    """Heavy keys of a query, the heaviest, that may have hosts of their own: those that keep the other keys from being
    divided."""
    axis, count = KeyAxis.of(query), 0
    if query.apart is not None:  # replicas that keep apart have no hosts to spare
        return 0
    shares, left = np.diff(axis.edges), 1.0
    while count < min(ALONE, len(shares)) and shares[count] * KEY_PARTS > HEAVY * (left - shares[count]):
        left -= shares[count]
        count += 1
    return count


def sliced(window_ms: float, options: Options) -> bool:
    """Whether a query's windows are dealt out before anything else is tried."""
    short = options.partition == "auto" and options.waiting == 0 and window_ms <= SHORT_WINDOW_MS
    return options.partition == "window" or short


def may_slice(window_ms: float, options: Options) -> bool:
    """Whether a query's windows are dealt out where a sub-join finds no room otherwise."""
    return options.partition == "window" or (options.partition == "auto" and window_ms <= LONG_WINDOW_MS)
