from __future__ import annotations

import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from nova.spark.sources.clock import Clock

EVENT_US = 1_700_000_000_000_000


def start(file: str, event_us: int) -> float:
    clock = Clock(3.0, file)
    clock.start(event_us)
    return clock.event_us(0.0)


def test_a_live_event_is_due_when_it_happens() -> None:
    clock = Clock()
    clock.start(EVENT_US)  # a live clock needs no start
    assert clock.due_s(np.array([1_700_000_000_250.0])) == pytest.approx([1_700_000_000.25])
    assert clock.event_us(12.5) == 12_500_000


def test_a_played_event_is_due_at_its_speed(tmp_path: Path) -> None:
    clock = Clock(4.0, str(tmp_path / "clock" / "1.json"))
    before = time.time()
    clock.start(EVENT_US)
    after = time.time()
    first, later = clock.due_s(np.array([EVENT_US / 1000, EVENT_US / 1000 + 8000]))
    assert before <= first <= after
    assert later - first == pytest.approx(2.0)  # 8 s at four times the speed
    assert clock.event_us(later) == pytest.approx(EVENT_US + 8e6, abs=2)


def test_the_first_start_holds_in_every_process(tmp_path: Path) -> None:
    file = str(tmp_path / "1.json")
    Clock(3.0, file).start(EVENT_US)
    with get_context("spawn").Pool(2) as pool:
        seen = pool.starmap(start, [(file, EVENT_US + 1), (file, EVENT_US + 2)])
    assert set(seen) == {Clock(3.0, file).event_us(0.0)}
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]
