"""One self-contained HTML page: numbered sections of prose, figures and tables, readable without the program."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MARKS = re.compile(r"`([^`]+)`|\*(\S(?:[^*`]*\S)?)\*")
STYLE = """
:root { --ink: #1d2430; --soft: #5b6675; --line: #d9dee5; --wash: #f5f7f9; --mark: #0b6e99; }
* { box-sizing: border-box; }
body { font: 16.5px/1.6 Georgia, 'DejaVu Serif', serif; color: var(--ink); margin: 0; background: #fff; }
main { max-width: 880px; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.4rem; margin: 3.2rem 0 .6rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.06rem; margin: 1.6rem 0 .3rem; }
p { margin: .6rem 0; }
.by { color: var(--soft); font-size: .92rem; margin-bottom: 1.6rem; }
.abstract { background: var(--wash); border-left: 3px solid var(--mark); padding: .8rem 1.2rem; margin: 1.4rem 0; }
.abstract ul { margin: .3rem 0; padding-left: 1.2rem; }
nav ol { columns: 2; padding-left: 1.4rem; }
a { color: var(--mark); text-decoration: none; } a:hover { text-decoration: underline; }
.question { font-style: italic; }
figure { margin: 1.4rem 0; }
figure img { width: 100%; height: auto; display: block; }
figure iframe { width: 100%; height: 860px; border: 1px solid var(--line); }
figcaption { color: var(--soft); font: .86rem/1.45 system-ui, 'DejaVu Sans', sans-serif; }
figcaption b { color: var(--ink); }
figcaption.above { margin-bottom: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font: .8rem/1.35 system-ui, 'DejaVu Sans', sans-serif;
        font-variant-numeric: tabular-nums; }
th { text-align: left; border-bottom: 1.5px solid var(--ink); padding: .3rem .45rem; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: .26rem .45rem; }
.n { text-align: right; white-space: nowrap; }
tr.ours td { background: #eef6fa; }
.note { color: var(--soft); font-size: .9rem; }
code { font: .88em ui-monospace, 'DejaVu Sans Mono', monospace; background: var(--wash); padding: 0 .2em; }
@media print { main { max-width: none; padding: 0; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Figure:
    """A drawing in SVG, with what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Frame:
    """Another page inside this one, to explore there."""

    page: str
    caption: str


@dataclass(frozen=True)
class Grid:
    """A table of text and numbers; `ours` are the rows to mark, as indices."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    ours: Sequence[int] = ()


@dataclass(frozen=True)
class Section:
    """One experiment, told as a paper would: the question, how it was asked, what came out, how to read it."""

    name: str
    title: str
    question: str
    setup: str
    content: Sequence[Figure | Grid]
    reading: Sequence[str]
    """Findings in full sentences, the most important one first; it also stands in the abstract."""
    skipped: Sequence[str] = field(default=())
    """What was left out, and why."""


def render(title: str, byline: str, lead: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """The whole page."""
    parts = [f'<p class="by">{html.escape(byline)}</p>', f"<p>{rich(lead)}</p>"]
    if sections:
        found = "".join(f"<li>{rich(s.reading[0])}</li>" for s in sections if s.reading)
        parts.append(f'<div class="abstract"><b>Findings</b><ul>{found}</ul></div>')
        links = "".join(f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in sections)
        parts.append(f"<nav><ol>{links}</ol></nav>")
    counter = {"Figure": 0, "Table": 0}
    for number, section in enumerate(sections, 1):
        parts += _section(number, section, counter)
    if notes:
        parts.append("<h2>How this was made</h2>")
        parts += [f'<p class="note">{rich(note)}</p>' for note in notes]
    return _document(title, parts)


def standalone(title: str, content: Sequence[Figure | Frame | Grid | str]) -> str:
    """A page of figures, tables and paragraphs between them."""
    counter = {"Figure": 0, "Table": 0}
    return _document(
        title, [f"<p>{rich(item)}</p>" if isinstance(item, str) else _numbered(item, counter) for item in content]
    )


def _document(title: str, parts: Sequence[str]) -> str:
    return (
        "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
                f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>",
                f"<h1>{html.escape(title)}</h1>",
                *parts,
                "</main></body></html>",
            ]
        )
        + "\n"
    )


def _section(number: int, section: Section, counter: dict[str, int]) -> list[str]:
    parts = [
        f'<section id="{section.name}"><h2>{number}. {html.escape(section.title)}</h2>',
        f'<p class="question">{rich(section.question)}</p>',
        f"<h3>Set-up</h3><p>{rich(section.setup)}</p>",
        "<h3>Results</h3>",
    ]
    parts += [_numbered(item, counter) for item in section.content]
    parts.append("<h3>Reading</h3>")
    parts += [f"<p>{rich(text)}</p>" for text in section.reading]
    parts += [f'<p class="note">Left out: {rich(text)}</p>' for text in section.skipped]
    parts.append("</section>")
    return parts


def _numbered(item: Figure | Frame | Grid, counter: dict[str, int]) -> str:
    """A figure or table with its number."""
    kind = "Table" if isinstance(item, Grid) else "Figure"
    counter[kind] += 1
    match item:
        case Figure():
            return _figure(item, counter[kind])
        case Frame():
            return _frame(item, counter[kind])
        case Grid():
            return _grid(item, counter[kind])


def _frame(frame: Frame, number: int) -> str:
    words = html.escape(frame.caption, quote=True)
    return (
        f'<figure><iframe title="{words}" srcdoc="{html.escape(frame.page, quote=True)}"></iframe>'
        f"<figcaption><b>Figure {number}.</b> {rich(frame.caption)}</figcaption></figure>"
    )


def _figure(figure: Figure, number: int) -> str:
    data = base64.b64encode(figure.svg.encode()).decode()
    words = html.escape(figure.caption, quote=True)
    return (
        f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption><b>Figure {number}.</b> {rich(figure.caption)}</figcaption></figure>"
    )


def _grid(grid: Grid, number: int) -> str:
    numeric = [i > 0 and any(_is_number(row[i]) for row in grid.rows) for i in range(len(grid.columns))]
    head = "".join(
        f"<th{' class=n' if right else ''}>{rich(name)}</th>" for name, right in zip(grid.columns, numeric, strict=True)
    )
    body = []
    for i, row in enumerate(grid.rows):
        cells = "".join(
            f"<td{' class=n' if right else ''}>{rich(cell(value))}</td>"
            for value, right in zip(row, numeric, strict=True)
        )
        body.append(f"<tr{' class=ours' if i in grid.ours else ''}>{cells}</tr>")
    return (
        f'<figure><figcaption class="above"><b>Table {number}.</b> {rich(grid.caption)}</figcaption>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></figure>"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """A value as a table shows it: numbers with the digits that matter, a dash for what is not known."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def number(value: float) -> str:
    """A number with two to four digits, never in powers of ten; whole numbers stay whole."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if isinstance(value, int) or size >= 100:
        text = f"{value:,.0f}"
    elif size >= 10:
        text = f"{value:.1f}"
    elif size >= 0.1 or size == 0:
        text = f"{value:.2f}"
    else:
        text = f"{value:.{1 - math.floor(math.log10(size))}f}" if size >= 1e-6 else "0"
    return "0" if text.strip("-0.") == "" else text.replace("-", "−")


def rich(text: str) -> str:
    """Escape; `code` and *emphasis* are kept."""
    return MARKS.sub(_tagged, html.escape(text, quote=False))


def _tagged(mark: re.Match[str]) -> str:
    code, emphasis = mark.groups()
    return f"<code>{code}</code>" if code is not None else f"<em>{emphasis}</em>"
