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
WORD = 12
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
    natural = [max(map(cell_len, [name, *(row[i] for row in cells)])) for i, name in enumerate(columns)]
    frame = 3 * len(columns) + 1
    narrow = sum(natural) + frame > console.width
    wanted = [few if right else all_ for few, all_, right in zip(least, natural, numeric, strict=True)]
    widths = _widths(least, wanted, console.width - frame) if narrow and framed else [None] * len(columns)
    for name, right, width, given in zip(columns, numeric, least, widths, strict=True):
        drawn.add_column(
            Text(name),
            justify="right" if right else "left",
            overflow="fold",
            min_width=width,
            width=given or (width if right and narrow else None),
        )
    for row in cells:
        drawn.add_row(*map(Text, row))
    console.print(drawn)


def _widths(least: Sequence[int], natural: Sequence[int], room: int) -> list[int | None]:
    """Widths of columns that are wider together than the room: what is left beyond the least goes to the narrowest of
    those that want more, character by character."""
    widths = list(least)
    for _ in range(room - sum(least)):
        wanting = [i for i in range(len(widths)) if widths[i] < natural[i]]
        if not wanting:
            break
        widths[min(wanting, key=lambda i: widths[i])] += 1
    return list(widths)


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
