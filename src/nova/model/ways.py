"""Ways between joins of joins: what a sub-join costs by itself, and what only both its ends tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nova.model.chain import bases, main_readers
from nova.model.metrics import Metric
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.prices import Prices
from nova.model.problem import Floats, Ints, Problem
from nova.model.subjoins import SubJoins

Between: TypeAlias = Callable[[npt.NDArray[np.integer], npt.NDArray[np.integer]], Floats]
"""ms between nodes, pair by pair (broadcasting)."""


@dataclass(frozen=True)
class Ways:
    """The ways between joins of joins: row `maker` hands its results to row `reader`."""

    maker: Ints
    reader: Ints
    weight: Floats
    """ms of the objective for each ms of the way."""
    rate: Floats
    """Tuples/s that metrics count on it."""
    metrics: tuple[Metric, ...]

    def __len__(self) -> int:
        return len(self.maker)

    def cost(self, number: int, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], apart: Floats) -> Floats:
        """What a way costs from nodes `a` to nodes `b`, which broadcast and are `apart` ms."""
        total: Floats = self.weight[number] * apart
        for metric in self.metrics:
            total = total + metric.weight * self.rate[number] * metric.way(a, b)
        return total


@dataclass(frozen=True)
class Chained:
    """Sub-joins of which some read the results of others."""

    joins: SubJoins
    legs: Floats
    """3 × sub-joins: weights of the legs left → host, right → host, host → sink."""
    rates: Floats
    """3 × sub-joins: tuples/s along them."""
    known: npt.NDArray[np.bool_]
    """3 × sub-joins: whether a leg leads to a node; else it is one of the ways."""
    ways: Ways

    @staticmethod
    def of(problem: Problem, joins: SubJoins, options: Options) -> Chained:
        """The ways between sub-joins, and the legs that are left."""
        prices = Prices.of(problem, joins, options)
        legs = np.repeat(np.array(LEG_WEIGHTS[options.objective])[:, None], len(joins), axis=1)
        rates = np.stack([joins.left_rate, joins.right_rate, np.zeros(len(joins))])
        if prices is not None:
            legs, rates[2] = prices.legs, prices.made
        base, maker_of = bases(problem), np.full(len(problem.sources), -1, np.int32)
        handed = np.flatnonzero(joins.makes >= 0)
        maker_of[joins.makes[handed]] = handed
        most = main_readers(problem, joins, np.arange(len(joins)))
        known = np.ones(legs.shape, np.bool_)
        known[2, handed] = most[joins.makes[handed]] < 0
        found = []
        for leg, source in enumerate((joins.left, joins.right)):
            maker = maker_of[base[source]]
            reader = np.flatnonzero(maker >= 0)
            known[leg, reader] = False
            maker = maker[reader]
            last = most[joins.makes[maker]] == reader  # the one whose host the maker sends its results to
            weight = legs[leg, reader] + np.where(last, legs[2, maker], 0.0)
            rate = rates[leg, reader] + np.where(last, rates[2, maker], 0.0)
            found.append((maker, reader.astype(np.int32), weight, rate))
        makers, readers, weights, amounts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        ways = Ways(makers, readers, weights, amounts, () if prices is None else prices.metrics)
        return Chained(joins, legs, rates, known, ways)

    @property
    def ends(self) -> tuple[Ints, Ints, Ints]:
        """Nodes that the legs lead from or to, where they are known."""
        return self.joins.left_node, self.joins.right_node, self.joins.sink

    def own_costs(self, between: Between, hosts: npt.NDArray[np.integer]) -> Floats:
        """Sub-joins × hosts: what each costs on each beside the ways between sub-joins."""
        cost = np.zeros((len(self.joins), len(hosts)))
        for metric in self.ways.metrics:
            cost += metric.weight * self.joins.demand[:, None] * metric.at(hosts)[None, :]
        for leg, end in enumerate(self.ends):
            some = np.flatnonzero(self.known[leg])
            here, there = end[some, None], hosts[None, :]
            cost[some] += self.legs[leg, some, None] * between(here, there)
            for metric in self.ways.metrics:
                way = metric.way(here, there) if leg < 2 else metric.way(there, here)
                cost[some] += metric.weight * self.rates[leg, some, None] * way
        return cost
