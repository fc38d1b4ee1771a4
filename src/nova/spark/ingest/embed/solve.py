"""The batch stress solver on Spark: the local solver's own steps, in an order that can run side by side (see `rounds`).

The result is the same whatever the number of executors, and after a kill it is that of an undisturbed run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from nova.costspace import landmarks
from nova.costspace.stress import Schedule, descend
from nova.model.problem import Bools, Floats
from nova.model.space import CostSpace
from nova.spark.ingest.embed.kernels import Ways, relax
from nova.spark.ingest.embed.prepare import Shape
from nova.spark.ingest.embed.rounds import Action, BlockRows, rounds
from nova.spark.ingest.embed.work import Work, read_arrow

SWEEPS = 4
"""Sweeps of a cell per game of shortest ways: chains inside a cell then need no tournament of their own."""
MOST_TOURNAMENTS = 200
"""Chains longer than this (times the sweeps) are cut; only the start would be worse for it."""
TOGETHER = 10
"""Epochs per job where there is one cell only: a job then costs more than an epoch."""

Tell = Callable[[dict[str, Any]], None]
"""Hears about every epoch: `epoch, epochs, step, fitted_error, heldout_error` (median relative errors)."""


def solve(
    spark: SparkSession,
    work: Work,
    shape: Shape,
    *,
    dimensions: int,
    heights: bool,
    seed: int,
    tell: Tell = lambda _: None,
    schedule: Schedule | None = None,
) -> tuple[CostSpace, Bools]:
    """The cost space of the prepared pairs, by number, and which nodes are connected to the largest piece. Continues
    after the newest state that the folder has."""
    sample = Sample.read(work)
    plan = schedule or Schedule.of(shape.pairs)
    steps, tolerances = plan.steps() * sample.reference, plan.tolerances()
    reached_file = work.folder / "reached.npy"
    kept = work.newest()
    if kept is None or not reached_file.exists():
        state, reached = start(spark, work, shape, sample.reference, dimensions, heights, seed)
        np.save(reached_file, reached)
        work.save(0, state)
        done = 0
    else:
        done, state = kept
        reached = np.load(reached_file)
    entries = work.logged(done)
    table = BlockRows(work, shape, "state", state)
    games = rounds(shape.blocks)
    while done < len(steps):
        until = min(done + TOGETHER, len(steps)) if shape.blocks == 1 else done + 1
        action = _pulling(
            [(_salt(seed, number), float(steps[number]), float(tolerances[number])) for number in range(done, until)],
            heights,
        )
        for k in np.random.default_rng([seed, done]).permutation(len(games)):
            table.play(spark, games[k], action)
        done, state = until, table.rows()
        entry = {"epoch": done, "epochs": len(steps), "step": float(steps[done - 1]), **sample.errors(state)}
        entries.append(entry)
        work.save(done, state)
        work.log(entries)
        tell(entry)
    state[~reached, -1] = np.inf  # no finite latency is known to these
    return CostSpace(np.ascontiguousarray(state[:, :-1]), np.ascontiguousarray(state[:, -1])), reached


class Sample:
    """Pairs on the driver that tell how far the solver is."""

    def __init__(self, table: pa.Table) -> None:
        self.first, self.second = table["i"].to_numpy().copy(), table["j"].to_numpy().copy()
        self.rtt = table["rtt"].to_numpy().astype(np.float64)
        self.used: Bools = table["used"].to_numpy(zero_copy_only=False).astype(bool)

    @staticmethod
    def read(work: Work) -> Sample:
        """The sample of a prepared folder."""
        return Sample(read_arrow(work.folder / "sample.arrow"))

    @property
    def reference(self) -> float:
        """Median RTT of the fitted pairs, in ms: what steps are measured in."""
        return float(np.median(self.rtt[self.used]))

    def errors(self, state: Floats) -> dict[str, float | None]:
        """Median relative error of fitted and of held-out pairs; None where nothing was held out."""
        told = CostSpace(state[:, :-1], state[:, -1]).between(self.first, self.second)
        relative = np.abs(told - self.rtt) / self.rtt
        fitted, heldout = relative[self.used], relative[~self.used]
        return {
            "fitted_error": float(np.median(fitted)),
            "heldout_error": float(np.median(heldout)) if len(heldout) else None,
        }


def start(
    spark: SparkSession, work: Work, shape: Shape, reference: float, dimensions: int, heights: bool, seed: int
) -> tuple[Floats, Bools]:
    """First state from landmark MDS, and which nodes hang together with most others.

    Shortest ways are found as in Bellman and Ford's algorithm: tournaments in which tasks shorten ways over their
    pairs, until one shortens none.
    """
    marks = landmarks.draw_marks(shape.nodes, shape.pairs, dimensions, seed)
    ways: Ways = np.full((shape.nodes, len(marks)), np.inf, dtype=np.float32)
    ways[marks, np.arange(len(marks))] = 0.0
    table = BlockRows(work, shape, "ways", ways)
    games = rounds(shape.blocks)
    for _ in range(MOST_TOURNAMENTS):
        if sum(table.play(spark, round_, _relaxing()) for round_ in games) == 0:
            break
    ways = table.rows()
    finite = np.isfinite(ways)
    hub = int(finite.sum(0).argmax())  # the landmark that most nodes can reach
    reached: Bools = finite[:, hub]
    inside = reached[marks]
    coordinates = landmarks.from_ways(ways[:, inside].T.astype(np.float64), marks[inside], dimensions)
    rng = np.random.default_rng([seed, 2])
    state = np.empty((shape.nodes, dimensions + 1))
    state[:, :-1] = coordinates + rng.normal(scale=0.01 * reference, size=coordinates.shape)
    state[:, -1] = landmarks.START_HEIGHT * reference if heights else 0.0
    return state, reached


def _relaxing() -> Action:
    def relaxing(rows: Any, cell: int, first: Any, second: Any, rtt: Any) -> int:
        del cell
        return int(relax(rows, first, second, rtt, SWEEPS))

    return relaxing


def _pulling(epochs: list[tuple[int, float, float]], heights: bool) -> Action:
    """Every pair of a cell pulls once per epoch, given by its salt, step and tolerance."""

    def pulling(rows: Any, cell: int, first: Any, second: Any, rtt: Any) -> int:
        for salt, step, tolerance in epochs:
            descend(rows, first, second, rtt, 0, len(rtt), salt + 7 * cell, step, tolerance, heights)
        return len(rtt)

    return pulling


def _salt(seed: int, epoch: int) -> int:
    return (seed % 2**20) * 1_000_003 + epoch * 7919
