"""Work beside the query, on a thread of its own, whose failure the run finds when it looks."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field

TURN_S = 0.0005
"""How long a thread may keep the interpreter while others want it. Python's own 5 ms are as long as a result may take:
each step of a publisher would wait them out while a feed reads records."""


@dataclass(kw_only=True)
class Background:
    """Does `work` from `start` to `stop`."""

    failure: BaseException | None = None
    """What made it fail."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def work(self) -> None:
        """What is done; ends when it is done, or soon after `_stopped` is set."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        sys.setswitchinterval(TURN_S)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing more is done."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # told by the run, which polls
            self.failure = error
