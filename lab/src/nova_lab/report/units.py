"""Units of work: the smallest piece of an experiment that is worth keeping when a run is interrupted.

A finished unit is one JSON file in the report's folder. It is taken up again only if the parameters and the program
are the same: figures of two versions of the code must never meet in one table.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import nova
from nova.evaluation.approaches import Row
from nova.files import appearing

Parameters: TypeAlias = dict[str, Any]
"""What a unit computes, in JSON's types."""


@cache
def code_digest() -> str:
    """Checksum of the source of both packages, the product's and the laboratory's."""
    digest = hashlib.sha256(nova.__version__.encode())
    for package in (Path(nova.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """Finished units, one file each."""

    folder: Path

    def path(self, experiment: str, parameters: Parameters) -> Path:
        """Where the unit's rows are kept."""
        text = json.dumps(parameters, sort_keys=True)
        return self.folder / experiment / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def get(self, experiment: str, parameters: Parameters) -> list[Row] | None:
        """Rows of a finished unit; None where it was never finished, or by another version of the program."""
        try:
            kept = json.loads(self.path(experiment, parameters).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        if kept.get("code") != code_digest() or kept.get("parameters") != parameters:
            return None
        rows: list[Row] = kept["rows"]
        return [{name: _known(value) for name, value in row.items()} for row in rows]

    def put(self, experiment: str, parameters: Parameters, rows: list[Row]) -> None:
        """Keep the rows. The file appears whole or not at all, so an interruption leaves no half unit behind."""
        path = self.path(experiment, parameters)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"experiment": experiment, "parameters": parameters, "code": code_digest(), "rows": plain(rows)}
        with appearing(path) as draft:
            draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

    def fetch(self, experiment: str, parameters: Parameters, run: Callable[[], list[Row]]) -> tuple[list[Row], bool]:
        """(rows, whether they were there already). What is new is kept and read back, so both ways give the same."""
        found = self.get(experiment, parameters)
        if found is not None:
            return found, True
        self.put(experiment, parameters, run())
        fresh = self.get(experiment, parameters)
        assert fresh is not None, "the source of the program changed while it ran"
        return fresh, False


def plain(rows: list[Row]) -> list[Row]:
    """Rows in JSON's types: numbers of numpy become Python's, what is not finite becomes null."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _known(value: Any) -> Any:
    """JSON's null back to NaN."""
    if isinstance(value, list):
        return [_known(one) for one in value]
    return math.nan if value is None else value
