"""Durability: kills at random moments, and how many events a second are acknowledged beside what the disk can sync.

    python benchmarks/durability.py --kills 1000
    python benchmarks/durability.py --kills 0 --nodes 100000 --seconds 10

Kills: a process that applies events is killed with SIGKILL; nothing it acknowledged may be missing, nothing may be
there twice, and in the end the plan must be bit by bit that of a controller which was never killed.

Rates: the raw rate appends 128 bytes to a file and syncs it, again and again; the others apply events through a store,
with one fsync for each, or for 16 or 256 of them. They take turns, so that all see the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from nova.journal.store import Store
from nova_lab.bench.kills import Torture, run

ROUNDS = 3
GROUPS = (1, 16, 256)


def raw(folder: Path, seconds: float) -> tuple[int, float, float]:
    """Appends with an fsync each: how many, in how many seconds, and how many of the CPU's."""
    descriptor = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    content = bytes(128)
    started, cpu, count = time.perf_counter(), time.process_time(), 0
    while (taken := time.perf_counter() - started) < seconds:
        os.write(descriptor, content)
        os.fsync(descriptor)
        count += 1
    os.close(descriptor)
    return count, taken, time.process_time() - cpu


def acknowledged(store: Store, torture: Torture, group: int, seconds: float) -> tuple[int, float, float]:
    """Events acknowledged in groups that share an fsync: how many, in how many seconds, and how many of the CPU's."""
    number = store.sequence
    taken, cpu, count = 0.0, 0.0, 0
    while taken < seconds:
        torture.draw(number + group)  # drawing events is not what is measured
        steps = [torture.step(number + i) for i in range(1, group + 1)]
        started = time.perf_counter(), time.process_time()
        for step in steps:
            store.submit(step)
        store.commit()
        taken += time.perf_counter() - started[0]
        cpu += time.process_time() - started[1]
        number += group
        count += group
    return count, taken, cpu


def rates(folder: Path, nodes: int, seconds: float) -> dict[str, Any]:
    """Events a second, and fsyncs a second in the same run."""
    torture = Torture(folder / "state", nodes=nodes)
    totals: dict[str, list[float]] = {name: [0, 0.0, 0.0] for name in ("raw", *map(str, GROUPS))}
    with Store(folder / "state") as store:
        acknowledged(store, torture, 256, 0.1)
        for _ in range(ROUNDS):
            for name, total in totals.items():
                part = seconds / ROUNDS
                done = raw(folder, part) if name == "raw" else acknowledged(store, torture, int(name), part)
                total[:] = [before + more for before, more in zip(total, done, strict=True)]
        started = time.perf_counter()
        store.snapshot()
        snapshot = time.perf_counter() - started
        size = sum(path.stat().st_size for path in (folder / "state").glob("snapshot-*") if "0" * 20 not in path.name)
    started = time.perf_counter()
    with Store(folder / "state"):
        opening = time.perf_counter() - started
    per_s = {name: count / taken for name, (count, taken, _) in totals.items()}
    return {
        "nodes": nodes,
        "fsyncs_per_s": per_s["raw"],
        "events_per_s": {group: per_s[str(group)] for group in GROUPS},
        "ratio": {group: per_s[str(group)] / per_s["raw"] for group in GROUPS},
        "cpu_us_per_event": {group: 1e6 * totals[str(group)][2] / totals[str(group)][0] for group in GROUPS},
        "snapshot_s": snapshot,
        "snapshot_mb": size / 1e6,
        "opening_s": opening,
    }


def main() -> None:
    """Measure and print as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=1000, help="size of the topology for the rates")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds for each rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; the disk of this folder is measured")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.kills:
            found = run(Path(scratch) / "kills", arguments.kills, seed=arguments.seed)
            figures["kills"] = found.as_dict()
        figures["rates"] = rates(Path(scratch), arguments.nodes, arguments.seconds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
