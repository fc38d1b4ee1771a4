"""Store: a folder that holds a controller through crashes.

    store.json               what the folder is, and its id
    lock                     held by the process that writes
    journal-N.log            steps from sequence number N on
    snapshot-N.nova          the controller after step N; the last two are kept, and the journal since the older one
    current                  link to the plan and its scenario as of the last `export`
    cut/                     ends of the journal that a crash damaged, and damaged snapshots

A step is applied in memory, made durable with one fsync (several steps share one), and only then acknowledged. Opening
the folder thaws the newest snapshot and applies the steps behind it again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nova
from nova.controller.changes import Change
from nova.controller.codec import Step
from nova.controller.controller import Controller
from nova.journal import snapshot
from nova.journal.errors import Damaged, NotDurable
from nova.journal.files import put_aside, remove_temporaries, sync_folder, write_whole
from nova.journal.identity import MARKER, Identity
from nova.journal.journal import Journal, create_segment
from nova.journal.lock import Lock
from nova.journal.running import Running, thawed
from nova.journal.steps import to_record
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.model.plan import Summary

SNAPSHOT_EVERY = 10_000
"""Steps after which a new snapshot is due: what a restart has to apply again at most."""
KEPT = 2
"""Snapshots that are kept: if the newest is damaged, the one before and the journal hold the same."""
CURRENT = "current"
EXPORTS = "exports"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step that is durable now."""

    step: Step
    sequence: int | None
    """Its place in the journal; None where it was there before."""
    changes: list[Change]
    replan_gain_ms: float | None
    """What a fresh plan would save after it; see `Controller.replan_gain_ms`."""


class Store:
    """A durable controller. `submit` steps, then `commit` them; only what `commit` returns is acknowledged."""

    def __init__(self, folder: str | Path, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        """Open a folder for writing, and bring its controller to where the journal ends."""
        self.folder = Path(folder)
        self.snapshot_every = snapshot_every
        self.identity = Identity.read(self.folder)
        self.warnings: list[str] = []
        """What was found damaged and mended."""
        self._pending: list[tuple[Step, bytes | None, list[Change], float | None]] = []
        self._failed: str | None = None
        try:
            self._lock = Lock(self.folder)
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise NovaError(f"cannot open {self.folder}: {error.strerror} ({error.filename})") from error

    def _open(self) -> None:
        remove_temporaries(self.folder)
        self._running = self._newest()
        self._snapshot = self._running.sequence
        self._journal = Journal(self.folder, self.identity.key, self._running.sequence)
        self.cut = self._journal.cut
        if self.cut is not None:
            self.warnings.append(str(self.cut))
        for record in self._journal.records:
            self._running.repeat(record)
        self.repeated = len(self._journal.records)
        """Steps that were applied again on opening."""
        self._journal.records = []
        if self._running.version != nova.__version__:
            self._change_version()

    def _change_version(self) -> None:
        """From now on, this version's steps shall follow a state of this version's."""
        if self.repeated:
            self.warnings.append(
                f"{self.folder}: the last {self.repeated:,} steps were taken in by nova {self._running.version} and "
                f"applied again by {nova.__version__}: their changes may be others. Compare `current` with what runs"
            )
        try:
            self._write_snapshot()
        except NotDurable as error:
            self.warnings.append(str(error))

    @classmethod
    def create(cls, folder: str | Path, controller: Controller, about: Mapping[str, Any] | None = None) -> None:
        """Make a folder for a controller that has just been made. `about` is kept in `store.json` for people, and for
        `export`. The folder is there wholly or not at all."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidInput([Fault(str(folder), "is there already, and is no empty folder")])
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
            try:
                identity = Identity.new(about or {})
                create_segment(beside, 1, identity.key)
                snapshot.write(beside, 0, identity.key, Running(controller, {}, 0).content())
                write_whole(beside / MARKER, [identity.text()])
                beside.chmod(0o755)
                os.replace(beside, folder)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
            sync_folder(folder.parent)
        except OSError as error:
            raise NovaError(f"cannot make {folder}: {error.strerror}") from error

    def _newest(self) -> Running:
        """From the newest snapshot that can be read. Newer ones are put aside, lest they count as kept."""
        failed: Damaged | None = None
        found = snapshot.paths(self.folder)
        for i, path in reversed(list(enumerate(found))):
            try:
                running = thawed(path, self.identity.key)
            except Damaged as error:
                failed = failed or error
                self.warnings.append(f"{error}; put aside, the snapshot before it and the journal are used")
                continue
            for damaged in found[i + 1 :]:
                put_aside(damaged)
            return running
        if failed is None:
            raise Damaged(snapshot.path_of(self.folder, 0), 0, "snapshot", "there is no snapshot")
        raise failed

    @property
    def controller(self) -> Controller:
        """The controller as of the last submitted step."""
        return self._running.controller

    @property
    def sequence(self) -> int:
        """Number of the last submitted step."""
        return self._running.sequence

    def last_number(self, client: str) -> int | None:
        """The last number that a client gave; None for one that is not known."""
        known = self._running.clients.get(client)
        return None if known is None else known[0]

    def submit(self, step: Step) -> None:
        """Apply a step in memory. Raises `InvalidInput` where it is wrong, and then nothing has changed; steps
        submitted before it can still be committed."""
        self._usable()
        if self._running.repeated(step):
            self._pending.append((step, None, [], None))
            return
        record = to_record(step, time.time_ns() // 1_000_000)  # first: what cannot be written must not be applied
        try:
            changes = self._running.apply(step)
        except InvalidInput:
            raise
        except BaseException as error:
            # nobody knows how far it got: what is in memory may be half a step
            self._failed = f"{self.folder}: a step could not be applied ({type(error).__name__}): open the folder again"
            raise
        self._pending.append((step, record, changes, self.controller.replan_gain_ms))

    def commit(self) -> list[Outcome]:
        """Make all submitted steps durable, with one fsync. What is returned may be acknowledged."""
        self._usable()
        records = [record for _, record, _, _ in self._pending if record is not None]
        if records:
            try:
                first = self._journal.append(records)
            except BaseException:
                self._failed = self._journal.failed
                raise
        else:
            first = self._journal.next
        outcomes = []
        for step, record, changes, gain in self._pending:
            outcomes.append(Outcome(step, None if record is None else first, changes, gain))
            first += record is not None
        self._pending = []
        return outcomes

    def apply(self, step: Step) -> Outcome:
        """Submit one step and commit it."""
        self.submit(step)
        return self.commit()[-1]

    @property
    def usable(self) -> bool:
        """Whether steps can be committed: no write has failed, and no step has ended half-way."""
        return self._failed is None

    def _usable(self) -> None:
        if self._failed is not None:
            raise NotDurable(self._failed)

    @property
    def snapshot_due(self) -> bool:
        """Whether enough steps were committed since the last snapshot."""
        return self.sequence - self._snapshot >= self.snapshot_every

    def snapshot(self) -> None:
        """Write a snapshot of all that is committed, and remove what is older than needed once it is durable. Where
        that fails, nothing is lost: the journal holds everything."""
        self._usable()
        if self._pending:
            raise RuntimeError("commit first")
        if self.sequence > self._snapshot:
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        try:
            snapshot.write(self.folder, self.sequence, self.identity.key, self._running.content())
            self._snapshot = self.sequence
            self._journal.rotate()
            kept = snapshot.paths(self.folder)[-KEPT:]
            for path in snapshot.paths(self.folder)[:-KEPT]:
                path.unlink()
            self._journal.remove_until(snapshot.sequence_of(kept[0]))
            sync_folder(self.folder)
        except OSError as error:
            raise NotDurable(
                f"{self.folder}: cannot write a snapshot: {error.strerror}; the journal holds all that was acknowledged"
            ) from error

    def export(self) -> Path:
        """Write the plan and its scenario, and let `current` stand for them. Returns that link."""
        from nova.controller.export import export

        self._usable()
        exports = self.folder / EXPORTS
        try:
            exports.mkdir(exist_ok=True)
            target = Path(tempfile.mkdtemp(dir=exports, prefix=f"{self.sequence}-"))
            target.chmod(0o755)
            problem, plan, _ = export(self.controller, target / "scenario", self.identity.about.get("inputs"))
            replace(plan, summary=Summary(plan.summary | {"sequence": self.sequence})).write(target / "plan", problem)
            link, beside = self.folder / CURRENT, self.folder / f"{CURRENT}.link"
            beside.unlink(missing_ok=True)
            os.symlink(target.relative_to(self.folder), beside)
            os.replace(beside, link)
            sync_folder(self.folder)
        except OSError as error:
            raise NovaError(f"cannot write the plan to {exports}: {error.strerror}; all events are safe") from error
        for old in exports.iterdir():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
        return link

    def close(self) -> None:
        """Let others write. What was submitted but not committed is gone."""
        self._journal.close()
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
