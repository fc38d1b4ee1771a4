"""What can go wrong, told apart: input that is wrong, scenarios that do not fit, results that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova.model.ids import printable

SHOWN = 50
"""How many problems one error lists; the rest is counted, never dropped silently."""


class NovaError(Exception):
    """Base of all errors that a user can act on. The command line prints them without a traceback.

    >>> try:
    ...     nova.optimize({"nova": 1})
    ... except nova.NovaError as error:
    ...     print(error.exit_code)
    2
    """

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the input: where it stands and what was found there."""

    file: str
    """File (or `scenario.yaml: nodes` for inline tables)."""
    message: str
    row: int | None = None
    """1-based line of a CSV file, 1-based record of other tables."""
    field: str | None = None
    value: object = None

    def __str__(self) -> str:
        place = self.file
        if self.row is not None:
            place += f", row {self.row}"
        if self.field is not None:
            place += f", field {printable(self.field)}" if self.field else ", the column without a name"
        found = "" if self.value is None else f" (found {self.value!r})"
        return f"{place}: {self.message}{found}"


class InvalidInput(NovaError):
    """The input is wrong. Lists every fault found, up to a limit.

    >>> try:
    ...     nova.load({**scenario, "streams": {}})
    ... except nova.InvalidInput as error:
    ...     print(len(error.faults) > 0)
    True
    """

    exit_code = 2

    def __init__(self, faults: Sequence[Fault] | str, *, more: int = 0) -> None:
        """`more` counts faults that were found but not kept: a million bad rows need no million messages."""
        self.faults: tuple[Fault, ...] = () if isinstance(faults, str) else tuple(faults)
        if isinstance(faults, str):
            super().__init__(faults)
            return
        lines = [str(fault) for fault in self.faults[:SHOWN]]
        total = len(self.faults) + more
        if total > len(lines):
            lines.append(f"… and {total - len(lines):,} more")
        noun = "problem" if total == 1 else "problems"
        super().__init__("\n".join([f"{total:,} {noun} in the input:", *lines]))


class Infeasible(NovaError):
    """The scenario is well formed, but the nodes cannot take its load.

    >>> try:
    ...     nova.optimize(scenario, utilisation=0.001)
    ... except nova.Infeasible as error:
    ...     print(str(error).splitlines()[-1].split()[0])
    Maybe
    """

    exit_code = 2


class BrokenPlan(NovaError):
    """A plan breaks an invariant: it loses results, doubles them, or overloads a node without saying so.

    >>> issubclass(nova.BrokenPlan, nova.NovaError)
    True
    """

    exit_code = 3
