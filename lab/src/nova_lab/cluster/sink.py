"""Sink: takes in the results of all hosts, and stamps when each was there."""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nova.spark.realtime.background import Background
from nova.spark.realtime.frames import together, whole
from nova.spark.realtime.results import NUMBERS
from nova_lab.cluster.relay import LOCAL

KEPT = ("left_source", "left_time", "right_source", "right_time")
"""Which tuples a result is of: rows of their sources and their event times (µs). A source has one tuple at a time, so
that tells results apart."""
READ = 2**20

Columns = npt.NDArray[np.int64]
"""A row per result, with the columns of `KEPT`."""


@dataclass
class Inbox(Background):
    """Reads all connections of a listening socket; `take` gets the whole frames of one, again and again."""

    server: socket.socket
    gather_s: float = 0.001
    """Frames that come within this time are taken together."""

    def take(self, data: bytes) -> None:
        """Take in whole frames."""
        raise NotImplementedError

    def work(self) -> None:
        buffers: dict[socket.socket, bytes] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self.server, selectors.EVENT_READ)
            while not self._stopped.is_set():
                for key, _ in selector.select(0.05):
                    if key.fileobj is self.server:
                        connection = self.server.accept()[0]
                        buffers[connection] = b""
                        selector.register(connection, selectors.EVENT_READ)
                        continue
                    connection = key.fileobj  # type: ignore[assignment]
                    data = connection.recv(READ)
                    if not data:
                        selector.unregister(connection)
                        connection.close()
                        continue
                    data = buffers[connection] + data
                    size = whole(data)
                    if size:
                        self.take(data[:size])
                    buffers[connection] = data[size:]
                self.idle()
                time.sleep(self.gather_s)
        for connection in buffers:
            connection.close()
        self.server.close()

    def idle(self) -> None:
        """Called between two readings."""


@dataclass
class Collector(Inbox):
    """Results with the time at which they came."""

    parts: list[tuple[float, Columns]] = field(default_factory=list)
    count: int = 0

    def take(self, data: bytes) -> None:
        now = time.time()
        columns, _ = together(data, "l" * len(NUMBERS))
        rows = np.column_stack([columns[NUMBERS.index(name)].to_numpy() for name in KEPT])
        self.parts.append((now, rows))
        self.count += len(rows)


class Sink:
    """The sink of a run, in a process of its own."""

    collector: Collector | None = None

    def open(self) -> int:
        """Begin a run; returns the port for results."""
        server = socket.create_server((LOCAL, 0))
        port: int = server.getsockname()[1]
        self.collector = Collector(server)
        self.collector.start()
        return port

    def count(self) -> int:
        """Results so far."""
        assert self.collector is not None
        if self.collector.failure is not None:
            raise self.collector.failure
        return self.collector.count

    def taken(self) -> tuple[npt.NDArray[np.float64], Columns]:
        """When each result came (s since 1970), and which it is; ends the run."""
        assert self.collector is not None
        self.collector.stop()
        parts = self.collector.parts
        when = np.repeat([at for at, _ in parts], [len(rows) for _, rows in parts])
        return when, np.concatenate([rows for _, rows in parts]) if parts else np.empty((0, len(KEPT)), np.int64)
