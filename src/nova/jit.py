"""One place that says how numeric kernels are compiled: cached on disk, so that set-up pays once."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numba
from numba.core import event
from numba.extending import register_jitable

Kernel: TypeAlias = Callable[..., Any]
"""Compiled functions are typed by numba, not by annotations."""

PACKAGE = Path(__file__).parent
KEPT = 3
"""Versions of a module whose compiled kernels are kept: switching between branches then compiles nothing."""
IMPORT = re.compile(r"^\s*from (nova[\w.]*) import (\([^)]*\)|[^#\n]+)", re.MULTILINE)


def sources(path: Path, package: Path = PACKAGE) -> set[Path]:
    """The files that the kernels of module `path` are compiled from: its own, those of the kernels that it calls, and
    those of constants it takes from elsewhere. (Numba itself only looks at the kernel's own file, and would keep
    running an old callee.)"""
    found: set[Path] = set()
    left = [path]
    while left:
        here = left.pop()
        if here in found:
            continue
        found.add(here)
        for module, names in IMPORT.findall(here.read_text()):
            for name in re.findall(r"\w+", names):
                target = package.parent.joinpath(*module.split("."))
                for file in (target / f"{name}.py", target.with_suffix(".py"), target / "__init__.py"):
                    if file.is_file() and (name.isupper() or "nova.jit" in file.read_text()):
                        left.append(file)
    return found


@cache
def _cache_folder(path: Path) -> str:
    """A folder named after the text of all that a module's kernels are compiled from."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in sorted(sources(path)):
        digest.update(file.read_bytes())
    caches = PACKAGE / "__pycache__"
    if not os.access(PACKAGE, os.W_OK):
        caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nova"
    name = path.stem if not path.is_relative_to(PACKAGE) else ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    folder = caches / f"kernels-{name}" / digest.hexdigest()[:16]
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.parent.iterdir(), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return str(folder)


class Notice(event.Listener):
    """Says when the first kernel of a process is compiled, which takes long enough to wonder; not where all of them
    come from the disk."""

    told = False

    def on_start(self, _: event.Event) -> None:
        if not self.told:
            self.told = True
            logging.getLogger("nova").warning("compiling kernels for this machine: once, up to a minute")

    def on_end(self, _: event.Event) -> None:
        """Nothing to say: the next stage speaks for itself."""


NOTICE = Notice()
event.register("numba:compile", NOTICE)  # type: ignore[no-untyped-call]


def _compile(function: Kernel, **how: Any) -> Kernel:
    numba.config.CACHE_DIR = _cache_folder(Path(function.__code__.co_filename))  # type: ignore[attr-defined]
    compiled: Kernel = numba.njit(cache=True, nogil=True, **how)(function)
    return compiled


def kernel(function: Kernel) -> Kernel:
    """Compile `function` to machine code, cached beside the source."""
    return _compile(function)


def inline(function: Kernel) -> Kernel:
    """Compile a small helper that kernels call in their inner loops."""
    return _compile(function, inline="always")


F = TypeVar("F", bound=Callable[..., Any])


def shared(function: F) -> F:
    """A function of numbers or arrays that Python calls as it is and kernels call compiled."""
    return register_jitable(function)


def parallel(function: Kernel) -> Kernel:
    """Compile `function` with its `prange` loops spread over the cores. Results must not depend on their order."""
    return _compile(function, parallel=True, error_model="numpy")


def vector(function: Kernel) -> Kernel:
    """Compile loops over float arrays to vector instructions. Assumes that no value is NaN or infinite."""
    return _compile(function, fastmath=True, error_model="numpy")


prange = numba.prange
