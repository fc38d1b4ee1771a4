"""Kept: what the sink has to remember from batch to batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.errors import Fault, InvalidInput
from nova.model.tables import read_parquet


@dataclass(frozen=True)
class Kept:
    """A table, as each of the last batches left it."""

    folder: Path

    def before(self, batch: int) -> tuple[pa.Table | None, int | None]:
        """As an earlier batch left it, with the last event time (µs) for which everything is written. A repeated batch
        finds what it found at first."""
        earlier = [number for number in self._batches() if number < batch]
        if not earlier:
            return None, None
        file = self._file(earlier[-1])
        table = read_parquet(file, "what a run keeps")
        told = (table.schema.metadata or {}).get(b"closed", b"-")
        try:
            closed = int(told) if told else None
        except ValueError:
            raise InvalidInput([Fault(str(file), "not what a run wrote", field="closed", value=told)]) from None
        return table.replace_schema_metadata(None), closed

    def last(self) -> int | None:
        """The last batch."""
        return max(self._batches(), default=None)

    def save(self, batch: int, state: pa.Table, closed: int | None) -> None:
        """Keep it for the batches to come; those of two batches ago are no longer needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        told = state.replace_schema_metadata({"closed": "" if closed is None else str(closed)})
        beside = self.folder / ".new"
        pq.write_table(told, beside)
        beside.replace(self._file(batch))
        for old in self._batches()[:-3]:
            self._file(old).unlink()

    def _batches(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("[0-9]*.parquet"))

    def _file(self, batch: int) -> Path:
        return self.folder / f"{batch:09d}.parquet"
