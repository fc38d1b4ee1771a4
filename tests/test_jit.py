"""Compiled kernels are as new as what they were compiled from."""

from __future__ import annotations

from pathlib import Path

from nova.jit import PACKAGE, sources


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
