"""Every promise names tests, and the tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "guarantees.md"


def promises() -> list[tuple[str, list[str]]]:
    """Each sentence with the tests beside it."""
    rows = re.findall(r"^\| (.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(said, re.findall(r"`([^`]+)`", held)) for said, held in rows if held != "held by"]


def test_every_promise_is_held_by_tests_that_exist() -> None:
    assert len(promises()) > 40
    for said, held in promises():
        assert held, said
        for name in held:
            file, _, test = name.partition("::")
            found = {
                node.name
                for node in ast.walk(ast.parse((ROOT / file).read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert test in found, f"{said}: no {name}"
