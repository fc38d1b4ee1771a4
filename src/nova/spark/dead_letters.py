"""Dead letters: what came in and cannot be used, in one table with the reason, the place and the text.

Raw measurements (`nova measurements`) and the tuples of a run (`nova run`) share its shape: `reason`, `file` (where it
came from: a file, an MQTT topic, a partition of a Kafka topic), `line` (the line there, the number of the message, the
offset), `record` (its text). A bad tuple is put there and counted; it never stops a run, nor a run that is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from nova.files import appearing, name_of

RECORD_CHARS = 2000
"""How much of a bad record is kept: enough to see what it is, also when a file is one endless line."""
KEPT = 10_000
"""Dead letters of one task and batch that are kept with their text; all are counted."""
NOT_PARSED = "not_parsed"
"""The record as a whole is not what the format says."""
BAD_TIME, BAD_VALUE, NO_SOURCE = "bad_time", "bad_value", "no_source"
"""The event time or the value is missing or does not parse; the tuple does not say where it comes from."""
FUTURE_TIME = "future_time"
"""The event time of a live tuple is more than a day ahead of the clock: it would make all others late."""
AHEAD_S = 86_400
UNKNOWN_SOURCE = "unknown_source"
"""No source of the stream has this id."""
SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("query", pa.string()),
        ("stream", pa.string()),
        ("record", pa.string()),
    ]
)


class Letter(NamedTuple):
    """One dead letter of a stream."""

    reason: str
    stream: str
    file: str | None
    line: int | None
    """1-based line of a text file, 1-based row of a Parquet file, number of a message, offset."""
    record: str | None


@dataclass(frozen=True)
class LetterBox:
    """The dead letters of one query in a run's folder: a Parquet file per batch that had some. A batch that is repeated
    after a crash replaces its own."""

    folder: Path
    query: str
    placed: Callable[[Sequence[Letter]], Sequence[Letter]] = list
    """Finds the letters' lines in their files, where what made them could not tell."""

    def put(self, batch: int, letters: Sequence[Letter]) -> None:
        """Keep the letters of a batch."""
        if not letters:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        placed = self.placed(letters)
        columns = {name: [getattr(letter, name) for letter in placed] for name in Letter._fields}
        table = pa.table({**columns, "query": [self.query] * len(placed)}, schema=SCHEMA)
        with appearing(self.folder / f"{name_of(self.query)}-{batch:08d}.parquet", safe=True) as draft:
            pq.write_table(table, draft)
