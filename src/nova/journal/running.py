"""Running: a controller at a step of the journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nova
from nova.controller.changes import Change
from nova.controller.codec import Step
from nova.controller.controller import Controller
from nova.journal import snapshot
from nova.journal.errors import Damaged
from nova.journal.journal import Record
from nova.journal.steps import from_record
from nova.model.errors import Fault, InvalidInput


@dataclass
class Running:
    """A controller at a step of the journal, and the last number of each client."""

    controller: Controller
    clients: dict[str, list[int]]
    """Last number of each client, and the checksum of what it was given for."""
    sequence: int
    version: str = nova.__version__
    """Of Nova, that made the controller what it is, but for steps since."""

    def repeated(self, step: Step) -> bool:
        """Whether a step was applied before. Raises `InvalidInput` where another one was under its number."""
        if step.client is None or step.client not in self.clients:
            return False
        number, checksum = self.clients[step.client]
        assert step.number is not None
        if step.number == number and step.checksum != checksum:
            message = f"client {step.client!r} gave this number to other events before"
            raise InvalidInput([Fault(step.file, message, step.line, "number", step.number)])
        return step.number <= number

    def apply(self, step: Step) -> list[Change]:
        """Take in a step. Raises `InvalidInput` where it is wrong, and then nothing has changed."""
        changes = self.controller.handle(step.events, step.file, step.line)
        self.sequence += 1
        if step.client is not None:
            assert step.number is not None
            self.clients[step.client] = [step.number, step.checksum]
        return changes

    def repeat(self, record: Record) -> list[Change]:
        """Apply a step of the journal."""
        step = from_record(record)
        if record.sequence != self.sequence + 1:
            raise Damaged(record.file, record.offset, f"record {record.sequence}", f"{self.sequence + 1} expected")
        try:
            return self.apply(step)
        except InvalidInput as error:
            raise Damaged(
                record.file, record.offset, f"record {record.sequence}", f"the plan before it refuses it: {error}"
            ) from None

    def content(self) -> dict[str, Any]:
        """What a snapshot holds."""
        return {"controller": self.controller, "clients": self.clients, "version": nova.__version__}


def thawed(path: Path, identity: bytes) -> Running:
    """What a snapshot holds."""
    content = snapshot.read(path, identity)
    return Running(content["controller"], content["clients"], snapshot.sequence_of(path), content["version"])
