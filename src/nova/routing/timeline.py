"""Timeline: which plan each window runs under. Windows before a switch keep the old plan, windows from it on have the
new one, so no state ever moves between plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.model.problem import Floats, Ints
from nova.routing.position import Longs, slice_position
from nova.routing.routes import Routes, Rows, SideName


@dataclass(frozen=True)
class Epoch:
    """A plan and the first window it holds for."""

    first_window: int
    routes: Routes


@dataclass(frozen=True)
class Timeline:
    """Epochs in order; the first holds for all windows before the second, however old."""

    epochs: tuple[Epoch, ...]

    def epoch_of(self, window: Longs) -> Rows:
        """Index of the epoch of each window."""
        starts = np.array([epoch.first_window for epoch in self.epochs[1:]], dtype=np.int64)
        return np.searchsorted(starts, window, "right")

    @property
    def keyed(self) -> bool:
        """Whether some plan deals out keys, so that tuples need one."""
        return any(epoch.routes.keyed for epoch in self.epochs)

    def reach(
        self, side: SideName, source: Ints, share: Floats, window: Longs, key: Floats | None = None
    ) -> tuple[Rows, Ints]:
        """Which tuple goes where, as `Side.reach`. A meeting's number counts within its window's epoch."""
        position = slice_position(window)
        if len(self.epochs) == 1:
            return self.epochs[0].routes.side(side).reach(source, share, position, key)
        epoch = self.epoch_of(window)
        rows, meetings = [], []
        for e in np.unique(epoch):
            mine = np.flatnonzero(epoch == e)
            keys = None if key is None else key[mine]
            at, meeting = self.epochs[e].routes.side(side).reach(source[mine], share[mine], position[mine], keys)
            rows.append(mine[at])
            meetings.append(meeting)
        if not rows:
            return np.empty(0, np.intp), np.empty(0, np.int32)
        return np.concatenate(rows), np.concatenate(meetings)

    def node(self, meeting: Ints, window: Longs) -> Ints:
        """Host of each meeting, which counts within its window's epoch."""
        if len(self.epochs) == 1:
            return self.epochs[0].routes.node[meeting]
        epoch = self.epoch_of(window)
        hosts = np.empty(len(meeting), np.int32)
        for e in np.unique(epoch):
            mine = epoch == e
            hosts[mine] = self.epochs[e].routes.node[meeting[mine]]
        return hosts
