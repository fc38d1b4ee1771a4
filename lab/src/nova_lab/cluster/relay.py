"""Relay: links that take their time. What a sender writes to a link's port arrives at its target so much later.

A link carries bytes one way and keeps their order. It takes in whatever comes: what a slow receiver does not read yet
waits here, without a bound, so that one slow node never stops a sender that serves others, too.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class Link:
    """A way to a port of this machine."""

    port: int
    delay_s: float


@contextmanager
def relays(links: Sequence[Link]) -> Iterator[list[int]]:
    """The ports to write to instead of the links' own, served by a process until the end. Bytes that are on their way
    then are lost."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(list(links), theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def _process(links: Sequence[Link], pipe: Connection) -> None:
    asyncio.run(_serve(links, pipe))


async def _serve(links: Sequence[Link], pipe: Connection) -> None:
    """Open all links, tell their ports, and serve until the other end of the pipe is closed."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda link=link: _Inlet(link), LOCAL, 0) for link in links]  # type: ignore[misc]
    over = asyncio.Event()
    loop.add_reader(pipe.fileno(), over.set)
    pipe.send([server.sockets[0].getsockname()[1] for server in servers])
    await over.wait()


class _Inlet(asyncio.Protocol):
    """The near end of one connection: holds what comes, and lets it out at the far end when its time has come."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.held: deque[tuple[float, bytes | None]] = deque()
        """When each piece is due, in order; None is the end."""
        self.out: asyncio.WriteTransport | None = None
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.near = transport
        self._opening = self.loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            self.out, _ = await self.loop.create_connection(lambda: _Outlet(self), LOCAL, self.link.port)
        except OSError:
            self.near.close()  # nobody there: the sender is told as by any host
            return
        if self.held:
            self._wait()

    def data_received(self, data: bytes) -> None:
        self._hold(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._hold(None)

    def _hold(self, piece: bytes | None) -> None:
        self.held.append((self.loop.time() + self.link.delay_s, piece))
        if len(self.held) == 1 and self.out is not None:
            self._wait()

    def _wait(self) -> None:
        self.loop.call_at(self.held[0][0], self._let_out)

    def _let_out(self) -> None:
        assert self.out is not None
        now = self.loop.time()
        while self.held and self.held[0][0] <= now:
            _, piece = self.held.popleft()
            if piece is None:
                self.out.close()  # after all that was written
            else:
                self.out.write(piece)
        if self.held:
            self._wait()


class _Outlet(asyncio.Protocol):
    """The far end: where the receiver goes away, the sender is cut off."""

    def __init__(self, inlet: _Inlet) -> None:
        self.inlet = inlet

    def connection_lost(self, _: Exception | None) -> None:
        self.inlet.near.close()
