"""Measurements: round trips between nodes that are known, for a problem that is written out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nova.model.problem import Bools, Floats, Ints, Latency

if TYPE_CHECKING:
    from nova.controller.state import State


class Measurements:
    """What the problem came with, as far as it still holds, and what was measured since.

    Small problems hold all of it as a matrix in the state (`State.rtts`), where it overrides the cost space; then
    nothing is kept here.
    """

    def __init__(self, latency: Latency | None, nodes: int) -> None:
        self.given = latency
        self.holds: Bools = np.ones(nodes, np.bool_)
        """Whether what was given about a node (by row) still holds."""
        self.since: dict[int, dict[int, float]] = {}
        """ms between rows of nodes, both ways round."""

    def note(self, state: State, a: int, b: int, rtt_ms: float) -> None:
        """A round trip between two nodes was measured."""
        if len(state.rtts):
            state.rtts[a, b] = state.rtts[b, a] = rtt_ms
        else:
            self.since.setdefault(a, {})[b] = rtt_ms
            self.since.setdefault(b, {})[a] = rtt_ms

    def forget(self, state: State, node: int) -> None:
        """What was measured from and to a node no longer holds."""
        if len(state.rtts):
            state.rtts[node, :] = np.nan
            state.rtts[:, node] = np.nan
        for other in self.since.pop(node, ()):
            del self.since[other][node]
            if not self.since[other]:
                del self.since[other]
        if node < len(self.holds):
            self.holds[node] = False

    def latency(self, state: State, kept: npt.NDArray[np.intp], number: Ints) -> Latency | None:
        """The table for a problem with the nodes `kept`, whose new rows are `number`; None where nothing is known."""
        if len(state.rtts):
            known = state.rtts[np.ix_(kept, kept)]
            at = np.nonzero(np.triu(~np.isnan(known), 1))
            return _table(at[0], at[1], known[at])
        first: npt.NDArray[np.integer] = np.empty(0, np.int64)
        second, rtt = first, np.empty(0)
        if self.given is not None:
            stays = self.holds[self.given.first] & self.holds[self.given.second]
            first, second = number[self.given.first[stays]], number[self.given.second[stays]]
            rtt = self.given.rtt_ms[stays]
        if self.since:
            new = [(a, b, ms) for a, others in self.since.items() for b, ms in others.items() if a < b]
            a, b = (number[np.array([entry[k] for entry in new])] for k in (0, 1))
            n = np.int64(len(kept))
            again = np.isin(
                np.minimum(first, second) * n + np.maximum(first, second), np.minimum(a, b) * n + np.maximum(a, b)
            )
            first, second = np.append(first[~again], a), np.append(second[~again], b)
            rtt = np.append(rtt[~again], [entry[2] for entry in new])
        return _table(first, second, rtt)


def _table(first: npt.NDArray[np.integer], second: npt.NDArray[np.integer], rtt: Floats) -> Latency | None:
    if not len(first):
        return None
    low, high = np.minimum(first, second).astype(np.int32), np.maximum(first, second).astype(np.int32)
    order = np.lexsort((high, low))
    return Latency(low[order], high[order], rtt[order])
