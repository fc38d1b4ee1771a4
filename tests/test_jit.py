"""Compiled kernels are as new as what they were compiled from."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from nova.jit import NOTICE, PACKAGE, sources


def test_a_kernel_depends_on_the_kernels_it_calls_and_on_no_other() -> None:
    of_cells = sources(PACKAGE / "placement" / "cells.py")
    assert {PACKAGE / "placement" / "index.py", PACKAGE / "placement" / "transport.py", PACKAGE / "jit.py"} <= of_cells
    assert PACKAGE / "costspace" / "stress.py" not in of_cells


def test_imports_are_followed_through_modules_and_constants(tmp_path: Path) -> None:
    package = tmp_path / "nova"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "limits.py").write_text("MOST = 3\n")
    (package / "words.py").write_text("def word(): ...\n")
    (package / "deep.py").write_text("from nova.jit import kernel\nfrom nova.limits import (\n    MOST,\n)\n")
    (package / "top.py").write_text("from nova.jit import kernel\nfrom nova import deep\nfrom nova.words import word\n")
    found = sources(package / "top.py", package)
    assert {p.name for p in found} == {"top.py", "deep.py", "limits.py"}


def test_compiling_is_told_once_and_what_lies_on_disk_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NOTICE, "told", False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    first, second, again = (numba.njit(cache=True)(double) for _ in range(3))
    assert (first(1), caplog.messages) == (2, ["compiling kernels for this machine: once, up to a minute"])
    assert (second(1.0), len(caplog.messages)) == (2.0, 1)
    monkeypatch.setattr(NOTICE, "told", False)
    assert (again(1), len(caplog.messages)) == (2, 1)


def double(x):  # type: ignore[no-untyped-def]
    return 2 * x
