"""Rows as experiments give them, made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def overload_rows() -> Callable[[int, float], list[dict[str, object]]]:
    """Rows of the overload experiment: how many hosts Nova overloads, and what percentage top-c does."""
    return _overload_rows


def _overload_rows(nova_overloaded: int, top_c: float) -> list[dict[str, object]]:
    common = {
        "origin": "draw",
        "topology": "synthetic",
        "nodes": 1001,
        "joins": 300,
        "load": 0.42,
        "replicas": 500,
        "tuples_in": 22800.0,
        "hosts": 300,
    }
    rows = []
    for level, cv in ((0, 0.95), (5, 1.4)):
        rows.append(
            {
                **common,
                "approach": "nova",
                "level": level,
                "seed": 0,
                "cv": cv,
                "overloaded": nova_overloaded,
                "overloaded_percent": float(nova_overloaded),
                "overloaded_percent_scripts": 0.0,
            }
        )
        rows.append(
            {
                **common,
                "approach": "top-c",
                "level": level,
                "seed": 0,
                "cv": cv,
                "overloaded": 30,
                "overloaded_percent": top_c + level,
                "overloaded_percent_scripts": 9.0,
            }
        )
    return rows
