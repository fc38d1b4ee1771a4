"""Replay: a recorded archive at a chosen speed, as a Spark data source named `nova_replay`.

The archive is sorted by event time once, into Parquet files whose row groups are short; a batch then reads the groups
of its stretch of time. Offsets are event times, so a restart goes on where the last batch ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from nova.files import write_safely
from nova.model.reading import recall
from nova.spark.sources.clock import MOST_ROWS, Clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = 8192
"""Rows of a row group."""
MOMENT = pa.timestamp("us", tz="UTC")


Group = tuple[str, int, int, int]
"""File and number of a row group, with its earliest and latest event time (µs)."""


@dataclass(frozen=True)
class Archive:
    """A prepared archive: its folder and the time it spans (µs)."""

    folder: Path
    first_us: int
    last_us: int

    def groups(self) -> list[Group]:
        """Its row groups."""
        return groups_of(self.folder)


def groups_of(folder: Path) -> list[Group]:
    """The row groups of a prepared archive."""
    return recall(folder / "index.json", list[Group])


def prepared(folder: Path) -> bool:
    """Whether an earlier run has prepared the archive."""
    return (folder / "index.json").exists()


def prepare(frame: DataFrame, folder: Path) -> Archive:
    """Sort a recorded stream (with a column `time`) by time into `folder`, unless an earlier run has done so."""
    index = folder / "index.json"
    if not prepared(folder):
        frame.sort("time").write.mode("overwrite").option("parquet.block.row.count.limit", GROUP).parquet(
            str(folder / "tuples")
        )
        groups: list[Group] = []
        for file in sorted((folder / "tuples").glob("*.parquet")):
            opened = pq.ParquetFile(file)
            for group in range(opened.num_row_groups):
                times = opened.read_row_group(group, ["time"])["time"].cast(MOMENT).cast(pa.int64())
                if len(times):
                    groups.append((file.name, group, pc.min(times).as_py(), pc.max(times).as_py()))
        write_safely(index, json.dumps(groups))
    groups = groups_of(folder)
    return Archive(folder, min((g[2] for g in groups), default=0), max((g[3] for g in groups), default=0))


def spec(archive: Archive, origin_us: int, clock: Clock) -> str:
    """What the data source needs to know. Replays that start together share origin and clock, so they stay in step."""
    return json.dumps(
        {"folder": str(archive.folder), "origin_us": origin_us, "last_us": archive.last_us, "clock": asdict(clock)}
    )


@dataclass
class Groups(InputPartition):
    """Row groups of one file and the stretch of event time to take from them."""

    file: str
    groups: list[int]
    after_us: int
    until_us: int


class Replay(DataSource):
    """`spark.readStream.format("nova_replay").schema(…).option("spec", spec(…))`."""

    @classmethod
    def name(cls) -> str:
        return "nova_replay"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return ReplayReader(self.options["spec"], schema.names)


class ReplayReader(DataSourceStreamReader):
    """Hands out tuples when their time has come by the clock."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        given = json.loads(text)
        self.folder = Path(given["folder"])
        self.names = list(names)
        self.origin_us, self.last_us = int(given["origin_us"]), int(given["last_us"])
        self.clock = Clock(**given["clock"])
        self.groups = groups_of(self.folder)
        self.begun = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at_us": self.origin_us - 1, "ended": False}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        if not self.begun:
            self.clock.start(start["at_us"])
            self.begun = True
        due = self.clock.event_us(time.time())
        coming = sorted(first for _, _, first, last in self.groups if last > start["at_us"])
        most = coming[MOST_ROWS // GROUP] if len(coming) > MOST_ROWS // GROUP else self.last_us
        at = max(start["at_us"], int(min(due, self.last_us, most)))
        return {"at_us": at, "ended": at >= self.last_us}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, until = start["at_us"], end["at_us"]
        wanted: dict[str, list[int]] = {}
        for file, group, first, last in self.groups:
            if last > after and first <= until:
                wanted.setdefault(file, []).append(group)
        return [Groups(file, groups, after, until) for file, groups in wanted.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Groups)
        opened = pq.ParquetFile(self.folder / "tuples" / partition.file)
        table = opened.read_row_groups(partition.groups, columns=self.names).select(self.names)
        table = table.set_column(self.names.index("time"), "time", table["time"].cast(MOMENT))  # Spark writes ns
        times = table["time"].cast(pa.int64()).to_numpy()
        inside = np.flatnonzero((times > partition.after_us) & (times <= partition.until_us))
        if len(inside):
            yield from table.take(pa.array(inside)).combine_chunks().to_batches(max_chunksize=65_536)
