"""Rounds of a tournament between blocks of nodes: what lets tasks on many machines change one table side by side.

A table with a row per node is kept as one file per block. A game is between two blocks: its task reads their files and
its cells' pairs, changes the rows, and writes the blocks anew under the next version. Games of one round share no
block, so the result is that of a single process that plays one after the other. A task that is repeated reads the
version that it read before, so it writes the same again. Neither pairs nor rows pass through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from nova.costspace.stress import tournament
from nova.spark.ingest.embed.prepare import Shape
from nova.spark.ingest.embed.work import Work, read_arrow, write_array


@dataclass(frozen=True)
class Game:
    """One task: the blocks that it changes, and the cells of pairs that it works off in turn."""

    blocks: tuple[int, ...]
    cells: tuple[tuple[int, int], ...]


Action = Callable[[Any, int, Any, Any, Any], int]
"""What a task does with a cell: (rows of its one or two blocks, to be changed in place; number of the cell; first,
second, rtt of its pairs) → a count, which `play` adds up."""


def rounds(blocks: int) -> list[list[Game]]:
    """All games, round by round. Every block meets itself in the first, before it meets another."""
    if blocks == 1:
        return [[Game((0,), ((0, 0),))]]
    assert blocks % 2 == 0, "with an odd number a block would sit out the first round"
    games = [[divmod(int(cell), blocks) for cell in cells] for cells in tournament(blocks)[1:]]
    return [
        [Game((a, b), ((a, a), (b, b), (a, b)) if k == 0 else ((a, b),)) for a, b in round_]
        for k, round_ in enumerate(games)
    ]


class BlockRows:
    """A row of numbers per node, one file per block."""

    def __init__(self, work: Work, shape: Shape, name: str, rows: Any) -> None:
        self.work, self.shape = work, shape
        self.folder = work.tables(name)
        self.versions = [0] * shape.blocks
        for block in range(shape.blocks):
            write_array(self._file(block, 0), rows[shape.rows(block)])

    def rows(self) -> Any:
        """The whole table as one array."""
        return np.concatenate([np.load(self._file(block, version)) for block, version in enumerate(self.versions)])

    def play(self, spark: SparkSession, games: list[Game], action: Action) -> int:
        """Let the games of one round change the table; the sum of what the actions counted."""

        def files(game: Game, ahead: int) -> list[Path]:
            return [self._file(block, self.versions[block] + ahead) for block in game.blocks]

        tasks = [(game, files(game, 0), files(game, 1)) for game in games]
        counts = (
            spark.sparkContext.parallelize(tasks, len(tasks))
            .mapPartitions(_playing(self.work, self.shape.blocks, action))
            .collect()
        )
        for game in games:
            for block in game.blocks:
                self._file(block, self.versions[block]).unlink()
                self.versions[block] += 1
        return sum(counts)

    def _file(self, block: int, version: int) -> Path:
        return self.folder / f"{block:03d}-{version:06d}.npy"


def _playing(work: Work, blocks: int, action: Action) -> Callable[[Iterable[Any]], Iterable[int]]:
    def playing(tasks: Iterable[tuple[Game, list[Path], list[Path]]]) -> Iterator[int]:
        for game, before, after in tasks:
            parts = [np.load(file) for file in before]
            rows = np.concatenate(parts)
            cuts = np.cumsum([0, *(len(part) for part in parts)])
            total = 0
            for low, high in game.cells:
                pairs = work.cell(low * blocks + high)
                if pairs.exists():  # cells without a single pair have none
                    at = game.blocks.index(low)
                    mine = rows if low != high else rows[cuts[at] : cuts[at + 1]]
                    total += action(mine, low * blocks + high, *_arrays(read_arrow(pairs)))
            for file, start, end in zip(after, cuts[:-1], cuts[1:], strict=True):
                write_array(file, rows[start:end])
            yield total

    return playing


def _arrays(pairs: pa.Table) -> tuple[Any, Any, Any]:
    """Columns as the kernels take them; copies, as mapped memory is read-only and would be compiled for anew."""
    return (
        pairs["first"].to_numpy().copy(),
        pairs["second"].to_numpy().copy(),
        pairs["rtt"].to_numpy().astype(np.float64),
    )
