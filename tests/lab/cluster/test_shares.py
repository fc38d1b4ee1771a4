"""CPU shares: a process gets its share and no more, groups leave no trace, and a machine without them says why."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nova_lab.cluster.shares import Cgroups, cgroups, cpu_seconds

FOUND = cgroups()


@pytest.fixture
def busy():
    """A process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


def test_cpu_time_of_a_process_grows_with_its_work() -> None:
    before = cpu_seconds([os.getpid()])
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert 0.05 <= cpu_seconds([os.getpid()]) - before < 5


@pytest.mark.skipif(isinstance(FOUND, str), reason=f"cgroups: {FOUND}")
@pytest.mark.parametrize("share", [0.3, 0.02])
def test_a_process_gets_its_share_and_no_more(busy: int, share: float) -> None:
    assert isinstance(FOUND, Cgroups)
    FOUND.limit("busy", [busy], share)
    try:
        before, began = cpu_seconds([busy]), time.monotonic()
        time.sleep(1.5)
        used = (cpu_seconds([busy]) - before) / (time.monotonic() - began)
        assert 0 < used < 1.3 * share + 0.03  # the clock of /proc ticks every 10 ms
        FOUND.limit("busy", [busy], None)
        quota = FOUND.made[0] / ("cpu.cfs_quota_us" if FOUND.version == 1 else "cpu.max")
        assert quota.read_text().split()[0] in ("-1", "max")
    finally:
        FOUND.close()
    assert not list(FOUND.root.glob(f"nova-{os.getpid()}-*"))


@pytest.mark.skipif(isinstance(FOUND, str), reason=f"cgroups: {FOUND}")
def test_groups_of_a_process_that_was_killed_are_removed_by_the_next() -> None:
    assert isinstance(FOUND, Cgroups)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, living = (FOUND.root / f"nova-{pid}-site1" for pid in (ended.pid, os.getppid()))
    left.mkdir()
    living.mkdir()
    try:
        cgroups()
        assert not left.exists()
        assert living.exists()
    finally:
        living.rmdir()


def test_a_machine_without_groups_says_so() -> None:
    assert cgroups("proc /proc proc rw 0 0\n") == "no cgroups of CPU time are mounted"


def test_groups_that_may_not_be_made_are_told_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    told = cgroups(f"cgroup2 {tmp_path / 'nowhere'} cgroup2 rw 0 0\ncgroup2 {tmp_path} cgroup2 rw 0 0\n")
    assert isinstance(told, str)
    assert str(tmp_path) in told
