"""What an experiment is: units of work that give rows, and a section that tells what the rows say."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from nova.draw.page import Section, number
from nova.evaluation.approaches import Row
from nova_lab.report.units import Parameters


@dataclass(frozen=True)
class Setting:
    """How much to run, and on which data."""

    quick: bool = False
    seeds: int = 3
    """Draws per point."""
    instances: Path | None = None
    """Folder with the fixed instances `<topology>-<level>.json`; None: random draws only."""


@dataclass(frozen=True)
class Unit:
    """One piece of work: which runner, with which parameters. Experiments that need the same unit share its rows."""

    runner: str
    parameters: Parameters


@dataclass(frozen=True)
class Experiment:
    """One question of the evaluation."""

    name: str
    title: str
    units: Callable[[Setting], list[Unit]]
    section: Callable[[Setting, list[Row]], Section]
    missing: Callable[[Setting], str | None] = lambda _: None
    """Why it cannot run, in words; None where it can."""


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows that have all of these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], column: str) -> list[object]:
    """The values of a column, each once, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def values(rows: Iterable[Row], column: str) -> list[float]:
    """The known numbers of a column."""
    return [float(row[column]) for row in rows if row.get(column) is not None and row[column] == row[column]]


def mean(rows: Iterable[Row], column: str) -> float:
    """Mean of a column's known numbers; NaN of none."""
    known = values(rows, column)
    return statistics.fmean(known) if known else float("nan")


def spread(rows: Iterable[Row], column: str) -> tuple[float, float]:
    """Lowest and highest of a column; NaN of none."""
    known = values(rows, column)
    return (min(known), max(known)) if known else (float("nan"), float("nan"))


def between(low: float, high: float, unit: str = "") -> str:
    """`6–14 %`, or one number where both are the same as printed."""
    a, b = number(low), number(high)
    tail = f" {unit}" if unit else ""
    return f"{a}{tail}" if a == b else f"{a}–{b}{tail}"


def times(count: int, noun: str) -> str:
    """`1 draw`, `3 draws`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listing(words: list[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"
