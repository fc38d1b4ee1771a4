"""The statistics of pairs in time buckets: plain arrays in, plain arrays out, no Spark.

Rows arrive grouped, in any order inside a group. Sorting a whole batch of groups at once and working on neighbouring
rows needs no loop over groups, and nothing that executors would have to compile first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.model.problem import Bools, Floats

Longs = npt.NDArray[np.int64]

COUNTS = ("count", "lost", "duplicates", "count_ab", "lost_ab", "count_ba", "lost_ba")
"""Integer results per group; `count` includes lost pings, duplicates are in none but their own column."""
VALUES = ("min_ms", "median_ms", "p90_ms", "jitter_ms", "median_ab_ms", "median_ba_ms")
"""Float results per group; NaN where no ping came back (jitter: where no direction has two of them)."""


def summarise(
    starts: Longs, back: Bools, repeated: Bools, time: Longs, sequence: Longs, rtt: Floats
) -> tuple[dict[str, Longs], dict[str, Floats]]:
    """Figures of every group; group g holds the rows [starts[g], starts[g + 1]).

    `back` marks pings from b to a, `repeated` replies that the sender itself marked as duplicates; `rtt` is in ms with
    NaN for a lost ping. Rows equal in direction, time, sequence and RTT are one ping; the first counts.
    Jitter is the mean absolute difference of consecutive RTTs, each direction by itself in time order.
    """
    groups = len(starts) - 1
    lane = 2 * np.repeat(np.arange(groups), np.diff(starts)) + back
    order = _in_time(lane, time, sequence, rtt)
    lane, rtt, repeated = lane[order], rtt[order], repeated[order]
    copy = repeated | _same_as_before(lane, time[order], sequence[order], rtt)
    duplicates = np.bincount(lane[copy] >> 1, minlength=groups)
    lane, rtt = lane[~copy], rtt[~copy]

    count = np.bincount(lane, minlength=2 * groups).reshape(groups, 2)
    back_again = ~np.isnan(rtt)
    lane, rtt = lane[back_again], rtt[back_again]
    lost = count - np.bincount(lane, minlength=2 * groups).reshape(groups, 2)
    counts = {
        "count": count.sum(1),
        "lost": lost.sum(1),
        "duplicates": duplicates,
        "count_ab": count[:, 0],
        "lost_ab": lost[:, 0],
        "count_ba": count[:, 1],
        "lost_ba": lost[:, 1],
    }

    follows = lane[1:] == lane[:-1]
    group = lane >> 1
    steps = np.bincount(group[1:][follows], minlength=groups)
    travelled = np.bincount(group[1:][follows], np.abs(np.diff(rtt))[follows], minlength=groups)
    jitter = np.divide(travelled, steps, out=np.full(groups, np.nan), where=steps > 0)

    merged, separate = np.lexsort((rtt, group)), np.lexsort((rtt, lane))
    ends, ends_each = np.searchsorted(group, np.arange(groups + 1)), np.searchsorted(lane, np.arange(2 * groups + 1))
    each = quantiles(rtt[separate], ends_each, 0.5).reshape(groups, 2)
    values = {
        "min_ms": quantiles(rtt[merged], ends, 0.0),
        "median_ms": quantiles(rtt[merged], ends, 0.5),
        "p90_ms": quantiles(rtt[merged], ends, 0.9),
        "jitter_ms": jitter,
        "median_ab_ms": each[:, 0],
        "median_ba_ms": each[:, 1],
    }
    return counts, values


def _in_time(lane: Longs, time: Longs, sequence: Longs, rtt: Floats) -> npt.NDArray[np.intp]:
    """Order of direction, time, sequence, RTT; the RTT, the dearest key, only where something else ties."""
    keys = [time, lane] if (sequence == sequence[0]).all() else [sequence, time, lane]
    order = np.lexsort(keys)
    if _same_as_before(*(key[order] for key in keys)).any():
        order = np.lexsort([rtt, *keys])
    return order


def _same_as_before(*columns: npt.NDArray[np.int64] | Floats) -> Bools:
    """Rows equal to the row before them in all columns; NaN equals NaN."""
    same = np.ones(len(columns[0]), dtype=np.bool_)
    same[:1] = False
    for column in columns:
        equal = column[1:] == column[:-1]
        if column.dtype.kind == "f":
            equal |= np.isnan(column[1:]) & np.isnan(column[:-1])
        same[1:] &= equal
    return same


def quantiles(values: Floats, ends: npt.NDArray[np.intp], share: float) -> Floats:
    """Quantile of every run [ends[g], ends[g + 1]) of ascending values, interpolated linearly as pandas does."""
    size = np.diff(ends)
    at = share * np.maximum(size - 1, 0)
    low = np.floor(at).astype(np.intp)
    found = np.full(len(size), np.nan)
    some = size > 0
    first, second = values[(ends[:-1] + low)[some]], values[(ends[:-1] + np.minimum(low + 1, size - 1))[some]]
    found[some] = first + (second - first) * (at - low)[some]
    return found
