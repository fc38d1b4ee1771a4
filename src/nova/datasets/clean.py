"""Cleaning measured matrices: every repair has a rule, and every rule says how much it touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.datasets.catalog import Rules
from nova.model.problem import Floats, Latency

APART = 0.1
"""Directions that differ by more than this share are counted when averaged."""
OUTLIER = 8.0
"""Entries above this many times the 99th percentile of a matrix are outliers."""
SPIKE = 5.0
SPIKE_MS = 500.0
"""In a series, entries above `SPIKE` times the pair's median and above `SPIKE_MS` are spikes."""
ONE_WAY = (0.4, 0.6)
"""In a series of summed directions, entries within these shares of the pair's median hold one direction only."""


@dataclass(frozen=True)
class Rule:
    """One rule of cleaning and what it touched."""

    what: str
    pairs: int
    """Unordered pairs (over all matrices of a series) that were dropped or changed."""


@dataclass(frozen=True)
class Cleaning:
    """What was done to a matrix or a series of them."""

    steps: tuple[Rule, ...]
    dropped_nodes: tuple[str, ...]
    pairs: int
    """Pairs there could be among the kept nodes, over all matrices."""
    kept: int
    """Pairs that are left with a measurement."""

    def __str__(self) -> str:
        lines = [f"{step.what}: {step.pairs:,} pairs" for step in self.steps if step.pairs]
        if self.dropped_nodes:
            lines.append(f"never measured, left out: {', '.join(self.dropped_nodes)}")
        share = self.kept / self.pairs if self.pairs else 0.0
        lines.append(f"kept: {self.kept:,} of {self.pairs:,} pairs ({share:.2%})")
        return "\n".join(lines)


@dataclass(frozen=True)
class Cleaned:
    """Matrices as measured pairs over the kept nodes."""

    rows: npt.NDArray[np.intp]
    """Rows of the original that were kept."""
    latencies: tuple[Latency, ...]
    """One per matrix."""
    cleaning: Cleaning


def clean(labels: tuple[str, ...], stack: Floats, rules: Rules) -> Cleaned:
    """Clean a stack of matrices (slots × n × n, or one matrix), in ms."""
    stack = np.array(stack if stack.ndim == 3 else stack[None], dtype=np.float64)
    n = stack.shape[1]
    upper = np.triu_indices(n, 1)
    there, back = stack[:, upper[0], upper[1]], stack[:, upper[1], upper[0]]
    steps = []

    gone = [_missing(side, rules.missing) for side in (there, back)]
    steps.append(Rule("not measured", int((gone[0] & gone[1]).sum())))
    there, back = (np.where(missing, np.nan, side) for missing, side in zip(gone, (there, back), strict=True))

    with np.errstate(invalid="ignore"):
        apart = np.abs(there - back) > APART * np.minimum(there, back)
    steps.append(Rule(f"directions more than {APART:.0%} apart, averaged", int(apart.sum())))
    rtt = _mean(np.stack([there, back]))
    if rules.halve:
        rtt = rtt / 2
        steps.append(Rule("sums of both directions, halved", int((~np.isnan(rtt)).sum())))
    if len(stack) > 1:
        rtt, found = _across(rtt, rules.halve)
        steps += found
    else:
        far = rtt > OUTLIER * np.nanpercentile(rtt, 99) if (~np.isnan(rtt)).any() else np.zeros(rtt.shape, bool)
        rtt = np.where(far, np.nan, rtt)
        steps.append(Rule(f"outliers above {OUTLIER:g} times the 99th percentile, dropped", int(far.sum())))

    known = ~np.isnan(rtt)
    seen = np.zeros(n, dtype=bool)
    anywhere = known.any(axis=0)
    seen[upper[0][anywhere]] = True
    seen[upper[1][anywhere]] = True
    keep = np.flatnonzero(seen) if rules.measured_once else np.arange(n)
    new_row = np.full(n, -1, np.int32)
    new_row[keep] = np.arange(len(keep), dtype=np.int32)
    latencies = tuple(
        Latency(new_row[upper[0][k]], new_row[upper[1][k]], values[k]) for values, k in zip(rtt, known, strict=True)
    )
    report = Cleaning(
        steps=tuple(steps),
        dropped_nodes=tuple(labels[i] for i in np.setdiff1d(np.arange(n), keep)),
        pairs=len(stack) * len(keep) * (len(keep) - 1) // 2,
        kept=int(known.sum()),
    )
    return Cleaned(keep, latencies, report)


def _missing(values: Floats, marks: tuple[float, ...]) -> npt.NDArray[np.bool_]:
    missing: npt.NDArray[np.bool_] = np.isnan(values) | (values <= 0) | np.isin(values, marks)
    return missing


def _mean(sides: Floats) -> Floats:
    """Mean over the first axis, of what is known; NaN where nothing is."""
    known = ~np.isnan(sides)
    count = known.sum(axis=0)
    total = np.where(known, sides, 0.0).sum(axis=0)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _across(rtt: Floats, summed: bool) -> tuple[Floats, list[Rule]]:
    """Drop what stands out against the same pair in the other matrices."""
    some = ~np.isnan(rtt).all(axis=0)
    median = np.full(rtt.shape[1], np.nan)
    median[some] = np.nanmedian(rtt[:, some], axis=0)
    steps = []
    with np.errstate(invalid="ignore"):
        spike = (rtt > SPIKE * median) & (rtt > SPIKE_MS)
        steps.append(Rule(f"spikes above {SPIKE:g} times the pair's median, dropped", int(spike.sum())))
        rtt = np.where(spike, np.nan, rtt)
        if summed:
            one_way = (rtt > ONE_WAY[0] * median) & (rtt < ONE_WAY[1] * median)
            steps.append(Rule("one direction only, dropped", int(one_way.sum())))
            rtt = np.where(one_way, np.nan, rtt)
    return rtt, steps
