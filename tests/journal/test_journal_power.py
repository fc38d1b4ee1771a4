"""The power fails: the disk keeps only what was synced. Names are removed at once, but are there only from the next
sync of their folder on: the worst that a file system may do. A kill alone would not show a missing fsync, since the
system still has what a dead process wrote."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova.journal.replay import identical, replay, tables_of
from nova.journal.store import Store
from nova_lab.bench.kills import Torture

CALLS = ("open", "write", "fsync", "replace", "unlink", "ftruncate")


class PowerCut(BaseException):
    """The machine is off."""


class Disk:
    """Follows the calls on one folder, and knows what would be left of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, cut_at: int) -> None:
        self.folder, self.left = folder, cut_at
        self.content = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        """By file: what was synced of it."""
        self.names = self._listed()
        """Which file each name stands for, as of the last sync of the folder, but for names removed since."""
        for name in CALLS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _listed(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.folder.iterdir() if path.is_file()}

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                raise PowerCut
            result = real(*arguments, **more)
            if name == "fsync":
                self._synced(arguments[0])
            if name == "unlink":
                self.names.pop(Path(arguments[0]).name, None)
            return result

        return call

    def _synced(self, descriptor: int) -> None:
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            self.names = self._listed()
        else:
            self.content[about.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def survivors(self, folder: Path) -> Path:
        """What is there when the machine is on again."""
        folder.mkdir()
        for name, file in self.names.items():
            (folder / name).write_bytes(self.content.get(file, b""))
        return folder


@pytest.fixture(scope="module")
def torture(tmp_path_factory: pytest.TempPathFactory) -> Torture:
    return Torture(tmp_path_factory.mktemp("power") / "state", nodes=40)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_the_power_fails_before_every_call(torture: Torture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = {}
    with Store(torture.folder) as store:
        plans[0] = tables_of(store.controller)
        for number in range(1, 7):
            store.controller.handle(torture.events[number - 1])
            plans[number] = tables_of(store.controller)
    for cut_at in range(1, 200):
        folder = Path(shutil.copytree(torture.folder, tmp_path / f"a{cut_at}"))
        acknowledged = 0
        finished = False
        store = None
        with monkeypatch.context() as patch:
            disk = Disk(folder, patch, cut_at)
            try:
                store = Store(folder)
                for number in range(1, 7):
                    store.submit(torture.step(number))
                    if number % 2 == 0:
                        store.commit()
                        acknowledged = number
                        store.snapshot()
                finished = True
            except PowerCut:
                pass
        if store is not None:
            store.close()
        left = disk.survivors(tmp_path / f"b{cut_at}")
        with Store(left) as again:
            assert again.sequence >= acknowledged
            assert identical(tables_of(again.controller), plans[again.sequence])
            for number in range(1, 7):
                again.apply(torture.step(number))
            assert again.sequence == 6
            assert identical(tables_of(again.controller), plans[6])
        assert replay(left).equal
        shutil.rmtree(left)
        shutil.rmtree(folder)
        if finished:
            assert acknowledged == 6
            assert cut_at > 25
            return
    pytest.fail("it never came to its end")
