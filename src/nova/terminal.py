"""Tables for people at a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console()
WORD = 10
"""Characters of a word in a text that are kept together; longer ones, as ids may be, break anywhere."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are right-aligned and short. Where it is too wide for the terminal, headings break between
    words, texts too unless a word is long, then the frame goes: nothing is cut off."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    numeric = [any(isinstance(row[i], int | float) for row in values) for i in range(len(columns))]
    least = [
        max(
            [
                *map(cell_len, columns[i].split()),
                *(cell_len(row[i]) for row in cells if numeric[i]),
                *(min(cell_len(word), WORD) for row in cells if not numeric[i] for word in row[i].split()),
            ],
            default=1,
        )
        for i in range(len(columns))
    ]
    framed = sum(least) + 3 * len(columns) + 1 <= console.width
    drawn = Table(
        title=Text(title),  # as text: an id in brackets is no markup
        title_justify="left",
        box=box.HEAVY_HEAD if framed else box.SIMPLE_HEAD,
        show_edge=framed,
        pad_edge=framed,
        padding=(0, int(framed)),
    )
    natural = sum(max(map(cell_len, [name, *(row[i] for row in cells)])) + 3 for i, name in enumerate(columns)) + 1
    for name, right, width in zip(columns, numeric, least, strict=True):
        drawn.add_column(
            Text(name),
            justify="right" if right else "left",
            overflow="fold",
            min_width=width,
            width=width if right and natural > console.width else None,
        )
    for row in cells:
        drawn.add_row(*map(Text, row))
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return f"{value:,.3g}" if abs(value) < 10 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
