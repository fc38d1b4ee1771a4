"""Kills: a durable controller killed with SIGKILL again and again, at random moments, and what is left of it each time.

Each life is a forked process that opens the folder, submits numbered steps and writes down on a pipe which of them were
acknowledged. The parent kills it, reads the journal and compares. In the end the plan must be, bit by bit, the one that
a controller has which was never killed.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nova.controller import Controller, Event
from nova.controller.codec import Step
from nova.journal import journal
from nova.journal.identity import Identity
from nova.journal.replay import identical, tables_of
from nova.journal.steps import document_of
from nova.journal.store import Store
from nova.optimizer import optimize
from nova.synthetic import draw
from nova_lab.bench.drawn_events import Drawing

CLIENT = "kills"
SNAPSHOT_EVERY = 23
"""Often, so that many kills fall into writing a snapshot and removing what it replaces."""
AGAIN = 3
"""Acknowledged steps that each life submits once more, as a client does that did not hear of them."""


@dataclass
class Kills:
    """What came of many kills."""

    kills: int = 0
    acknowledged: int = 0
    """Steps that some life was told are durable."""
    applied: int = 0
    """Steps in the end."""
    lost: list[int] = field(default_factory=list)
    """Acknowledged steps that were not there after a kill."""
    doubled: list[int] = field(default_factory=list)
    """Steps that were there twice, or in another order."""
    cut_tails: int = 0
    """Lives that found the end of the journal cut short."""
    while_opening: int = 0
    """Kills before the life had acknowledged anything."""
    equal: bool = False
    """Whether the plan in the end is that of a controller that was never killed."""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Torture:
    """A folder under a drawn problem, ready to be killed."""

    def __init__(self, folder: Path, nodes: int = 60, seed: int = 0) -> None:
        self.folder = folder
        problem = draw(nodes, level=2, seed=seed, load=0.5)
        plan = optimize(problem)
        self.reference = Controller.from_plan(problem, plan)
        """Never killed."""
        Store.create(folder, Controller.from_plan(problem, plan))
        self.key = Identity.read(folder).key
        self._drawing = Drawing(problem, seed)
        self.events: list[Event] = []
        """Step i (from 1) holds event i − 1."""
        self._followed = 0
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile what steps need, so that lives inherit it."""
        self.draw(300)
        spare = Controller.from_plan(self.reference.problem(), self.reference.plan())
        for event in self.events[:300]:
            spare.handle(event)

    def draw(self, count: int) -> None:
        """Have so many events ready."""
        while len(self.events) < count:
            self.events.append(self._drawing.next())

    def step(self, number: int) -> Step:
        """The step with this number."""
        return Step((self.events[number - 1],), CLIENT, number)

    def follow(self, last: int) -> None:
        """Bring the reference to a step."""
        for event in self.events[self._followed : last]:
            self.reference.handle(event)
        self._followed = max(self._followed, last)

    def live(self, tell: Callable[[bytes], object], seed: int) -> None:
        """One life: goes on until it is killed or has nothing more to do."""
        choice = random.Random(seed)
        with Store(self.folder, snapshot_every=SNAPSHOT_EVERY) as store:
            if store.cut is not None:
                tell(b"cut 0\n")
            number = max(1, (store.last_number(CLIENT) or 0) + 1 - AGAIN)
            while number <= len(self.events):
                for _ in range(choice.choice((1, 1, 2, 5))):
                    if number <= len(self.events):
                        store.submit(self.step(number))
                        number += 1
                tell(b"".join(b"ack %d\n" % (outcome.step.number or 0) for outcome in store.commit()))
                if store.snapshot_due:
                    store.snapshot()

    def kill(self, after_s: float, seed: int, *, opened: bool) -> list[tuple[str, int]]:
        """Fork a life and kill it so long after its start or, if `opened`, after its first word. Returns what it
        told."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(read_end)
                self.live(lambda line: os.write(write_end, line), seed)
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        if opened:
            select.select([read_end], [], [], 60.0)
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(read_end, "rb") as pipe:
            lines = pipe.read().split(b"\n")[:-1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            raise RuntimeError(f"a life failed by itself after {lines[-1:]}")
        return [(line.split()[0].decode(), int(line.split()[1])) for line in lines]

    def check(self, acknowledged: int, result: Kills) -> int:
        """Read what is left, and note what is wrong. Returns the number of the last step."""
        oldest = journal.oldest(self.folder)
        records, _ = journal.read(self.folder, self.key, oldest - 1)
        for record in records:
            if document_of(record).get("number") != record.sequence:
                result.doubled.append(record.sequence)
        last = records[-1].sequence if records else oldest - 1
        result.lost += range(last + 1, acknowledged + 1)
        return last


def run(folder: Path, kills: int, seed: int = 0, longest_s: float = 0.05, every: int = 100) -> Kills:
    """Kill so many lives, one in five within `longest_s` of its start, the others within that time after they first
    acknowledged something; compare plans after `every` of them and at the end."""
    torture = Torture(folder, seed=seed)
    choice = random.Random(seed)
    result = Kills()
    last = told = 0
    started = time.perf_counter()
    for number in range(1, kills + 1):
        torture.draw(last + 400)
        heard = torture.kill(choice.uniform(0, longest_s), choice.getrandbits(32), opened=choice.random() < 0.8)
        acks = [value for word, value in heard if word == "ack"]
        result.kills += 1
        result.cut_tails += sum(word == "cut" for word, _ in heard)
        result.while_opening += not acks
        told = max([told, *acks])
        last = torture.check(told, result)
        if number % every == 0 or number == kills:
            result.equal = compare(torture)
            if not result.equal:
                break
    result.acknowledged, result.applied = told, last
    result.seconds = time.perf_counter() - started
    return result


def compare(torture: Torture) -> bool:
    """Whether opening the folder gives the plan of the controller that was never killed."""
    with Store(torture.folder, snapshot_every=SNAPSHOT_EVERY) as store:
        torture.follow(store.sequence)
        return identical(tables_of(store.controller), tables_of(torture.reference))
