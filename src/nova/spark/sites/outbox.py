"""Outbox: what a site sends, kept until it has been sent, so that a batch that is repeated sends the very same.

Tasks write Parquet files, one per target; once the batch has succeeded, its folder gets its final name in one step.
From then on the batch's output is fixed: should the process die, the repetition finds the folder and delivers it again
under the same names, whatever it computes this time. Receivers leave out what they have.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.files import write_safely
from nova.model.reading import recall
from nova.spark.job.tasks import ArrowMap
from nova.spark.sites.exchange import Channel, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = "kind string, target int, file string"


@dataclass(frozen=True)
class _Counts:
    """Parts that were delivered, up to which batch."""

    batch: int = -1
    parts: tuple[tuple[str, str, int], ...] = ()
    """Kind, target and number."""


@dataclass
class WriteParts:
    """Record batches in, files by target out. For `mapInArrow`; `inner` makes what is to be sent."""

    inner: ArrowMap
    staging: str
    kind: Kind
    target: int | None
    """Node row that gets everything; None: the column `node` says, and is not sent along."""
    every: tuple[int, ...] = ()
    """Node rows that get, as another kind, what says how far the rows have come: what the column `node` has no row
    for."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writers: dict[tuple[str, int], tuple[Path, pq.ParquetWriter]] = {}
        try:
            for batch in self.inner(batches):
                if not batch.num_rows:
                    continue
                for target, part in self._split(batch):
                    if target not in writers:
                        Path(self.staging).mkdir(parents=True, exist_ok=True)
                        file = Path(self.staging) / f"{uuid.uuid4().hex}.parquet"
                        writers[target] = (file, pq.ParquetWriter(file, part.schema))
                    writers[target][1].write_batch(part)
        finally:
            for _, writer in writers.values():
                writer.close()
        if writers:
            yield pa.record_batch(
                {
                    "kind": pa.array([kind for kind, _ in writers]),
                    "target": pa.array([target for _, target in writers], pa.int32()),
                    "file": pa.array([str(file) for file, _ in writers.values()]),
                }
            )

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
        if self.target is not None:
            yield (self.kind, self.target), batch
            return
        nodes = batch.column("node")
        rest = batch.select([name for name in batch.schema.names if name != "node"])
        for node in nodes.unique().to_pylist():
            part = rest.filter(pc.equal(nodes, node))
            if node >= 0:
                yield (self.kind, node), part
            else:
                yield from (((f"{self.kind}_come", target), part) for target in self.every)


@dataclass
class Outbox:
    """The outgoing parts of one stage of one site."""

    folder: Path
    query: str
    sender: str
    nodes: pa.StringArray
    """Ids of nodes by row."""

    @property
    def staging(self) -> Path:
        return self.folder / ".staging"

    @property
    def _counts(self) -> Path:
        return self.folder / "counts.json"

    def fill(
        self, frame: DataFrame, batch: int, beside: Callable[[], Mapping[Kind, tuple[int, pa.Table]]]
    ) -> list[tuple[Channel, str, Path]]:
        """Run the batch and say what it sends: what an earlier attempt has fixed, where one has got that far. The
        batch runs in any case, for the sake of Spark's state. `beside`: targets and tables by kind, asked for after
        it has run."""
        written = sorted((row.kind, row.target, row.file) for row in frame.collect())
        for kind, (target, table) in beside().items():
            if not len(table):
                continue
            file = self.staging / f"{uuid.uuid4().hex}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, file)
            written.append((kind, target, str(file)))
        final = self.folder / f"{batch:08d}"
        if not final.exists():
            draft = self.folder / f".{batch:08d}"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for part, (kind, target, file) in enumerate(written):
                Path(file).rename(draft / f"{kind}-{target}-{part:03d}.parquet")
            draft.rename(final)
        shutil.rmtree(self.staging, ignore_errors=True)
        return list(self._contents(final))

    def _contents(self, folder: Path) -> Iterator[tuple[Channel, str, Path]]:
        for file in sorted(folder.glob("*.parquet")):
            kind, target, part = file.stem.split("-")
            channel = Channel(self.query, kind, self.sender, self.nodes[int(target)].as_py())  # type: ignore[arg-type]
            yield channel, f"{folder.name}-{part}", file

    def delivered(self, batch: int) -> None:
        """The batch is safe with its receivers: count its parts, once, and drop the batch before. (Spark may still
        repeat this one.)"""
        told = self._read()
        if batch > told.batch:
            counts = Counter({(kind, target): n for kind, target, n in told.parts})
            counts.update(
                (channel.kind, channel.target) for channel, _, _ in self._contents(self.folder / f"{batch:08d}")
            )
            new = _Counts(batch, tuple((*key, n) for key, n in counts.items()))
            write_safely(self._counts, json.dumps(asdict(new)))
        for old in self.folder.glob("[0-9]*"):
            if int(old.name) < batch:
                shutil.rmtree(old)

    def totals(self) -> dict[tuple[str, str], int]:
        """Parts delivered so far, by kind and target."""
        return {(kind, target): n for kind, target, n in self._read().parts}

    def _read(self) -> _Counts:
        return recall(self._counts, _Counts, "a site") if self._counts.exists() else _Counts()
