"""Remote: an object in a process of its own, whose methods are called through a pipe."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from nova.model.errors import NovaError

PATIENCE_S = 300.0
"""Longest wait for an answer."""


class Remote:
    """Starts the process at once; `made` is called there, and `call` returns what a method of it returns."""

    def __init__(self, name: str, made: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(made, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for its answer: others can be asked meanwhile."""
        self._pipe.send((method, arguments))

    def answer(self) -> Any:
        """The answer to the last `ask`; an error there is one here."""
        try:
            if not self._pipe.poll(PATIENCE_S):
                raise NovaError(f"{self.name} did not answer in {PATIENCE_S:.0f} s")
            good, told = self._pipe.recv()
        except EOFError:
            raise NovaError(f"the process of {self.name} ended with code {self._process.exitcode}") from None
        if not good:
            raise NovaError(f"{self.name}: {told}")
        return told

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method."""
        self.ask(method, *arguments)
        return self.answer()

    def close(self) -> None:
        """End the process: in order, where the object has a `close` and answers in time; else at once."""
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(30.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(made: Callable[[], Any], pipe: Connection) -> None:
    """Make the object and answer calls until told to end, or whoever asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; whoever started this one ends it
    thing: Any = None
    try:
        while (asked := _next(pipe)) is not None:
            method, arguments = asked
            try:
                if thing is None:
                    thing = made()
                told = True, getattr(thing, method)(*arguments)
            except Exception as error:  # whatever it is, whoever asked must know
                told = False, "".join(traceback.format_exception_only(error)).strip()
            try:
                pipe.send(told)
            except BrokenPipeError:  # nobody waits for it any more
                return
    finally:
        if thing is not None and hasattr(thing, "close"):
            thing.close()


def _next(pipe: Connection) -> tuple[str, tuple[Any, ...]] | None:
    try:
        asked: tuple[str, tuple[Any, ...]] | None = pipe.recv()
        return asked
    except EOFError:
        return None
