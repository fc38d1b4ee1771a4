"""Shares of a core: cgroups of this machine that bound how much CPU time the processes of a node get."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PERIOD_US = 10_000
"""Time over which a share is counted: who has used up his waits for the next one. The kernel's own 100 ms would be felt
in every latency."""
LEAST_US, LONGEST_US = 1_000, 1_000_000
"""The kernel hands out no less than this, over no longer a period than that."""


@dataclass
class Cgroups:
    """Groups of processes below one of the machine's, made here and removed by `close`."""

    root: Path
    version: int
    made: list[Path] = field(default_factory=list)

    def limit(self, name: str, pids: Sequence[int], cores: float | None) -> None:
        """Bound these processes together to a share of a core; None: no bound."""
        group = self.root / f"nova-{os.getpid()}-{name}"
        if group not in self.made:
            group.mkdir(exist_ok=True)
            self.made.append(group)
        period, quota = PERIOD_US, -1
        if cores is not None:
            period = round(min(max(PERIOD_US, LEAST_US / cores), LONGEST_US))
            quota = max(round(cores * period), LEAST_US)
        if self.version == 1:
            (group / "cpu.cfs_quota_us").write_text("-1")  # a quota above the old period would be refused
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{'max' if quota < 0 else quota} {period}")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))

    def sweep(self) -> None:
        """Remove groups of processes that were killed before they could."""
        for group in self.root.glob("nova-*-*"):
            owner = group.name.split("-")[1]
            if owner.isdigit() and not Path(f"/proc/{owner}").exists():
                with contextlib.suppress(OSError):  # somebody is left in it, or another process was first
                    group.rmdir()

    def close(self) -> None:
        """Remove the groups; processes that are left go back to where they came from."""
        for group in self.made:
            for pid in (group / "cgroup.procs").read_text().split():
                (self.root / "cgroup.procs").write_text(pid)
            group.rmdir()
        self.made.clear()


def cgroups(mounts: str | None = None) -> Cgroups | str:
    """The machine's groups, version 1 or 2, where this process may make some; else why not. `mounts`: as in
    `/proc/mounts`."""
    why = "no cgroups of CPU time are mounted"
    try:
        lines = (Path("/proc/mounts").read_text() if mounts is None else mounts).splitlines()
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    for line in lines:
        _, root, kind, options = line.split()[:4]
        version = 1 if kind == "cgroup" and "cpu" in options.split(",") else 2 if kind == "cgroup2" else None
        if version is None or (version == 2 and "cpu" not in _words(Path(root) / "cgroup.controllers")):
            continue
        found = Cgroups(Path(root), version)
        try:
            if version == 2 and "cpu" not in _words(found.root / "cgroup.subtree_control"):
                (found.root / "cgroup.subtree_control").write_text("+cpu")
            found.sweep()
            found.limit("trial", [], 0.5)
            found.close()
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            continue
        return found
    return why


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time that processes have used so far, theirs and the kernel's for them."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
