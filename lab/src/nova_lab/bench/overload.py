"""Overload: a run gets more than it can take for some minutes, then the rest of its time to catch up.

Memory is that of all its processes, each second; in the end there must be as many results as the plain join has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.errors import NovaError
from nova.spark.sources.generator import Pattern, Source
from nova_lab.bench.endure import START_MS, STREAMS, WINDOW_US, Ground
from nova_lab.bench.feeding import Fed, Streams, feeding
from nova_lab.bench.live import resident_mb, trend

Ints = npt.NDArray[np.int64]
CATCH_UP = 10.0
"""Times the length of the input that a run may take in all."""
STOP_S = 300.0
"""Longest wait for a run that was asked to stop."""


@dataclass
class Flood(Ground):
    """As many keys as tuples a second, so that results are about as many as tuples."""

    fed: Fed | None = None
    """Who brings the tuples; None: the run makes them up itself."""

    @property
    def keys(self) -> int:
        return max(1, round(self.rate))

    @property
    def disorder_ms(self) -> int:
        return 0

    def inputs(self) -> dict[str, dict[str, Any]]:
        return super().inputs() if self.fed is None else self.fed.inputs

    @property
    def streams(self) -> Streams:
        """Its tuples."""
        sources = {stream: [Source(f"{prefix}{i}", self.rate) for i in (1, 2)] for stream, prefix in STREAMS.items()}
        return Streams(sources, Pattern(seed=self.seed, keys=self.keys, length_ms=self.seconds * 1000), self.seconds)

    def count(self) -> int:
        """Results of the plain join, window by window. A second of a stream ends a little before its window does."""
        total, streams = 0, self.streams
        windows: dict[int, list[Ints]] = {}
        """Tuples of open windows by region and key, of either side."""
        for second in range(int(np.ceil(self.seconds)) + 1):
            for side, stream in enumerate(streams.sources):
                made = streams.of_second(stream, second, START_MS)
                region = np.array([name[1:] == "2" for name in made["source_id"].to_pylist()], np.int64)
                window = made["event_time"].cast(pa.int64()).to_numpy() // WINDOW_US - START_MS // 1000
                group = region * self.keys + made["key"].to_numpy()
                for one in np.unique(window).tolist():
                    sides = windows.setdefault(one, [np.zeros(2 * self.keys, np.int64) for _ in range(2)])
                    sides[side] += np.bincount(group[window == one], minlength=2 * self.keys)
            for one in [one for one in windows if one < second]:
                left, right = windows.pop(one)
                total += int(left @ right)
        return total + sum(int(left @ right) for left, right in windows.values())


@dataclass
class Course:
    """A run under the flood, second by second."""

    mode: str
    folder: Path
    ground: Flood
    wanted: int
    tell: Callable[[str], None]
    memory_mb: list[float] = field(default_factory=list)
    """Of all its processes, each second."""
    took_s: float = 0.0
    fed_s: float | None = None
    """When all tuples had been sent, where somebody sends them."""
    code: int = 0
    _rows: dict[str, int] = field(default_factory=dict)

    def command(self) -> list[str]:
        """What somebody would type; a run that is fed does not know its end, and is stopped at it."""
        command = [sys.executable, "-c", "from nova.cli import main; main()", "run", str(self.ground.scenario)]
        command += ["--plan", str(self.ground.plans[0]), "-o", str(self.folder / "run"), "--mode", self.mode, "--json"]
        command += ["--speed", "1", "--until-end"] if self.ground.fed is None else []
        return command + (["--every", "30s"] if self.mode == "realtime" else [])

    def results(self) -> int:
        """Rows under final names; files that were counted before are not opened again."""
        for file in (self.folder / "run" / "results").glob("*.parquet"):
            if file.name not in self._rows:
                self._rows[file.name] = pq.read_metadata(file).num_rows
        return sum(self._rows.values())

    def run(self) -> None:
        """From start to end, or until it is clear that it does not catch up."""
        began, fed = time.monotonic(), self.ground.fed
        with (self.folder / "report.json").open("w") as out, (self.folder / "said").open("w") as said:
            process = subprocess.Popen(self.command(), stdout=out, stderr=said)
            try:
                while process.poll() is None:
                    time.sleep(1.0)
                    now = time.monotonic() - began
                    self.memory_mb.append(resident_mb(process.pid))
                    if fed is not None and (self.folder / "run" / "jobs").exists():
                        fed.begin()
                        if self.fed_s is None and fed.done:
                            self.fed_s = now
                        if self.fed_s is not None and self.results() >= self.wanted:
                            process.terminate()
                            process.wait(STOP_S)
                    if len(self.memory_mb) % 15 == 0:
                        self.tell(f"{self.mode}: {now:.0f} s, {self.memory_mb[-1]:,.0f} MB, {self.results():,} results")
                    if now > CATCH_UP * self.ground.seconds + 300:
                        raise NovaError(
                            f"{self.mode}: not caught up after {now:.0f} s: {self.results():,} results of"
                            f" {self.wanted:,}"
                        )
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        self.code, self.took_s = process.returncode, time.monotonic() - began


def overload(
    mode: str,
    folder: Path,
    *,
    minutes: float,
    rate: float,
    way: str = "generator",
    seed: int = 3,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Four sources at `rate` tuples/s each for so many minutes, whatever the run makes of it. `way` is one of `INPUTS`;
    files that appear are read in batches only."""
    ground = Flood(folder / "ground", rate, 60 * minutes, seed)
    with ExitStack() as stack:
        if way != "generator":
            ground.fed = stack.enter_context(feeding(way, folder / "fed", ground.streams))
        ground.prepare()
        wanted = ground.count()
        flow = Course(mode, folder, ground, wanted, tell)
        flow.run()
    if flow.code:
        raise NovaError(f"{mode}: ended with {flow.code}: {(folder / 'said').read_text()[-2000:]}")
    report = json.loads((folder / "report.json").read_text())
    course, found = flow.memory_mb, flow.results()
    return {
        "mode": mode,
        "input": way,
        "minutes": minutes,
        "offered_tuples_per_s": 4 * rate,
        "took_s": flow.took_s,
        "fed_s": flow.fed_s,
        "tuples": report["tuples"],
        "tuples_per_s": report["tuples"] / report["seconds"],
        "memory_mb": trend(list(course)),
        "memory_mb_by_minute": [round(max(course[k : k + 60])) for k in range(0, len(course), 60)],
        "latency_ms": report["latency_ms"],
        "late_tuples": report["late_tuples"],
        "told": [line for line in (folder / "said").read_text().splitlines() if "outruns" in line][:1],
        "results": found,
        "wanted": wanted,
        "equal": found == wanted,
    }
