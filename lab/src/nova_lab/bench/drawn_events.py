"""Events drawn at random for a drawn problem: what benchmarks and tests feed a controller. Repeatable by seed."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np

from nova.controller.events import (
    CapacityChanged,
    Event,
    NodeAdded,
    NodeMoved,
    NodeRemoved,
    RateChanged,
    SourceAdded,
    SourceRemoved,
)
from nova.model.problem import Pairs, Problem

KINDS = (
    "node_added",
    "node_removed",
    "source_added",
    "source_removed",
    "rate_changed",
    "capacity_changed",
    "node_moved",
)
SHIFT_MS = 10.0
"""How far a moved node goes, as the deviation along each axis."""


T = TypeVar("T", bound=Hashable)


class Drawing:
    """Draws events that are possible for a problem of `nova.synthetic.draw`, and keeps the books of what they did.

    Workers, capacities, places and rates come from the problem's own, and as many come as go, so the load stays about
    what it was however long the run. Sources are joined in pairs; one whose partner left waits for the next newcomer.
    """

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        nodes, sources, query = problem.nodes, problem.sources, problem.queries[0]
        if nodes.coordinates is None or not isinstance(query.matrix, Pairs):
            raise ValueError("events are drawn for problems with coordinates and listed pairs")
        self._random = np.random.default_rng([seed, 11])
        self._streams, self._query = problem.streams, query.id
        names = nodes.ids.to_pylist()
        self._at = nodes.coordinates
        busy = np.zeros(len(nodes), bool)
        busy[sources.node] = True
        busy[query.sink] = True
        self._homes = _Bag([names[row] for row in np.unique(sources.node).tolist()])
        self._workers = _Bag([names[row] for row in np.flatnonzero(~busy).tolist()])
        self._places = {name: self._at[row] for row, name in enumerate(names) if row != query.sink}
        self._capacities = nodes.capacity[np.flatnonzero(~busy)]
        self._rates = sources.rate
        ids = sources.ids.to_pylist()
        self._partner: dict[tuple[int, str], str] = {}
        for left, right in zip(query.matrix.left.tolist(), query.matrix.right.tolist(), strict=True):
            self._partner[0, ids[left]], self._partner[1, ids[right]] = ids[right], ids[left]
        self._sources = _Bag(list(self._partner))
        self._idle: tuple[_Bag[str], _Bag[str]] = (_Bag([]), _Bag([]))
        self._count = 0

    def next(self, kind: str | None = None) -> Event:
        """An event, of a kind if one is asked for."""
        if kind is None:
            kind = KINDS[int(self._random.integers(len(KINDS)))]
        event: Event = getattr(self, f"_{kind}")()
        return event

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _node_added(self) -> Event:
        name = self._fresh("w")
        at = self._at[int(self._random.integers(len(self._at)))] + self._random.normal(size=self._at.shape[1])
        self._workers.add(name)
        self._places[name] = at
        return NodeAdded(node=name, capacity=float(self._random.choice(self._capacities)), coordinates=tuple(at))

    def _node_removed(self) -> Event:
        if len(self._workers) < 2:
            return self._node_added()
        name = self._workers.pop(self._random)
        del self._places[name]
        return NodeRemoved(node=name)

    def _source_added(self) -> Event:
        side = int(self._random.integers(2))
        if not len(self._idle[1 - side]) and len(self._idle[side]):
            side = 1 - side
        name = self._fresh("s")
        waiting = self._idle[1 - side]
        partners: dict[str, tuple[str, ...]] | None = None
        if len(waiting):
            other = waiting.pop(self._random)
            partners = {self._query: (other,)}
            self._partner[side, name], self._partner[1 - side, other] = other, name
        else:
            self._idle[side].add(name)
        self._sources.add((side, name))
        return SourceAdded(
            stream=self._streams[side],
            source=name,
            node=self._homes.any(self._random),
            rate=float(self._random.choice(self._rates)),
            partners=partners,
        )

    def _source_removed(self) -> Event:
        if len(self._sources) < 3:
            return self._source_added()
        side, name = self._sources.pop(self._random)
        other = self._partner.pop((side, name), None)
        if other is None:
            self._idle[side].discard(name)
        else:
            del self._partner[1 - side, other]
            self._idle[1 - side].add(other)
        return SourceRemoved(stream=self._streams[side], source=name)

    def _rate_changed(self) -> Event:
        side, name = self._sources.any(self._random)
        return RateChanged(stream=self._streams[side], source=name, rate=float(self._random.choice(self._rates)))

    def _capacity_changed(self) -> Event:
        return CapacityChanged(
            node=self._workers.any(self._random), capacity=float(self._random.choice(self._capacities))
        )

    def _node_moved(self) -> Event:
        name = (self._workers if self._random.random() < 0.5 else self._homes).any(self._random)
        at = self._places[name] + self._random.normal(size=self._at.shape[1]) * SHIFT_MS / math.sqrt(2)
        self._places[name] = at
        return NodeMoved(node=name, coordinates=tuple(at))


class _Bag(Generic[T]):
    """Things to draw from, each in constant time."""

    def __init__(self, things: list[T]) -> None:
        self._things = things
        self._place = {thing: place for place, thing in enumerate(things)}

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: T) -> None:
        self._place[thing] = len(self._things)
        self._things.append(thing)

    def discard(self, thing: T) -> None:
        place, last = self._place.pop(thing), self._things.pop()
        if last != thing:
            self._things[place] = last
            self._place[last] = place

    def any(self, random: np.random.Generator) -> T:
        return self._things[int(random.integers(len(self._things)))]

    def pop(self, random: np.random.Generator) -> T:
        thing = self.any(random)
        self.discard(thing)
        return thing
