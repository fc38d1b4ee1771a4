"""Overload: a run gets more than it can take for some minutes, then the rest of its time to catch up.

Memory is that of all its processes, each second; in the end there must be as many results as the plain join has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.errors import NovaError
from nova.spark.sources.generator import Pattern, Source, generate
from nova_lab.bench.endure import START_MS, WINDOW_US, Ground
from nova_lab.bench.live import resident_mb, trend

CATCH_UP = 10.0
"""Times the length of the input that a run may take in all."""


@dataclass
class Flood(Ground):
    """As many keys as tuples a second, so that results are about as many as tuples."""

    @property
    def keys(self) -> int:
        return max(1, round(self.rate))

    @property
    def disorder_ms(self) -> int:
        return 0

    def count(self) -> int:
        """Results of the plain join, window by window."""
        pattern = Pattern(seed=self.seed, keys=self.keys, length_ms=self.seconds * 1000)
        total = 0
        for second in range(int(np.ceil(self.seconds))):
            counts = []
            for prefix in "ph":
                sources = [Source(f"{prefix}{i}", self.rate) for i in (1, 2)]
                made = generate(sources, pattern, second * 1000 - 1, (second + 1) * 1000 - 1, START_MS)
                region = np.array([name[1:] == "2" for name in made["source_id"].to_pylist()], np.int64)
                window = made["event_time"].cast(pa.int64()).to_numpy() // WINDOW_US - START_MS // 1000
                counts.append((window, region * self.keys + made["key"].to_numpy()))
            for one in np.unique(counts[0][0]):
                left, right = (np.bincount(group[window == one], minlength=2 * self.keys) for window, group in counts)
                total += int(left @ right)
        return total


def overload(
    mode: str,
    folder: Path,
    *,
    minutes: float,
    rate: float,
    seed: int = 3,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Four sources at `rate` tuples/s each for so many minutes, whatever the run makes of it."""
    ground = Flood(folder / "ground", rate, 60 * minutes, seed)
    ground.prepare()
    command = [sys.executable, "-c", "from nova.cli import main; main()", "run", str(ground.scenario)]
    command += ["--plan", str(ground.plans[0]), "-o", str(folder / "run"), "--mode", mode, "--speed", "1"]
    command += ["--until-end", "--json", *(["--every", "30s"] if mode == "realtime" else [])]
    course: list[float] = []
    began = time.monotonic()
    with (folder / "report.json").open("w") as out, (folder / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=out, stderr=said)
        try:
            while process.poll() is None:
                time.sleep(1.0)
                course.append(resident_mb(process.pid))
                if len(course) % 15 == 0:
                    tell(f"{mode}: {time.monotonic() - began:.0f} s, {course[-1]:,.0f} MB")
                if time.monotonic() - began > CATCH_UP * ground.seconds + 120:
                    raise NovaError(f"{mode}: not caught up after {time.monotonic() - began:.0f} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        raise NovaError(f"{mode}: ended with {process.returncode}: {(folder / 'said').read_text()[-2000:]}")
    report = json.loads((folder / "report.json").read_text())
    found = sum(pq.read_metadata(file).num_rows for file in (folder / "run" / "results").glob("*.parquet"))
    wanted = ground.count()
    return {
        "mode": mode,
        "minutes": minutes,
        "offered_tuples_per_s": 4 * rate,
        "took_s": time.monotonic() - began,
        "tuples": report["tuples"],
        "tuples_per_s": report["tuples"] / report["seconds"],
        "memory_mb": trend(list(course)),
        "latency_ms": report["latency_ms"],
        "late_tuples": report["late_tuples"],
        "told": [line for line in (folder / "said").read_text().splitlines() if "outruns" in line][:1],
        "results": found,
        "wanted": wanted,
        "equal": found == wanted,
    }
