"""Presence: who runs which site, who has not been heard of, and who was given up.

Sites see a common *board* of short notices. A site claims its name there and renews the claim every few seconds. A name
belongs to the run folder that claimed it first in a deployment, for the state is there: a process with another folder
is refused. A second process with the same folder, or a copy of it, takes over, and the first one stops. A site that
the others have given up is refused when it returns, until the plan is deployed anew: they have gone on without it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field

from nova.files import name_of, write_safely
from nova.model.errors import NovaError
from nova.model.reading import noted, read_text, whole

Moment = Annotated[float, Field(ge=0, lt=datetime.max.replace(tzinfo=UTC).timestamp())]
"""Seconds since 1970."""
BEAT_S = 5.0
"""Time between two renewals of a claim."""
SILENT_S = 3 * BEAT_S
"""A site that has not been heard of for so long is waited for, and that is said."""


@dataclass(frozen=True)
class Claim:
    """The notice of who runs a site."""

    owner: str
    instance: str
    host: str
    pid: int
    time: Moment
    beat: int


@dataclass(frozen=True)
class GivenUp:
    """The notice that a site was given up."""

    by: str
    time: Moment


class Board(Protocol):
    """Short notices that all sites of a deployment see; each replaces the one of the same name."""

    def post(self, name: str, text: str) -> str | None:
        """Put up a notice, and return the one of somebody else that all others had seen there before it."""
        ...

    def read(self, name: str) -> str | None:
        """The notice of that name; maybe not one's own."""
        ...


@dataclass
class FolderBoard:
    """Files in a folder that all sites see."""

    folder: Path

    def post(self, name: str, text: str) -> str | None:
        before = self.read(name)
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write_safely(file, text)
        return before

    def read(self, name: str) -> str | None:
        try:
            return whole(self.folder / name).decode(errors="replace")
        except FileNotFoundError:
            return None


@dataclass
class Presence:
    """One site's view of all."""

    board: Board
    site: str
    folder: Path
    """The site's own run folder, which keeps the token that it claims its name with."""
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=lambda: time.monotonic())
    _beats: int = 0
    _due: float = 0.0
    _before: set[str] = field(default_factory=set)
    """Processes that had the site before this one."""
    _gave_up: dict[str, str] = field(default_factory=dict)
    _heard: dict[str, tuple[str | None, float]] = field(default_factory=dict)
    """The latest claim of each other site, and when it was new."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    @property
    def owner(self) -> str:
        """The token of the run folder: the same after a restart."""
        file = self.folder / "owner"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_safely(file, uuid.uuid4().hex)
        return read_text(file, "a site")

    def start(self) -> None:
        """Claim the site's name, or say why not."""
        self._refuse_if_given_up()
        claim = self._claim()
        if claim is not None and claim.owner != self.owner:
            raise NovaError(
                f"site {self.site!r} belongs to another run folder, on {claim.host} (process {claim.pid}, last "
                f"heard of at {_clock(claim.time)}): a deployment has one process per site. Start it there, or "
                "deploy anew"
            )
        before = self._post()  # of two that start at the same moment the later one has it
        self._before = {one.instance for one in (claim, self._read_claim(before)) if one is not None}

    def beat(self) -> None:
        """Renew the claim when it is time, and stop where another process has taken over."""
        if time.monotonic() < self._due:
            return
        self._refuse_if_given_up()
        claim = self._claim()
        if claim is not None and claim.instance not in {self.instance, *self._before}:
            raise NovaError(
                f"another process took over site {self.site!r}, on {claim.host} (process {claim.pid}): this one stops"
            )
        self._post()

    def _post(self) -> str | None:
        told = Claim(self.owner, self.instance, socket.gethostname(), os.getpid(), time.time(), self._beats)
        before = self.board.post(f"claim/{name_of(self.site)}", json.dumps(asdict(told)))
        self._beats += 1
        self._due = time.monotonic() + BEAT_S
        return before

    def keep_up(self) -> None:
        """Renew the claim in the background until `end`: whoever is slow, as at the start of Spark, is not gone."""

        def beat() -> None:
            while not self._ended.wait(BEAT_S / 5):
                try:
                    self.beat()
                except BaseException as error:  # told where somebody listens
                    self._failure = error
                    return

        threading.Thread(target=beat, daemon=True).start()

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Renew the claim no more."""
        self._ended.set()

    def silence_s(self, site: str) -> float:
        """How long another site has not been heard of (s). A claim is heard when it is first seen here: between the
        start of this site and its first look minutes may pass."""
        text, now = self.board.read(f"claim/{name_of(site)}"), time.monotonic()
        before, since = self._heard.get(site, (None, self.began))
        if text != before:
            since = now
        self._heard[site] = text, since
        return now - since

    def give_up(self, site: str) -> None:
        """Say to all that the plan goes on without a site."""
        self._gave_up[site] = json.dumps(asdict(GivenUp(self.site, time.time())))
        self.board.post(f"given-up/{name_of(site)}", self._gave_up[site])

    def given_up(self, site: str) -> GivenUp | None:
        """By whom a site was given up, and when."""
        text = self._gave_up.get(site) or self.board.read(f"given-up/{name_of(site)}")
        return None if text is None else noted(text, GivenUp, f"board: given-up/{name_of(site)}", "a site")

    def _claim(self) -> Claim | None:
        return self._read_claim(self.board.read(f"claim/{name_of(self.site)}"))

    def _read_claim(self, text: str | None) -> Claim | None:
        return None if text is None else noted(text, Claim, f"board: claim/{name_of(self.site)}", "a site")

    def _refuse_if_given_up(self) -> None:
        told = self.given_up(self.site)
        if told is not None:
            raise NovaError(
                f"site {self.site!r} was given up by {told.by!r} at {_clock(told.time)}, and the others have "
                "gone on without it: deploy the plan anew"
            )


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
