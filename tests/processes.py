"""Processes of their own for tests: started as somebody types it, killed as a machine dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAIT_S = 400.0
"""Long, for machines that do other work, too."""


def environment() -> dict[str, str]:
    """With this Python's `nova` first on the path."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Process:
    """A command with its own process group: what dies, dies with all its children, as with the machine."""

    def __init__(self, *command: object, log: Path) -> None:
        self.command, self.log = [str(part) for part in command], log
        with log.open("a") as out:
            self.running = subprocess.Popen(
                self.command, stdout=out, stderr=out, start_new_session=True, env=environment()
            )

    def kill(self) -> None:
        """kill -9, children and all."""
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()

    def again(self) -> Process:
        """The same command once more."""
        return Process(*self.command, log=self.log)

    def wait(self, seconds: float = WAIT_S) -> None:
        """Wait for its good end."""
        code = self.running.wait(seconds)
        assert code == 0, f"{' '.join(self.command)} ended with {code}:\n{self.log.read_text()[-4000:]}"

    def until(self, condition: Callable[[], Any], seconds: float = WAIT_S) -> None:
        """Wait for something to become true while it runs."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.running.poll() is None, f"it ended too early:\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"nothing happened in time:\n{self.log.read_text()[-4000:]}"
            time.sleep(0.02)


@contextmanager
def looked_after() -> Iterator[list[Process]]:
    """A list of processes of which none outlives the test."""
    started: list[Process] = []
    try:
        yield started
    finally:
        for one in started:
            if one.running.poll() is None:
                one.kill()
