"""Finished units are taken up again, half ones and those of another program never."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nova_lab.report import units
from nova_lab.report.units import Store


def test_a_finished_unit_is_not_computed_again(tmp_path):
    store, calls = Store(tmp_path), []

    def work():
        calls.append(1)
        return [{"seconds": np.float64(1.5), "n": np.int64(3), "unknown": math.inf, "curve": [1.0, math.nan]}]

    first, known = store.fetch("a", {"seed": 1}, work)
    again, known_again = store.fetch("a", {"seed": 1}, work)
    assert (known, known_again, len(calls)) == (False, True, 1)
    assert first[0]["seconds"] == again[0]["seconds"] == 1.5
    assert math.isnan(again[0]["unknown"])
    assert math.isnan(again[0]["curve"][1])


def test_other_parameters_and_runners_are_other_units(tmp_path):
    store = Store(tmp_path)
    store.put("a", {"seed": 1}, [{"x": 1}])
    assert store.get("a", {"seed": 2}) is None
    assert store.get("b", {"seed": 1}) is None
    assert store.get("a", {"seed": 1}) == [{"x": 1}]


def test_units_of_another_program_are_not_reused(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put("a", {}, [{"x": 1}])
    monkeypatch.setattr(units, "code_digest", lambda: "another")
    assert store.get("a", {}) is None


def test_an_interrupted_unit_leaves_nothing_behind(tmp_path):
    store = Store(tmp_path)

    def work():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.fetch("a", {}, work)
    assert store.get("a", {}) is None


def test_a_torn_file_counts_as_unfinished(tmp_path):
    store = Store(tmp_path)
    store.put("a", {}, [{"x": 1}])
    path = store.path("a", {})
    path.write_text(path.read_text()[:20])
    assert store.get("a", {}) is None
