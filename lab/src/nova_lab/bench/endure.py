"""Endure: runs that are killed (-9) again and again under load, with new plans and faults of the machine in between,
and whether in the end the results are those of the plain join.

A run is a process of its own with its own Spark, as somebody types it; what dies, dies with all its children. Its input
is generated, so that the plain join of the same tuples can be computed beside. All files of a run lie on a small disk
of its own where the machine lets us mount one (tmpfs): it can be full, or read-only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from nova.files import name_of
from nova.model.errors import NovaError
from nova.model.options import Options, Partition
from nova.optimizer import optimize
from nova.scenario import load
from nova.spark.job.schedule import Schedule
from nova.spark.replan.handover import hand_in
from nova.spark.sources.generator import Pattern, Source, generate

MODES = ("realtime", "batch", "sites")
FAULTS = ("full disk", "read-only folder", "damaged checkpoint", "clock ahead", "clock back")
START_MS = 1_700_000_000_000
DISK_MB = 1500
KEYS = 50
STREAMS = {"pressure": "p", "humidity": "h"}
"""Streams, and the letter that ids of their sources begin with."""
WINDOW_US = 1_000_000
DISORDER_MS = 200
LIFE_S = 4.0
"""A life ends at most so long after it has begun to work."""
PER_KILL_S, PER_FAULT_S = 20.0, 45.0
"""Seconds of the streams for each kill and each fault, so that there is work to the last, also where the machine is
slow; what is left is worked off faster in the end."""
LAST_SPEED = "10"
PATIENCE_S = 3600.0
"""Longest wait for a process to begin to work, or to end."""
REFUSED_S = 900.0
"""Time for a process to find out that it cannot start."""
REMOUNT_S = 120.0
"""What was killed holds its files for a while on a busy machine, and a disk that is written to cannot be made so."""
NO_DISK = "this machine lets nobody mount a small disk"
FAULT_S = 8.0
"""How long a fault lasts, where a process does not end by it before."""
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static volatile long *ahead;
static long seconds(void) {
  if (!ahead) {
    const char *name = getenv("NOVA_CLOCK_AHEAD");
    int file = name ? open(name, O_RDONLY) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    static long none = 0;
    ahead = at == MAP_FAILED ? &none : at;
  }
  return *ahead;
}
int clock_gettime(clockid_t which, struct timespec *told) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(which, told);
  if (!done && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) told->tv_sec += seconds();
  return done;
}
int gettimeofday(struct timeval *told, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int done = real(told, zone);
  if (!done) told->tv_sec += seconds();
  return done;
}
"""
"""A clock that jumps, for one process and its children: seconds ahead stand in a file."""


class Life:
    """A command as a process group of its own."""

    def __init__(self, name: str, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.name, self.command, self.log, self.environment = name, command, log, environment
        self.from_byte = log.stat().st_size if log.exists() else 0
        with log.open("a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)

    def kill(self) -> None:
        """kill -9, children and all."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def again(self, *more: str) -> Life:
        """The same once more."""
        return Life(self.name, [*self.command, *more], self.log, self.environment)

    @property
    def said(self) -> str:
        """What it has printed."""
        return self.log.read_bytes()[self.from_byte :].decode(errors="replace")

    def ended_badly(self) -> NovaError:
        """That it should not have ended."""
        return NovaError(f"{self.name} ended with {self.process.returncode}:\n{self.said[-3000:]}")


@dataclass
class Ground:
    """A scenario with generated streams, its plans, and where its runs live."""

    folder: Path
    rate: float
    seconds: float
    seed: int = 3
    problem: Any = None
    plans: list[Path] = field(default_factory=list)

    @property
    def keys(self) -> int:
        """Values of the key that tuples join by."""
        return KEYS

    @property
    def disorder_ms(self) -> int:
        """Tuples come up to so late."""
        return DISORDER_MS

    @property
    def scenario(self) -> Path:
        return self.folder / "scenario.yaml"

    def inputs(self) -> dict[str, dict[str, Any]]:
        """Where the tuples of each stream come from, as the scenario says it."""
        options = {
            "seed": self.seed,
            "keys": self.keys,
            "disorder": f"{self.disorder_ms}ms",
            "length": f"{self.seconds:g}s",
            "start_ms": START_MS,
        }
        return {stream: {"format": "generator", "options": options} for stream in STREAMS}

    def prepare(self) -> None:
        """Write the scenario, and plans that cut its joins in different ways."""
        nodes = [
            {"id": name, "capacity": capacity * self.rate, "x": x, "y": y}
            for name, capacity, x, y in (
                ("edge1", 1.2, 0, 10),
                ("edge2", 1.2, 10, 0),
                ("fog", 5, 8, 8),
                ("cloud", 100, 40, 40),
            )
        ]
        nodes.append({"id": "hq", "capacity": self.rate, "x": 12, "y": 12, "hosts": False})
        inputs = self.inputs()
        streams = {
            stream: {
                "sources": [
                    {"id": f"{prefix}{i}", "node": f"edge{i}", "rate": self.rate, "region": f"region {i}"}
                    for i in (1, 2)
                ],
                "input": inputs[stream],
            }
            for stream, prefix in STREAMS.items()
        }
        query = {
            "id": "climate",
            "left": "pressure",
            "right": "humidity",
            "on": "region",
            "key": {"column": "key", "cardinality": self.keys},
            "window": {"tumbling": "1s"},
            "sink": "hq",
        }
        document = {"nova": 1, "nodes": nodes, "streams": streams, "queries": [query]}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scenario.write_text(yaml.safe_dump(document))
        loaded = load(self.scenario)
        self.problem = loaded.problem
        ways: tuple[Partition, ...] = ("auto", "grid", "window")
        for number, partition in enumerate(ways):
            plan = optimize(self.problem, Options(seed=number, partition=partition, allow_overload=True))
            self.plans.append(self.folder / f"plan-{number}")
            plan.write(self.plans[-1], self.problem)

    def wanted(self) -> pd.DataFrame:
        """The plain join of the tuples, by pandas."""
        pattern = Pattern(seed=self.seed, keys=self.keys, disorder_ms=self.disorder_ms, length_ms=self.seconds * 1000)
        sides = []
        for prefix in "ph":
            sources = [Source(f"{prefix}{i}", self.rate) for i in (1, 2)]
            made = generate(sources, pattern, -1, 1e12, START_MS)
            sides.append(
                pd.DataFrame(
                    {
                        "source": made["source_id"].to_pandas(),
                        "time": made["event_time"].cast(pa.int64()).to_numpy(),
                        "value": made["value"].to_numpy(),
                        "key": made["key"].to_numpy(),
                    }
                )
            )
            sides[-1]["window"] = sides[-1]["time"] // WINDOW_US
            sides[-1]["region"] = sides[-1]["source"].str[1:]
        joined = sides[0].merge(sides[1], on=["window", "region", "key"], suffixes=("_left", "_right"))
        return joined[[f"{name}_{side}" for side in ("left", "right") for name in ("source", "time", "value")]]


@dataclass
class Endured:
    """What came of it."""

    mode: str
    kills: int = 0
    while_starting: int = 0
    """Kills before the life had begun to work."""
    switches: int = 0
    """New plans that were taken up."""
    faults: list[dict[str, Any]] = field(default_factory=list)
    """Each with what the processes did and said."""
    results: int = 0
    wanted: int = 0
    doubled: int = 0
    lost: int = 0
    strange: int = 0
    """Results that the plain join does not have."""
    seconds: float = 0.0
    broke: str = ""
    """Why nothing more could be done or compared; empty where all went to its end."""

    @property
    def equal(self) -> bool:
        """Whether the results are those of the plain join."""
        return not (self.broke or self.doubled or self.lost or self.strange)

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**self.__dict__, "equal": self.equal}


class Endurance:
    """One run, or the sites of a plan, through everything that happens to them."""

    def __init__(self, mode: str, folder: Path, seconds: float, rate: float, seed: int) -> None:
        self.mode, self.folder, self.seed = mode, folder, seed
        self.draw = random.Random(seed)
        self.ground = Ground(folder / "ground", rate, seconds)
        self.ground.prepare()
        self.told = Endured(mode)
        self.clock = folder / "clock"
        self.clock.write_bytes(bytes(ctypes.sizeof(ctypes.c_long)))
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        shim = compiled_shim(folder)
        self.jumps = shim is not None
        if shim is not None:
            self.environment |= {"LD_PRELOAD": str(shim), "NOVA_CLOCK_AHEAD": str(self.clock)}
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.lives: dict[str, Life] = {}
        self.owed = 0
        """Plans that are still to be handed in."""

    @property
    def results(self) -> Path:
        return (self.disk / "sites" / "hq" if self.mode == "sites" else self.disk) / "run" / "results"

    def commands(self) -> dict[str, list[str]]:
        """What runs, by name."""
        nova = [sys.executable, "-c", "from nova.cli import main; main()"]
        scenario, plan = str(self.ground.scenario), str(self.ground.plans[0])
        if self.mode == "sites":
            sites = self.disk / "sites"
            deploy = [*nova, "deploy", scenario, plan, "-o", str(sites), "--exchange", str(self.disk / "exchange")]
            done = subprocess.run(deploy, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            if done.returncode:
                raise NovaError(f"nova deploy: {done.stderr}")
            return {
                site.name: [*nova, "run", str(site), "--site", site.name, "-o", str(site / "run")]
                for site in sorted(sites.iterdir())
                if (site / "site.json").exists()
            }
        command = [*nova, "run", scenario, "--plan", plan, "-o", str(self.disk / "run"), "--speed", "1"]
        return {"run": [*command, "--mode", self.mode, *(["--every", "2s"] if self.mode == "realtime" else [])]}

    def start(self) -> None:
        """Begin all."""
        for name, command in self.commands().items():
            self.lives[name] = Life(name, command, self.folder / f"{name_of(name)}.log", self.environment)

    def progress(self, name: str) -> int:
        """Something that grows as a process works."""
        if self.mode == "realtime":
            return sum(file.stat().st_size for file in self.run_of(name).glob("jobs/*/*/*.log"))
        return self.commits(name)

    def commits(self, name: str) -> int:
        """Something that grows with each batch that a process commits."""
        found = [int(file.name) for file in self.run_of(name).glob("jobs/**/commits/*") if file.name.isdigit()]
        return sum(found) + len(found)

    def run_of(self, name: str) -> Path:
        """The run folder of a process."""
        return self.disk / "sites" / name / "run" if self.mode == "sites" else self.disk / "run"

    def works(self, life: Life) -> None:
        """Wait until a life has begun to work."""
        before = self.progress(life.name)
        self.until(lambda: self.progress(life.name) > before, f"{life.name} did not begin to work")

    def until(self, happened: Callable[[], bool], else_: str) -> None:
        """Wait while all live."""
        end = time.monotonic() + PATIENCE_S
        while not happened():
            for life in self.lives.values():
                if life.process.poll() is not None:
                    raise life.ended_badly()
            if time.monotonic() > end:
                raise NovaError(f"{else_}:\n{next(iter(self.lives.values())).said[-3000:]}")
            time.sleep(0.1)

    def kill(self, switches: int) -> None:
        """One life, or one of a site, with so many new plans within it; one that dies while it starts leaves them to
        the next."""
        self.owed += switches
        life = self.lives[self.draw.choice(sorted(self.lives))]
        if self.draw.random() < 0.2:
            time.sleep(self.draw.uniform(0, 10))
            self.told.while_starting += 1
        else:
            self.works(life)
            for _ in range(self.owed):
                time.sleep(self.draw.uniform(0, LIFE_S / 2 / self.owed))
                hand_in(self.draw.choice(self.ground.plans), self.disk / "run", self.ground.problem)
            time.sleep(self.draw.uniform(0, LIFE_S / 2 if self.owed else LIFE_S))
            self.owed = 0
        if life.process.poll() is not None:
            raise life.ended_badly()
        life.kill()
        self.told.kills += 1
        self.lives[life.name] = life.again()

    def fault(self, name: str) -> None:
        """Something that befalls the machine while the run works, and goes again. Whoever ends by it must say why, and
        is started again once the cause is gone."""
        if name == "damaged checkpoint":
            self._damage()
            return
        if name == "read-only folder":
            self._read_only()
            return
        life = self.lives[self.draw.choice(sorted(self.lives))]
        self.works(life)
        try:
            with self._wrong(name):
                end = time.monotonic() + FAULT_S
                while time.monotonic() < end and any(one.process.poll() is None for one in self.lives.values()):
                    time.sleep(0.1)
        except NotHere as why:
            self.told.faults.append({"fault": name, "skipped": str(why)})
            return
        self._take_down(name)

    def _take_down(self, fault: str) -> None:
        """Note what came of a fault once each process has committed something since or has ended by it, and start those
        again that ended."""
        waiting = {name: self.commits(name) for name in self.lives}
        end = time.monotonic() + PATIENCE_S
        while waiting:
            for name, before in list(waiting.items()):
                life = self.lives[name]
                code = life.process.poll()
                if code is None and self.commits(name) <= before:
                    if time.monotonic() > end:
                        raise NovaError(f"{name} neither goes on after a {fault} nor ends:\n{life.said[-3000:]}")
                    continue
                said = told(life.said, code)
                self.told.faults.append({"fault": fault, "process": name, "code": code, "told": said})
                if code is not None:
                    life.kill()  # children
                    self.lives[name] = life.again()
                del waiting[name]
            time.sleep(0.1)

    def _damage(self) -> None:
        """Bytes of the newest file of a checkpoint are others: refused, until the file is restored."""
        name = self.draw.choice(sorted(self.lives))
        self.works(self.lives[name])
        self.lives[name].kill()
        run = self.run_of(name)
        kind = self.draw.choice(("offsets", "commits"))
        files = sorted((f for f in run.glob(f"jobs/**/{kind}/*") if f.name.isdigit()), key=lambda f: int(f.name))
        if not files:
            self.lives[name] = self.lives[name].again()
            return
        kept = files[-1].read_bytes()
        files[-1].write_bytes(kept[: len(kept) // 2] + b"\x00\xff damaged")
        beside = files[-1].with_name(f".{files[-1].name}.crc")
        crc = beside.read_bytes() if beside.exists() else None
        beside.unlink(missing_ok=True)
        self.lives[name] = life = self.lives[name].again()
        end = time.monotonic() + REFUSED_S
        while life.process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        code = life.process.poll()
        said = told(life.said, code)
        self.told.faults.append({"fault": f"damaged checkpoint ({kind})", "process": name, "code": code, "told": said})
        life.kill()
        files[-1].write_bytes(kept)
        if crc is not None:
            beside.write_bytes(crc)
        self.lives[name] = life.again()

    @contextmanager
    def _wrong(self, fault: str) -> Iterator[None]:
        if fault in ("clock ahead", "clock back"):
            if not self.jumps:
                raise NotHere("there is no compiler for a clock that jumps")
            self._set_clock(20 if fault == "clock ahead" else -3600)
            try:
                yield
            finally:
                self._set_clock(0)
            return
        if not os.path.ismount(self.disk):
            raise NotHere(NO_DISK)
        ballast = self.disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        try:
            yield
        finally:
            ballast.unlink()

    def _set_clock(self, seconds_ahead: int) -> None:
        with self.clock.open("r+b") as file:  # in place: processes have it mapped
            file.write(np.int64(seconds_ahead).tobytes())

    def _read_only(self) -> None:
        """Nobody can write to the folder when the run is started: no disk that is written to can be made so."""
        if not os.path.ismount(self.disk):
            self.told.faults.append({"fault": "read-only folder", "skipped": NO_DISK})
            return
        self.works(self.lives[self.draw.choice(sorted(self.lives))])
        for life in self.lives.values():
            life.kill()
        remount(self.disk, "ro")
        try:
            self.lives = {name: life.again() for name, life in self.lives.items()}
            self._wait_for_ends()
        finally:
            for life in self.lives.values():
                if life.process.poll() is None:
                    life.kill()
            remount(self.disk, "rw")
        self._take_down("read-only folder")

    def _wait_for_ends(self) -> None:
        end = time.monotonic() + REFUSED_S
        while time.monotonic() < end and any(one.process.poll() is None for one in self.lives.values()):
            time.sleep(0.1)

    def finish(self) -> None:
        """Let all work to the end of the input, and compare."""
        for life in self.lives.values():
            life.kill()
        self.lives = {name: life.again("--until-end", "--speed", LAST_SPEED) for name, life in self.lives.items()}
        end = time.monotonic() + PATIENCE_S + 3 * self.ground.seconds
        for life in self.lives.values():
            if life.process.wait(max(1.0, end - time.monotonic())) != 0:
                raise life.ended_badly()
        compare(self.results, self.ground.wanted(), self.told)
        schedule = Schedule(self.disk / "run" / "jobs" / "climate" / "schedule")
        self.told.switches = max(0, len(schedule.entries()) - 1)


class NotHere(NovaError):
    """A fault that cannot be had on this machine."""


def told(said: str, code: int | None) -> str:
    """What a process said of its end: its last words, or that there is a traceback."""
    if code is None:
        return "goes on"
    if "Traceback" in said:
        return "TRACEBACK " + said[said.index("Traceback") :][:500]
    lines = said.splitlines()
    last = max((at for at, line in enumerate(lines) if line.startswith("nova:")), default=None)
    return "NOTHING CLEAR " + said[-300:] if last is None else "\n".join(lines[last : last + 2])


def compare(results: Path, wanted: pd.DataFrame, into: Endured) -> None:
    """Count what is lost, doubled or strange."""
    columns = [f"{side}_{name}" for side in ("left", "right") for name in ("source", "time", "value")]
    found = pq.read_table(results).select(columns) if list(results.glob("*.parquet")) else None
    names = list(wanted.columns)
    frame = (
        pd.DataFrame(columns=names)
        if found is None
        else pd.DataFrame(
            {
                to: (found[column].cast(pa.int64()) if column.endswith("time") else found[column]).to_pandas()
                for to, column in zip(names, columns, strict=True)
            }
        )
    )
    into.results, into.wanted = len(frame), len(wanted)
    here, there = (pd.util.hash_pandas_object(side, index=False).to_numpy() for side in (frame, wanted))
    into.doubled = len(here) - len(np.unique(here))
    into.lost = len(np.setdiff1d(there, here))
    into.strange = len(np.setdiff1d(here, there))


def compiled_shim(folder: Path) -> Path | None:
    """A clock that jumps, as a library to preload; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], capture_output=True, check=False
    )
    return library if made.returncode == 0 else None


def remount(disk: Path, how: str) -> None:
    """Make a mounted disk read-only or not."""
    command, end = ["mount", "-o", f"remount,{how},size={DISK_MB}m", str(disk)], time.monotonic() + REMOUNT_S
    while (done := subprocess.run(command, check=False, capture_output=True, text=True)).returncode:
        if time.monotonic() > end:
            raise NovaError(f"{disk} cannot be mounted {how}: {done.stderr.strip()}")
        time.sleep(0.5)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of its own in this folder, where the machine lets us mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def endure(
    mode: str,
    folder: Path,
    *,
    kills: int,
    switches: int = 0,
    faults: int = 0,
    rate: float = 200.0,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
) -> Endured:
    """Kill so often, hand in so many plans (not to sites) and let so many faults happen, evenly over the kills.

    Once it is `enough`, nothing more befalls the run: it works to its end, and what it has been through is compared.
    """
    began = time.monotonic()
    one = Endurance(mode, folder, 20 + PER_KILL_S * kills + PER_FAULT_S * faults, rate, seed)
    with small_disk(one.disk):
        try:
            one.start()
            for number in range(kills):
                if enough():
                    break
                due = [switches * n // kills for n in (number, number + 1)]
                one.kill(due[1] - due[0] if mode != "sites" else 0)
                for n in range(faults * number // kills, faults * (number + 1) // kills):
                    one.fault(FAULTS[n % len(FAULTS)])
                    tell(f"{one.told.faults[-1]}")
                tell(f"{mode}: {number + 1} of {kills} kills, {time.monotonic() - began:.0f} s")
            one.finish()
        except NovaError as why:
            one.told.broke = str(why)
        finally:
            for life in one.lives.values():
                life.kill()
    one.told.seconds = time.monotonic() - began
    return one.told
