"""Results: from the files that the join writes at once to where users want them, each exactly once.

The join adds results to a file per batch and task the moment they are there; a batch that is repeated after a crash
writes its files anew. A publisher turns the files of committed batches into Parquet or JSON lines under their final
names. Messages and the terminal get results as they come: after a crash those since the last checkpoint come again,
with the ids they had before.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.files import appearing, name_of
from nova.routing.flow import Flow
from nova.routing.packets import MOMENT, Names
from nova.routing.position import Longs
from nova.spark.job.sinks import FILES, ID, SHOWN, id_column, json_lines, plain
from nova.spark.realtime.background import Background
from nova.spark.realtime.frames import kinds_of, restored, together, whole
from nova.spark.sources.clock import Clock
from nova.spark.sources.mqtt import Broker
from nova.spark.sources.mqtt import Publisher as MqttPublisher

POLL_S = 0.1
"""Time between two looks for committed batches."""
AT_ONCE_S = 0.002
"""The same for results that are handed out as they come."""
NUMBERS = ["node", "left_id", "right_id", "left_source", "right_source", "left_time", "right_time", "window"]
"""What stands in frames of results before their own columns; times are those of the events."""


@dataclass(frozen=True)
class Results:
    """How frames of results are read."""

    flow: Flow
    names: Callable[[], Names]
    """Ids of sources and nodes, with those that came later."""
    selected: pa.Schema | None = None
    """The columns that a query in SQL selects; None: the contract's, and what tuples carry."""
    copied: bool = False
    """Whether tuples are copied into several windows: then a pair is a result in each that it meets in."""

    @property
    def kinds(self) -> str:
        own = kinds_of(self.flow.left) + kinds_of(self.flow.right) if self.selected is None else kinds_of(self.selected)
        return "l" * len(NUMBERS) + own

    @property
    def schema(self) -> pa.Schema:
        """Columns of a result, then its id: under another name where the query selects a column of that name."""
        own = self.flow.result() if self.selected is None else self.selected
        return pa.schema([*own, (id_column(own.names), pa.string())])

    def table(self, columns: Sequence[pa.Array]) -> pa.Table:
        """The results of some frames, from their columns."""
        numbers = dict(zip(NUMBERS, columns, strict=False))
        own = columns[len(NUMBERS) :]
        if self.selected is not None:
            made = [restored(column, kind.type) for column, kind in zip(own, self.selected, strict=True)]
            return pa.table([*made, self._ids(numbers)], schema=self.schema)
        flow = self.flow
        carried = [
            f"{side}_{column.name}"
            for side, columns_ in (("left", flow.left), ("right", flow.right))
            for column in columns_
        ]
        read = numbers | dict(zip(carried, own, strict=True))
        schema = self.schema
        window = read["window"].to_numpy()
        names = self.names()
        told: dict[str, pa.Array] = {
            "query": pa.repeat(pa.scalar(flow.query), len(window)),
            "window_start": pa.array(window * flow.window_us, MOMENT),
            "window_end": pa.array((window + 1) * flow.window_us, MOMENT),
            "node": names.nodes.take(read["node"]),
            ID: self._ids(numbers),
        }
        for side in ("left", "right"):
            told[f"{side}_source"] = names.sources.take(read[f"{side}_source"])
            told[f"{side}_time"] = read[f"{side}_time"].cast(MOMENT)
        for name in carried:
            told[name] = restored(read[name], schema.field(name).type)
        return pa.table([told[name] for name in schema.names], schema=schema)

    def _ids(self, numbers: Mapping[str, pa.Array]) -> pa.Array:
        """The query and what tells its results apart."""
        apart = ["left_id", "right_id", *(["window"] if self.copied else [])]
        return pc.binary_join_element_wise(self.flow.query, *(numbers[name].cast(pa.string()) for name in apart), "-")


class Target(Protocol):
    """Where results go."""

    at_once: bool
    """Whether it wants results as they come (after a crash some come again), or those of committed batches."""

    def take(self, name: str, results: pa.Table) -> None:
        """Results of one task; `name` says of which batch and task."""
        ...

    def settle(self) -> None:
        """Returns when everything that was taken is safe: a broker has it."""
        ...

    def close(self) -> None:
        """There are no more."""
        ...


@dataclass
class ToFiles:
    """Parquet or JSON lines in one flat folder, as in the other mode: `<query>-<batch>-<part>.parquet`."""

    format: str
    query: str
    folder: Path
    at_once: bool = False

    def take(self, name: str, results: pa.Table) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with appearing(self.folder / f"{name_of(self.query)}-{name}.{FILES[self.format]}") as draft:
            if self.format == "parquet":
                pq.write_table(results, draft, compression="snappy")
            else:
                with draft.open("w") as out:
                    out.writelines(f"{line}\n" for part in results.to_batches() for line in json_lines(part))

    def settle(self) -> None:
        """Files are complete as they are."""

    def close(self) -> None:
        """The same."""


@dataclass
class ToConsole:
    """Prints the first of the results that come together. For small streams."""

    query: str
    at_once: bool = True

    def take(self, name: str, results: pa.Table) -> None:  # noqa: ARG002
        from nova.terminal import table

        shown = [[plain(value) for value in row.values()] for row in results.slice(0, SHOWN).to_pylist()]
        table(f"{self.query}: {len(results):,} results", results.column_names, shown)

    def settle(self) -> None:
        """Printed is printed."""

    def close(self) -> None:
        """Nothing is kept."""


class ToMqtt:
    """JSON messages with the ids of results, at least once: a listener can leave out what it has."""

    at_once = True

    def __init__(self, address: str, query: str) -> None:
        self.broker = Broker.parse(address, "--to")
        self._client = MqttPublisher(self.broker, f"nova-{name_of(query)}-{os.getpid()}")

    def take(self, name: str, results: pa.Table) -> None:  # noqa: ARG002
        for batch in results.to_batches():
            for line in json_lines(batch):
                self._client.publish(self.broker.topic, line)

    def settle(self) -> None:
        self._client.settle()

    def close(self) -> None:
        self._client.close()


@dataclass
class Publisher(Background):
    """Follows the staged files of one query in the background."""

    staged: Path
    committed: Callable[[], int]
    """The last batch that Spark has committed."""
    results: Results
    target: Target
    clock: Clock | None = None
    """By which results that go out as they come are late."""
    _took_us: dict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: dict[str, int] = field(default_factory=dict)
    """Bytes of each file that were handed out."""

    def stop(self) -> None:
        """Publish what is left of committed batches, then stop."""
        super().stop()
        if self.failure is None:
            self.step()
        self.target.close()

    def work(self) -> None:
        while not self._stopped.wait(AT_ONCE_S if self.target.at_once else POLL_S):
            self.step()

    def step(self) -> None:
        """Hand out what is new, and delete the files of batches that are committed and handed out."""
        done = self.committed()  # before the files are listed: those of a committed batch are complete
        handed = []
        over = []
        for name in sorted(os.listdir(self.staged)):  # a path each would cost more than all else here
            if not name.endswith(".frames"):
                continue
            file = self.staged / name
            if int(name.split("-")[0]) <= done:
                over.append(file)
            elif not self.target.at_once:
                continue
            handed += self._hand_out(file)
        if handed:
            self.target.settle()
            if self.target.at_once and self.clock is not None and self.clock.runs:
                for columns, stamps_us in handed:
                    self._time(columns, stamps_us, self.clock)
        for file in over:
            file.unlink()
            self._read.pop(file.name, None)

    def _hand_out(self, file: Path) -> list[tuple[list[pa.Array], Longs]]:
        """What is new in a file, as `together` tells it."""
        at = self._read.get(file.name, 0)
        with file.open("rb") as opened:
            opened.seek(at)
            data = opened.read()
        size = whole(data)
        if not size:
            return []
        columns, stamps_us = together(data[:size], self.results.kinds)
        self.target.take(file.stem, self.results.table(columns))
        self._read[file.name] = at + size
        return [(columns, stamps_us)]

    def _time(self, columns: Sequence[pa.Array], stamps_us: Longs, clock: Clock) -> None:
        """Count how long results took until now, from when they were due and from when they were joined."""
        now_us = time.time() * 1e6
        later = np.maximum(*(columns[NUMBERS.index(name)].to_numpy() for name in ("left_time", "right_time")))
        took = {"total": now_us - clock.due_s(later / 1000) * 1e6, "sink": now_us - stamps_us}
        with self._lock:
            for name, us in took.items():
                steps, counts = np.unique(np.exp(np.round(np.log(np.maximum(us, 1.0)), 2)), return_counts=True)
                self._took_us[name].update(dict(zip(steps.tolist(), counts.tolist(), strict=True)))

    def took_us(self) -> dict[str, Counter[float]]:
        """How long results took that went out as they came (µs, to a hundredth), since this was last asked."""
        with self._lock:
            told, self._took_us = self._took_us, defaultdict(Counter)
        return told
