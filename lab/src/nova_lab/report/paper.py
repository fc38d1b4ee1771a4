"""The paper's evaluation, run again: units of work, then CSV tables, then one page that tells what came out."""

from __future__ import annotations

import csv
import datetime
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nova
from nova.draw.page import Section, render
from nova.evaluation.approaches import Row
from nova.model.errors import InvalidInput
from nova_lab.report.experiment import Experiment, Setting, Unit
from nova_lab.report.experiments import EXPERIMENTS, RUNNERS
from nova_lab.report.units import Store, code_digest

Watch = Callable[[int, int, str], None]
"""Called before each unit with how many are done, how many there are, and what comes next."""

LEAD = (
    "Nova decides where the joins of geo-distributed streams run: on which nodes, in how many replicas, on which part "
    "of each stream. This report repeats the paper's evaluation section with our implementation, on "
    "workloads drawn as the paper describes them, and sets the paper's figures and those of its published scripts "
    "beside ours. A *sub-join* is one pair of sources that may join; a *replica* is the share of a sub-join that runs "
    "on one node, its *host*; capacities and rates are in tuples per second, latencies in milliseconds. Every approach "
    "is charged alike, and where a figure can be compared with a proven bound, the bound stands beside it."
)


@dataclass(frozen=True)
class Outcome:
    """What a run of the report came to."""

    page: Path
    tables: dict[str, Path]
    sections: list[Section]
    skipped: dict[str, str]
    """Experiments left out, and why."""
    units: int
    reused: int
    """Units that an earlier run had finished."""


def choose(names: Sequence[str]) -> list[Experiment]:
    """The experiments named, in the order of the paper; all by default."""
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise InvalidInput(f"no experiment {', '.join(map(repr, unknown))}; there are {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


def reproduce(names: Sequence[str], folder: Path, setting: Setting, watch: Watch = lambda *_: None) -> Outcome:
    """Run experiments and write `index.html` and one CSV each into `folder`. Units finished before are taken up."""
    wanted = choose(names)
    skipped = {one.name: why for one in wanted if (why := one.missing(setting)) is not None}
    experiments = [one for one in wanted if one.name not in skipped]
    plan = {one.name: one.units(setting) for one in experiments}
    order = _once([unit for units in plan.values() for unit in units])
    store = Store(folder / "units")
    rows: dict[Path, list[Row]] = {}
    reused = 0
    for done, unit in enumerate(order):
        watch(done, len(order), f"{unit.runner} {_words(unit)}")
        key = store.path(unit.runner, unit.parameters)
        rows[key], known = store.fetch(
            unit.runner, unit.parameters, partial(RUNNERS[unit.runner], setting, unit.parameters)
        )
        reused += known
    watch(len(order), len(order), "writing the report")
    tables, sections = {}, []
    for experiment in experiments:
        mine = [row for unit in plan[experiment.name] for row in rows[store.path(unit.runner, unit.parameters)]]
        tables[experiment.name] = write_csv(mine, folder / f"{experiment.name}.csv")
        sections.append(experiment.section(setting, mine))
    page = folder / "index.html"
    text = render("Nova: the evaluation, repeated", _byline(setting), LEAD, sections, _notes(setting, skipped, tables))
    page.write_text(text, encoding="utf-8")
    return Outcome(page, tables, sections, skipped, len(order), reused)


def _once(units: list[Unit]) -> list[Unit]:
    """Each unit once, in order of first need."""
    seen: list[Unit] = []
    for unit in units:
        if unit not in seen:
            seen.append(unit)
    return seen


def _words(unit: Unit) -> str:
    return ", ".join(f"{name} {value}" for name, value in unit.parameters.items())


def write_csv(rows: list[Row], file: Path) -> Path:
    """All rows of an experiment; curves (lists) stay in the units' files."""
    columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return file


def _byline(setting: Setting) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    size = "quick run" if setting.quick else "full run"
    draws = f"{setting.seeds} draw{'s' if setting.seeds > 1 else ''} per point"
    return f"nova {nova.__version__}, {today}, {size}, {draws}"


def _notes(setting: Setting, skipped: dict[str, str], tables: dict[str, Path]) -> list[str]:
    notes = [f"Experiment left out: {EXPERIMENTS[name].title}: {why}." for name, why in skipped.items()]
    files = ", ".join(f"`{file.name}`" for file in tables.values())
    notes.append(
        f"The rows behind every figure are in {files} beside this page; finished units of work are kept in `units/`, "
        "so that an interrupted run goes on where it stopped. Units made by another version of the program are not "
        "reused."
    )
    notes.append(
        f"Machine: {os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}; source of the program {code_digest()}. "
        + ("This was a quick run: fewer draws, levels and sizes. " if setting.quick else "")
        + "Sentences under *Reading* are computed from the rows of this very run."
    )
    return notes
