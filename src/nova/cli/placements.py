"""How commands show where joins run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova.cli.output import console, table

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".csv", ".parquet")
DIGITS = {"share": 6, "tuples_per_s": 3, "way_ms": 3}
"""Digits behind the point in CSV, which people read; Parquet has all of them."""
LEAST_ROWS = 12
"""Rows that are shown on the smallest terminal."""
AROUND = 22
"""Lines of a terminal that a command needs for its other tables."""


def print_placements(found: pa.Table, *, all_rows: bool = False) -> None:
    """The table by sub-join, cut to the terminal unless all rows are wanted: the joins with the most tuples/s come
    first, and what is left out is counted."""
    rows = found.to_pylist() if all_rows else _largest(found, max(LEAST_ROWS, console.size.height - AROUND))
    several = len(set(found["query"].to_pylist())) > 1
    left_out = len(found) - len(rows)
    cut = f", the {len(rows)} rows with the most tuples/s of {len(found):,} (--all shows the rest)" if left_out else ""
    shown: list[list[Any]] = []
    before: tuple[str, ...] = ()
    for row in rows:
        join = (row["query"], row["left"], row["right"])
        name = f"{row['left']} ⋈ {row['right']}" if join != before else ""
        cells = [name, row["host"], f"{row['share']:.0%}", row["tuples_per_s"], row["way_ms"]]
        shown.append([row["query"] if name else "", *cells] if several else cells)
        before = join
    columns = ["sub-join", "host", "share", "tuples/s", "way, ms"]
    table(f"Where the joins run{cut}", ["query", *columns] if several else columns, shown)


def _largest(found: pa.Table, most: int) -> list[dict[str, Any]]:
    """The rows of the sub-joins with the most tuples/s, whole sub-joins as far as they fit, in the table's order."""
    import numpy as np

    if len(found) <= most:
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows
    names = [found[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in ("query", "left", "right")]
    first = np.concatenate([[True], np.any([np.diff(name) != 0 for name in names], axis=0)])
    join = np.cumsum(first) - 1
    weight = np.bincount(join, found["tuples_per_s"].to_numpy())
    size = np.bincount(join)
    by_weight = np.argsort(-weight, kind="stable")
    kept = by_weight[: max(1, int(np.searchsorted(np.cumsum(size[by_weight]), most, side="right")))]
    import pyarrow as pa

    picked: list[dict[str, Any]] = found.take(pa.array(np.flatnonzero(np.isin(join, kept))[:most])).to_pylist()
    return picked


def write_placements(found: pa.Table, file: Path) -> None:
    """The whole table as CSV or Parquet, by the ending of the name."""
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from nova.files import appearing
    from nova.model.errors import NovaError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with appearing(file) as draft:
            if file.suffix.lower() == ".csv":
                for column, digits in DIGITS.items():
                    at = found.column_names.index(column)
                    found = found.set_column(at, column, pc.round(found[column], digits))
                pacsv.write_csv(found, draft, pacsv.WriteOptions(quoting_style="needed"))
            else:
                pq.write_table(found, draft)
    except OSError as error:
        raise NovaError(f"cannot write {file}: {error.strerror}") from error
