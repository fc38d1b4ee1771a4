"""Tables for people: whole in a terminal of 80 columns."""

from __future__ import annotations

import pytest
from rich.console import Console

from nova import terminal

WIDE = ["nodes", "sub-joins", "seconds", "scipy floor", "ratio", "peak MB", "overloaded", "gap %", "replicas"]
LONG = "a-source-with-a-name-of-its-own ⋈ another-one-with-a-name-that-is-as-long-as-this"


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (WIDE, [1_000_000, 300_000, 12.3, 10.2, 1.21, 1234.5, 0, 3.21, 312_345]),
        (["sub-join", "host", "tuples/s", "way, ms"], [LONG, "host.with.a.long.name.example.org", 50.0, 230.1]),
        (["approach", "mean"], ["[bold]nova[/bold]", 1.0]),
        (
            ["change", "sub-join", "host", "share", "from window", "reason"],
            [
                "repartition",
                LONG,
                "depot (all) → depot (left 0–0.5)",
                "all",
                "next",
                "room on depot after re-planning: " * 3,
            ],
        ),
    ],
)
def test_nothing_is_cut_off(
    columns: list[str], row: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "console", Console(width=80))
    terminal.table("[Title]", columns, [row, [None] * len(row)])
    told = capsys.readouterr().out
    assert "[Title]" in told
    assert "…" not in told
    assert all(len(line) <= 80 for line in told.splitlines())
    whole = [word for name in columns for word in name.split()]
    whole += [terminal._cell(value) for value in row if isinstance(value, int | float)]
    assert [word for word in whole if word not in told.replace("┃", " ").replace("│", " ").split()] == []
    for i, value in enumerate(row):
        if isinstance(value, str):
            lines = [line.split("│")[1:-1] for line in told.splitlines() if "│" in line]
            assert "".join(line[i] for line in lines).replace(" ", "") == value.replace(" ", "") + "–"
